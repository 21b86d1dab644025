//! Usage: totals of a session, their split by model, route and task, and which of it decides the route.

use hermes_state::{Error, NewSession, Session, SessionDb, Usage, Value};

use crate::world::{World, on_each_engine};

fn get(db: &SessionDb, id: &str) -> Session {
    db.session(id).expect("reads").expect("is there")
}

fn number(session: &Session, column: &str) -> f64 {
    session.record().get(column).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

/// The split of usage as other programs see it, a line for each row.
fn split(db: &World) -> String {
    let row = "model || '/' || billing_provider || '/' || billing_base_url || '/' || billing_mode || '/' || task \
               || ' calls ' || api_call_count || ' in ' || input_tokens || ' out ' || output_tokens";
    let rows: i64 = db.seen_from_outside("SELECT COUNT(*) FROM session_model_usage").parse().expect("a number");
    (0..rows)
        .map(|skip| {
            db.seen_from_outside(&format!(
                "SELECT {row} FROM session_model_usage \
                 ORDER BY model, billing_provider, billing_base_url, task LIMIT 1 OFFSET {skip}"
            ))
        })
        .collect::<Vec<_>>()
        .join("\n")
}

fn call(model: &str, provider: &str, input: i64) -> Usage {
    Usage::new(model, provider).input_tokens(input).output_tokens(1).api_call_count(1)
}

fn usage_adds_up_on_the_session_and_by_model(db: World) {
    let db = db.with_session();
    db.record_usage("s", call("large-1", "p", 10).billing_base_url("u").billing_mode("m")).expect("records");
    db.record_usage("s", call("large-1", "p", 5).estimated_cost_usd(0.25)).expect("records");
    db.record_usage("s", call("small-1", "p", 2).reasoning_tokens(7)).expect("records");
    let session = get(&db, "s");
    let seen = ["input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "api_call_count"]
        .map(|column| number(&session, column));
    assert_eq!(seen, [17.0, 3.0, 7.0, 0.0, 3.0]);
    assert_eq!(number(&session, "estimated_cost_usd"), 0.25);
    assert_eq!(split(&db), "large-1/p/u/m/ calls 2 in 15 out 2\nsmall-1/p/u/m/ calls 1 in 2 out 1");
}

fn a_missing_session_is_created_with_its_usage(db: World) {
    db.record_usage("new", call("large-1", "p", 10)).expect("records");
    let session = get(&db, "new");
    assert_eq!((session.source(), session.model()), ("unknown", Some("large-1")));
    assert!(matches!(db.record_usage("", call("m", "p", 1)), Err(Error::Invalid(_))));
    assert!(matches!(db.set_usage(None::<&str>, call("m", "p", 1)), Err(Error::Invalid(_))));
    assert_eq!(db.session_count(&Default::default()).expect("counts"), 1);
}

fn the_first_accounted_call_corrects_the_route_and_later_ones_do_not(db: World) {
    let db = db.with_session();
    db.update_billing_route("s", "first", "u1", "m1").expect("updates");
    db.record_usage("s", Usage::new("large-2", "second")).expect("says nothing of use");
    assert_eq!(get(&db, "s").record().text("billing_provider"), Some("first"), "nothing was used yet");
    db.record_usage("s", call("large-2", "second", 1)).expect("records");
    let session = get(&db, "s");
    let route = |session: &Session| {
        ["model", "billing_provider", "billing_base_url", "billing_mode"]
            .map(|column| session.record().text(column).map(str::to_owned))
    };
    assert_eq!(route(&session), [Some("large-2".into()), Some("second".into()), None, None]);
    db.record_usage("s", call("large-3", "third", 1).billing_base_url("u3")).expect("records");
    let kept = [Some("large-2".into()), Some("second".into()), Some("u3".into()), None];
    assert_eq!(route(&get(&db, "s")), kept, "what is open is filled, the rest stays");
}

fn without_calls_the_door_stays_open(db: World) {
    let db = db.with_session();
    db.record_usage("s", Usage::new("a", "p").input_tokens(1)).expect("records");
    db.record_usage("s", Usage::new("b", "q").input_tokens(1)).expect("records");
    assert_eq!(get(&db, "s").model(), Some("b"));
    db.record_usage("s", call("c", "r", 1)).expect("records");
    db.set_usage("s", Usage::new("d", "t").input_tokens(9).api_call_count(0)).expect("sets");
    assert_eq!(get(&db, "s").model(), Some("c"), "the total comes to a session with one call");
    db.set_usage("s", Usage::new("d", "t").input_tokens(9)).expect("sets");
    assert_eq!(get(&db, "s").model(), Some("d"), "and left none");
}

fn totals_are_set_and_what_is_absent_stays(db: World) {
    let db = db.with_session();
    db.record_usage("s", call("m", "p", 10).estimated_cost_usd(1.5).actual_cost_usd(2.0)).expect("records");
    db.set_usage("s", Usage::new(None::<&str>, None::<&str>).input_tokens(4).api_call_count(3)).expect("sets");
    let session = get(&db, "s");
    let seen = ["input_tokens", "output_tokens", "api_call_count", "estimated_cost_usd", "actual_cost_usd"]
        .map(|column| number(&session, column));
    assert_eq!(seen, [4.0, 1.0, 3.0, 1.5, 2.0]);
    assert_eq!(split(&db), "m/p/// calls 1 in 10 out 1", "totals are not split");
    db.set_usage("s", Usage::new(None::<&str>, None::<&str>)).expect("sets nothing");
    assert_eq!(number(&get(&db, "s"), "input_tokens"), 4.0);
}

fn costs_and_labels_follow_the_last_that_says_something(db: World) {
    let db = db.with_session();
    assert_eq!(get(&db, "s").record().get("estimated_cost_usd"), Some(&Value::Null));
    let nothing = || Usage::new(None::<&str>, None::<&str>);
    db.record_usage("s", nothing().cost_status("estimated").pricing_version("v1")).expect("records");
    let session = get(&db, "s");
    assert_eq!(number(&session, "estimated_cost_usd"), 0.0, "an estimate of nothing");
    assert_eq!(session.record().get("actual_cost_usd"), Some(&Value::Null), "what was paid is not known");
    db.record_usage("s", nothing().actual_cost_usd(0.5).cost_status("paid").cost_source("bill")).expect("records");
    db.record_usage("s", nothing().actual_cost_usd(-0.25).cost_source("")).expect("records");
    let session = get(&db, "s");
    assert_eq!(number(&session, "actual_cost_usd"), 0.25, "what is negative is given back");
    let labels = ["cost_status", "cost_source", "pricing_version"].map(|column| session.record().text(column));
    assert_eq!(labels, [Some("paid"), Some(""), Some("v1")]);
    let paid = db.seen_from_outside("SELECT actual_cost_usd FROM session_model_usage WHERE model = 'large-1'");
    assert_eq!(paid.parse(), Ok(0.25), "what was only paid is split too");
}

fn an_address_is_not_lent_to_another_provider(db: World) {
    let db = db.with_session();
    db.record_usage("s", call("m", "p", 1).billing_base_url("u").billing_mode("by use")).expect("records");
    db.record_usage("s", call("m", "q", 2)).expect("records");
    db.record_usage("s", Usage::new(None::<&str>, None::<&str>).input_tokens(3)).expect("records");
    assert_eq!(split(&db), "m/p/u/by use/ calls 1 in 4 out 1\nm/q/// calls 1 in 2 out 1");
}

fn a_task_is_accounted_apart_from_the_session(db: World) {
    let db = db.with_session();
    let usage = Usage::new("eye-1", "p").input_tokens(8).billing_mode("ignored").actual_cost_usd(9.0);
    db.record_auxiliary_usage("s", "vision", usage.clone()).expect("records");
    db.record_auxiliary_usage("s", "vision", usage).expect("records");
    db.record_auxiliary_usage("other", "title_generation", Usage::new(None::<&str>, None::<&str>)).expect("records");
    db.record_auxiliary_usage("", "vision", Usage::new("m", "p")).expect("does nothing");
    db.record_auxiliary_usage("s", "", Usage::new("m", "p")).expect("does nothing");
    let session = get(&db, "s");
    assert_eq!((number(&session, "input_tokens"), number(&session, "api_call_count")), (0.0, 0.0));
    assert_eq!(get(&db, "other").model(), None);
    assert_eq!(split(&db), "eye-1/p///vision calls 2 in 16 out 0\nunknown////title_generation calls 1 in 0 out 0");
    assert_eq!(db.seen_from_outside("SELECT SUM(actual_cost_usd) FROM session_model_usage").parse(), Ok(0.0));
}

fn a_billing_route_is_replaced_and_takes_the_prompt_with_it(db: World) {
    db.create_session(NewSession::new("s", "cli").system_prompt("long")).expect("creates");
    db.update_billing_route("s", "p", "u", "m").expect("updates");
    db.update_billing_route("s", None::<&str>, "", None::<&str>).expect("updates");
    let session = get(&db, "s");
    assert_eq!(session.record().get("billing_provider"), Some(&Value::Null));
    assert_eq!(session.record().text("billing_base_url"), Some(""));
    assert_eq!(session.record().text("billing_mode"), Some("m"), "the mode stays if none is given");
    assert_eq!(session.record().get("system_prompt"), Some(&Value::Null));
    db.update_billing_route("nobody", "p", "u", "m").expect("is nothing");
    assert!(db.session("nobody").expect("reads").is_none());
}

fn usage_goes_with_its_session(mut db: World) {
    db.record_usage("s", call("m", "p", 1)).expect("records");
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM session_model_usage"), "1");
    db.behind_its_back("DELETE FROM sessions;");
    assert_eq!(db.seen_from_outside("SELECT COUNT(*) FROM session_model_usage"), "0");
}

fn writers_that_race_lose_no_usage(db: World) {
    let db = db.with_session();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    db.record_usage("s", call("m", "p", 1)).expect("records");
                }
            });
        }
    });
    assert_eq!(number(&get(&db, "s"), "input_tokens"), 40.0);
    assert_eq!(split(&db), "m/p/// calls 40 in 40 out 40");
}

on_each_engine! {
    usage_adds_up_on_the_session_and_by_model
    a_missing_session_is_created_with_its_usage
    the_first_accounted_call_corrects_the_route_and_later_ones_do_not
    without_calls_the_door_stays_open
    totals_are_set_and_what_is_absent_stays
    costs_and_labels_follow_the_last_that_says_something
    an_address_is_not_lent_to_another_provider
    a_task_is_accounted_apart_from_the_session
    a_billing_route_is_replaced_and_takes_the_prompt_with_it
    usage_goes_with_its_session
    writers_that_race_lose_no_usage
}
