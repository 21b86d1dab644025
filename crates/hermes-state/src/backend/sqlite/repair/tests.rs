//! Files damaged in each way that is known from the field.
#![expect(clippy::disallowed_methods, reason = "no connection of this process is on the file while it is damaged")]

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::{NewMessage, NewSession, SearchOptions, SessionDb, Spool};

struct World {
    folder: tempfile::TempDir,
}

impl World {
    /// A store of so many sessions with fifty messages each.
    fn of(sessions: usize) -> Self {
        let world = Self { folder: tempfile::tempdir().expect("a folder") };
        let db = world.open();
        for session in 0..sessions {
            let id = format!("session-{session:03}");
            db.create_session(NewSession::new(id.as_str(), "cli").system_prompt("You are helpful. ".repeat(40)))
                .expect("creates");
            let texts = (0..50).map(|number| format!("marker{session}x{number} {}", "filler words ".repeat(12)));
            let messages = texts.map(|text| NewMessage::new("user", text)).collect();
            db.append_messages(id.as_str(), messages).expect("appends");
        }
        db.close().expect("closes");
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    fn open(&self) -> SessionDb {
        SessionDb::open(self.path()).expect("opens")
    }

    /// Runs SQL on the file as whoever damages it would.
    fn sql(&self, sql: &str) -> i64 {
        let connection = rusqlite::Connection::open(self.path()).expect("opens");
        connection.execute_batch("PRAGMA writable_schema=ON").expect("damages");
        match sql.starts_with("SELECT") {
            true => connection.query_row(sql, [], |row| row.get(0)).expect("a number"),
            false => connection.execute_batch(sql).map(|()| 0).expect("damages"),
        }
    }

    /// The numbers of a b-tree's leaf pages.
    fn leaves(&self, table: &str) -> Vec<usize> {
        let connection = rusqlite::Connection::open(self.path()).expect("opens");
        let mut statement = connection
            .prepare("SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY path")
            .expect("dbstat");
        let pages = statement.query_map([table], |row| row.get::<_, i64>(0)).expect("asks");
        pages.map(|page| usize::try_from(page.expect("a page")).expect("a number")).collect()
    }

    /// Puts noise into pages.
    fn noise(&self, pages: &[usize]) {
        let mut bytes = fs::read(self.path()).expect("reads");
        let mut dice = 88_172_645_463_325_252_u64;
        for page in pages {
            for byte in &mut bytes[(page - 1) * 4096..page * 4096] {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                *byte = dice.to_le_bytes()[3];
            }
        }
        fs::write(self.path(), bytes).expect("writes");
    }

    fn repair(&self) -> RepairReport {
        let report = repair(&self.path(), &RepairOptions::default()).expect("repairs");
        assert_eq!(ailment(&self.path()).expect("looks"), None);
        assert_eq!(self.files_of_repairs(), Vec::<String>::new(), "working copies are gone");
        report
    }

    fn files_of_repairs(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).expect("lists");
        names
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name.contains("repairing"))
            .collect()
    }

    /// The store has these counts, whole counters and a search that finds.
    fn is_whole(&self, sessions: i64, messages: i64) {
        let db = self.open();
        let status = db.status().expect("status");
        assert_eq!((status.sessions, status.messages), (sessions, messages));
        let hits = db.search_messages("marker0x7", &SearchOptions::default()).expect("searches");
        assert_eq!((hits.len(), hits.degraded), (1, false));
        db.close().expect("closes");
        let off = "SELECT COUNT(*) FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id)";
        assert_eq!(self.sql(off), 0, "counters agree with rows");
        assert_eq!(self.sql("SELECT COUNT(*) FROM pragma_foreign_key_check"), 0);
    }
}

fn rows(report: &RepairReport, table: &str) -> RepairedTable {
    report.tables.iter().find(|found| found.name == table).expect("a table").clone()
}

#[test]
fn a_file_that_is_well_is_left_alone() {
    let world = World::of(1);
    let before = fs::read(world.path()).expect("reads");
    let report = world.repair();
    assert_eq!((report.strategy, report.backup), (RepairStrategy::AlreadyHealthy, None));
    assert_eq!(fs::read(world.path()).expect("reads"), before);
    let missing = world.folder.path().join("absent.db");
    let error = repair(&missing, &RepairOptions::default()).expect_err("there is none");
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(!missing.exists());
}

