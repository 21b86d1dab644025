//! Locks hold beside strangers in the same process (remedies A1 to A3, and the reason for the layer).

use super::*;

fn writers_exclude_a_stranger_both_ways(mode: Mode) {
    let db = Db::new(mode);
    let ours = db.open();
    ours.execute("INSERT INTO t VALUES ('ours', 1)", []).expect("nobody else writes");
    let stranger = PosixLock::try_take(db.write_lock()).expect("nobody writes");
    assert!(is_busy(ours.execute_batch("BEGIN IMMEDIATE")), "the stranger writes");
    drop(stranger);
    ours.execute_batch("BEGIN IMMEDIATE").expect("the stranger is gone");
    assert!(PosixLock::try_take(db.write_lock()).is_none(), "we write");
    ours.execute_batch("COMMIT").expect("we hold the lock");
    assert!(PosixLock::try_take(db.write_lock()).is_some(), "we have ended");
}

fn a_careless_close_costs_us_nothing(mode: Mode) {
    let db = Db::new(mode);
    let mut sibling = db.sibling();
    let ours = db.open();
    ours.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('ours', 1)").expect("nobody else writes");
    for file in [db.path(), db.shm()] {
        drop(std::fs::File::open(file));
    }
    assert!(sibling.is_locked_out(), "we still write");
    ours.execute_batch("COMMIT").expect("we still hold the lock");
    assert_eq!(sibling.count(), 1);
}

fn our_close_costs_nobody_anything(mode: Mode, statement: &str) {
    let db = Db::new(mode);
    let mut sibling = db.sibling();
    sibling.count();
    let stranger = PosixLock::try_take(db.write_lock());
    assert!(stranger.is_some() && sibling.is_locked_out());
    for _ in 0..3 {
        let ours = db.open();
        ours.execute_batch(statement).expect("reading needs nothing that the stranger has");
        drop(ours);
        assert!(sibling.is_locked_out(), "the stranger still writes");
    }
    drop(stranger);
    assert!(!sibling.is_locked_out());
}

fn after_everything_was_closed_the_store_opens_anew(mode: Mode) {
    let db = Db::new(mode);
    let mut sibling = db.sibling();
    let old = db.open();
    old.execute("INSERT INTO t VALUES ('ours', 1)", []).expect("nobody else writes");
    let logs = become_a_daemon(&db);
    let new = db.open();
    new.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('ours', 2)").expect("nobody else writes");
    if mode == Mode::Rollback {
        // In WAL mode SQLite takes ten seconds to believe it.
        assert!(old.execute_batch("BEGIN IMMEDIATE").is_err(), "it has no locks");
    }
    assert!(sibling.is_locked_out(), "we write");
    assert!(is_busy(db.open().execute_batch("BEGIN IMMEDIATE")), "one of us writes");
    new.execute_batch("COMMIT").expect("we hold the lock");
    assert_eq!(sibling.count(), 2);
    assert_eq!(sibling.ok("PRAGMA integrity_check"), "ok");
    assert_untouched(logs);
    std::mem::forget(old);
}

fn assert_untouched(logs: Vec<std::fs::File>) {
    for log in logs {
        assert_eq!(log.metadata().expect("still open").len(), 0, "nothing of ours was written into a log");
    }
}

/// Closes every descriptor above the standard ones and takes the numbers for other files.
fn become_a_daemon(db: &Db) -> Vec<std::fs::File> {
    let own: Vec<RawFd> = (3..200).filter(|number| belongs_to(db, *number)).collect();
    for number in &own {
        // SAFETY: what a daemon does; the tests know what it breaks.
        unsafe { libc::close(*number) };
    }
    let logs = (0..own.len() + 1).map(|n| std::fs::File::create(db.directory.path().join(format!("log{n}"))));
    logs.collect::<Result<_, _>>().expect("a log file")
}

fn belongs_to(db: &Db, number: RawFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to.starts_with(db.directory.path()))
}

