//! A disk without room, of a real file system of a few megabytes: neither a repair, nor a backup, nor a rewriting of the
//! file loses anything by it.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "where no file system can be mounted the test says so")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use hermes_state::{
    BackupOptions, Error, ErrorKind, NewMessage, NewSession, OpenOptions, RepairOptions, RepairStrategy,
    RestoreOptions, SessionDb, restore,
};
use support::python_says;

/// A file system of its own, unmounted in the end.
struct Disk(tempfile::TempDir);

impl Disk {
    /// `None`, after saying so, where this user may not mount one.
    fn of(megabytes: usize) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(folder.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("SKIPPED: this user may not mount a small file system");
        None
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state.db")
    }

    /// Takes all the room but so many bytes.
    #[expect(clippy::disallowed_methods, reason = "not a store file")]
    fn fill_up(&self, but: usize) {
        let filler = self.0.path().join("filler");
        let free = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(self.0.path()).output().expect("stat");
        let free = String::from_utf8(free.stdout).expect("text");
        let (blocks, size) = free.trim().split_once(' ').expect("two numbers");
        let free = blocks.parse::<usize>().expect("a number") * size.parse::<usize>().expect("a number");
        std::fs::write(filler, vec![7; free - but]).expect("room");
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("filler")).expect("there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A store with so many messages of half a kilobyte.
fn store(path: &Path, messages: usize) {
    let db = SessionDb::open(path).expect("opens");
    db.create_session(NewSession::new("s", "cli")).expect("creates");
    for batch in 0..messages / 100 {
        let texts = (0..100).map(|number| format!("marker{batch}x{number} {}", "filler ".repeat(70)));
        db.append_messages("s", texts.map(|text| NewMessage::new("user", text)).collect()).expect("appends");
    }
    db.close().expect("closes");
}

fn count(path: &Path) -> String {
    python_says(
        path,
        "c = sqlite3.connect(path)\nprint(c.execute('SELECT COUNT(*) FROM messages').fetchone()[0], c.execute('PRAGMA quick_check(messages)').fetchone()[0])",
    )
}

#[test]
fn a_repair_without_room_leaves_the_store_as_it_was() {
    let Some(disk) = Disk::of(24) else { return };
    store(&disk.path(), 3000);
    python_says(
        &disk.path(),
        "c = sqlite3.connect(path)\nc.execute('UPDATE messages_fts_data SET block = zeroblob(64) WHERE id > 10')\nc.commit()",
    );
    let digest = "import hashlib\nprint(hashlib.sha256(open(path, 'rb').read()).hexdigest())";
    let before = python_says(&disk.path(), digest);
    // None for a copy, and then enough for one that cannot be worked on.
    for room in [64 << 10, 1 << 20] {
        disk.fill_up(room);
        let error = SessionDb::repair_file(disk.path(), &RepairOptions::default()).expect_err("no room");
        assert!(matches!(&error, Error::Full { path } if *path == disk.path()), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Disk);
        assert_eq!(python_says(&disk.path(), digest), before);
        let names: Vec<_> =
            std::fs::read_dir(disk.0.path()).expect("lists").map(|entry| entry.expect("one").file_name()).collect();
        assert!(names.iter().all(|name| !name.to_string_lossy().contains("repairing")), "{names:?}");
        disk.make_room();
    }
    let report = SessionDb::repair_file(disk.path(), &RepairOptions::default()).expect("repairs");
    assert_eq!(report.strategy, RepairStrategy::RebuildFts);
    assert_eq!(count(&disk.path()), "3000 ok");
}

#[test]
fn a_vacuum_without_room_loses_nothing_and_the_store_goes_on() {
    let Some(disk) = Disk::of(24) else { return };
    store(&disk.path(), 3000);
    let db = SessionDb::open(disk.path()).expect("opens");
    disk.fill_up(256 << 10);
    let error = db.vacuum().expect_err("no room");
    assert_eq!(error.kind(), ErrorKind::Disk, "{error:?}");
    assert_eq!(count(&disk.path()), "3000 ok");
    db.append_message("s", NewMessage::new("user", "still taken")).expect("appends");
    disk.make_room();
    db.vacuum().expect("vacuums");
    assert_eq!(count(&disk.path()), "3001 ok");
}

#[test]
fn giving_space_back_needs_little_room_and_loses_nothing_without_any() {
    let Some(disk) = Disk::of(24) else { return };
    store(&disk.path(), 3000);
    python_says(&disk.path(), "c = sqlite3.connect(path)\nc.execute('DELETE FROM messages WHERE id % 2')\nc.commit()");
    let db = SessionDb::open(disk.path()).expect("opens");
    disk.fill_up(0);
    match db.release_space() {
        Ok(report) => assert!(report.after <= report.before),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Disk, "{error:?}"),
    }
    assert_eq!(count(&disk.path()), "1500 ok");
    disk.make_room();
    let report = db.release_space().expect("gives back");
    assert!(report.after <= report.before, "{report:?}");
    assert_eq!(count(&disk.path()), "1500 ok");
}

#[test]
fn a_backup_or_a_restoring_without_room_leaves_what_was_there() {
    let Some(disk) = Disk::of(32) else { return };
    store(&disk.path(), 3000);
    let target = disk.0.path().join("backup.db");
    let db = SessionDb::open(disk.path()).expect("opens");
    let back_up = || db.backup(&target, &BackupOptions::default(), &mut |_| Ok(()));
    back_up().expect("backs up");
    db.append_message("s", NewMessage::new("user", "came later")).expect("appends");
    let digest = "import hashlib\nprint(hashlib.sha256(open(path, 'rb').read()).hexdigest(), os.stat(path).st_ino)";
    let before = python_says(&target, digest);
    for room in [0, 64 << 10, 3 << 20] {
        disk.fill_up(room);
        let error = back_up().expect_err("no room");
        assert!(matches!(&error, Error::Full { path } if *path == target), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Disk);
        assert_eq!(python_says(&target, digest), before);
        disk.make_room();
    }
    assert!(back_up().expect("backs up").copied);
    assert_eq!(count(&target), "3001 ok");
    db.append_message("s", NewMessage::new("user", "after the backup")).expect("appends");
    db.close().expect("closes");
    let before = python_says(&disk.path(), digest);
    for room in [64 << 10, 3 << 20] {
        disk.fill_up(room);
        let error = restore(&target, disk.path(), &RestoreOptions::default(), &mut |_| Ok(())).expect_err("no room");
        assert!(matches!(&error, Error::Full { path } if *path == disk.path()), "{error:?}");
        assert_eq!(python_says(&disk.path(), digest), before);
        disk.make_room();
    }
    restore(&target, disk.path(), &RestoreOptions::default(), &mut |_| Ok(())).expect("restores");
    assert_eq!(count(&disk.path()), "3001 ok");
}

#[test]
fn messages_for_a_store_without_room_are_spooled_on_another_disk_and_stored_when_there_is_room() {
    let Some(disk) = Disk::of(24) else { return };
    let elsewhere = tempfile::tempdir().expect("a folder");
    store(&disk.path(), 1000);
    let db = OpenOptions::new().spool_folder(elsewhere.path().to_owned()).open(disk.path()).expect("opens");
    disk.fill_up(0);
    // Some go into the room that the log and the file have left; then there is none.
    let mut spooled = 0;
    for number in 0..1000 {
        let message = NewMessage::new("user", format!("n{number} {}", "filler ".repeat(400)));
        spooled += u64::from(db.append_message("s", message).expect("is kept").is_spooled());
        if spooled == 20 {
            break;
        }
    }
    let status = db.spool_status().expect("reads").expect("has one");
    assert!(spooled == 20 && status.writes == 20 && status.folder.starts_with(elsewhere.path()), "{status:?}");
    disk.make_room();
    db.append_message("s", NewMessage::new("user", "after")).expect("appends").id().expect("is stored");
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("lists").count(), 0);
    let path = disk.path();
    drop(db);
    let seen = python_says(
        &path,
        "c = sqlite3.connect(path)\nn = [int(r[0].split()[0][1:]) for r in c.execute(\"SELECT content FROM messages WHERE content LIKE 'n%' ORDER BY id\")]\nprint(n == list(range(len(n))) and len(n) >= 20, c.execute('SELECT content FROM messages ORDER BY id DESC').fetchone()[0], c.execute('PRAGMA integrity_check').fetchone()[0])",
    );
    assert_eq!(seen, "True after ok");
}

