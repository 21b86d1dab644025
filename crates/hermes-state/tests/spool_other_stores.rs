//! Spooled writes whose store is not the one any more that they were spooled for: repaired, restored or copied elsewhere, also
//! after a replay that was killed when it had stored them and before it could say so in the spool.
#![cfg(target_os = "linux")]

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_state::{
    BackupOptions, NewMessage, NewSession, OpenOptions, Patience, RepairOptions, RepairStrategy, RestoreOptions,
    SessionDb, restore,
};
use support::{python_says, python_started};

struct World(tempfile::TempDir);

impl World {
    /// A store with so many messages in the session `s`, closed.
    fn of(messages: usize) -> Self {
        let world = Self(tempfile::tempdir().expect("a folder"));
        let db = world.open();
        db.create_session(NewSession::new("s", "cli")).expect("creates");
        let texts = (0..messages).map(|number| format!("first{number} {}", "filler ".repeat(40)));
        db.append_messages("s", texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
        db.close().expect("closes");
        world
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state.db")
    }

    fn open(&self) -> SessionDb {
        SessionDb::open(self.path()).expect("opens")
    }

    /// Spools while another process holds the lock.
    fn spool(&self, texts: &[&str]) {
        let mut holder = python_started(
            &self.path(),
            "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\ntime.sleep(600)",
        );
        let none = Patience { transcript: Duration::ZERO, routine: Duration::ZERO };
        let db = OpenOptions::new().patience(none).open(self.path()).expect("opens");
        for text in texts {
            assert!(db.append_message("s", NewMessage::new("user", *text)).expect("is kept").is_spooled());
        }
        drop(db);
        holder.kill().expect("killed");
        holder.wait().expect("reaped");
    }

    /// Stores what is spooled, and leaves the spool as a replay does that is killed before it can remove a log.
    fn replay_and_be_killed(&self) {
        let spool =
            |script: &str| python_says(&self.path(), &format!("import shutil\nspool = path + '-spool'\n{script}"));
        spool("shutil.copytree(spool, spool + '.kept')");
        let stored = self.open();
        assert!(!self.spooled());
        stored.close().expect("closes");
        spool("os.rename(spool + '.kept', spool)");
        assert!(self.spooled());
    }

    fn spooled(&self) -> bool {
        self.0.path().join("state.db-spool").exists()
    }

    /// What is in the store of these, in order, once somebody has opened it.
    fn holds(&self, expected: &[&str]) {
        let db = self.open();
        assert!(!self.spooled(), "all is stored");
        db.close().expect("closes");
        let found = texts(&self.path());
        let of_these: Vec<&str> = found.iter().map(String::as_str).filter(|text| !text.starts_with("first")).collect();
        assert_eq!(of_these, expected);
    }
}

fn texts(path: &Path) -> Vec<String> {
    let found = python_says(
        path,
        "c = sqlite3.connect(path)\nassert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
         print(' '.join(r[0].split()[0] for r in c.execute('SELECT content FROM messages ORDER BY id')))",
    );
    found.split_whitespace().map(str::to_owned).collect()
}

/// Noise in a leaf page of the messages in the middle, whose rows are lost.
fn damage(path: &Path) {
    python_says(
        path,
        "c = sqlite3.connect(path)
root = c.execute(\"SELECT rootpage FROM sqlite_master WHERE name = 'messages'\").fetchone()[0]
c.close()
data = bytearray(open(path, 'rb').read())
number = lambda page, at, size: int.from_bytes(data[(page - 1) * 4096 + at:(page - 1) * 4096 + at + size], 'big')
while number(root, 0, 1) == 5:
    root = number(root, number(root, 12 + 2 * (number(root, 3, 2) // 2), 2), 4)
data[(root - 1) * 4096:root * 4096] = os.urandom(4096)
open(path, 'wb').write(data)",
    );
}

#[test]
fn a_repair_between_a_replay_that_was_killed_and_the_next_doubles_nothing() {
    let world = World::of(600);
    world.spool(&["a", "b", "c"]);
    world.replay_and_be_killed();
    damage(&world.path());
    world.spool(&["d"]);
    let report = SessionDb::repair_file(world.path(), &RepairOptions::default()).expect("repairs");
    assert_eq!(report.strategy, RepairStrategy::SalvageRows);
    let tickets = report.tables.iter().find(|table| table.name == "hermes_state_spooled").expect("is kept");
    assert_eq!((tickets.rows, tickets.lost, tickets.incomplete), (3, 0, false));
    world.holds(&["a", "b", "c", "d"]);
}

#[test]
fn a_store_that_is_restored_gets_what_is_spooled_once_whether_its_backup_had_it_or_not() {
    for before in [false, true] {
        let world = World::of(100);
        let backup = world.0.path().join("backup.db");
        let back_up = || {
            let db = world.open();
            db.backup(&backup, &BackupOptions::default(), &mut |_| Ok(())).expect("backs up");
        };
        if before {
            // The opening for it would store what is spooled.
            back_up();
        }
        world.spool(&["a", "b"]);
        world.replay_and_be_killed();
        if !before {
            let db = OpenOptions::new().spool(false).open(world.path()).expect("opens");
            db.backup(&backup, &BackupOptions::default(), &mut |_| Ok(())).expect("backs up");
        }
        restore(&backup, world.path(), &RestoreOptions::default(), &mut |_| Ok(())).expect("restores");
        assert!(world.spooled());
        world.holds(&["a", "b"]);
    }
}

#[test]
fn a_store_that_is_replaced_under_a_handle_gets_what_is_spooled_for_it_once() {
    let world = World::of(100);
    python_says(&world.path(), "import shutil\nshutil.copy(path, path + '.other')");
    world.spool(&["a", "b"]);
    world.replay_and_be_killed();
    let db = OpenOptions::new().spool(false).open(world.path()).expect("opens");
    python_says(&world.path(), "os.replace(path + '.other', path)");
    drop(db);
    // The other store has no note of them.
    world.holds(&["a", "b"]);
}
