//! The moment between COMMIT and its acknowledgement: what was stored is not stored again, and an error says truly whether
//! a write may be stored.
#![cfg(all(feature = "postgres", target_os = "linux"))]

#[path = "support/world.rs"]
mod world;

use hermes_state::{Error, NewMessage, SessionDb};
use hermes_state_testkit::CuttingProxy;
use world::{World, open_with, wait_until};

/// A commit with a message that says `slow` takes so long, when everything else of the transaction is done.
const SLOW_COMMITS: &str = "
    CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.content LIKE 'slow%' THEN PERFORM pg_sleep(2); END IF;
        IF NEW.content LIKE 'refused%' THEN RAISE EXCEPTION 'refused at commit' USING ERRCODE = '23514'; END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON messages DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slow_commit();";

const COMMITTING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'PgSleep';";

fn slow() -> Option<(World, CuttingProxy, String)> {
    let world = World::make()?;
    let _ = world.psql(SLOW_COMMITS);
    let proxy = CuttingProxy::start(&world.server.host_port(), 1);
    let url = proxy.url(&world.url);
    Some((world, proxy, url))
}

fn message(text: &str) -> NewMessage {
    NewMessage::new("user", text)
}

#[test]
fn a_write_whose_acknowledgement_is_cut_off_is_found_again_with_its_ids_and_not_stored_twice() {
    let Some((world, proxy, url)) = slow() else { return };
    let db = SessionDb::open(&url).expect("opens");
    let ids = std::thread::scope(|scope| {
        let writing = scope.spawn(|| db.append_messages("s", vec![message("slow one"), message("two")]));
        wait_until("it is being committed", || world.psql(COMMITTING) == "1");
        proxy.cut_all();
        writing.join().expect("no panic").expect("is acknowledged in the end").stored().expect("stored")
    });
    assert_eq!(world.texts(), ["slow one", "two"]);
    let stored = world.psql("SELECT string_agg(CAST(id AS text), ',' ORDER BY id) FROM messages;");
    assert_eq!(stored, ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    // The first attempt is the one that stored it.
    assert_eq!(world.psql("SELECT count(*) FROM applied_writes WHERE attempt > 0;"), "0");
    assert_eq!(world.psql("SELECT message_count FROM sessions WHERE id = 's';"), "2");
}

/// It travelled together with its COMMIT, so that its id was not known before it was stored.
#[test]
fn a_single_message_whose_acknowledgement_is_cut_off_is_found_again_with_its_id() {
    let Some((world, proxy, url)) = slow() else { return };
    let db = SessionDb::open(&url).expect("opens");
    for n in 1..=2 {
        let id = std::thread::scope(|scope| {
            let writing = scope.spawn(|| db.append_message("s", message("slow")));
            wait_until("it is being committed", || world.psql(COMMITTING) == "1");
            proxy.cut_all();
            // What comes meanwhile is not taken for it.
            let next = db.append_message("s", message("other")).expect("is kept").id().expect("is stored");
            let id = writing.join().expect("no panic").expect("is acknowledged in the end").id().expect("is stored");
            assert_ne!(id, next);
            id
        });
        assert_eq!(world.psql(&format!("SELECT content FROM messages WHERE id = {id};")), "slow");
        assert_eq!(world.psql("SELECT message_count FROM sessions WHERE id = 's';"), (2 * n).to_string());
    }
    // The first attempts stored it, and noted with which id.
    assert_eq!(world.psql("SELECT count(*) FROM applied_writes WHERE attempt > 0;"), "0");
    assert!(world.psql("SELECT count(row_id) FROM applied_writes;").parse::<i64>().expect("a number") >= 2);
}

/// Its statements were sent, the COMMIT among them, and wait for somebody's lock when the connection breaks.
#[test]
fn a_single_message_that_waits_for_a_lock_when_its_connection_breaks_is_stored_once() {
    let Some((world, proxy, url)) = slow() else { return };
    let db = SessionDb::open(&url).expect("opens");
    db.append_message("s", message("first")).expect("is stored");
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'UPDATE sessions%' AND wait_event_type = 'Lock';";
    for _ in 0..3 {
        let other = world.other_session("BEGIN; UPDATE sessions SET title = 'mine' WHERE id = 's';");
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| db.append_message("s", message("waits")));
            wait_until("it waits", || world.psql(waiting) != "0");
            proxy.cut_all();
            wait_until("another attempt waits, or the first is gone", || world.psql(waiting) != "0");
            drop(other);
            writing.join().expect("no panic").expect("is acknowledged in the end")
        });
    }
    assert_eq!(world.texts(), ["first", "waits", "waits", "waits"]);
    assert_eq!(world.psql("SELECT message_count FROM sessions WHERE id = 's';"), "4");
}

