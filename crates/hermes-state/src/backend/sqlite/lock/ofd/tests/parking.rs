//! Descriptors that SQLite closed stay open without harm (remedies B1 to D2).

use super::*;

fn cycles(mode: Mode, others: &str) {
    let db = Db::new(mode);
    let mut sibling = (others == "sibling").then(|| db.sibling());
    if let Some(sibling) = &mut sibling {
        sibling.count();
    }
    let neighbour = (others == "neighbour").then(|| Neighbour::open(&db.path())).flatten();
    if let Some(neighbour) = &neighbour {
        assert_eq!(neighbour.exec("SELECT count(*) FROM t"), 0);
    }
    let of_ours = (others == "ours").then(|| db.open());
    if let Some(ours) = &of_ours {
        ours.execute("INSERT INTO t VALUES ('ours', 0)", []).expect("nobody else writes");
    }
    let before = db.descriptors();
    for cycle in 0..10_000 {
        let ours = db.open();
        if cycle % 100 == 0 {
            ours.execute("INSERT INTO t VALUES ('ours', ?)", [cycle]).expect("nobody else writes");
        } else {
            ours.query_row("SELECT count(*) FROM t", [], |_| Ok(())).expect("reading");
        }
    }
    let more = db.descriptors() - before;
    assert!(more <= 2, "{more} descriptors more after 10,000 cycles beside {others:?} in {mode:?}");
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = c_int;

fn limit(resource: Resource, most: u64) -> u64 {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid structure that outlives the calls.
    unsafe {
        libc::getrlimit(resource, &raw mut limits);
        let before = limits.rlim_cur;
        limits.rlim_cur = most.min(limits.rlim_max);
        assert_eq!(libc::setrlimit(resource, &raw const limits), 0);
        before
    }
}

scenarios! {
    b1_the_last_one_to_close_removes_the_wal, None, {
        // The sibling has our SQLite: older ones do not ask whether others still use the index.
        let db = Db::new(Mode::Wal);
        let (opened, closed) = (Pipe::new(), Pipe::new());
        let sibling = fork(|| {
            let own = db.open();
            own.execute("INSERT INTO t VALUES ('sibling', 1)", []).expect("nobody else writes");
            opened.send(1);
            closed.receive();
            let mode: rusqlite::Result<String> = own.query_row("PRAGMA journal_mode=DELETE", [], |row| row.get(0));
            c_int::from(mode != Ok("delete".into()))
        });
        opened.receive();
        let ours = db.open();
        ours.execute("INSERT INTO t VALUES ('ours', 1)", []).expect("nobody else writes");
        drop(ours);
        assert!(db.wal().exists());
        closed.send(1);
        assert_eq!(wait(sibling), 0, "we are in its way");
        assert!(!db.wal().exists() && !db.shm().exists());
    }

    b2_an_index_of_the_dead_is_not_trusted, None, {
        let db = Db::new(Mode::Wal);
        let mut sibling = db.sibling();
        sibling.ok("INSERT INTO t VALUES ('sibling', 1)");
        sibling.ok("PRAGMA wal_checkpoint(TRUNCATE)");
        let copy = std::fs::read(db.path()).expect("a copy");
        let ours = db.open();
        for n in 0..200 {
            ours.execute("INSERT INTO t VALUES ('ours', ?)", [n]).expect("nobody else writes");
        }
        drop(ours);
        sibling.kill();
        std::fs::remove_file(db.wal()).expect("left by the dead");
        std::fs::write(db.path(), copy).expect("restored");
        assert!(db.shm().exists(), "left by the dead");
        assert_eq!(db.sibling().count(), 1);
        assert_eq!(db.open().query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(1));
    }

    b3_a_failed_open_leaves_no_lock, None, {
        let db = Db::new(Mode::Wal);
        let mut sibling = db.sibling();
        // SAFETY: ignoring a signal involves no memory.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let before = limit(libc::RLIMIT_FSIZE, 2);
        let failed = db.open().query_row("SELECT count(*) FROM t", [], |_| Ok(()));
        limit(libc::RLIMIT_FSIZE, before);
        failed.expect_err("no room for the index");
        assert_eq!(sibling.count(), 0);
        assert!(!sibling.is_locked_out());
        assert_eq!(db.open().query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(0));
    }

    c1_locks_need_no_further_descriptor, None, {
        let db = Db::new(Mode::Rollback);
        let ours = db.open();
        let first_free = std::fs::File::open("/dev/null").expect("a free number").as_raw_fd();
        let before = limit(libc::RLIMIT_NOFILE, first_free as u64);
        let read = ours.query_row("SELECT count(*) FROM t", [], |row| row.get(0));
        let write = ours.execute("INSERT INTO t VALUES ('ours', 1)", []);
        limit(libc::RLIMIT_NOFILE, before);
        assert_eq!(read, Ok(0));
        write.expect_err("there is no descriptor for a journal");
        ours.execute("INSERT INTO t VALUES ('ours', 1)", []).expect("there is now");
        assert_eq!(db.sibling().count(), 1);
    }

    c2_read_locks_survive_the_first_writer, None, {
        let db = Db::new(Mode::Rollback);
        give_up_root(&db);
        let mut sibling = db.sibling();
        sibling.count();
        chmod(&db.path(), 0o444);
        let reader = db.open();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").expect("reading");
        assert_eq!(reader.is_readonly("main"), Ok(true));
        chmod(&db.path(), 0o644);
        sibling.ok("BEGIN IMMEDIATE");
        sibling.ok("INSERT INTO t VALUES ('sibling', 1)");
        assert_eq!(sibling.ask("COMMIT"), "error database is locked", "somebody reads");
        let writer = db.open();
        assert_eq!(sibling.ask("COMMIT"), "error database is locked", "somebody reads still");
        reader.execute_batch("COMMIT").expect("it read");
        sibling.ok("COMMIT");
        writer.execute("INSERT INTO t VALUES ('ours', 1)", []).expect("a writable file");
        assert_eq!(sibling.count(), 2);
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").expect("reading");
        drop(writer);
        sibling.ok("BEGIN IMMEDIATE");
        sibling.ok("INSERT INTO t VALUES ('sibling', 1)");
        assert_eq!(sibling.ask("COMMIT"), "error database is locked", "somebody reads, with the writer gone");
    }

    c2_an_index_seen_read_only_first_can_be_written_later, None, {
        let db = Db::new(Mode::Wal);
        let mut sibling = db.sibling();
        sibling.ok("INSERT INTO t VALUES ('sibling', 1)");
        give_up_root(&db);
        for file in [db.path(), db.shm(), db.wal()] {
            chmod(&file, 0o444);
        }
        let ours = db.open();
        assert_eq!(ours.query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(1));
        drop(ours);
        for file in [db.path(), db.shm(), db.wal()] {
            chmod(&file, 0o644);
        }
        let ours = db.open();
        ours.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('ours', 1)").expect("a writable file");
        assert!(sibling.is_locked_out());
        ours.execute_batch("COMMIT").expect("we hold the lock");
        assert_eq!(sibling.count(), 2);
    }

    d1_cycles_alone_in_wal, None, { cycles(Mode::Wal, ""); }
    d1_cycles_beside_a_sibling_in_wal, None, { cycles(Mode::Wal, "sibling"); }
    d1_cycles_beside_a_neighbour_in_wal, None, { cycles(Mode::Wal, "neighbour"); }
    d1_cycles_beside_one_of_ours_in_wal, None, { cycles(Mode::Wal, "ours"); }
    d1_cycles_alone_in_rollback, None, { cycles(Mode::Rollback, ""); }
    d1_cycles_beside_a_sibling_in_rollback, None, { cycles(Mode::Rollback, "sibling"); }

    d1_a_parked_descriptor_grants_nothing_that_was_forbidden_since, None, {
        let db = Db::new(Mode::Rollback);
        give_up_root(&db);
        db.open().execute("INSERT INTO t VALUES ('ours', 1)", []).expect("a writable file");
        chmod(&db.path(), 0o444);
        let ours = db.open();
        assert_eq!(ours.is_readonly("main"), Ok(true));
        ours.execute("INSERT INTO t VALUES ('ours', 1)", []).expect_err("it is read-only now");
    }

    d1_a_parked_descriptor_that_became_another_file_is_not_handed_out, None, {
        let db = Db::new(Mode::Rollback);
        let elsewhere = tempfile::NamedTempFile::new().expect("another file");
        drop(db.open());
        let parked = descriptor_of(&db.path());
        // SAFETY: takes numbers only; somebody closed ours and took the number.
        unsafe { libc::dup2(elsewhere.as_raw_fd(), parked) };
        let ours = db.open();
        ours.execute("INSERT INTO t VALUES ('ours', 1)", []).expect("the right file");
        assert_ne!(descriptor_of(&db.path()), parked);
        assert_eq!(elsewhere.as_file().metadata().expect("still open").len(), 0);
    }

    d2_deleted_files_give_back_their_space, None, {
        let db = Db::new(Mode::Wal);
        for n in 0..200 {
            let path = db.directory.path().join(format!("{n}.db"));
            open(&path).execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(n)").expect("a new file");
            db.open().execute("VACUUM INTO ?", [db.directory.path().join(format!("{n}.copy")).to_str()]).expect("a copy");
            std::fs::remove_file(path).expect("it is there");
            std::fs::remove_file(db.directory.path().join(format!("{n}.copy"))).expect("it is there");
        }
        let deleted = descriptors(|target| target.to_string_lossy().ends_with("(deleted)"));
        assert!(deleted <= 2, "{deleted} deleted files are still held");
    }

    d2_many_files_are_not_all_kept_open, None, {
        let db = Db::new(Mode::Rollback);
        for n in 0..300 {
            open(&db.directory.path().join(format!("{n}.db"))).execute_batch("CREATE TABLE t(n)").expect("a new file");
        }
        let kept = db.descriptors();
        assert!(kept <= 65, "{kept} descriptors are kept");
    }

    d2_a_deleted_file_on_which_a_stranger_has_a_lock_is_kept, None, {
        let db = Db::new(Mode::Rollback);
        let other = Db::new(Mode::Rollback);
        drop(db.open());
        let witness = std::fs::OpenOptions::new().read(true).write(true).open(db.path()).expect("it is there");
        let stranger = PosixLock::try_take(db.write_lock()).expect("nobody writes");
        std::fs::remove_file(db.path()).expect("it is there");
        drop(other.open());
        assert!(!sys::is_unlocked(witness.as_raw_fd()), "the stranger's lock is still there");
        drop(stranger);
        drop(other.open());
        assert_eq!(descriptors(|target| target.to_string_lossy().contains("state.db (deleted)")), 1, "the witness");
    }
}

fn descriptor_of(path: &Path) -> RawFd {
    let leads_there = |number: &RawFd| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to == path);
    (3..200).find(leads_there).expect("an open descriptor")
}
