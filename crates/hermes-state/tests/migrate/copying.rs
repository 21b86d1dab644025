//! Each direction, with everything kept as it is.

use hermes_state::{NewMessage, NewSession, SearchOptions, SessionDb, SessionQuery};
use hermes_state_testkit::shared;

use crate::world::{World, copy, dump, must_be_whole};

#[test]
fn a_file_copied_to_a_file_is_the_same() {
    let world = World::new();
    let from = world.awkward("from.db");
    let report = copy(&from, world.path("to.db")).expect("copies");
    assert!(report.is_equal() && report.tables.len() == 7 && !report.source_changed, "{report:?}");
    assert_eq!(report.passes, 1);
    assert!(dump(&from) == dump(&world.path("to.db")), "the copy differs");
    must_be_whole(&world.path("to.db"));
}

#[test]
fn a_file_copied_to_a_server_and_back_is_the_same() {
    let Some(server) = shared() else { return };
    let (world, space) = (World::new(), server.fresh());
    let from = world.awkward("from.db");
    let report = copy(&from, space.url()).expect("copies there");
    assert!(report.is_equal(), "{report:?}");
    let back = copy(space.url(), world.path("back.db")).expect("copies back");
    for (there, back) in report.tables.iter().zip(&back.tables) {
        assert_eq!(there.source_checksum, back.target_checksum, "{}", there.table);
    }
    assert!(dump(&from) == dump(&world.path("back.db")), "the copy differs");
    must_be_whole(&world.path("back.db"));
}

#[test]
fn a_server_copied_to_a_server_is_searched_and_written_as_before() {
    let Some(server) = shared() else { return };
    let (world, one, two) = (World::new(), server.fresh(), server.fresh());
    let from = world.awkward("from.db");
    copy(&from, one.url()).expect("copies");
    assert!(copy(one.url(), two.url()).expect("copies on").is_equal());
    let (file, db) = (SessionDb::open(&from).expect("opens"), SessionDb::open(two.url()).expect("opens"));
    for query in ["harbour", "plain message", "日本語", "\"message 12\"", "find"] {
        let ids = |db: &SessionDb| {
            let found = db.search_messages(query, &SearchOptions { limit: 500, ..SearchOptions::default() });
            let mut ids: Vec<i64> = found.expect("searches").iter().map(|hit| hit.id).collect();
            ids.sort_unstable();
            ids
        };
        assert!(!ids(&file).is_empty(), "{query}");
        assert_eq!(ids(&file), ids(&db), "{query}");
    }
    let count = |db: &SessionDb| db.session_count(&SessionQuery::default()).expect("counts");
    assert_eq!(count(&file), count(&db));
    // An id is never given twice, not even that of a message that is gone.
    let append = |db: &SessionDb| db.append_message("plain", NewMessage::new("user", "one more")).expect("appends");
    assert_eq!(append(&db), 777_778);
    assert_eq!(append(&file), 777_778);
}

#[test]
fn an_empty_store_is_copied_and_then_works() {
    let world = World::new();
    drop(SessionDb::open(world.path("from.db")).expect("opens"));
    assert!(copy(world.path("from.db"), world.path("to.db")).expect("copies").is_equal());
    let db = SessionDb::open(world.path("to.db")).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    assert_eq!(db.append_message("s", NewMessage::new("user", "first")).expect("appends"), 1);
    assert_eq!(db.search_messages("first", &SearchOptions::default()).expect("searches").len(), 1);
}

/// A writer that does not stop: the copy is the source as it was at one moment, and nothing that was acknowledged before
/// the copying began is missing.
fn online(to: &dyn AsRef<std::path::Path>, world: &World) {
    let from = world.awkward("from.db");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (report, before) = std::thread::scope(|scope| {
        let writing = SessionDb::open(&from).expect("opens");
        let before = writing.message_count(None).expect("counts");
        let stop = &stop;
        scope.spawn(move || {
            for number in 0.. {
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                writing.create_session(NewSession::new(format!("s{}", number % 50), "cli")).expect("creates");
                let text = format!("while copying {number}");
                writing.append_message(format!("s{}", number % 50), NewMessage::new("user", text)).expect("appends");
                writing.set_meta("counter", number.to_string()).expect("sets");
            }
        });
        let report = copy(&from, to);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (report.expect("copies"), before)
    });
    assert!(report.is_equal(), "{report:?}");
    assert!(report.source_changed || report.passes > 1, "the writer did not write");
    let copied = SessionDb::open(to).expect("opens");
    assert!(copied.message_count(None).expect("counts") >= before);
    let session = copied.session("s1").expect("reads");
    if let Some(session) = session {
        // Counters and rows are of the same moment.
        assert_eq!(session.message_count(), copied.message_count(Some("s1")).expect("counts"));
    }
    println!("{} passes, {} messages", report.passes, copied.message_count(None).expect("counts"));
}

#[test]
fn a_file_is_copied_to_a_file_while_it_is_written_to() {
    let world = World::new();
    online(&world.path("to.db"), &world);
    must_be_whole(&world.path("to.db"));
}

#[test]
fn a_file_is_copied_to_a_server_while_it_is_written_to() {
    let Some(server) = shared() else { return };
    let space = server.fresh();
    online(&space.url(), &World::new());
}