#[test]
fn a_search_index_whose_blocks_are_noise_is_filled_anew_and_the_damaged_file_kept() {
    let world = World::of(3);
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    let damaged = fs::read(world.path()).expect("reads");
    let health = look(&world.path(), CheckDepth::Quick).expect("looks");
    assert_eq!(health.verdict(), "index damaged, transcript intact", "{health:?}");
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::RebuildFts, "{:?}", report.notes);
    assert_eq!(
        rows(&report, "messages"),
        RepairedTable { before: Some(150), rows: 150, ..RepairedTable::empty("messages".into()) }
    );
    let backup = report.backup.expect("a backup");
    assert!(backup.to_string_lossy().contains("state.db.malformed-backup-"), "{}", backup.display());
    assert_eq!(fs::read(&backup).expect("reads"), damaged, "byte for byte");
    world.is_whole(3, 150);
}

#[test]
fn an_ordinary_index_that_disagrees_with_its_table_is_made_anew() {
    let world = World::of(2);
    // A row is put in while the index looks like one that leaves it out.
    world.sql(
        "UPDATE sqlite_schema SET sql = sql || ' WHERE source <> ''cli''' WHERE name = 'idx_sessions_source';
         PRAGMA schema_version = 4711",
    );
    world.sql("INSERT INTO sessions (id, source, started_at) VALUES ('unindexed', 'cli', 1)");
    world.sql(
        "UPDATE sqlite_schema SET sql = replace(sql, ' WHERE source <> ''cli''', '') WHERE name = 'idx_sessions_source';
         PRAGMA schema_version = 4712",
    );
    assert!(look(&world.path(), CheckDepth::Full).expect("looks").verdict().starts_with("index damaged"));
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::ReindexBtree, "{:?}", report.notes);
    world.is_whole(3, 100);
}

#[test]
fn an_object_that_the_schema_has_twice_stands_there_once() {
    let world = World::of(2);
    world.sql("INSERT INTO sqlite_schema SELECT * FROM sqlite_schema WHERE name = 'idx_messages_session'");
    let health = look(&world.path(), CheckDepth::Quick).expect("looks");
    assert_eq!(health.verdict(), "index damaged, transcript intact", "{health:?}");
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::DedupSchema, "{:?}", report.notes);
    world.is_whole(2, 100);
}

#[test]
fn a_search_table_that_cannot_be_loaded_is_taken_out_and_made_anew() {
    let world = World::of(2);
    world.sql("UPDATE sqlite_schema SET sql = 'CREATE TABLE messages_fts_config(' WHERE name = 'messages_fts_config'");
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::DropFtsRebuild, "{:?}", report.notes);
    world.is_whole(2, 100);
}

#[test]
fn of_leaf_pages_full_of_noise_only_their_own_messages_are_lost() {
    let world = World::of(20);
    let leaves = world.leaves("messages");
    assert!(leaves.len() > 40, "{leaves:?}");
    world.noise(&[leaves[3], leaves[5], leaves[20], leaves[leaves.len() - 1]]);
    let damaged = fs::read(world.path()).expect("reads");
    let health = look(&world.path(), CheckDepth::Quick).expect("looks");
    assert_eq!((health.verdict(), health.unreadable), ("transcript damaged", vec!["messages".to_owned()]));
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::SalvageRows, "{:?}", report.notes);
    let messages = rows(&report, "messages");
    assert_eq!(messages.rows + messages.lost, 1000, "{messages:?}");
    // Four of some sixty pages with about sixteen rows each.
    assert!((4..=100).contains(&messages.lost), "{messages:?}");
    assert!(report.has_losses());
    assert_eq!(fs::read(report.backup.expect("kept")).expect("reads"), damaged, "byte for byte");
    world.is_whole(20, i64::try_from(messages.rows).expect("a number"));
    let db = world.open();
    let id =
        db.append_message("session-000", NewMessage::new("user", "next")).expect("appends").stored().expect("stored");
    assert!(id > 1000, "no id is given twice: {id}");
}

#[test]
fn messages_whose_session_is_lost_keep_one() {
    let world = World::of(40);
    let leaves = world.leaves("sessions");
    assert!(leaves.len() > 4, "{leaves:?}");
    world.noise(&leaves[1..3]);
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::SalvageRows, "{:?}", report.notes);
    assert_eq!(rows(&report, "messages").rows, 2000, "{report:?}");
    let sessions = rows(&report, "sessions");
    assert_eq!(sessions.rows, 40, "{sessions:?}");
    assert!(sessions.made > 1 && sessions.made == sessions.lost, "{sessions:?}");
    world.is_whole(40, 2000);
    let made = world.sql("SELECT COUNT(*) FROM sessions WHERE source = 'unknown'");
    assert_eq!(made, i64::try_from(sessions.made).expect("a number"));
}

