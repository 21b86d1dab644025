//! Listings, pages and searches of sessions: all filters before the limit, each session where it belongs and once.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use hermes_state::{
    Cursor, Error, NewMessage, NewSession, PageQuery, SCHEMA_SQL, Session, SessionDb, SessionQuery,
    parse_schema_columns,
};

use crate::world::{World, on_each_engine};

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after the epoch").as_secs_f64()
}

fn create(db: &SessionDb, id: &str) {
    db.create_session(NewSession::new(id, "cli")).expect("creates");
}

fn child(db: &SessionDb, id: &str, parent: &str) {
    db.create_session(NewSession::new(id, "cli").parent_session_id(parent)).expect("creates");
}

fn say(db: &SessionDb, id: &str, at: f64) {
    db.append_message(id, NewMessage::new("user", "hello").timestamp(at)).expect("appends");
}

fn title(db: &SessionDb, id: &str, title: &str) {
    assert!(db.set_session_title(id, Some(title)).expect("sets"));
}

fn ids(sessions: &[Session]) -> Vec<String> {
    sessions.iter().map(|session| session.id().to_owned()).collect()
}

fn list(db: &SessionDb, query: SessionQuery) -> Vec<String> {
    ids(&db.list_sessions(&query).expect("lists"))
}

fn by_activity() -> SessionQuery {
    SessionQuery { order_by_last_active: true, ..SessionQuery::default() }
}

fn of_size(limit: i64) -> PageQuery {
    PageQuery { sessions: SessionQuery { limit, ..SessionQuery::default() }, ..PageQuery::default() }
}

/// Turns all pages, with something happening after each, and counts how often each session was seen.
fn turn(db: &SessionDb, mut query: PageQuery, mut between: impl FnMut(usize)) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for page in 0.. {
        let found = db.list_sessions_page(&query).expect("a page");
        let size = usize::try_from(query.sessions.limit).unwrap_or(usize::MAX);
        assert!(found.sessions.len() <= size, "a page of {}", found.sessions.len());
        for session in &found.sessions {
            *seen.entry(session.id().to_owned()).or_default() += 1;
        }
        let Some(next) = found.next else { break };
        assert_eq!(found.sessions.len(), size, "only the last page is short");
        query.cursor = Some(next.to_string().parse().expect("a cursor survives as text"));
        between(page);
    }
    seen
}

/// Nine titled sessions with messages an hour old, one that began long ago and is at work, and 31 untitled ones without
/// messages.
fn forty_one(db: &mut World) -> Vec<String> {
    let now = now();
    let mut all = Vec::new();
    for n in 0..9 {
        let id = format!("titled{n}");
        create(db, &id);
        title(db, &id, &format!("Title {n}"));
        say(db, &id, now - 3600.0);
        all.push(id);
    }
    create(db, "L");
    say(db, "L", now - 10.0);
    all.push("L".into());
    for n in 0..31 {
        all.push(format!("silent{n}"));
        create(db, &all[all.len() - 1]);
    }
    db.behind_its_back(&format!(
        "UPDATE sessions SET started_at = {} WHERE id LIKE 'titled%'; \
         UPDATE sessions SET started_at = {} WHERE id = 'L'; \
         UPDATE sessions SET started_at = {} WHERE id LIKE 'silent%';",
        now - 7200.0,
        now - 30.0 * 3600.0,
        now - 1200.0
    ));
    all
}

fn filters_come_before_the_limit_and_pages_give_each_session_once(mut db: World) {
    let all = forty_one(&mut db);
    let titled = db.list_sessions_page(&PageQuery { titled: Some(true), ..of_size(10) }).expect("a page");
    assert_eq!((titled.sessions.len(), titled.next), (9, None));
    let active = db.list_sessions_page(&PageQuery { active_since: Some(now() - 300.0), ..of_size(50) });
    assert_eq!(ids(&active.expect("a page").sessions), ["L"]);
    assert_eq!(list(&db, SessionQuery { limit: 1, ..by_activity() }), ["L"]);
    let untitled = db.list_sessions_page(&PageQuery { titled: Some(false), ..of_size(40) }).expect("a page");
    assert_eq!(untitled.sessions.len(), 32);
    for order_by_last_active in [false, true] {
        let mut query = of_size(7);
        query.sessions.order_by_last_active = order_by_last_active;
        let seen = turn(&db, query, |page| {
            for n in 0..5 {
                create(&db, &format!("new-{order_by_last_active}-{page}-{n}"));
            }
        });
        for id in &all {
            assert_eq!(seen.get(id), Some(&1), "{id}");
        }
        assert!(seen.keys().all(|id| all.contains(id) || !id.starts_with(&format!("new-{order_by_last_active}"))));
    }
}

