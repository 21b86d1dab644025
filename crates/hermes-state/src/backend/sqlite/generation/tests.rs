//! What others do to a store's files, and whether it is told from what its own programs do.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::*;

struct World {
    folder: tempfile::TempDir,
    writer: Connection,
    generation: Generation,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let writer = open(folder.path().join("t.db"));
        writer.execute_batch("CREATE TABLE t (x)").unwrap();
        for _ in 0..20 {
            write(&writer);
        }
        let world = Self { folder, writer, generation: Generation::default() };
        assert_eq!(world.fault(), None);
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("t.db")
    }

    fn other(&self) -> Connection {
        open(self.path())
    }

    fn fault(&self) -> Option<String> {
        let bytes = std::fs::metadata(self.path()).unwrap().len();
        self.generation.find_fault(&self.writer, bytes, true)
    }

    /// As another program, whose closing drops no lock of this one.
    fn python(&self, script: &str) {
        let script = format!("import os, sys\npath = sys.argv[1]\n{script}");
        let ran = std::process::Command::new("python3").arg("-c").arg(script).arg(self.path()).status().unwrap();
        assert!(ran.success());
    }

    /// Fails unless this is found out.
    fn must_find(&self, word: &str, script: &str) {
        assert_eq!(self.fault(), None);
        self.python(script);
        let found = self.fault().unwrap_or_default();
        assert!(found.contains(word), "{found:?} after {script}");
    }
}

fn open(path: PathBuf) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF")
        .unwrap();
    connection
}

fn write(connection: &Connection) {
    connection.execute("INSERT INTO t VALUES (randomblob(3000))", []).unwrap();
}

fn checkpoint(connection: &Connection, how: &str) {
    connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |_| Ok(())).unwrap();
}

#[test]
fn what_writers_and_mergers_do_is_no_fault() {
    let world = World::new();
    let other = world.other();
    let mut dice: u32 = 7;
    for _ in 0..2000 {
        dice = dice.wrapping_mul(1_103_515_245).wrapping_add(12345);
        match dice >> 16 & 15 {
            0..=4 => write(&world.writer),
            5..=9 => write(&other),
            10 => checkpoint(&other, "PASSIVE"),
            11 => checkpoint(&world.writer, "PASSIVE"),
            12 => checkpoint(&other, "RESTART"),
            13 => checkpoint(&other, "TRUNCATE"),
            14 => other.execute_batch("DELETE FROM t WHERE rowid % 3 = 1").unwrap(),
            _ => other.execute_batch("VACUUM").unwrap(),
        }
        if dice >> 20 & 1 == 0 {
            assert_eq!(world.fault(), None);
        }
    }
}

#[test]
fn what_others_do_at_the_same_time_is_no_fault() {
    let world = World::new();
    let until = Instant::now() + Duration::from_secs(2);
    let path = world.path();
    let others = ["PASSIVE", "TRUNCATE"].map(|how| {
        let path = path.clone();
        std::thread::spawn(move || {
            let connection = open(path);
            connection.busy_timeout(Duration::from_secs(20)).unwrap();
            while Instant::now() < until {
                write(&connection);
                write(&connection);
                checkpoint(&connection, how);
            }
        })
    });
    let mut looks = 0;
    while Instant::now() < until {
        assert_eq!(world.fault(), None);
        looks += 1;
    }
    assert!(looks > 100, "{looks}");
    for other in others {
        other.join().unwrap();
    }
}

#[test]
fn a_main_file_written_over_in_place_is_found() {
    let other = "import sqlite3\no = sqlite3.connect(path + '.o')\no.execute('CREATE TABLE other (x)')\n\
                 o.executemany('INSERT INTO other VALUES (?)', [('x' * 900,)] * 500)\no.commit(); o.close()\n\
                 f = open(path, 'r+b'); f.write(open(path + '.o', 'rb').read()); f.close()";
    World::new().must_find("written over", other);
    World::new().must_find("written over", "f = open(path, 'r+b'); f.write(os.urandom(4096)); f.close()");
    let world = World::new();
    checkpoint(&world.writer, "PASSIVE");
    world.must_find("cut to 8192", "os.truncate(path, 8192)");
    World::new().must_find("not even its header", "os.truncate(path, 50)");
}

#[test]
fn an_earlier_state_of_the_main_file_is_found_after_a_merge() {
    let world = World::new();
    checkpoint(&world.writer, "PASSIVE");
    assert_eq!(world.fault(), None);
    world.python("open(path + '.old', 'wb').write(open(path, 'rb').read())");
    let other = world.other();
    for _ in 0..20 {
        write(&other);
    }
    checkpoint(&other, "PASSIVE");
    world.must_find(
        "written over",
        "f = open(path, 'r+b'); f.write(open(path + '.old', 'rb').read()); f.truncate(); f.close()",
    );
}

#[test]
fn a_log_written_over_or_cut_in_place_is_found() {
    World::new().must_find("cut", "os.truncate(path + '-wal', 0)");
    World::new().must_find("cut", "os.truncate(path + '-wal', 20000)");
    World::new().must_find("written over", "f = open(path + '-wal', 'r+b'); f.write(b'\\0' * 32); f.close()");
    World::new().must_find(
        "written over",
        "n = os.path.getsize(path + '-wal')\nf = open(path + '-wal', 'r+b'); f.write(os.urandom(n)); f.close()",
    );
}

#[test]
fn files_set_back_to_an_earlier_state_together_are_found() {
    let world = World::new();
    world.python("for s in ('-wal', '-shm'): open(path + s + '.old', 'wb').write(open(path + s, 'rb').read())");
    for _ in 0..5 {
        write(&world.writer);
    }
    world.must_find(
        "set back",
        "for s in ('-wal', '-shm'): f = open(path + s, 'r+b'); f.write(open(path + s + '.old', 'rb').read()); f.close()",
    );
}

#[test]
fn a_look_costs_no_more_than_some_reads_of_a_few_bytes() {
    let world = World::new();
    let started = Instant::now();
    for _ in 0..10_000 {
        assert_eq!(world.generation.find_fault(&world.writer, u64::MAX, true), None);
    }
    let each = started.elapsed() / 10_000;
    assert!(each < Duration::from_millis(5), "{each:?}");
}