#[test]
fn a_file_cut_short_keeps_what_is_left() {
    let world = World::of(20);
    let bytes = fs::read(world.path()).expect("reads");
    fs::write(world.path(), &bytes[..bytes.len() / 2 / 4096 * 4096]).expect("writes");
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::SalvageRows, "{:?}", report.notes);
    let messages = rows(&report, "messages");
    assert!(messages.rows > 100 && messages.rows < 1000, "{messages:?}");
    let db = world.open();
    assert_eq!(db.status().expect("status").messages, i64::try_from(messages.rows).expect("a number"));
}

#[test]
fn what_is_beyond_repair_is_left_as_it_was() {
    let world = World::of(1);
    let mut bytes = fs::read(world.path()).expect("reads");
    bytes[..100].fill(7);
    fs::write(world.path(), &bytes).expect("writes");
    let error = repair(&world.path(), &RepairOptions::default()).expect_err("no database");
    assert!(error.to_string().contains("not a database"), "{error}");
    assert_eq!(fs::read(world.path()).expect("reads"), bytes);
    let names: Vec<_> =
        fs::read_dir(world.folder.path()).expect("lists").map(|entry| entry.expect("one").file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("backup")), "{names:?}");
}

#[test]
fn without_a_backup_only_a_file_that_lost_nothing_goes() {
    let options = RepairOptions { backup: false, ..RepairOptions::default() };
    let world = World::of(3);
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    assert_eq!(repair(&world.path(), &options).expect("repairs").backup, None);
    world.is_whole(3, 150);
    let leaves = world.leaves("messages");
    world.noise(&leaves[2..3]);
    let report = repair(&world.path(), &options).expect("repairs");
    assert!(report.backup.expect("kept, for what was lost").exists());
}

#[test]
fn two_backups_of_one_second_have_two_names() {
    let world = World::of(2);
    let options = RepairOptions { stamp: Some("20260102_030405".into()), ..RepairOptions::default() };
    let mut names = Vec::new();
    for _ in 0..2 {
        world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
        let backup = repair(&world.path(), &options).expect("repairs").backup.expect("a backup");
        names.push(backup.file_name().expect("a name").to_string_lossy().into_owned());
    }
    let first = "state.db.malformed-backup-20260102_030405";
    assert_eq!(names, [first.to_owned(), format!("{first}_2")]);
}

#[test]
fn a_file_that_this_process_has_open_is_left_alone() {
    let world = World::of(2);
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    let db = world.open();
    let error = repair(&world.path(), &RepairOptions::default()).expect_err("in use");
    assert!(
        matches!(&error, Error::InUse { users, .. } if users[0].pid == std::process::id().cast_signed()),
        "{error:?}"
    );
    db.append_message("session-000", NewMessage::new("user", "unharmed")).map(drop).unwrap_or_default();
    db.close().expect("closes");
    world.repair();
}

#[test]
fn what_killed_repairs_left_goes_with_the_next() {
    let world = World::of(2);
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    let left = world.folder.path().join("state.db.repairing-copy-1-0");
    fs::write(&left, "half").expect("writes");
    let second_name = world.folder.path().join("state.db.malformed-backup-20200101_000000");
    fs::hard_link(world.path(), &second_name).expect("links");
    world.repair();
    assert!(!left.exists() && !second_name.exists());
}

#[test]
fn a_file_of_a_newer_release_is_not_repaired() {
    let world = World::of(2);
    world
        .sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10; UPDATE schema_version SET version = 99");
    let before = fs::read(world.path()).expect("reads");
    let error = repair(&world.path(), &RepairOptions::default()).expect_err("too new");
    assert!(matches!(error, Error::TooNew { found: 99, .. }), "{error:?}");
    assert_eq!(fs::read(world.path()).expect("reads"), before);
}