fn what_goes_on_between_pages_neither_repeats_nor_hides_a_conversation(mut db: World) {
    let all = forty_one(&mut db);
    let mut query = of_size(7);
    query.sessions.order_by_last_active = true;
    let seen = turn(&db, query, |page| match page {
        // One that has been seen, one that has not, one that nobody will see go on but in another session.
        0 => say(&db, "L", now()),
        1 => say(&db, "titled5", now()),
        2 => {
            db.end_session("titled6", "compression").expect("ends");
            child(&db, "continued", "titled6");
            say(&db, "continued", now());
        }
        _ => {}
    });
    for id in all.iter().filter(|id| *id != "titled6") {
        assert_eq!(seen.get(id), Some(&1), "{id}");
    }
    assert_eq!((seen.get("titled6").copied().unwrap_or(0), seen.get("continued")), (0, Some(&1)), "{seen:?}");
}

fn sessions_that_go_between_pages_take_no_other_with_them(mut db: World) {
    let all = forty_one(&mut db);
    for order_by_last_active in [false, true] {
        let mut query = of_size(4);
        query.sessions.order_by_last_active = order_by_last_active;
        let first = db.list_sessions_page(&query).expect("a page");
        // The row that the cursor names is among those that go.
        let gone = ids(&first.sessions);
        let seen = turn(&db, query, |page| {
            if page == 0 {
                assert_eq!(db.delete_sessions(gone.clone(), None).expect("deletes"), 4);
            }
        });
        for id in all.iter().filter(|id| db.session(id.as_str()).expect("reads").is_some()) {
            assert_eq!(seen.get(id), Some(&1), "{id}");
        }
    }
}

fn sessions_of_one_instant_are_paged_through_by_id(mut db: World) {
    for n in 0..23 {
        create(&db, &format!("s{n:02}"));
    }
    db.behind_its_back("UPDATE sessions SET started_at = 1000.5");
    for order_by_last_active in [false, true] {
        let mut query = of_size(5);
        query.sessions.order_by_last_active = order_by_last_active;
        let first = db.list_sessions_page(&query).expect("a page");
        assert_eq!(ids(&first.sessions), ["s22", "s21", "s20", "s19", "s18"]);
        let seen = turn(&db, query, |_| {});
        assert_eq!((seen.len(), seen.values().sum::<usize>()), (23, 23));
    }
}

fn all_filters_of_a_page_hold_together(db: World) {
    let now = now();
    for (id, source, name, said) in [
        ("wanted", "web", Some("Plan of the harbour"), now - 10.0),
        ("old", "web", Some("Plan of the town"), now - 5000.0),
        ("elsewhere", "cli", Some("Plan of the sea"), now - 10.0),
        ("untitled", "web", None, now - 10.0),
        ("other", "web", Some("Nothing"), now - 10.0),
    ] {
        db.create_session(NewSession::new(id, source)).expect("creates");
        if let Some(name) = name {
            title(&db, id, name);
        }
        say(&db, id, said);
    }
    for order_by_last_active in [false, true] {
        let query = PageQuery {
            titled: Some(true),
            active_since: Some(now - 60.0),
            sessions: SessionQuery {
                limit: 1,
                source: Some("web".into()),
                search_query: Some("plan".into()),
                order_by_last_active,
                ..SessionQuery::default()
            },
            ..PageQuery::default()
        };
        let page = db.list_sessions_page(&query).expect("a page");
        assert_eq!((ids(&page.sessions), page.next), (vec!["wanted".to_owned()], None));
    }
}

