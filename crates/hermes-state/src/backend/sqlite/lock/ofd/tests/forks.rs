//! Locks end with the process that took them, and a child starts from nothing (remedies F1 to F5).

use super::*;

/// Kills a process that holds the write lock while a child of it lives on.
fn the_lock_dies_with_its_owner(mode: Mode, mapped: bool, read_only: bool) {
    let db = Db::new(mode);
    let mut sibling = db.sibling();
    if read_only {
        give_up_root(&db);
        sibling.count();
        chmod(&db.path(), 0o444);
    }
    let ready = Pipe::new();
    let owner = fork(|| {
        let ours = db.open();
        if mapped {
            ours.execute_batch("PRAGMA mmap_size=1000000").expect("a setting");
        }
        if read_only {
            ours.execute_batch("BEGIN; SELECT count(*) FROM t").expect("reading");
        } else {
            ours.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('owner', 1); SELECT * FROM t")
                .expect("nobody else");
        }
        let child = fork(|| {
            std::thread::sleep(Duration::from_secs(15));
            0
        });
        ready.send(child);
        wait(child)
    });
    let child = ready.receive();
    let keeps_out = |sibling: &mut Sibling| {
        if !read_only {
            return sibling.is_locked_out();
        }
        chmod(&db.path(), 0o644);
        sibling.ok("BEGIN IMMEDIATE");
        sibling.ok("INSERT INTO t VALUES ('sibling', 1)");
        let answer = sibling.ask("COMMIT");
        sibling.ask("ROLLBACK");
        answer != "ok"
    };
    assert!(keeps_out(&mut sibling), "the owner lives");
    // The child runs its handler on its own time.
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: ends processes that this test started.
    unsafe { libc::kill(owner, libc::SIGKILL) };
    assert_eq!(wait(owner), -libc::SIGKILL);
    let kept_out = keeps_out(&mut sibling);
    // SAFETY: as above.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert!(!kept_out, "the child has nothing to do with the lock");
    assert_eq!(sibling.ok("PRAGMA integrity_check"), "ok");
}

fn parent_and_child_exclude_each_other(mode: Mode) {
    let db = Db::new(mode);
    let mut sibling = db.sibling();
    let ours = db.open();
    ours.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('parent', 1)").expect("nobody else writes");
    let (opened, ended, took, end) = (Pipe::new(), Pipe::new(), Pipe::new(), Pipe::new());
    let child = fork(|| {
        let own = db.open();
        opened.send(i32::from(is_busy(own.execute_batch("BEGIN IMMEDIATE"))));
        ended.receive();
        own.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('child', 1)").expect("the parent has ended");
        took.send(1);
        end.receive();
        own.execute_batch("COMMIT").expect("the child holds the lock");
        0
    });
    assert_eq!(opened.receive(), 1, "the parent writes");
    ours.execute_batch("COMMIT").expect("the parent holds the lock");
    ended.send(1);
    took.receive();
    assert!(is_busy(ours.execute_batch("BEGIN IMMEDIATE")), "the child writes");
    assert!(sibling.is_locked_out(), "the child writes");
    end.send(1);
    assert_eq!(wait(child), 0);
    ours.execute("INSERT INTO t VALUES ('parent', 2)", []).expect("the child has ended");
    assert_eq!(sibling.count(), 3);
    assert_eq!(sibling.ok("PRAGMA integrity_check"), "ok");
}