#[test]
fn the_log_of_a_killed_writer_is_part_of_what_is_repaired() {
    let world = World::of(2);
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    // As a killed writer leaves it: rows that only the log holds.
    let connection = rusqlite::Connection::open(world.path()).expect("opens");
    connection
        .execute_batch(
            "PRAGMA wal_autocheckpoint=0; DROP TRIGGER messages_fts_insert; DROP TRIGGER messages_fts_trigram_insert;
             INSERT INTO messages (session_id, role, content, timestamp) VALUES ('session-000', 'user', 'in the log', 1);
             UPDATE sessions SET message_count = 51 WHERE id = 'session-000'",
        )
        .expect("writes");
    let (main, log) = (world.path(), world.folder.path().join("state.db-wal"));
    let copies = [(main.clone(), fs::read(&main)), (log.clone(), fs::read(&log))];
    drop(connection);
    for (path, bytes) in copies {
        fs::write(path, bytes.expect("read")).expect("writes");
    }
    world.repair();
    world.is_whole(2, 101);
}

/// The b-trees of the file, each with a leaf page from its middle and the cells on it.
fn trees(world: &World) -> Vec<(String, usize, u64)> {
    let connection = rusqlite::Connection::open(world.path()).expect("opens");
    let mut statement = connection
        .prepare("SELECT name, pageno, ncell FROM dbstat WHERE pagetype = 'leaf' AND ncell > 0 ORDER BY name, path")
        .expect("dbstat");
    let leaves = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("asks");
    let leaves: Vec<(String, i64, i64)> = leaves.collect::<rusqlite::Result<_>>().expect("reads");
    let mut trees: std::collections::BTreeMap<String, Vec<(usize, u64)>> = Default::default();
    for (name, page, cells) in leaves {
        trees.entry(name).or_default().push((usize::try_from(page).expect("one"), u64::try_from(cells).expect("one")));
    }
    trees.into_iter().map(|(name, leaves)| (name, leaves[leaves.len() / 2].0, leaves[leaves.len() / 2].1)).collect()
}

#[test]
fn noise_in_a_leaf_of_any_table_or_index_costs_what_lay_on_it_and_says_so() {
    let world = World::of(20);
    world.sql(
        "INSERT INTO state_meta (key, value) SELECT 'key' || id, 'value' FROM messages;
         INSERT INTO session_model_usage (session_id, model, billing_provider) SELECT id, 'm', 'p' FROM sessions;
         INSERT INTO compression_locks (session_id, holder, acquired_at, expires_at) SELECT id, 'me', 1, 2 FROM sessions",
    );
    for table in [schema::SPOOL_NOTES_SQL, schema::LEASES_SQL] {
        world.sql(table);
    }
    world.sql(
        "INSERT INTO hermes_state_spooled (ticket, stored_at) SELECT 'ticket ' || id, 1 FROM messages;
         INSERT INTO hermes_state_leases (session_id, holder, acquired_at, fence) SELECT id, 'me', 1, 7 FROM sessions;
         CREATE TABLE unnumbered (kind TEXT, name TEXT, PRIMARY KEY (name, kind)) WITHOUT ROWID;
         INSERT INTO unnumbered SELECT 'a kind', 'a name ' || id FROM messages",
    );
    let pristine = fs::read(world.path()).expect("reads");
    let whole: Vec<(String, i64)> = [
        "sessions",
        "messages",
        "state_meta",
        "session_model_usage",
        "compression_locks",
        "hermes_state_spooled",
        "hermes_state_leases",
        "unnumbered",
    ]
    .map(|table| (table.to_owned(), world.sql(&format!("SELECT COUNT(*) FROM {table}"))))
    .into();
    let trees = trees(&world);
    let named = |name: &str| trees.iter().any(|(tree, ..)| tree == name);
    assert!(["messages", "idx_messages_session", "messages_fts_data", "messages_fts_docsize"].into_iter().all(named));
    for (tree, page, cells) in trees.into_iter().filter(|(tree, ..)| tree != "sqlite_schema") {
        fs::write(world.path(), &pristine).expect("writes");
        world.noise(&[page]);
        let report = world.repair();
        for (table, all) in &whole {
            let found = rows(&report, table);
            let expected = u64::try_from(*all).expect("one") - if *table == tree { cells } else { 0 };
            assert_eq!(found.rows - found.made, expected, "{table} after noise in {tree}: {report:?}");
            if *table == tree {
                let told = found.lost == cells || found.incomplete;
                assert!(told && report.has_losses(), "{tree} had {cells} cells: {found:?}");
                assert!(found.before.is_none_or(|before| before == found.rows - found.made + found.lost), "{found:?}");
            } else {
                assert_eq!((found.lost, found.incomplete), (0, false), "{table} after noise in {tree}: {found:?}");
            }
        }
        let backup = report.backup.expect("kept");
        fs::remove_file(backup).expect("removes");
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(sidecar(&world.path(), suffix));
        }
    }
}