scenarios! {
    wal_writers_exclude_a_stranger_both_ways, FailsWithout, { writers_exclude_a_stranger_both_ways(Mode::Wal); }
    rollback_writers_exclude_a_stranger_both_ways, FailsWithout, { writers_exclude_a_stranger_both_ways(Mode::Rollback); }
    a_careless_close_costs_us_nothing_in_wal, FailsWithout, { a_careless_close_costs_us_nothing(Mode::Wal); }
    a_careless_close_costs_us_nothing_in_rollback, FailsWithout, { a_careless_close_costs_us_nothing(Mode::Rollback); }
    a1_closing_without_a_statement_costs_nobody_anything, FailsWithout, { our_close_costs_nobody_anything(Mode::Rollback, ""); }
    closing_after_a_read_costs_nobody_anything, FailsWithout, {
        our_close_costs_nobody_anything(Mode::Wal, "PRAGMA user_version; PRAGMA table_info(t)");
    }

    a2_a_store_is_never_a_standard_descriptor, FailsWithout, {
        let db = Db::new(Mode::Rollback);
        let mut sibling = db.sibling();
        let stranger = PosixLock::try_take(db.write_lock());
        assert!(sibling.is_locked_out());
        // SAFETY: takes numbers only; the standard descriptors come back below.
        let saved = [0, 1, 2].map(|number| unsafe {
            let saved = libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 20);
            libc::close(number);
            saved
        });
        let ours = db.open();
        let opened = [0, 1, 2].iter().any(|number| belongs_to(&db, *number));
        // SAFETY: a careless print, from bytes that outlive the call.
        unsafe { libc::write(1, c"a careless print".as_ptr().cast(), 16) };
        for (number, saved) in (0..).zip(saved) {
            // SAFETY: takes numbers only.
            unsafe { libc::dup2(saved, number) };
        }
        assert!(!opened, "a print would go into the store");
        assert!(sibling.is_locked_out(), "opening dropped no lock of the stranger");
        drop(stranger);
        ours.execute("INSERT INTO t VALUES ('ours', 1)", []).expect("an intact file");
        assert_eq!(sibling.count(), 1);
    }

    a3_a_daemon_opens_its_store_anew_in_wal, FailsWithout, { after_everything_was_closed_the_store_opens_anew(Mode::Wal); }
    a3_a_daemon_opens_its_store_anew_in_rollback, None, { after_everything_was_closed_the_store_opens_anew(Mode::Rollback); }

    a3_a_daemon_amid_a_write_meets_nothing_of_its_past, FailsWithout, {
        let db = Db::new(Mode::Rollback);
        let mut sibling = db.sibling();
        let (old, other) = (db.open(), db.open());
        old.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('ours', 1)").expect("nobody else writes");
        // Closed while one of its file holds a lock, its descriptor waits inside SQLite for the next open.
        drop(other);
        let logs = become_a_daemon(&db);
        let new = db.open();
        new.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('ours', 2)").expect("the old lock is void");
        assert!(sibling.is_locked_out(), "we write");
        new.execute_batch("COMMIT").expect("we hold the lock");
        assert_eq!(sibling.count(), 1);
        assert_untouched(logs);
        std::mem::forget(old);
    }

    a3_a_number_serves_one_store_after_another, None, {
        let (first, second) = (Db::new(Mode::Rollback), Db::new(Mode::Rollback));
        let mut sibling = second.sibling();
        drop(first.open());
        let parked = (3..200).find(|number| belongs_to(&first, *number)).expect("an open descriptor");
        // SAFETY: what a careless library does.
        unsafe { libc::close(parked) };
        let ours = second.open();
        assert!(belongs_to(&second, parked), "the number is taken again");
        first.open().execute("INSERT INTO t VALUES ('ours', 1)", []).expect("nobody else writes");
        ours.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
        assert!(sibling.is_locked_out(), "we write");
    }

    a3_a_daemon_amid_a_wal_write_stays_locked_out, None, {
        // The mapping of the index, which nobody closed, keeps the lock: safe, and more than ordinary locks do.
        let db = Db::new(Mode::Wal);
        let mut sibling = db.sibling();
        let old = db.open();
        old.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('ours', 1)").expect("nobody else writes");
        let logs = become_a_daemon(&db);
        let new = db.open();
        assert!(sibling.is_locked_out());
        assert!(is_busy(new.execute_batch("BEGIN IMMEDIATE")));
        assert_eq!(new.query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(0));
        assert_untouched(logs);
        std::mem::forget(old);
    }
}
