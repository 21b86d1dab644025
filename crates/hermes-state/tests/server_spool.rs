//! A server that is away longer than anybody is patient: what was appended meanwhile is stored when it is back, once and in
//! order.
#![cfg(all(target_os = "linux", feature = "postgres"))]
#![expect(clippy::print_stdout, reason = "tests say what they saw")]

mod support;
#[path = "support/world.rs"]
mod world;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hermes_state::{Error, LockKind, NewMessage, OpenOptions, SessionDb};
use hermes_state_testkit::CuttingProxy;
use support::{play, role};
use world::{World, patience, wait_until};

fn message(text: &str) -> NewMessage {
    NewMessage::new("user", text)
}

fn open(url: &str, spool: &std::path::Path, seconds: f64) -> hermes_state::Result<SessionDb> {
    OpenOptions::new().patience(patience(seconds)).spool_folder(spool.to_owned()).open(url)
}

#[test]
fn a_server_stopped_longer_than_the_patience_costs_no_message() {
    let Some(world) = World::make() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(&world.url, folder.path(), 1.5).expect("opens");
    db.append_message("s", message("before")).expect("appends").id().expect("is stored");
    world.server.stop();
    assert!(db.append_message("s", message("one")).expect("is kept").is_spooled());
    assert!(db.append_messages("s", vec![message("two"), message("three")]).expect("is kept").is_spooled());
    assert_eq!(db.spool_status().expect("reads").expect("has one").writes, 2);
    drop(db);
    // One that finds no server at all.
    let late = open(&world.url, folder.path(), 0.5).expect("gives a handle");
    assert!(late.append_message("s", message("four")).expect("is kept").is_spooled());
    assert!(matches!(late.message_count(None), Err(Error::Server { .. })));
    assert_eq!(late.spool_status().expect("reads").expect("has one").writes, 3);
    world.server.restart();
    let db = open(&world.url, folder.path(), 60.0).expect("opens");
    assert_eq!(world.texts(), ["before", "one", "two", "three", "four"], "the opening stores them");
    late.set_patience(patience(60.0));
    std::thread::scope(|scope| {
        let both = [&db, &late].map(|db| scope.spawn(|| db.append_message("s", message("after")).expect("appends")));
        both.into_iter().for_each(|one| assert!(one.join().expect("no panic").id().is_some()));
    });
    assert_eq!(world.texts(), ["before", "one", "two", "three", "four", "after", "after"]);
    assert_eq!(world.psql("SELECT message_count FROM sessions WHERE id = 's';"), "7");
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
}

/// A commit with a message that says `slow` takes so long, when everything else of the transaction is done.
const SLOW_COMMITS: &str = "
    CREATE FUNCTION slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.content LIKE 'slow%' THEN PERFORM pg_sleep(2); END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON messages DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slow_commit();";

const COMMITTING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event = 'PgSleep';";

/// The acknowledgement of a commit is lost, and then the way to the server for longer than the patience.
#[test]
fn a_write_that_may_be_stored_is_spooled_and_not_stored_twice() {
    let Some(world) = World::make() else { return };
    let _ = world.psql(SLOW_COMMITS);
    let folder = tempfile::tempdir().expect("a folder");
    let proxy = CuttingProxy::start(&world.server.host_port(), 1);
    let db = open(&proxy.url(&world.url), folder.path(), 4.0).expect("opens");
    for (number, forgotten) in [false, true].into_iter().enumerate() {
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| db.append_message("s", message(&format!("slow {number}"))));
            wait_until("it is being committed", || world.psql(COMMITTING) == "1");
            proxy.stall(true);
            assert!(writing.join().expect("no panic").expect("is kept").is_spooled());
        });
        proxy.stall(false);
        wait_until("it is over", || world.psql(COMMITTING) == "0");
        if forgotten {
            // As when nobody could store the spooled write for longer than such notes are kept.
            let _ = world.psql("DELETE FROM applied_writes;");
        }
        db.set_patience(patience(60.0));
        let report = db.replay_spool(false).expect("replays");
        assert_eq!((report.stored, report.found_stored), (0, 1), "forgotten: {forgotten}");
        db.set_patience(patience(4.0));
    }
    assert_eq!(world.texts(), ["slow 0", "slow 1"]);
    assert_eq!(world.psql("SELECT message_count FROM sessions WHERE id = 's';"), "2");
}

/// Where the processes of a test find the spool.
const SPOOLS: &str = "HERMES_STATE_TEST_SPOOLS";

/// Two replays at once, killed again and again wherever they are, beside a server that stops between them.
#[test]
fn replays_into_a_server_that_are_killed_store_each_write_once_and_in_order() {
    const NAME: &str = "replays_into_a_server_that_are_killed_store_each_write_once_and_in_order";
    if let Some((_, url)) = role() {
        let folder = std::env::var_os(SPOOLS).expect("is told");
        let db = open(url.to_str().expect("a URL"), Path::new(&folder), 60.0).expect("opens");
        return db.replay_spool(false).map(drop).expect("replays");
    }
    let Some(world) = World::make() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let db = open(&world.url, folder.path(), 60.0).expect("opens");
    let mut expected = Vec::new();
    let mut dice = u64::from(std::process::id()) | 1;
    let mut cut_short = 0;
    for round in 0..3 {
        world.server.stop();
        db.set_patience(patience(0.0));
        for number in 0..150 {
            let texts = [format!("{round}x{number}a"), format!("{round}x{number}b")];
            let messages = texts.iter().map(|text| message(text)).collect();
            assert!(db.append_messages("s", messages).expect("is kept").is_spooled());
            expected.extend(texts);
        }
        world.server.restart();
        for _ in 0..4 {
            let mut replays = [(); 2].map(|()| {
                let mut command = play(NAME, "replay", Path::new(&world.url), LockKind::Ordinary);
                command.env(SPOOLS, folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs")
            });
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            std::thread::sleep(Duration::from_millis(5 + dice % 120));
            for replay in &mut replays {
                cut_short += usize::from(replay.try_wait().expect("asks").is_none());
                replay.kill().expect("killed");
                replay.wait().expect("reaped");
            }
        }
        println!("round {round}: {} of {} stored by replays that were killed", world.texts().len(), expected.len());
        db.set_patience(patience(60.0));
        let last = format!("last of {round}");
        db.append_message("s", message(&last)).expect("appends").id().expect("is stored");
        expected.push(last);
        assert_eq!(world.texts(), expected);
    }
    assert!(cut_short > 3, "the replays were over too soon to be killed");
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
}