/// Of spooled writes that are stored the store has to know, or they would be stored twice.
#[test]
fn tickets_of_stored_writes_and_fences_of_leases_come_through_noise_elsewhere_and_between_two_damaged_pages() {
    let world = World::of(20);
    for table in [schema::SPOOL_NOTES_SQL, schema::LEASES_SQL] {
        world.sql(table);
    }
    world.sql(
        "WITH RECURSIVE n (n) AS (VALUES (1000) UNION ALL SELECT n + 1 FROM n LIMIT 4000)
         INSERT INTO hermes_state_spooled (ticket, stored_at) SELECT 'a ticket of some length ' || n, 1 FROM n;
         INSERT INTO hermes_state_leases (session_id, holder, acquired_at, fence) SELECT id, 'me', 1, 7 FROM sessions",
    );
    let leaves = world.leaves("hermes_state_spooled");
    let messages = world.leaves("messages");
    world.noise(&[messages[3], leaves[2], leaves[leaves.len() - 3]]);
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::SalvageRows);
    let tickets = rows(&report, "hermes_state_spooled");
    assert!(tickets.lost > 0 && tickets.lost < 300 && tickets.rows + tickets.lost == 4000, "{tickets:?}");
    assert_eq!(world.sql("SELECT COUNT(*) FROM hermes_state_spooled"), i64::try_from(tickets.rows).expect("one"));
    assert_eq!(world.sql("SELECT SUM(fence) FROM hermes_state_leases"), 140);
}

/// Messages of sessions that are not there, as a process without foreign keys leaves them.
fn orphan(world: &World) {
    world.sql("PRAGMA foreign_keys=OFF; DELETE FROM sessions WHERE id = 'session-001'");
}

#[test]
fn messages_without_a_session_get_one_that_says_unknown() {
    let world = World::of(3);
    orphan(&world);
    assert_eq!(ailment(&world.path()).expect("looks"), None, "nobody is kept from working by it");
    let found = look(&world.path(), CheckDepth::Full).expect("looks");
    assert!(found.is_well(), "{found:?}");
    let transcript = &found.parts[1];
    assert_eq!((transcript.part, transcript.state), (crate::Part::Transcript, crate::PartState::Noted), "{found:?}");
    assert!(transcript.findings[0].starts_with("50 rows of messages"), "{found:?}");
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::AdoptOrphans, "{report:?}");
    let sessions = rows(&report, "sessions");
    assert_eq!((sessions.before, sessions.rows, sessions.made), (Some(2), 3, 1));
    assert!(!report.has_losses());
    world.is_whole(3, 150);
    assert_eq!(world.sql("SELECT COUNT(*) FROM sessions WHERE id = 'session-001' AND source = 'unknown'"), 1);
    assert_eq!(world.repair().strategy, RepairStrategy::AlreadyHealthy);
}

#[test]
fn whoever_wants_only_ailments_mended_keeps_messages_without_a_session() {
    let world = World::of(2);
    orphan(&world);
    let options = RepairOptions { thorough: false, ..RepairOptions::default() };
    assert_eq!(repair(&world.path(), &options).expect("repairs").strategy, RepairStrategy::AlreadyHealthy);
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    let report = repair(&world.path(), &options).expect("repairs");
    assert_eq!((report.strategy, rows(&report, "sessions").rows), (RepairStrategy::RebuildFts, 1));
}

#[test]
fn messages_that_an_index_lacks_are_told_and_put_into_it() {
    let world = World::of(2);
    world.sql(
        "INSERT INTO messages_fts (messages_fts, rowid, content, tool_name, tool_calls)
         SELECT 'delete', id, content, tool_name, tool_calls FROM messages WHERE id <= 7",
    );
    let found = look(&world.path(), CheckDepth::Full).expect("looks");
    assert_eq!(found.verdict(), "index damaged, transcript intact");
    assert_eq!(found.problems, ["the search index messages_fts lacks 7 messages"]);
    let report = world.repair();
    assert_eq!(report.strategy, RepairStrategy::RebuildFts, "{report:?}");
    assert!(look(&world.path(), CheckDepth::Full).expect("looks").is_well());
    world.is_whole(2, 100);
}

