//! What compressing a conversation keeps: leases that exclude others, failures that wait, substitutes that are counted.

use std::time::{SystemTime, UNIX_EPOCH};

use hermes_state::{Error, SessionDb, Value};

use crate::world::{World, on_each_engine};

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

fn acquire(db: &SessionDb, holder: &str, ttl: f64) -> bool {
    db.try_acquire_compression_lock("s", holder, ttl).expect("asks")
}

fn refresh(db: &SessionDb, holder: &str, ttl: f64) -> bool {
    db.refresh_compression_lock("s", holder, ttl).expect("asks")
}

fn holder(db: &SessionDb) -> Option<String> {
    db.compression_lock_holder("s").expect("reads")
}

fn expires(db: &World) -> f64 {
    db.seen_from_outside("SELECT expires_at FROM compression_locks WHERE session_id = 's'").parse().expect("a time")
}

fn a_live_lease_excludes_others_and_is_not_renewed_by_asking_again(db: World) {
    assert_eq!(holder(&db), None);
    assert!(acquire(&db, "a", 300.0), "the session need not exist");
    let until = expires(&db);
    assert!((until - now() - 300.0).abs() < 60.0);
    assert!(!acquire(&db, "b", 300.0));
    assert!(acquire(&db, "a", 9000.0));
    assert_eq!((expires(&db), holder(&db).as_deref()), (until, Some("a")));
    assert!(db.try_acquire_compression_lock("other", "b", 300.0).expect("asks"), "each session has its own");
}

fn only_its_holder_refreshes_or_releases_a_lease(db: World) {
    assert!(acquire(&db, "a", 300.0));
    assert!(!refresh(&db, "b", 300.0));
    assert!(refresh(&db, "a", 60.0));
    assert!((expires(&db) - now() - 60.0).abs() < 30.0, "also to a shorter term");
    db.release_compression_lock("s", "b").expect("is nothing");
    assert_eq!(holder(&db).as_deref(), Some("a"));
    db.release_compression_lock("s", "a").expect("releases");
    assert_eq!(holder(&db), None);
    assert!(!refresh(&db, "a", 300.0), "a lease that is gone is not renewed");
    assert!(acquire(&db, "b", 300.0));
}

fn a_lapsed_lease_is_free_for_all_and_cannot_be_revived(db: World) {
    assert!(acquire(&db, "a", -1.0), "had, if only for no time");
    assert_eq!(holder(&db), None);
    assert!(!refresh(&db, "a", 300.0));
    assert!(acquire(&db, "b", 300.0));
    db.release_compression_lock("s", "a").expect("a late release is nothing");
    assert_eq!(holder(&db).as_deref(), Some("b"));
}

fn what_is_empty_gets_no_lease(db: World) {
    assert!(!db.try_acquire_compression_lock("", "a", 300.0).expect("asks"));
    assert!(!db.refresh_compression_lock("", "a", 300.0).expect("asks"));
    db.release_compression_lock("", "a").expect("is nothing");
    assert_eq!(db.compression_lock_holder("").expect("reads"), None);
    assert!(acquire(&db, "", 300.0), "a holder without a name is one");
    assert!(!refresh(&db, "", 300.0));
    db.release_compression_lock("s", "").expect("releases");
    assert_eq!(holder(&db), None);
    assert!(matches!(db.try_acquire_compression_lock("s", "a", f64::NAN), Err(Error::Invalid(_))));
}

fn of_many_that_race_one_gets_the_lease(db: World) {
    let db = &db;
    for round in 0..5 {
        let id = format!("race {round}");
        let winners = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..6)
                .map(|racer| {
                    let id = id.as_str();
                    scope.spawn(move || {
                        db.try_acquire_compression_lock(id, format!("holder {racer}"), 300.0).expect("asks")
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().expect("ends")).filter(|won| *won).count()
        });
        assert_eq!(winners, 1);
    }
}

fn a_cooldown_is_reported_until_it_is_over(db: World) {
    let db = db.with_session();
    let cooldown = || db.compression_failure_cooldown("s").expect("reads");
    assert_eq!(cooldown(), None);
    let until = now() + 1000.0;
    db.record_compression_failure_cooldown("s", until, "no summary").expect("records");
    let found = cooldown().expect("is on");
    assert_eq!((found.until, found.error.as_deref()), (until, Some("no summary")));
    assert!(found.remaining > 900.0 && found.remaining <= 1000.0);
    db.record_compression_failure_cooldown("s", until - 500.0, None::<&str>).expect("records");
    let found = cooldown().expect("is on");
    assert_eq!((found.until, found.error), (until - 500.0, None), "the last counts");
    db.record_compression_failure_cooldown("s", now() - 1.0, "past").expect("records");
    assert_eq!(cooldown(), None);
    let kept = "SELECT compression_failure_error FROM sessions WHERE id = 's'";
    assert_eq!(db.seen_from_outside(kept), "past", "looking cleans nothing up");
    db.record_compression_failure_cooldown("s", until, "again").expect("records");
    db.clear_compression_failure_cooldown("s").expect("clears");
    assert_eq!(cooldown(), None);
    let session = db.session("s").expect("reads").expect("is there");
    assert_eq!(session.record().get("compression_failure_error"), Some(&Value::Null));
}

fn cooldowns_of_nobody_are_nothing(db: World) {
    for id in ["", "nobody"] {
        db.record_compression_failure_cooldown(id, 9e9, "x").expect("is nothing");
        db.clear_compression_failure_cooldown(id).expect("is nothing");
        assert_eq!(db.compression_failure_cooldown(id).expect("reads"), None);
    }
}

fn a_fallback_streak_is_never_negative(db: World) {
    let db = db.with_session();
    let streak = || db.compression_fallback_streak("s").expect("reads");
    assert_eq!(streak(), 0);
    db.set_compression_fallback_streak("s", 3).expect("sets");
    assert_eq!(streak(), 3);
    db.set_compression_fallback_streak("s", -3).expect("sets");
    assert_eq!(streak(), 0);
    for id in ["", "nobody"] {
        db.set_compression_fallback_streak(id, 3).expect("is nothing");
        assert_eq!(db.compression_fallback_streak(id).expect("reads"), 0);
    }
}

on_each_engine! {
    a_live_lease_excludes_others_and_is_not_renewed_by_asking_again
    only_its_holder_refreshes_or_releases_a_lease
    a_lapsed_lease_is_free_for_all_and_cannot_be_revived
    what_is_empty_gets_no_lease
    of_many_that_race_one_gets_the_lease
    a_cooldown_is_reported_until_it_is_over
    cooldowns_of_nobody_are_nothing
    a_fallback_streak_is_never_negative
}
