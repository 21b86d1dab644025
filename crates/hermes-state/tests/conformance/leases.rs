//! Leases on compressing a session: who is gone loses them, and who lost one stores nothing under it any more.

use std::time::{SystemTime, UNIX_EPOCH};

use hermes_state::{Error, Lease, LeaseLost, MessageQuery, NewMessage, NewSession, Result, SessionDb};

use crate::world::{World, on_each_engine};

fn acquire(db: &SessionDb, holder: &str, ttl: f64) -> Option<Lease> {
    db.acquire_compression_lease("s", holder, ttl).expect("asks")
}

fn lost<T: std::fmt::Debug>(answer: Result<T>) -> LeaseLost {
    match answer {
        Err(Error::LeaseLost(lost)) => *lost,
        other => panic!("{other:?}"),
    }
}

fn texts(db: &SessionDb) -> Vec<String> {
    let rows = db.messages("s", &MessageQuery::default()).expect("reads");
    rows.iter().map(|row| row.content().text().unwrap_or_default().to_owned()).collect()
}

fn told(text: &str) -> Vec<NewMessage> {
    vec![NewMessage::new("user", text)]
}

/// Everything that is published under a lease; each must be refused.
fn publish_late(db: &SessionDb, lease: &Lease) -> LeaseLost {
    let under = db.under(lease);
    let first = lost(under.archive_and_compact("s", told("late")));
    for other in [
        lost(under.replace_messages("s", told("late"), true)),
        lost(under.end_session("s", "compression")),
        lost(under.create_session(NewSession::new("late", "cli").parent_session_id("s"))),
    ] {
        assert_eq!((&other.taken_by, other.newest, other.fence), (&first.taken_by, first.newest, first.fence));
    }
    assert!(db.session("late").expect("reads").is_none());
    assert!(!texts(db).iter().any(|text| text == "late"));
    first
}

fn what_a_holder_publishes_is_stored(db: World) {
    let db = db.with_session();
    db.append_messages("s", vec![NewMessage::new("user", "long"), NewMessage::new("user", "story")]).expect("appends");
    let lease = acquire(&db, "a", 300.0).expect("is free");
    assert_eq!((lease.session_id.as_str(), lease.holder.as_str(), lease.fence), (Some("s"), "a", 1));
    assert_eq!(acquire(&db, "a", 300.0), Some(lease.clone()), "asked again it is the same");
    let under = db.under(&lease);
    assert_eq!(under.archive_and_compact("s", told("short")).expect("is stored"), 1);
    assert_eq!(texts(&db), ["short"]);
    under.replace_messages("s", told("shorter"), true).expect("is stored");
    assert_eq!(texts(&db), ["shorter"]);
    under.end_session("s", "compression").expect("is stored");
    under.create_session(NewSession::new("next", "cli").parent_session_id("s")).expect("is stored");
    assert_eq!(db.compression_tip("s").expect("reads"), "next");
    assert!(matches!(under.create_session(NewSession::new("", "cli")), Err(Error::Invalid(_))));
}

fn a_former_holder_publishes_nothing(db: World) {
    let db = db.with_session();
    db.append_message("s", NewMessage::new("user", "story")).expect("appends");
    let former = acquire(&db, "a", -1.0).expect("had, if only for no time");
    let present = acquire(&db, "b", 300.0).expect("is free");
    assert!(present.fence > former.fence);
    let lost = publish_late(&db, &former);
    assert_eq!((lost.session.as_str(), lost.holder.as_str(), lost.fence), ("s", "a", former.fence));
    assert_eq!((lost.taken_by.as_deref(), lost.newest, lost.lapsed_for), (Some("b"), Some(present.fence), None));
    let text = Error::LeaseLost(Box::new(lost)).to_string();
    for said in ["'a'", "session s", "'b' has it now", "nothing was changed", "acquire"] {
        assert!(text.contains(said), "{said:?} in {text:?}");
    }
    assert_eq!(db.session("s").expect("reads").expect("is there").ended_at(), None);
    db.under(&present).archive_and_compact("s", told("short")).expect("is stored");
    assert_eq!(texts(&db), ["short"]);
    publish_late(&db, &former);
}

fn a_lease_is_over_with_its_term_and_when_released_though_nobody_took_it(db: World) {
    let db = db.with_session();
    let lapsed = acquire(&db, "a", -5.0).expect("had, if only for no time");
    let lost = publish_late(&db, &lapsed);
    assert_eq!(lost.taken_by, None);
    assert!(lost.lapsed_for.is_some_and(|seconds| seconds >= 5.0), "{lost:?}");
    let released = acquire(&db, "a", 300.0).expect("is free");
    db.release_compression_lock("s", "a").expect("releases");
    let lost = publish_late(&db, &released);
    assert_eq!((lost.taken_by, lost.lapsed_for), (None, None));
    let again = acquire(&db, "a", 300.0).expect("is free");
    assert!(lapsed.fence < released.fence && released.fence < again.fence, "numbers only rise");
    publish_late(&db, &released);
    assert!(db.refresh_compression_lock("s", "a", 60.0).expect("refreshes"));
    db.under(&again).end_session("s", "compression").expect("a new term is the same lease");
}