#[test]
fn a_write_whose_server_was_killed_while_it_committed_is_stored_once_by_another_attempt() {
    let Some((world, _proxy, url)) = slow() else { return };
    let db = SessionDb::open(&url).expect("opens");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| db.append_message("s", message("slow")));
        wait_until("it is being committed", || world.psql(COMMITTING) == "1");
        world.server.kill();
        world.server.restart();
        writing.join().expect("no panic").expect("is stored");
    });
    assert_eq!(world.texts(), ["slow"]);
    assert_eq!(world.psql("SELECT count(*) FROM applied_writes WHERE attempt = 1;"), "1");
}

#[test]
fn a_patience_that_ends_before_the_acknowledgement_comes_says_that_the_write_may_be_stored() {
    let Some((world, proxy, url)) = slow() else { return };
    let db = open_with(&url, 4.0);
    // Told by the close of the connection, and by silence.
    for cut in [true, false] {
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| db.append_message("s", message("slow")));
            wait_until("it is being committed", || world.psql(COMMITTING) == "1");
            proxy.stall(true);
            if cut {
                proxy.cut_all();
            }
            let error = writing.join().expect("no panic").expect_err("nothing comes back");
            assert!(matches!(error, Error::Unreachable { perhaps_stored: true, .. }), "{error:?}");
            assert!(error.to_string().contains("may be stored"), "{error}");
        });
        proxy.stall(false);
        wait_until("it is over", || world.psql(COMMITTING) == "0");
    }
    // And so they were.
    assert_eq!(world.texts(), ["slow", "slow"]);
}

#[test]
fn a_write_that_was_not_stored_by_its_first_attempt_is_not_said_to_be_perhaps_stored() {
    let Some((world, proxy, url)) = slow() else { return };
    let db = open_with(&url, 12.0);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| db.append_message("s", message("slow")));
        wait_until("it is being committed", || world.psql(COMMITTING) == "1");
        // It is not to come back before the other is there.
        proxy.stall(true);
        world.server.kill();
        world.server.restart();
        // The next attempt finds that the first stored nothing, and a lock in its way.
        let other = world.other_session("BEGIN; UPDATE sessions SET title = 'mine' WHERE id = 's';");
        proxy.stall(false);
        let error = writing.join().expect("no panic").expect_err("the session is locked");
        let Error::LockedOnServer { holder: Some(holder), .. } = &error else { panic!("{error:?}") };
        assert_eq!(holder.pid, other.pid);
    });
    assert!(world.texts().is_empty());
}

#[test]
fn what_the_server_refuses_at_commit_fails_alone_and_is_not_stored() {
    let Some((world, proxy, url)) = slow() else { return };
    let db = SessionDb::open(&url).expect("opens");
    std::thread::scope(|scope| {
        // While this one is committed the others gather and are committed together.
        let first = scope.spawn(|| db.append_message("s", message("slow")));
        wait_until("it is being committed", || world.psql(COMMITTING) == "1");
        let writing: Vec<_> = ["one", "refused", "two"]
            .map(|text| (text, scope.spawn(|| db.append_message("s", message(text)))))
            .into_iter()
            .collect();
        first.join().expect("no panic").expect("is stored");
        for (text, one) in writing {
            let outcome = one.join().expect("no panic");
            let refused = matches!(outcome, Err(Error::Constraint { code: 275, .. }));
            assert_eq!((refused, outcome.is_err()), (text == "refused", text == "refused"), "{text}: {outcome:?}");
        }
    });
    let mut texts = world.texts();
    texts.sort();
    assert_eq!(texts, ["one", "slow", "two"]);
    assert_eq!(proxy.cuts(), 0);
}

#[test]
fn conflicts_at_commit_are_not_taken_for_lost_acknowledgements() {
    let Some(world) = World::make() else { return };
    // Every commit of a routine write has to make way, as the server sees it.
    let _ = world.psql(
        "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'make way' USING ERRCODE = '40001'; END $$;
         CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON state_meta DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION conflict();",
    );
    let db = open_with(&world.url, 2.0);
    let error = db.set_meta("key", "value").expect_err("is never let through");
    assert!(matches!(error, Error::LockedOnServer { .. }), "{error:?}");
    assert_eq!(world.psql("SELECT count(*) FROM state_meta;"), "0");
}