scenarios! {
    f1_the_lock_dies_with_its_owner_in_wal, None, { the_lock_dies_with_its_owner(Mode::Wal, false, false); }
    f1_the_lock_dies_with_its_owner_in_rollback, None, { the_lock_dies_with_its_owner(Mode::Rollback, false, false); }
    f1_the_lock_dies_with_its_owner_though_mapped, None, { the_lock_dies_with_its_owner(Mode::Rollback, true, false); }
    f1_the_lock_dies_with_its_owner_though_mapped_in_wal, None, { the_lock_dies_with_its_owner(Mode::Wal, true, false); }
    f1_the_lock_dies_with_a_reader, None, { the_lock_dies_with_its_owner(Mode::Rollback, true, true); }

    f2_parent_and_child_exclude_each_other_in_wal, None, { parent_and_child_exclude_each_other(Mode::Wal); }
    f2_parent_and_child_exclude_each_other_in_rollback, None, { parent_and_child_exclude_each_other(Mode::Rollback); }

    f3_a_child_reads_with_locks_of_its_own, None, {
        let db = Db::new(Mode::Rollback);
        let mut sibling = db.sibling();
        let ours = db.open();
        ours.execute_batch("BEGIN; SELECT count(*) FROM t").expect("reading");
        let (reads, end) = (Pipe::new(), Pipe::new());
        let child = fork(|| {
            let own = db.open();
            own.execute_batch("BEGIN; SELECT count(*) FROM t").expect("reading");
            reads.send(1);
            end.receive();
            0
        });
        reads.receive();
        ours.execute_batch("COMMIT").expect("it read");
        sibling.ok("BEGIN IMMEDIATE");
        sibling.ok("INSERT INTO t VALUES ('sibling', 1)");
        assert_eq!(sibling.ask("COMMIT"), "error database is locked", "the child reads");
        end.send(1);
        assert_eq!(wait(child), 0);
        sibling.ok("COMMIT");
    }

    f4_children_of_a_busy_process_work, None, {
        let db = Db::new(Mode::Wal);
        let stop = std::sync::atomic::AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3).map(|_| scope.spawn(|| {
                let mut written = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let ours = db.open();
                    ours.busy_timeout(Duration::from_secs(60)).expect("patience");
                    for n in 0..5 {
                        ours.execute("INSERT INTO t VALUES ('parent', ?)", [n]).expect("patience suffices");
                        written += 1;
                    }
                }
                written
            })).collect();
            let failures = (0..300).filter(|_| {
                let child = fork(|| {
                    let own = db.open();
                    own.busy_timeout(Duration::from_secs(60)).expect("patience");
                    own.execute("INSERT INTO t VALUES ('child', 1)", []).expect("patience suffices");
                    0
                });
                wait(child) != 0
            });
            let failures = failures.count();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(failures, 0, "children hung or failed");
            writers.into_iter().map(|writer| writer.join().expect("no failure")).sum::<usize>()
        });
        let mut sibling = db.sibling();
        assert_eq!(sibling.count(), written + 300);
        assert_eq!(sibling.ok("PRAGMA integrity_check"), "ok");
    }

    f5_an_inherited_connection_can_do_no_harm, FailsWithout, {
        let db = Db::new(Mode::Rollback);
        let mut sibling = db.sibling();
        let mut ours = Some(db.open());
        let begin = "PRAGMA cache_size=1; BEGIN IMMEDIATE; INSERT INTO t SELECT 'parent', randomblob(1000) FROM
            (WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i FROM n)";
        ours.as_ref().expect("open").execute_batch(begin).expect("nobody else writes");
        assert!(db.journal().exists());
        let child = fork(|| {
            let inherited = ours.take().expect("open");
            let wrote = inherited.execute("INSERT INTO t VALUES ('child', 1)", []).is_ok() && inherited.execute_batch("COMMIT").is_ok();
            drop(inherited);
            c_int::from(wrote)
        });
        assert_eq!(wait(child), 0, "the child committed through the parent's connection");
        assert!(db.journal().exists(), "the parent's way back is still there");
        assert!(sibling.is_locked_out());
        ours.expect("open").execute_batch("ROLLBACK").expect("the way back");
        assert_eq!(sibling.count(), 0);
        assert_eq!(sibling.ok("PRAGMA integrity_check"), "ok");
    }

    an_inherited_mapping_reads_as_nothing, None, {
        let db = Db::new(Mode::Wal);
        let mut ours = Some(db.open());
        ours.as_ref().expect("open").execute("INSERT INTO t VALUES ('parent', 1)", []).expect("nobody else writes");
        let child = fork(|| {
            let inherited = ours.take().expect("open");
            let count: rusqlite::Result<i64> = inherited.query_row("SELECT count(*) FROM t", [], |row| row.get(0));
            drop(inherited);
            c_int::from(count.is_ok())
        });
        assert_eq!(wait(child), 0, "an error, and no crash");
        let ours = ours.expect("open");
        assert_eq!(ours.query_row("SELECT count(*) FROM t", [], |row| row.get(0)), Ok(1));
        assert!(db.wal().exists(), "the child's close was not the last");
    }

    a_child_whose_fork_ran_no_handlers_excludes_its_parent, None, {
        let db = Db::new(Mode::Rollback);
        crate::backend::sqlite::lock::generation();
        let ours = db.open();
        ours.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES ('parent', 1)").expect("nobody else writes");
        // SAFETY: the child opens one connection and ends without returning.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
        if child == 0 {
            crate::backend::sqlite::lock::generation();
            let excluded = is_busy(db.open().execute_batch("BEGIN IMMEDIATE"));
            // SAFETY: ends the process.
            unsafe { libc::_exit(c_int::from(!excluded)) };
        }
        assert_eq!(wait(child as libc::pid_t), 0, "the parent writes");
    }

    a_child_leaves_descriptors_alone_that_are_no_longer_ours, None, {
        let db = Db::new(Mode::Rollback);
        let log = tempfile::NamedTempFile::new().expect("another file");
        let ours = db.open();
        ours.query_row("SELECT count(*) FROM t", [], |_| Ok(())).expect("reading");
        let number = (3..200).find(|n| std::fs::read_link(format!("/proc/self/fd/{n}")).is_ok_and(|to| to == db.path()));
        let number = number.expect("an open descriptor");
        // SAFETY: takes numbers only; somebody closed ours and took the number.
        unsafe { libc::dup2(log.as_raw_fd(), number) };
        let child = fork(|| {
            // SAFETY: bytes that outlive the call.
            let written = unsafe { libc::write(number, c"line".as_ptr().cast(), 4) };
            c_int::from(written != 4)
        });
        assert_eq!(wait(child), 0, "the child can write its log");
        std::mem::forget(ours);
    }
}
