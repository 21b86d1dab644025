//! Backups of a store that others write to, and restoring one: what is in them, what is refused, what is kept.
#![cfg(target_os = "linux")]

#[path = "support/ledger.rs"]
mod ledger;
mod support;

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use hermes_state::{
    BackupOptions, BackupPhase, BackupReport, CheckDepth, Error, LockKind, NewMessage, NewSession, OpenOptions,
    RestoreOptions, RestoreReport, SessionDb, restore,
};
use ledger::{Acknowledged, Writers, write_as_process};
use support::{names_in, play, python_says, role};

struct World(tempfile::TempDir);

impl World {
    /// A store with two sessions of fifty messages each.
    fn new() -> Self {
        let world = Self(tempfile::tempdir().expect("a folder"));
        let db = world.open();
        for session in ["one", "two"] {
            db.create_session(NewSession::new(session, "cli")).expect("creates");
            let texts = (0..50).map(|number| format!("marker{session}x{number} {}", "filler ".repeat(20)));
            db.append_messages(session, texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
        }
        db.close().expect("closes");
        world
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("state.db")
    }

    fn target(&self) -> PathBuf {
        self.0.path().join("backup.db")
    }

    fn open(&self) -> SessionDb {
        SessionDb::open(self.store()).expect("opens")
    }

    fn backup(&self) -> Result<BackupReport, Error> {
        let db = SessionDb::open_read_only(self.store()).expect("opens");
        db.backup(self.target(), &BackupOptions::default(), &mut |_| Ok(()))
    }

    fn restore(&self) -> Result<RestoreReport, Error> {
        let mut options = RestoreOptions::default();
        options.stamp = Some("then".to_owned());
        restore(self.target(), self.store(), &options, &mut |_| Ok(()))
    }

    fn names(&self) -> Vec<String> {
        names_in(self.0.path())
    }
}

fn append(path: &Path, text: &str) {
    let db = SessionDb::open(path).expect("opens");
    db.append_message("one", NewMessage::new("user", text)).expect("appends");
    db.close().expect("closes");
}

fn messages(path: &Path) -> i64 {
    SessionDb::open_read_only(path).expect("opens").status().expect("status").messages
}

fn has(path: &Path, word: &str) -> bool {
    let db = SessionDb::open(path).expect("opens");
    !db.search_messages(word, &Default::default()).expect("searches").is_empty()
}

fn digest(path: &Path) -> String {
    python_says(
        path,
        "import hashlib\ns = os.stat(path)\nprint(hashlib.sha256(open(path, 'rb').read()).hexdigest(), s.st_ino, s.st_mtime_ns)",
    )
}

#[test]
fn a_backup_is_a_store_with_everything_in_it() {
    let world = World::new();
    let db = world.open();
    db.append_message("one", NewMessage::new("user", "only in the log")).expect("appends");
    let mut phases = Vec::new();
    let report = db
        .backup(world.target(), &BackupOptions::default(), &mut |now| {
            phases.push(now.phase);
            Ok(())
        })
        .expect("backs up");
    assert_eq!((report.copied, report.sessions, report.messages), (true, 2, 101));
    assert!(report.health.is_well() && report.bytes > 0, "{report:?}");
    phases.dedup();
    assert_eq!(phases.last(), Some(&BackupPhase::Verifying));
    db.close().expect("closes");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = world.target().metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Whole without a log, and no other file beside it.
    assert_eq!(world.names(), ["backup.db", "state.db", "state.db-siblings"]);
    assert!(SessionDb::check_file(world.target(), CheckDepth::Full).expect("looks").is_well());
    assert!(has(&world.target(), "markertwox49") && has(&world.target(), "log"));
    append(&world.target(), "a backup goes on as a store");
    assert_eq!(messages(&world.target()), 102);
}

#[test]
fn a_second_backup_of_an_unchanged_store_writes_nothing() {
    let world = World::new();
    assert!(world.backup().expect("backs up").copied);
    let before = digest(&world.target());
    let report = world.backup().expect("compares");
    assert_eq!((report.copied, report.sessions, report.messages), (false, 2, 100));
    assert_eq!(digest(&world.target()), before);
    // Opening, closing and merging the log change nothing either.
    world.open().close().expect("closes");
    assert!(!world.backup().expect("compares").copied);
    let mut always = BackupOptions::default();
    always.always_copy = true;
    let db = SessionDb::open_read_only(world.store()).expect("opens");
    assert!(db.backup(world.target(), &always, &mut |_| Ok(())).expect("backs up").copied);
}

#[test]
fn the_least_change_is_noticed() {
    let world = World::new();
    world.backup().expect("backs up");
    for change in [
        "UPDATE messages SET content = replace(content, 'filler', 'FILLER') WHERE id = 77",
        "UPDATE sessions SET title = 'x' WHERE id = 'two'",
        "INSERT INTO state_meta (key, value) VALUES ('k', 'v')",
        "UPDATE messages_fts_docsize SET sz = x'00' WHERE id = 5",
        "CREATE TABLE other (x)",
        "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'messages'",
    ] {
        python_says(
            &world.store(),
            &format!("c = sqlite3.connect(path)\nc.execute(\"{change}\")\nc.commit()\nc.close()"),
        );
        assert!(world.backup().expect("backs up").copied, "{change}");
        assert!(!world.backup().expect("compares").copied, "{change}");
    }
}

#[test]
fn an_earlier_backup_that_was_used_as_a_store_is_replaced_with_its_log() {
    let world = World::new();
    world.backup().expect("backs up");
    // As a killed process leaves it.
    python_says(
        &world.target(),
        "c = sqlite3.connect(path)
c.execute('PRAGMA journal_mode=WAL')
c.execute('PRAGMA wal_autocheckpoint=0')
c.execute(\"UPDATE sessions SET title = 'written into the backup'\" \" WHERE id = 'one'\")
c.commit()
os._exit(0)",
    );
    assert!(world.names().contains(&"backup.db-wal".to_owned()));
    append(&world.store(), "newer");
    assert!(world.backup().expect("backs up").copied);
    assert!(!world.names().contains(&"backup.db-wal".to_owned()), "{:?}", world.names());
    let db = SessionDb::open(world.target()).expect("opens");
    assert_eq!(db.session_title("one").expect("reads"), None);
    assert!(has(&world.target(), "newer"));
}

#[test]
fn whatever_a_killed_backup_left_is_in_nobodys_way() {
    let world = World::new();
    let left = world.0.path().join("backup.db.unfinished");
    let copy = "import shutil\nshutil.copy(os.path.dirname(path) + '/state.db', path)\n";
    for script in [
        "open(path, 'w').write('x')",
        "open(path, 'wb').write(bytes(9000))",
        "open(path, 'wb').write(os.urandom(9000)); open(path + '-wal', 'wb').write(os.urandom(9000))",
        copy,
        &format!("{copy}os.truncate(path, os.path.getsize(path) // 2)"),
        &format!("{copy}os.truncate(path, 5000)"),
        &format!(
            "{copy}c = sqlite3.connect(path)\nc.execute('PRAGMA journal_mode=WAL')\nc.execute('CREATE TABLE x (y)')\nc.commit()\nos._exit(0)"
        ),
    ] {
        python_says(&left, script);
        append(&world.store(), "one more");
        assert!(world.backup().expect("backs up").copied, "{script}");
        assert_eq!(messages(&world.target()), messages(&world.store()));
        assert!(!world.names().iter().any(|name| name.contains("unfinished")), "{:?}", world.names());
    }
}

#[test]
fn what_is_no_backup_is_never_written_over() {
    let world = World::new();
    let db = world.open();
    let refused = |target: &Path| db.backup(target, &BackupOptions::default(), &mut |_| Ok(())).expect_err("refused");
    python_says(&world.target(), "open(path, 'w').write('Dear diary, ' * 100)");
    let before = digest(&world.target());
    assert!(matches!(refused(&world.target()), Error::Invalid(_)));
    assert_eq!(digest(&world.target()), before);
    let database = world.0.path().join("other.db");
    python_says(&database, "c = sqlite3.connect(path)\nc.execute('CREATE TABLE recipes (x)')\nc.commit()");
    assert!(matches!(refused(&database), Error::Invalid(_)));
    assert!(matches!(refused(&world.store()), Error::Invalid(_)));
    assert!(matches!(refused(world.0.path()), Error::CannotOpen { .. }));
    assert!(matches!(refused(&world.0.path().join("missing/backup.db")), Error::CannotOpen { .. }));
    assert!(matches!(refused(Path::new("postgresql://h/d")), Error::Invalid(_)));
    // A live store is somebody's, too.
    let other = world.0.path().join("live.db");
    let live = SessionDb::open(&other).expect("opens");
    let error = refused(&other);
    assert!(
        matches!(&error, Error::InUse { users, .. } if users.iter().any(|user| user.pid == std::process::id() as i32)),
        "{error:?}"
    );
    live.close().expect("closes");
    assert!(!world.names().iter().any(|name| name.contains("unfinished")), "{:?}", world.names());
}

#[test]
fn a_damaged_store_does_not_take_the_place_of_a_good_backup() {
    let world = World::new();
    world.backup().expect("backs up");
    let before = digest(&world.target());
    python_says(
        &world.store(),
        "c = sqlite3.connect(path)
root = c.execute(\"SELECT rootpage FROM sqlite_master WHERE name = 'messages'\").fetchone()[0]
c.close()
data = bytearray(open(path, 'rb').read())
number = lambda at, size: int.from_bytes(data[at:at + size], 'big')
start = (root - 1) * 4096
leaf = number(start + number(start + 12, 2), 4) if data[start] == 5 else root
data[(leaf - 1) * 4096:leaf * 4096] = os.urandom(4096)
open(path, 'wb').write(data)",
    );
    let error = world.backup().expect_err("damaged");
    assert!(matches!(&error, Error::Corrupt { path, .. } if *path == world.store()), "{error:?}");
    assert_eq!(digest(&world.target()), before);
    // And the damaged store is what a backup is for.
    let report = world.restore().expect("restores");
    assert_eq!(messages(&world.store()), 100);
    assert!(report.kept.is_some_and(|kept| kept.exists()));
}

#[test]
fn a_damaged_index_comes_along_and_is_told_of() {
    let world = World::new();
    python_says(
        &world.store(),
        "c = sqlite3.connect(path)\nc.execute('UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10')\nc.commit()",
    );
    let report = world.backup().expect("backs up");
    assert!(report.copied && !report.health.is_well() && report.health.unreadable.is_empty(), "{report:?}");
}

#[test]
fn a_backup_is_ended_by_its_caller() {
    let world = World::new();
    let db = world.open();
    let ended = db.backup(world.target(), &BackupOptions::default(), &mut |_| Err(Error::Invalid("enough".into())));
    match ended {
        Err(error) => assert!(matches!(&error, Error::Invalid(said) if said == "enough"), "{error:?}"),
        // It was done before it could be ended.
        Ok(report) => assert!(report.copied),
    }
    assert!(!world.names().iter().any(|name| name.contains("unfinished")), "{:?}", world.names());
}

#[test]
fn a_store_with_a_rollback_journal_is_backed_up_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, target) = (folder.path().join("state.db"), folder.path().join("backup.db"));
    let db = OpenOptions::new().rollback_journal(true).open(&path).expect("opens");
    db.create_session(NewSession::new("one", "cli")).expect("creates");
    db.append_message("one", NewMessage::new("user", "harbour")).expect("appends");
    let report = db.backup(&target, &BackupOptions::default(), &mut |_| Ok(())).expect("backs up");
    assert_eq!((report.copied, report.messages), (true, 1));
    assert!(!db.backup(&target, &BackupOptions::default(), &mut |_| Ok(())).expect("compares").copied);
    db.append_message("one", NewMessage::new("user", "lighthouse")).expect("appends");
    assert_eq!(db.backup(&target, &BackupOptions::default(), &mut |_| Ok(())).expect("backs up").messages, 2);
    db.close().expect("closes");
    // Nobody holds a lock on an idle file without a log, but whoever has it open is registered.
    let idle = OpenOptions::new().rollback_journal(true).open(&path).expect("opens");
    let error = restore(&target, &path, &RestoreOptions::default(), &mut |_| Ok(())).expect_err("in use");
    assert!(matches!(&error, Error::InUse { users, .. } if !users.is_empty()), "{error:?}");
    idle.close().expect("closes");
    restore(&target, &path, &RestoreOptions::default(), &mut |_| Ok(())).expect("restores");
}

#[test]
fn a_store_in_memory_is_backed_up_into_a_file() {
    let world = World::new();
    let db = SessionDb::open(":memory:").expect("opens");
    db.create_session(NewSession::new("one", "cli")).expect("creates");
    db.append_message("one", NewMessage::new("user", "kept after all")).expect("appends");
    db.backup(world.target(), &BackupOptions::default(), &mut |_| Ok(())).expect("backs up");
    db.close().expect("closes");
    assert!(has(&world.target(), "kept"));
}

const WRITERS: &str = "a_backup_under_load_has_all_that_was_acknowledged_before_and_no_gap";

#[test]
fn a_backup_under_load_has_all_that_was_acknowledged_before_and_no_gap() {
    if let Some((name, path)) = role() {
        return write_as_process(&path, &name, 2);
    }
    let world = World::new();
    let (sender, acknowledged) = channel();
    let writers: Vec<Writers> = (0..4)
        .map(|number| {
            Writers::start(play(WRITERS, &number.to_string(), &world.store(), LockKind::PrivateTable), &sender)
        })
        .collect();
    let mut seen: Vec<Acknowledged> = Vec::new();
    // Each of them is at work.
    while !(0..4).all(|writer| seen.iter().filter(|one| one.writer().starts_with(&format!("w{writer}t"))).count() > 5) {
        seen.push(acknowledged.recv().expect("they write"));
    }
    for round in 0..5 {
        seen.extend(acknowledged.try_iter());
        let report = world.backup().expect("backs up");
        assert!(report.copied && report.health.is_well(), "{report:?}");
        let rows = python_says(
            &world.target(),
            "c = sqlite3.connect(path)
for row in c.execute(\"SELECT id, session_id, substr(content, 1, instr(content, ' ') - 1) FROM messages WHERE content LIKE 'w%' ORDER BY id\"): print(*row)
bad = c.execute('SELECT COUNT(*) FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id)').fetchone()
assert bad == (0,), bad
assert c.execute('PRAGMA integrity_check').fetchone() == ('ok',)",
        );
        let stored: std::collections::HashMap<&str, i64> = rows
            .lines()
            .map(|row| {
                let fields: Vec<&str> = row.split(' ').collect();
                (fields[2], fields[0].parse().expect("an id"))
            })
            .collect();
        for (word, id) in seen.iter().flat_map(Acknowledged::words) {
            assert_eq!(
                stored.get(word.as_str()),
                Some(&id),
                "round {round}: {word} was acknowledged before the backup"
            );
        }
        // Of each writer there is a beginning without a gap, and whole batches.
        let mut numbers: std::collections::HashMap<&str, std::collections::BTreeMap<u64, usize>> = Default::default();
        for word in stored.keys() {
            let (start, _) = word.rsplit_once('p').expect("a word of a writer");
            let (writer, number) = start.rsplit_once('n').expect("a word of a writer");
            *numbers.entry(writer).or_default().entry(number.parse().expect("a number")).or_default() += 1;
        }
        for (writer, found) in numbers {
            assert!(found.keys().copied().eq(0..found.len() as u64), "round {round}: {writer} has a gap: {found:?}");
            assert!(found.iter().all(|(number, parts)| *parts == if number % 5 == 0 { 3 } else { 1 }), "{writer}");
        }
    }
    writers.into_iter().for_each(Writers::stop);
}
