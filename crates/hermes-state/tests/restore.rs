//! Restoring: what it refuses, what it keeps, and that no log of the old store gets into the new one.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "processes report, and tests say what they skip")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use hermes_state::{
    BackupOptions, Error, LockKind, NewMessage, NewSession, OpenOptions, RestoreOptions, RestoreReport, SessionDb,
    restore,
};
use support::{must_succeed, names_in, play, python_says, role};

struct World(tempfile::TempDir);

impl World {
    /// A backup with ten messages of a session, and a store that went on to twenty.
    fn new() -> Self {
        let world = Self(tempfile::tempdir().expect("a folder"));
        let db = SessionDb::open(world.store()).expect("opens");
        db.create_session(NewSession::new("one", "cli")).expect("creates");
        append(&db, 0..10);
        db.backup(world.backup(), &BackupOptions::default(), &mut |_| Ok(())).expect("backs up");
        append(&db, 10..20);
        db.close().expect("closes");
        world
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("state.db")
    }

    fn backup(&self) -> PathBuf {
        self.0.path().join("backup.db")
    }

    fn kept(&self) -> PathBuf {
        self.0.path().join("state.db.before-restore-then")
    }

    fn restore(&self) -> Result<RestoreReport, Error> {
        restore_from(&self.backup(), &self.store())
    }

    fn names(&self) -> Vec<String> {
        names_in(self.0.path())
    }
}

fn restore_from(backup: &Path, store: &Path) -> Result<RestoreReport, Error> {
    let mut options = RestoreOptions::default();
    options.stamp = Some("then".to_owned());
    restore(backup, store, &options, &mut |_| Ok(()))
}

fn append(db: &SessionDb, numbers: std::ops::Range<u32>) {
    let messages = numbers.map(|number| NewMessage::new("user", format!("marker{number}"))).collect();
    db.append_messages("one", messages).expect("appends");
}

/// The contents of the store as another program sees it.
fn contents(path: &Path) -> Vec<String> {
    let said = python_says(
        path,
        "c = sqlite3.connect(path)
assert c.execute('PRAGMA integrity_check').fetchone() == ('ok',)
for row in c.execute('SELECT content FROM messages ORDER BY id'): print(*row)",
    );
    said.lines().map(ToOwned::to_owned).collect()
}

fn markers(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|number| format!("marker{number}")).collect()
}

fn digest(path: &Path) -> String {
    python_says(
        path,
        "import hashlib\nprint(hashlib.sha256(open(path, 'rb').read()).hexdigest(), os.stat(path).st_ino)",
    )
}

#[test]
fn the_backup_becomes_the_store_and_the_old_one_is_kept() {
    let world = World::new();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(world.store(), std::fs::Permissions::from_mode(0o640)).expect("set");
    let report = world.restore().expect("restores");
    assert_eq!((report.sessions, report.messages), (1, 10));
    assert_eq!((report.kept.as_deref(), report.kept_log), (Some(&*world.kept()), None));
    assert_eq!(world.store().metadata().expect("there").permissions().mode() & 0o777, 0o640);
    assert_eq!(contents(&world.store()), markers(0..10));
    assert_eq!(contents(&world.kept()), markers(0..20));
    // It is a store as any other: it is searched, written to, and backed up.
    let db = SessionDb::open(world.store()).expect("opens");
    assert_eq!(db.search_messages("marker7", &Default::default()).expect("searches").len(), 1);
    append(&db, 30..31);
    db.close().expect("closes");
    assert_eq!(contents(&world.store()).len(), 11);
    assert_eq!(contents(&world.backup()), markers(0..10));
    // A second one of the same second overwrites nothing.
    assert_ne!(world.restore().expect("restores").kept, Some(world.kept()));
    assert_eq!(contents(&world.kept()), markers(0..20));
}