fn a_conversation_is_titled_and_active_as_a_whole(db: World) {
    create(&db, "root");
    say(&db, "root", now() - 9000.0);
    db.end_session("root", "compression").expect("ends");
    child(&db, "tip", "root");
    title(&db, "tip", "Now");
    say(&db, "tip", now());
    create(&db, "plain");
    let page = |query: PageQuery| ids(&db.list_sessions_page(&query).expect("a page").sessions);
    assert_eq!(page(PageQuery { titled: Some(true), ..of_size(9) }), ["tip"]);
    assert_eq!(page(PageQuery { titled: Some(false), ..of_size(9) }), ["plain"]);
    let rows = db.list_sessions_page(&of_size(-1)).expect("all");
    assert_eq!((ids(&rows.sessions), rows.next), (vec!["plain".to_owned(), "tip".to_owned()], None));
    assert_eq!(rows.sessions[1].record().text("_lineage_root_id"), Some("root"));
    assert!(rows.sessions[0].record().get("chosen_latest").is_none(), "what orders is not shown");
    let columns = rows.sessions[0].record().columns();
    assert_eq!(&*columns[columns.len() - 1], "preview");
}

fn a_page_that_cannot_be_is_refused(db: World) {
    for n in 0..4 {
        create(&db, &format!("s{n}"));
    }
    let refused = |query: PageQuery| matches!(db.list_sessions_page(&query), Err(Error::Invalid(_)));
    let cursor = db.list_sessions_page(&of_size(2)).expect("a page").next;
    assert!(cursor.is_some());
    assert_eq!(db.list_sessions_page(&of_size(4)).expect("a page").next, None, "nothing is left");
    assert!(refused(of_size(0)));
    let mut query = of_size(2);
    query.sessions.offset = 1;
    assert!(refused(query));
    assert!(refused(PageQuery { active_since: Some(f64::NAN), ..of_size(2) }));
    let mut query = PageQuery { cursor, ..of_size(2) };
    query.sessions.order_by_last_active = true;
    assert!(refused(query), "the cursor of another order");
    assert!(matches!("x".parse::<Cursor>(), Err(Error::Invalid(_))));
}

fn limits_and_offsets_are_taken_as_an_engine_takes_them(db: World) {
    for n in 0..5 {
        create(&db, &format!("s{n}"));
    }
    for order_by_last_active in [false, true] {
        let part =
            |limit, offset| list(&db, SessionQuery { limit, offset, order_by_last_active, ..SessionQuery::default() });
        assert_eq!(part(-1, 0).len(), 5);
        assert_eq!(part(0, 0).len(), 0);
        assert_eq!(part(2, -3), ["s4", "s3"]);
        assert_eq!(part(2, 3), ["s1", "s0"]);
        assert_eq!(part(-5, 4), ["s0"]);
        assert_eq!(part(9, 9).len(), 0);
    }
}

fn compact_rows_have_the_declared_columns_without_the_prompt(db: World) {
    db.create_session(NewSession::new("root", "cli").system_prompt("long").model("m")).expect("creates");
    db.end_session("root", "compression").expect("ends");
    child(&db, "tip", "root");
    let compact = SessionQuery { compact_rows: true, ..SessionQuery::default() };
    let row = &db.list_sessions(&compact).expect("lists")[0];
    let declared = parse_schema_columns(SCHEMA_SQL).expect("parses");
    let (_, declared) = declared.iter().find(|(table, _)| table == "sessions").expect("a table");
    let mut expected: Vec<&str> = declared.iter().map(|(column, _)| column.as_str()).collect();
    expected.retain(|column| *column != "system_prompt");
    expected.extend(["last_active", "preview", "_lineage_root_id"]);
    let columns: Vec<&str> = row.record().columns().iter().map(|column| &**column).collect();
    assert_eq!(columns, expected);
    assert_eq!((row.id(), row.model()), ("tip", None), "what the tip has, and has not, is shown");
}