/// Beside the store there is no room for a spool either, which is said with the reason. What was acknowledged before, in
/// the store or in the spool, is there when there is room again.
#[test]
fn a_store_without_room_beside_a_spool_without_room_says_both() {
    let Some(disk) = Disk::of(24) else { return };
    store(&disk.path(), 1000);
    let db = SessionDb::open(disk.path()).expect("opens");
    let mut acknowledged = Vec::new();
    let mut refused = 0;
    for round in 0..3 {
        disk.fill_up(if round == 1 { 24 << 10 } else { 0 });
        for number in 0..1000 {
            let name = format!("n{round}x{number}");
            // Whatever is too long for the room that is left, something shorter may still fit.
            let length = if refused % 3 == 0 { 9000 } else { 400 };
            let message = NewMessage::new("user", format!("{name} {}", "filler ".repeat(length)));
            match db.append_message("s", message) {
                Ok(_) => acknowledged.push(name),
                Err(error) => {
                    let Error::Spool { cause: Some(cause), .. } = &error else { panic!("{error:?}") };
                    assert!(matches!(**cause, Error::Full { .. }), "{error:?}");
                    assert_eq!(error.kind(), ErrorKind::Disk);
                    refused += 1;
                    if refused % 4 == 0 {
                        break;
                    }
                }
            }
        }
        disk.make_room();
        let name = format!("after{round}");
        db.append_message("s", NewMessage::new("user", name.as_str())).expect("appends").id().expect("is stored");
        acknowledged.push(name);
    }
    assert_eq!(refused, 12, "there is an end to it each time");
    assert!(!disk.0.path().join("state.db-spool").exists());
    let path = disk.path();
    drop(db);
    let seen = python_says(
        &path,
        "c = sqlite3.connect(path)\nassert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
         print(' '.join(r[0].split()[0] for r in c.execute(\"SELECT content FROM messages WHERE content LIKE 'n%' OR content LIKE 'after%' ORDER BY id\")))",
    );
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), acknowledged);
}
