//! What is refused, before anything is changed.

use std::path::{Path, PathBuf};

use hermes_state::{
    Error, MigrateOptions, MigrationPhase, MigrationReport, MigrationTarget, MigrationTrouble, NewMessage, NewSession,
    SessionDb, migrate, plan_migration,
};
use hermes_state_testkit::shared;

use crate::support::python_says;
use crate::world::{World, behind_its_back, copy, dump, run};

fn trouble(outcome: hermes_state::Result<hermes_state::MigrationReport>) -> MigrationTrouble {
    match outcome {
        Err(Error::Migration(trouble)) => *trouble,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_target_with_content_is_refused_and_stays_as_it_is() {
    let world = World::new();
    let (from, to) = (world.awkward("from.db"), world.path("to.db"));
    let db = SessionDb::open(&to).expect("opens");
    db.set_meta("k", "v").expect("sets");
    let found = trouble(copy(&from, &to));
    assert!(matches!(found, MigrationTrouble::NotEmpty { table: "state_meta", .. }), "{found}");
    assert_eq!(db.meta("k").expect("reads").as_deref(), Some("v"));
    let same = trouble(copy(&from, &from));
    assert!(matches!(same, MigrationTrouble::SameStore(_)), "{same}");
}

#[test]
fn an_unfinished_run_is_only_continued_from_where_it_came() {
    let world = World::new();
    let (from, other) = (world.awkward("from.db"), world.path("other.db"));
    drop(SessionDb::open(&other).expect("opens"));
    let to = world.path("to.db");
    let db = SessionDb::open(&to).expect("opens");
    db.set_meta("unfinished_migration", format!(r#"{{"source":{other:?},"merge":false}}"#)).expect("sets");
    let found = trouble(copy(&from, &to));
    assert!(matches!(found, MigrationTrouble::Unfinished { .. }), "{found}");
    let found = trouble(copy(&to, world.path("third.db")));
    assert!(matches!(found, MigrationTrouble::SourceUnfinished(_)), "{found}");
}

#[test]
fn messages_without_a_session_are_refused_and_loose_links_are_told_of() {
    let world = World::new();
    let from = world.awkward("from.db");
    let orphans = "PRAGMA foreign_keys = OFF; \
        INSERT INTO messages (id, session_id, role, timestamp) VALUES (9000, 'nobody', 'user', 1); \
        UPDATE sessions SET parent_session_id = 'gone' WHERE id = 'plain'; \
        INSERT INTO session_model_usage (session_id, model) VALUES ('gone', 'm')";
    behind_its_back(&from, orphans);
    let MigrationTrouble::Problems { count: 1, first } = trouble(copy(&from, world.path("to.db"))) else { panic!() };
    assert_eq!((first[0].table, first[0].key.as_deref()), ("messages", Some("9000")));
    assert_eq!(SessionDb::open(world.path("to.db")).expect("opens").message_count(None).expect("counts"), 0);
    // The next step that the error names.
    SessionDb::open(&from).expect("opens").create_session(NewSession::new("nobody", "cli")).expect("creates");
    let again =
        "PRAGMA foreign_keys = OFF; INSERT OR IGNORE INTO session_model_usage (session_id, model) VALUES ('gone', 'm')";
    behind_its_back(&from, again);
    let report = copy(&from, world.path("to.db")).expect("copies");
    assert!(report.is_equal());
    let told: Vec<&str> = report.notes.iter().map(|note| note.table).collect();
    assert_eq!(told, ["sessions", "session_model_usage"], "{:?}", report.notes);
    let copied = SessionDb::open(world.path("to.db")).expect("opens");
    assert_eq!(copied.session("plain").expect("reads").expect("is there").parent_session_id(), None);
}

#[test]
fn text_that_is_none_is_named_by_row_and_column() {
    let world = World::new();
    let from = world.awkward("from.db");
    let bad = "UPDATE messages SET reasoning = CAST(x'61ff62' AS TEXT) WHERE id IN (5, 250)";
    behind_its_back(&from, bad);
    let MigrationTrouble::Problems { count, first } = trouble(copy(&from, world.path("to.db"))) else { panic!() };
    let named: Vec<_> = first.iter().map(|problem| (problem.key.as_deref(), problem.column.as_deref())).collect();
    assert_eq!(count, 2, "{first:?}");
    assert_eq!(named, [(Some("5"), Some("reasoning")), (Some("250"), Some("reasoning"))]);
}

#[test]
fn values_that_a_server_cannot_hold_are_named_and_a_file_takes_them() {
    let world = World::new();
    let from = world.awkward("from.db");
    let bad = "UPDATE messages SET token_count = 'many' WHERE id = 4; UPDATE sessions SET ended_at = 'late' WHERE id = 'a'; \
               UPDATE messages SET token_count = 1.5 WHERE id = 6";
    behind_its_back(&from, bad);
    assert!(copy(&from, world.path("to.db")).expect("a file takes them").is_equal());
    assert!(dump(&from) == dump(&world.path("to.db")));
    let source = SessionDb::open_read_only(&from).expect("opens");
    let plan = plan_migration(&source, MigrationTarget::NewServer, &MigrateOptions::new(), &mut |_| {}).expect("plans");
    let named: Vec<_> = plan.problems.iter().map(|problem| (problem.table, problem.key.as_deref())).collect();
    assert_eq!(named, [("sessions", Some("\"a\"")), ("messages", Some("4")), ("messages", Some("6"))]);
    if let Some(server) = shared() {
        let space = server.fresh();
        let found = trouble(copy(&from, space.url()));
        assert!(matches!(found, MigrationTrouble::Problems { count: 3, .. }), "{found}");
    }
}

#[test]
fn columns_of_other_releases_are_refused_unless_they_are_to_be_ignored() {
    let world = World::new();
    let from = world.awkward("from.db");
    behind_its_back(&from, "ALTER TABLE sessions ADD COLUMN \"new \"\"thing\" TEXT");
    copy(&from, world.path("one.db")).expect("an empty column is no loss");
    behind_its_back(&from, "UPDATE sessions SET \"new \"\"thing\" = 'x' WHERE id = 'a'");
    let found = trouble(copy(&from, world.path("two.db")));
    assert!(matches!(found, MigrationTrouble::Problems { count: 1, .. }), "{found}");
    let report = run(&from, world.path("two.db"), &MigrateOptions::new().ignore_unknown(true)).expect("copies");
    assert!(report.is_equal() && report.notes.len() == 1, "{report:?}");
}

#[test]
fn a_plan_changes_and_makes_nothing() {
    let world = World::new();
    let (from, to) = (world.awkward("from.db"), world.path("to.db"));
    let before = dump(&from);
    let source = SessionDb::open_read_only(&from).expect("opens");
    let plan = plan_migration(&source, MigrationTarget::NewFile, &MigrateOptions::new(), &mut |_| {}).expect("plans");
    assert!(plan.dry_run && plan.problems.is_empty());
    let copied: Vec<(&str, u64)> = plan.tables.iter().map(|table| (table.table, table.copied)).collect();
    assert_eq!(copied[..4], [("sessions", 8), ("messages", 441), ("session_model_usage", 140), ("state_meta", 41)]);
    drop(source);
    assert!(!to.exists() && dump(&from) == before);
}

#[test]
fn what_others_write_into_a_target_is_never_removed() {
    let world = World::new();
    let (from, to) = (world.awkward("from.db"), world.path("to.db"));
    copy(&from, &to).expect("copies");
    let db = SessionDb::open(&to).expect("opens");
    let source = SessionDb::open(&from).expect("opens").path().display().to_string();
    db.set_meta("unfinished_migration", format!(r#"{{"source":{source:?},"merge":false}}"#)).expect("sets");
    db.create_session(NewSession::new("theirs", "cli")).expect("creates");
    let id = db.append_message("theirs", NewMessage::new("user", "written too early")).expect("appends");
    let found = trouble(copy(&from, &to));
    assert!(matches!(found, MigrationTrouble::WrittenByOthers { .. }), "{found}");
    // The source comes to the same id.
    let theirs = SessionDb::open(&from)
        .expect("opens")
        .append_message("plain", NewMessage::new("user", "other"))
        .expect("appends");
    assert_eq!(id, theirs);
    let found = trouble(copy(&from, &to));
    assert!(matches!(found, MigrationTrouble::WrittenByOthers { .. }), "{found}");
    assert_eq!(db.message_count(Some("theirs")).expect("counts"), 1);
}

/// Changes a file that this process has open.
fn from_outside(path: &Path, sql: &str) {
    python_says(path, &format!("sqlite3.connect(path).executescript({sql:?})"));
}

/// Copies, and the first time that this table is being copied does something.
fn interfered(from: &Path, to: &Path, table: &str, meanwhile: &dyn Fn()) -> hermes_state::Result<MigrationReport> {
    let (from, to) = (SessionDb::open_read_only(from)?, SessionDb::open(to)?);
    let mut done = false;
    migrate(&from, &to, &MigrateOptions::new(), &mut |progress| {
        if progress.phase == MigrationPhase::Copying && progress.table == table && !done {
            done = true;
            meanwhile();
        }
    })
}

type Writes = fn(&SessionDb);

#[test]
fn what_others_write_without_a_message_is_kept_and_named() {
    let writes: [(Writes, &str, &str); 2] = [
        (|db| db.create_session(NewSession::new("theirs", "cli")).expect("creates"), "sessions", "theirs"),
        (|db| db.set_meta("theirs", "x").expect("sets"), "state_meta", "theirs"),
    ];
    for (write, table, key) in writes {
        let world = World::new();
        let from = world.awkward("from.db");
        let mut targets = vec![world.path("to.db")];
        let space = shared().map(|server| server.fresh());
        if cfg!(feature = "postgres") {
            targets.extend(space.as_ref().map(|space| PathBuf::from(space.url())));
        }
        for to in targets {
            let meanwhile = || write(&SessionDb::open(&to).expect("opens"));
            // By the run in which it happened, and by the next one, which knows less.
            for found in [trouble(interfered(&from, &to, "sessions", &meanwhile)), trouble(copy(&from, &to))] {
                let told = found.to_string();
                assert!(matches!(found, MigrationTrouble::WrittenByOthers { .. }), "{told}");
                assert!(told.contains(table) && told.contains(key), "{told}");
            }
            let db = SessionDb::open(&to).expect("opens");
            let kept = db.session("theirs").expect("reads").is_some() || db.meta("theirs").expect("reads").is_some();
            assert!(kept, "{table} of {}", to.display());
            drop(db);
            // Whoever takes it out himself can go on.
            if to.starts_with(world.path("")) {
                behind_its_back(
                    &to,
                    "DELETE FROM sessions WHERE id = 'theirs'; DELETE FROM state_meta WHERE key = 'theirs'",
                );
                assert!(copy(&from, &to).expect("goes on").resumed);
                assert!(dump(&from) == dump(&to), "the copy differs");
            }
        }
    }
}

#[test]
fn what_the_source_loses_while_it_is_copied_is_lost_in_the_copy() {
    let world = World::new();
    let (from, to) = (world.awkward("from.db"), world.path("to.db"));
    let meanwhile = || {
        from_outside(
            &from,
            "DELETE FROM state_meta WHERE key = (SELECT MAX(key) FROM state_meta WHERE key NOT LIKE 'fts%'); \
             DELETE FROM messages WHERE session_id = 'zz later'; DELETE FROM gateway_routing; \
             DELETE FROM session_model_usage WHERE session_id = 'zz later'; \
             DELETE FROM telegram_dm_topic_bindings WHERE session_id = 'zz later'; \
             UPDATE sessions SET parent_session_id = NULL WHERE id = 'a'; DELETE FROM sessions WHERE id = 'zz later'; \
             INSERT INTO messages (session_id, role, timestamp) VALUES ('plain', 'user', 1)",
        );
    };
    let report = interfered(&from, &to, "async_delegations", &meanwhile).expect("copies");
    assert!(report.passes > 1 && report.is_equal() && !report.source_changed, "{report:?}");
    let removed: Vec<u64> = report.tables.iter().map(|table| table.removed).collect();
    assert_eq!(removed, [1, 20, 20, 1, 40, 0, 0, 0, 1], "{report:?}");
    assert!(dump(&from) == dump(&to), "the copy differs");
}

#[test]
fn changes_of_the_source_that_the_copy_does_not_have_are_told() {
    for (sql, told) in [
        ("UPDATE sessions SET ended_at = 5 WHERE id = 'plain'", true),
        ("UPDATE state_meta SET value = 'other' WHERE key = (SELECT MIN(key) FROM state_meta)", true),
        ("DELETE FROM messages WHERE id = 7", true),
        ("DELETE FROM compression_locks", true),
        ("SELECT 1", false),
    ] {
        let world = World::new();
        let (from, to) = (world.awkward("from.db"), world.path("to.db"));
        let meanwhile = || from_outside(&from, sql);
        let report = interfered(&from, &to, "async_delegations", &meanwhile).expect("copies");
        assert_eq!((report.is_equal(), report.source_changed), (true, told), "{sql}");
    }
}