fn case_is_ignored_in_every_script_and_patterns_stand_for_themselves(db: World) {
    for (id, name) in [
        ("umlaut", "ÜBER das Meer"),
        ("greek", "ΣΟΦΟΣ Άνθρωπος"),
        ("russian", "МОСКВА-река"),
        ("turkish", "İstanbul"),
        ("kelvin", "273 \u{212a}"),
        ("percent", "100% of_it"),
        ("joined", "My-App v1.2"),
    ] {
        create(&db, id);
        title(&db, id, name);
    }
    let found = |text: &str| list(&db, SessionQuery { search_query: Some(text.into()), ..by_activity() });
    for (text, id) in [
        ("über", "umlaut"),
        ("ÜBER", "umlaut"),
        (" Das MEER ", "umlaut"),
        ("σοφος", "greek"),
        ("ΆΝΘΡΩΠΟΣ", "greek"),
        ("москва", "russian"),
        ("москвар", "russian"),
        ("stanbul", "turkish"),
        ("İSTANBUL", "turkish"),
        ("273 k", "kelvin"),
        ("100%", "percent"),
        ("of_i", "percent"),
        ("myapp v12", "joined"),
        ("m.y_a-p p", "joined"),
        ("JOINED", "joined"),
    ] {
        assert_eq!(found(text), [id], "{text}");
    }
    for text in ["0%o", "f%t", "x%", "ubër", "\u{301}", "---"] {
        assert!(found(text).is_empty(), "{text}");
    }
    let long = SessionQuery { search_query: Some("x".repeat(50_001)), ..by_activity() };
    let error = db.list_sessions(&long).expect_err("is too long");
    assert!(matches!(&error, Error::Engine { code: 1, .. }) && error.to_string().contains("too complex"), "{error:?}");
    let by_start = SessionQuery { search_query: Some("über".into()), ..SessionQuery::default() };
    assert_eq!(list(&db, by_start).len(), 7, "texts count in listings by activity only");
}

fn any_member_of_a_conversation_makes_it_match_and_active(mut db: World) {
    create(&db, "root");
    db.end_session("root", "compression").expect("ends");
    child(&db, "middle", "root");
    title(&db, "middle", "Interlude");
    db.end_session("middle", "compression").expect("ends");
    child(&db, "tip", "middle");
    child(&db, "sibling", "middle");
    db.end_session("sibling", "ws_orphan_reap").expect("ends");
    create(&db, "other");
    let now = now();
    say(&db, "other", now);
    // Not the tip's: the sibling was ended, so the live one goes before it.
    say(&db, "sibling", now + 50.0);
    assert_eq!(list(&db, by_activity()), ["tip", "other"]);
    for text in ["interlude", "MIDDLE", "sibling", "root"] {
        let query = SessionQuery { search_query: Some(text.into()), ..by_activity() };
        assert_eq!(list(&db, query), ["tip"], "{text}");
    }
    assert_eq!(list(&db, SessionQuery { id_query: Some("dl".into()), ..by_activity() }), ["tip"]);
    let both = SessionQuery { id_query: Some("middle".into()), search_query: Some("nowhere".into()), ..by_activity() };
    assert!(list(&db, both).is_empty());

    // A circle of compressed sessions comes to an end.
    db.behind_its_back(
        "UPDATE sessions SET end_reason = 'compression', ended_at = 1 WHERE id = 'tip'; \
         UPDATE sessions SET parent_session_id = 'tip' WHERE id = 'root'",
    );
    let circle = SessionQuery { include_children: true, ..by_activity() };
    let mut found = list(&db, circle);
    found.sort();
    assert_eq!(found, ["middle", "other", "root", "sibling", "tip"]);
}