fn a_lease_on_one_session_is_none_on_another(db: World) {
    let db = db.with_session();
    let other = db.acquire_compression_lease("other", "a", 300.0).expect("asks").expect("is free");
    assert_eq!(other.fence, 1);
    let forged = Lease { session_id: "s".into(), ..other };
    assert_eq!(publish_late(&db, &forged).taken_by, None);
    assert_eq!(db.acquire_compression_lease("", "a", 300.0).expect("asks"), None);
}

fn appends_never_wait_for_a_lease(db: World) {
    let db = db.with_session();
    let _held = acquire(&db, "a", 300.0).expect("is free");
    let sibling = db.another();
    // A lease that were waited for would outlast this patience.
    let patience = hermes_state::Patience { transcript: std::time::Duration::from_secs(30), ..db.patience() };
    sibling.set_patience(patience);
    for n in 0..20 {
        sibling.append_message("s", NewMessage::new("user", format!("message {n}"))).expect("does not wait");
    }
    assert_eq!(texts(&db).len(), 20);
    assert_eq!(db.compression_lock_holder("s").expect("reads").as_deref(), Some("a"));
}

fn whose_number_was_given_again_is_gone_and_of_other_hosts_nothing_is_known(mut db: World) {
    let first = acquire(&db, "a", 300.0).expect("is free");
    db.behind_its_back("UPDATE hermes_state_leases SET host = 'elsewhere', pid = 999999999");
    assert_eq!(acquire(&db, "b", 300.0), None, "it may well run there");
    db.behind_its_back("UPDATE hermes_state_leases SET host = NULL");
    assert_eq!(acquire(&db, "b", 300.0), None, "nothing is known");
    db.release_compression_lock("s", "a").expect("releases");
    let second = acquire(&db, "a", 300.0).expect("is free");
    db.behind_its_back("UPDATE hermes_state_leases SET started = started - 1");
    let third = acquire(&db, "b", 300.0).expect("the process with this number is another one");
    assert!(first.fence < second.fence && second.fence < third.fence);
    assert_eq!(db.compression_lock_holder("s").expect("reads").as_deref(), Some("b"));
    assert_eq!(acquire(&db, "a", 300.0), None);
}

/// What older releases store of a lease, which is all they know.
fn older(holder: &str, ago: f64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    format!(
        "DELETE FROM compression_locks WHERE session_id = 's'; \
         INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at) VALUES ('s', '{holder}', {}, {})",
        now - ago,
        now + 300.0
    )
}

fn what_an_older_release_does_to_a_lease_counts(db: World) {
    let mut db = db.with_session();
    let ours = acquire(&db, "a", 300.0).expect("is free");
    db.behind_its_back(&older("old", 0.0));
    let lost = publish_late(&db, &ours);
    assert_eq!((lost.taken_by.as_deref(), lost.newest), (Some("old"), None));
    // The process of the row beside is gone, but the lease is not its.
    db.behind_its_back("UPDATE hermes_state_leases SET started = started - 1");
    assert_eq!(acquire(&db, "b", 300.0), None);
    db.behind_its_back("UPDATE compression_locks SET expires_at = 1");
    assert!(acquire(&db, "b", 300.0).expect("lapsed").fence > ours.fence);
}

fn a_name_that_an_older_release_used_too_is_not_mistaken(db: World) {
    let mut db = db.with_session();
    let ours = acquire(&db, "a", 300.0).expect("is free");
    db.behind_its_back(&older("a", 10.0));
    publish_late(&db, &ours);
    let again = acquire(&db, "a", 300.0).expect("is of that name");
    assert!(again.fence > ours.fence);
    assert_eq!(db.seen_from_outside("SELECT COUNT(pid) FROM hermes_state_leases"), "0", "it may be of any process");
    db.under(&again).end_session("s", "compression").expect("is stored");
}

fn two_processes_of_one_name_are_not_judged(mut db: World) {
    let ours = acquire(&db, "a", 300.0).expect("is free");
    db.behind_its_back("UPDATE hermes_state_leases SET host = 'elsewhere'");
    assert_eq!(acquire(&db, "a", 300.0), Some(ours), "a live lease is its holder's");
    assert_eq!(db.seen_from_outside("SELECT COUNT(pid) FROM hermes_state_leases"), "0");
    assert_eq!(acquire(&db, "b", 300.0), None);
}

on_each_engine! {
    what_a_holder_publishes_is_stored
    a_former_holder_publishes_nothing
    a_lease_is_over_with_its_term_and_when_released_though_nobody_took_it
    a_lease_on_one_session_is_none_on_another
    appends_never_wait_for_a_lease
    whose_number_was_given_again_is_gone_and_of_other_hosts_nothing_is_known
    what_an_older_release_does_to_a_lease_counts
    a_name_that_an_older_release_used_too_is_not_mistaken
    two_processes_of_one_name_are_not_judged
}