#[test]
fn the_log_of_the_old_store_stays_with_the_old_store() {
    let world = World::new();
    // As a killed writer leaves it: a message that only the log has.
    python_says(
        &world.store(),
        "c = sqlite3.connect(path)
c.execute('PRAGMA wal_autocheckpoint=0')
c.execute(\"DROP TRIGGER messages_fts_insert\")
c.execute(\"DROP TRIGGER messages_fts_trigram_insert\")
c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('one', 'user', 'in the log', 1)\")
c.commit()
os._exit(0)",
    );
    assert!(world.names().contains(&"state.db-wal".to_owned()), "{:?}", world.names());
    world.restore().expect("restores");
    assert!(!world.names().contains(&"state.db-wal".to_owned()), "{:?}", world.names());
    assert_eq!(contents(&world.store()), markers(0..10));
    assert_eq!(contents(&world.kept()), [markers(0..20), vec!["in the log".to_owned()]].concat());
}

#[test]
fn a_store_that_is_missing_is_made() {
    let world = World::new();
    let path = world.0.path().join("new/folder/state.db");
    let report = restore_from(&world.backup(), &path).expect("restores");
    assert_eq!((report.kept, report.messages), (None, 10));
    assert_eq!(contents(&path), markers(0..10));
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    assert_eq!(names_in(path.parent().expect("a folder")), ["state.db"]);
}

#[test]
fn the_log_of_a_store_that_was_removed_is_kept_and_not_applied() {
    let world = World::new();
    python_says(
        &world.store(),
        "c = sqlite3.connect(path)
c.execute('PRAGMA wal_autocheckpoint=0')
c.execute(\"UPDATE sessions SET title = 'of the old store'\")
c.commit()
os.unlink(path)
os._exit(0)",
    );
    let report = world.restore().expect("restores");
    assert_eq!(report.kept, None);
    let log = report.kept_log.expect("the log is kept");
    assert!(log.metadata().expect("there").len() > 0);
    assert_eq!(contents(&world.store()), markers(0..10));
    let db = SessionDb::open(world.store()).expect("opens");
    assert_eq!(db.session_title("one").expect("reads"), None);
}

#[test]
fn a_store_that_cannot_even_be_opened_is_replaced_and_kept_with_its_log() {
    let world = World::new();
    python_says(
        &world.store(),
        "c = sqlite3.connect(path)
c.execute('PRAGMA wal_autocheckpoint=0')
c.execute(\"UPDATE sessions SET title = 'of the old store'\")
c.commit()
f = open(path, 'r+b')
f.write(b'no database' * 50)
f.flush()
log = open(path + '-wal', 'r+b')
log.write(b'no log' * 20)
log.flush()
os._exit(0)",
    );
    let before = digest(&world.store());
    let report = world.restore().expect("restores");
    assert_eq!(report.kept, Some(world.kept()));
    assert_eq!(digest(&world.kept()), before);
    assert_eq!(contents(&world.store()), markers(0..10));
    assert!(!world.names().contains(&"state.db-wal".to_owned()), "{:?}", world.names());
}

#[test]
fn what_is_no_backup_is_refused_and_nothing_touched() {
    let world = World::new();
    let before = (digest(&world.store()), world.names().len());
    let other = |name: &str, script: &str| {
        let path = world.0.path().join(name);
        python_says(&path, script);
        path
    };
    let refused = |path: &Path| {
        let error = restore_from(path, &world.store()).expect_err("refused");
        assert_eq!(digest(&world.store()), before.0);
        error
    };
    let diary = other("diary", "open(path, 'w').write('Dear diary, ' * 100)");
    assert!(matches!(refused(&diary), Error::NotADatabase { path } if path == diary));
    let recipes = other("recipes", "c = sqlite3.connect(path)\nc.execute('CREATE TABLE recipes (x)')\nc.commit()");
    assert!(matches!(refused(&recipes), Error::Invalid(_)));
    let empty = other("empty", "open(path, 'w')");
    assert!(matches!(refused(&empty), Error::Invalid(_)));
    assert!(matches!(refused(&world.0.path().join("missing")), Error::CannotOpen { .. }));
    assert!(matches!(refused(world.0.path()), Error::CannotOpen { .. }));
    assert!(matches!(refused(&world.store()), Error::Invalid(_)));
    assert!(matches!(refused(Path::new("postgresql://h/d")), Error::Invalid(_)));
    let copy = "import shutil\nshutil.copy(os.path.dirname(path) + '/backup.db', path)\n";
    let newer = other(
        "newer",
        &format!("{copy}c = sqlite3.connect(path)\nc.execute('UPDATE schema_version SET version = 99')\nc.commit()"),
    );
    assert!(matches!(refused(&newer), Error::TooNew { found: 99, .. }));
    let damaged = other(
        "damaged",
        &format!(
            "{copy}c = sqlite3.connect(path)
root = c.execute(\"SELECT rootpage FROM sqlite_master WHERE name = 'messages'\").fetchone()[0]
c.close()
f = open(path, 'r+b')
f.seek((root - 1) * 4096)
f.write(bytes([255]) * 4096)"
        ),
    );
    assert!(matches!(refused(&damaged), Error::Corrupt { path, .. } if path == damaged));
    let cut = other("cut", &format!("{copy}os.truncate(path, os.path.getsize(path) // 2)"));
    let error = refused(&cut);
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    assert!(!world.names().iter().any(|name| name.contains("unfinished") || name.contains("before-restore")));
}

/// A process that has the store open, and appends what it is told to.
struct Holder(Child, ChildStdin, BufReader<ChildStdout>);

impl Holder {
    fn start(name: &str, role: &str, store: &Path) -> Self {
        let mut command = play(name, role, store, LockKind::PrivateTable);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut holder = Self(child, stdin, BufReader::new(stdout));
        holder.hears("open");
        holder
    }

    /// The rest of the line that says so.
    fn hears(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.2.read_line(&mut line).expect("text") > 0, "it ended without saying {word}");
            if let Some((_, rest)) = line.split_once(&format!("said {word}")) {
                return rest.trim().to_owned();
            }
        }
    }

    fn append(&mut self, text: &str) -> String {
        writeln!(self.1, "{text}").expect("listens");
        self.hears("append")
    }

    fn end(mut self) {
        drop(self.1);
        assert!(self.0.wait().expect("ends").success());
    }
}

fn hold(db: &SessionDb) {
    println!("said open");
    for line in std::io::stdin().lines() {
        match db.append_message("one", NewMessage::new("user", line.expect("text"))) {
            Ok(_) => println!("said append stored"),
            Err(Error::Replaced { .. }) => println!("said append replaced"),
            Err(error) => println!("said append {error:?}"),
        }
    }
    let _ = db.close();
}

#[test]
fn who_has_the_store_open_is_named_and_goes_on_undisturbed() {
    if let Some((_, path)) = role() {
        return hold(&SessionDb::open(path).expect("opens"));
    }
    let world = World::new();
    let mut holder = Holder::start("who_has_the_store_open_is_named_and_goes_on_undisturbed", "holder", &world.store());
    assert_eq!(holder.append("marker20"), "stored");
    let error = world.restore().expect_err("in use");
    let pid = i32::try_from(holder.0.id()).expect("a pid");
    match &error {
        Error::InUse { users, .. } => {
            assert_eq!(users.iter().map(|user| user.pid).collect::<Vec<_>>(), [pid], "{error}");
            assert!(users[0].program.is_some(), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(error.to_string().contains(&format!("pid {pid}")), "{error}");
    assert_eq!(holder.append("marker21"), "stored");
    holder.end();
    assert_eq!(contents(&world.store()), markers(0..22));
    assert!(!world.names().iter().any(|name| name.contains("unfinished") || name.contains("before-restore")));
    world.restore().expect("restores");
    assert_eq!((contents(&world.store()), contents(&world.kept())), (markers(0..10), markers(0..22)));
}

#[test]
fn a_handle_that_nobody_could_see_is_told_that_its_store_was_replaced() {
    if let Some((role, path)) = role() {
        if role == "holder" {
            // Without a log, an idle handle holds no lock.
            return hold(&OpenOptions::new().rollback_journal(true).spool(false).open(path).expect("opens"));
        }
        restore_from(&path.with_file_name("backup.db"), &path).expect("restores");
        return;
    }
    const NAME: &str = "a_handle_that_nobody_could_see_is_told_that_its_store_was_replaced";
    let alone = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    if !alone.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: this user may not hide processes from each other");
        return;
    }
    let world = World(tempfile::tempdir().expect("a folder"));
    let db = OpenOptions::new().rollback_journal(true).open(world.store()).expect("opens");
    db.create_session(NewSession::new("one", "cli")).expect("creates");
    append(&db, 0..10);
    db.backup(world.backup(), &BackupOptions::default(), &mut |_| Ok(())).expect("backs up");
    db.close().expect("closes");
    let mut holder = Holder::start(NAME, "holder", &world.store());
    assert_eq!(holder.append("marker10"), "stored");
    // What would tell of it is gone, and the process that restores sees none but itself, as in another container.
    std::fs::remove_file(world.0.path().join("state.db-siblings")).expect("there");
    let hidden = play(NAME, "restorer", &world.store(), LockKind::PrivateTable);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(hidden.get_program()).args(hidden.get_args());
    command.envs(hidden.get_envs().filter_map(|(name, value)| Some((name, value?))));
    must_succeed(&command.output().expect("runs"));
    assert_eq!(holder.append("into the void"), "replaced");
    assert_eq!(holder.append("and again"), "replaced");
    holder.end();
    assert_eq!(contents(&world.store()), markers(0..10));
    let kept = contents(&world.kept());
    assert_eq!(kept[..11], markers(0..11));
}