#[test]
fn each_part_is_told_with_a_next_step_where_there_is_one() {
    use crate::{Part, PartState};
    let states = |health: &Health| -> Vec<(Part, PartState)> {
        for part in &health.parts {
            assert_eq!(part.state == PartState::Well, part.findings.is_empty() && part.next_step.is_none(), "{part:?}");
        }
        let bad = health.parts.iter().filter(|part| part.state != PartState::Well);
        bad.map(|part| (part.part, part.state)).collect()
    };
    let world = World::of(20);
    for depth in [CheckDepth::Quick, CheckDepth::Full] {
        let health = SessionDb::check_file(world.path(), depth).expect("looks");
        assert_eq!((health.parts.len(), states(&health)), (Part::ALL.len(), vec![]), "{health:?}");
    }
    world.sql("UPDATE sessions SET message_count = 7 WHERE id = 'session-003'");
    let spool = Spool::of(world.path(), None).expect("has a place").expect("is one");
    let why = Error::Full { path: world.path() };
    spool.keep(&"session-003".into(), &[NewMessage::new("user", "waits")], None, &why).expect("keeps");
    fs::write(world.folder.path().join("state.db.repairing-copy-1-0"), "half").expect("writes");
    let health = SessionDb::check_file(world.path(), CheckDepth::Full).expect("looks");
    assert!(health.is_well(), "{health:?}");
    let noted = [Part::Sessions, Part::Sidecars, Part::Spool].map(|part| (part, PartState::Noted));
    assert_eq!(states(&health), noted, "{health:?}");
    let leaf = world.leaves("messages")[7];
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    world.noise(&[leaf]);
    for depth in [CheckDepth::Quick, CheckDepth::Full] {
        let health = SessionDb::check_file(world.path(), depth).expect("looks");
        let damaged: Vec<Part> = states(&health)
            .into_iter()
            .filter(|(_, state)| *state == PartState::Damaged)
            .map(|(part, _)| part)
            .collect();
        assert_eq!(damaged, [Part::Transcript, Part::Index], "{health:?}");
    }
}

#[test]
fn a_repair_into_another_file_leaves_the_store_as_it_is_and_may_find_it_in_use() {
    let world = World::of(3);
    let target = world.folder.path().join("mended.db");
    let options = RepairOptions { into: Some(target.clone()), ..RepairOptions::default() };
    assert_eq!(repair(&world.path(), &options).expect("looks").strategy, RepairStrategy::AlreadyHealthy);
    assert!(!target.exists(), "nothing is made of a store that is well");
    world.sql("UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10");
    let before = fs::read(world.path()).expect("reads");
    let db = SessionDb::open_read_only(world.path()).expect("opens");
    let report = repair(&world.path(), &options).expect("repairs");
    assert_eq!(
        (report.strategy, &report.into, &report.backup),
        (RepairStrategy::RebuildFts, &Some(target.clone()), &None)
    );
    assert_eq!(rows(&report, "messages").rows, 150);
    assert_eq!(db.status().expect("still there").messages, 150);
    db.close().expect("closes");
    assert_eq!(fs::read(world.path()).expect("reads"), before, "byte for byte");
    assert!(look(&target, CheckDepth::Full).expect("looks").is_well());
    assert_eq!(world.files_of_repairs(), Vec::<String>::new());
    let refused = repair(&world.path(), &options).expect_err("it is there");
    assert!(matches!(&refused, Error::Invalid(why) if why.contains("mended.db is there already")), "{refused:?}");
    // Also where only rows can be saved.
    let leaf = world.leaves("messages")[2];
    world.noise(&[leaf]);
    let before = fs::read(world.path()).expect("reads");
    let other = world.folder.path().join("saved.db");
    let options = RepairOptions { into: Some(other.clone()), ..RepairOptions::default() };
    let report = repair(&world.path(), &options).expect("repairs");
    assert_eq!(report.strategy, RepairStrategy::SalvageRows, "{report:?}");
    assert_eq!(fs::read(world.path()).expect("reads"), before, "byte for byte");
    let found = SessionDb::open(&other).expect("opens").status().expect("status").messages;
    assert_eq!(u64::try_from(found), Ok(rows(&report, "messages").rows));
}