fn a_page_by_activity_is_a_part_of_the_whole_listing(mut db: World) {
    let now = now();
    // Conversations of one to four sessions; every part of one may be the last that was active, sub-agents often are.
    for n in 0..320_i32 {
        let id = format!("s{n:03}");
        let at = now - f64::from((n * 7919) % 320) * 10.0;
        match n % 8 {
            1 | 2 | 5 => child(&db, &id, &format!("s{:03}", n - 1)),
            6 | 7 => db
                .create_session(
                    NewSession::new(&id, "tool")
                        .parent_session_id("s000")
                        .model_config(r#"{"_delegate_from": "s000"}"#),
                )
                .expect("creates"),
            _ => create(&db, &id),
        }
        if n % 3 > 0 || n % 8 > 5 {
            say(&db, &id, at);
        }
        if matches!(n % 8, 0 | 1 | 4) {
            db.end_session(id.as_str(), "compression").expect("ends");
        }
    }
    db.behind_its_back(&format!("UPDATE sessions SET started_at = started_at - {}", 4000));
    let whole = list(&db, SessionQuery { limit: -1, ..by_activity() });
    assert_eq!(whole.len(), 120);
    let mut parts = Vec::new();
    while parts.len() < whole.len() {
        let offset = i64::try_from(parts.len()).expect("few");
        parts.extend(list(&db, SessionQuery { limit: 5, offset, ..by_activity() }));
    }
    assert_eq!(parts, whole);
    let mut pages = Vec::new();
    let mut query = PageQuery { sessions: SessionQuery { limit: 5, ..by_activity() }, ..PageQuery::default() };
    loop {
        let page = db.list_sessions_page(&query).expect("a page");
        pages.extend(ids(&page.sessions));
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, whole);
    let all = SessionQuery { limit: -1, include_children: true, ..by_activity() };
    let ten = list(&db, SessionQuery { limit: 10, ..all.clone() });
    assert_eq!(ten, list(&db, all)[..10]);
}

fn configuration_that_is_no_json_marks_nothing(mut db: World) {
    create(&db, "bad");
    db.create_session(NewSession::new("agent", "cli").model_config(r#"{"_delegate_from": 0}"#)).expect("creates");
    db.create_session(NewSession::new("null", "cli").model_config(r#"{"_delegate_from": null}"#)).expect("creates");
    db.behind_its_back("UPDATE sessions SET model_config = '{\"_delegate_from\": NaN}' WHERE id = 'bad'");
    assert_eq!(list(&db, SessionQuery::default()), ["null", "bad"]);
    let count = SessionQuery::default();
    assert_eq!(db.session_count(&count).expect("counts"), 2);
    assert!(db.delete_session("null", None).expect("deletes"));
}

fn a_count_is_of_what_the_same_listing_pages_through(db: World) {
    for (id, source, cwd) in [("a", "cli", "/w"), ("b", "web", "/w/x"), ("c", "cli", "/wx")] {
        db.create_session(NewSession::new(id, source).cwd(cwd)).expect("creates");
    }
    child(&db, "kid", "a");
    say(&db, "b", 5.0);
    for (query, number) in [
        (SessionQuery::default(), 3),
        (SessionQuery { include_children: true, ..SessionQuery::default() }, 4),
        (SessionQuery { source: Some("cli".into()), ..SessionQuery::default() }, 2),
        (SessionQuery { cwd_prefix: Some("/w/".into()), ..SessionQuery::default() }, 2),
        (SessionQuery { min_message_count: 1, ..SessionQuery::default() }, 1),
        (SessionQuery { exclude_sources: vec!["cli".into()], ..SessionQuery::default() }, 1),
        (SessionQuery { archived_only: true, ..SessionQuery::default() }, 0),
    ] {
        assert_eq!(db.session_count(&query).expect("counts"), number, "{query:?}");
        assert_eq!(list(&db, query.clone()).len(), usize::try_from(number).expect("few"), "{query:?}");
    }
}

fn runs_of_a_job_are_those_whose_ids_begin_with_it(mut db: World) {
    for id in ["cron_a_", "cron_a_1", "cron_a_b_2", "cron_A_3", "cron_ax_4", "cron_a%_5"] {
        db.create_session(NewSession::new(id, "cron")).expect("creates");
    }
    db.create_session(NewSession::new("cron_a_9", "cli")).expect("creates");
    db.create_session(NewSession::new("cron_a_0", "cron").parent_session_id("cron_a_1")).expect("creates");
    say(&db, "cron_a_1", 5.0);
    db.behind_its_back("UPDATE sessions SET started_at = 7, archived = 1 WHERE id IN ('cron_a_1', 'cron_a_0')");
    let runs = |job: &str, limit, offset| ids(&db.list_cron_job_runs(job, limit, offset).expect("lists"));
    assert_eq!(runs("a", 20, 0), ["cron_a_b_2", "cron_a_", "cron_a_1", "cron_a_0"]);
    assert_eq!(runs("a", 2, 1), ["cron_a_", "cron_a_1"]);
    assert_eq!(runs("a", -1, 3), ["cron_a_0"]);
    assert_eq!(runs("a_b", 20, 0), ["cron_a_b_2"]);
    assert_eq!(runs("A", 20, 0), ["cron_A_3"]);
    assert_eq!(runs("a%", 20, 0), ["cron_a%_5"]);
    assert!(runs("b", 20, 0).is_empty());
    let row = &db.list_cron_job_runs("a", 20, 2).expect("lists")[0];
    assert_eq!((row.last_active(), row.preview()), (Some(5.0), Some("hello")));
}

fn an_id_that_is_looked_for_comes_first_however_old(db: World) {
    let now = now();
    create(&db, "root");
    db.end_session("root", "compression").expect("ends");
    child(&db, "Abc", "root");
    db.end_session("Abc", "compression").expect("ends");
    child(&db, "tip", "Abc");
    create(&db, "abc-begins");
    for n in 0..90 {
        create(&db, &format!("x{n}-abc"));
        say(&db, &format!("x{n}-abc"), now + f64::from(n));
    }
    let found = |text: &str, limit, archived| ids(&db.search_sessions_by_id(text, limit, archived).expect("finds"));
    assert_eq!(found(" aBC ", 3, true), ["tip", "abc-begins", "x89-abc"], "an id in the middle counts, too");
    assert_eq!(found("root", 1, true), ["tip"]);
    assert_eq!(found("abc", 500, true).len(), 92);
    assert!(found("abc", 0, true).is_empty() && found("abc", -1, true).is_empty() && found(" ", 9, true).is_empty());
    assert!(found("a_c", 9, true).is_empty());
    db.archive_sessions(&hermes_state::PruneFilter::default()).expect("archives");
    assert_eq!(found("abc", 1, true), ["tip"]);
    assert_eq!(found("abc", 1, false), ["abc-begins"]);
}

fn a_search_of_sessions_shows_all_kinds_by_activity(mut db: World) {
    create(&db, "a");
    db.create_session(NewSession::new("b", "web").parent_session_id("a").model_config(r#"{"_delegate_from": "a"}"#))
        .expect("creates");
    create(&db, "c");
    say(&db, "a", now() + 100.0);
    db.behind_its_back("UPDATE sessions SET archived = 1 WHERE id = 'c'");
    let found = |source, limit, offset| ids(&db.search_sessions(source, limit, offset).expect("finds"));
    assert_eq!(found(None, 20, 0), ["a", "c", "b"]);
    assert_eq!(found(Some(""), -1, 1), ["c", "b"]);
    assert_eq!(found(Some("web"), 20, 0), ["b"]);
    let row = &db.search_sessions(None, 1, 0).expect("finds")[0];
    let columns = row.record().columns();
    assert_eq!((columns.len(), &*columns[46]), (47, "last_active"));
}

on_each_engine! {
    filters_come_before_the_limit_and_pages_give_each_session_once
    what_goes_on_between_pages_neither_repeats_nor_hides_a_conversation
    sessions_that_go_between_pages_take_no_other_with_them
    sessions_of_one_instant_are_paged_through_by_id
    all_filters_of_a_page_hold_together
    a_conversation_is_titled_and_active_as_a_whole
    a_page_that_cannot_be_is_refused
    limits_and_offsets_are_taken_as_an_engine_takes_them
    compact_rows_have_the_declared_columns_without_the_prompt
    case_is_ignored_in_every_script_and_patterns_stand_for_themselves
    any_member_of_a_conversation_makes_it_match_and_active
    a_page_by_activity_is_a_part_of_the_whole_listing
    configuration_that_is_no_json_marks_nothing
    a_count_is_of_what_the_same_listing_pages_through
    runs_of_a_job_are_those_whose_ids_begin_with_it
    an_id_that_is_looked_for_comes_first_however_old
    a_search_of_sessions_shows_all_kinds_by_activity
}
