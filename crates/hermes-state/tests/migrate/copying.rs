//! Each direction, with everything kept as it is.

use hermes_state::{MigrateOptions, NewMessage, NewSession, NewTopicBinding, SearchOptions, SessionDb, SessionQuery};
use hermes_state_testkit::shared;

use crate::support;
use crate::world::{World, behind_its_back, copy, dump, must_be_whole, run};

#[test]
fn a_file_copied_to_a_file_is_the_same() {
    let world = World::new();
    let from = world.awkward("from.db");
    let report = copy(&from, world.path("to.db")).expect("copies");
    assert!(report.is_equal() && report.tables.len() == 9 && !report.source_changed, "{report:?}");
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
    let append = |db: &SessionDb| {
        db.append_message("plain", NewMessage::new("user", "one more")).expect("appends").stored().expect("stored")
    };
    assert_eq!(append(&db), 777_778);
    assert_eq!(append(&file), 777_778);
}

#[test]
fn a_file_of_the_older_release_is_copied_though_it_has_no_keys_of_callers() {
    let world = World::new();
    let from = world.path("older.db");
    let original = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/state-v23.db");
    #[expect(clippy::disallowed_methods, reason = "nobody has either file open")]
    std::fs::copy(original, &from).expect("copied");
    let report = copy(&from, world.path("to.db")).expect("copies");
    assert!(report.is_equal() && report.tables[1].source_rows == 252, "{report:?}");
    let db = SessionDb::open_read_only(&from).expect("opens");
    let session = db.list_sessions(&SessionQuery::default()).expect("lists")[0].id().to_owned();
    let row = &db.messages(session.as_str(), &Default::default()).expect("reads")[0];
    assert!(row.record().get("client_key").is_none(), "the source was not touched");
    let merged = MigrateOptions::new().merge(true);
    let other = world.path("merged.db");
    drop(SessionDb::open(&other).expect("opens"));
    assert_eq!(run(&from, &other, &merged).expect("merges").tables[1].copied, 252);
}

#[test]
fn an_empty_store_is_copied_and_then_works() {
    let world = World::new();
    drop(SessionDb::open(world.path("from.db")).expect("opens"));
    assert!(copy(world.path("from.db"), world.path("to.db")).expect("copies").is_equal());
    let db = SessionDb::open(world.path("to.db")).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    assert_eq!(db.append_message("s", NewMessage::new("user", "first")).expect("appends").stored().expect("stored"), 1);
    assert_eq!(db.search_messages("first", &SearchOptions::default()).expect("searches").len(), 1);
}

#[test]
fn a_file_without_topics_gets_none_and_its_rows_travel_through_a_server() {
    let Some(server) = shared() else { return };
    let (world, space) = (World::new(), server.fresh());
    let db = SessionDb::open(world.path("from.db")).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    db.close().expect("closes");
    let report = copy(world.path("from.db"), space.url()).expect("copies there");
    assert!(report.is_equal(), "{report:?}");
    assert!(copy(space.url(), world.path("to.db")).expect("copies back").is_equal());
    let topics = "SELECT COUNT(*) FROM sqlite_master WHERE name LIKE 'telegram%'";
    assert_eq!(
        support::python_says(
            &world.path("to.db"),
            &format!("print(sqlite3.connect(path).execute(\"{topics}\").fetchone()[0])")
        ),
        "0"
    );
}

#[test]
fn a_binding_of_a_session_that_is_gone_stays_behind() {
    let Some(server) = shared() else { return };
    let (world, space) = (World::new(), server.fresh());
    let db = SessionDb::open(world.path("from.db")).expect("opens");
    for id in ["here", "gone"] {
        db.create_session(NewSession::new(id, "telegram")).expect("creates");
        db.bind_telegram_topic(NewTopicBinding::new("c", id, id).user_id("u").session_key("k")).expect("binds");
    }
    db.close().expect("closes");
    behind_its_back(&world.path("from.db"), "PRAGMA foreign_keys = OFF; DELETE FROM sessions WHERE id = 'gone'");
    let report = copy(world.path("from.db"), space.url()).expect("copies");
    let noted: Vec<_> = report.notes.iter().map(|note| (note.table, note.key.as_deref())).collect();
    assert_eq!(noted, [("telegram_dm_topic_bindings", Some("\"c\", \"gone\""))]);
    let copied = SessionDb::open(space.url()).expect("opens");
    let bound = copied.list_telegram_topic_bindings_for_chat("c").expect("reads");
    assert_eq!(bound.iter().map(|binding| binding.session_id.as_str()).collect::<Vec<_>>(), ["here"]);
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
