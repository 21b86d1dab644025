//! Forking beside a store on a server: a child gets a clear error on what it inherited, can open its own, and no number of
//! forks costs a row or a hang.
#![cfg(all(feature = "postgres", target_os = "linux"))]
#![expect(clippy::print_stdout, reason = "tests say what they saw")]
#![expect(unsafe_code, reason = "fork(2)")]

mod support;
#[path = "support/world.rs"]
mod world;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hermes_state::{Error, LockKind, NewMessage, SessionDb};
use support::{must_succeed, play, role};
use world::World;

fn message(text: &str) -> NewMessage {
    NewMessage::new("user", text)
}

/// Forks; the child runs `child` and ends with its answer, without unwinding into the test harness.
fn fork(child: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child runs only this closure and `_exit`; the library is made to be used after a fork, which is what
    // is tested here.
    match unsafe { libc::fork() } {
        0 => {
            let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(if well { 0 } else { 1 }) }
        }
        pid => {
            assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
            pid
        }
    }
}

/// Waits for a child; one that has not ended in time hangs and is killed.
fn wait(pid: libc::pid_t) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: a child of ours and a valid place for its status.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if started.elapsed() > Duration::from_secs(60) => {
                // SAFETY: kills and reaps that child.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &raw mut status, 0);
                }
                return Err("hung".into());
            }
            0 => std::thread::sleep(Duration::from_micros(200)),
            _ if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 => return Ok(()),
            _ => return Err(format!("status {status:#x}")),
        }
    }
}

/// Runs the body of a test in a process of its own, which may fork.
fn in_a_process(name: &str, body: fn(&Path)) {
    if let Some((_, url)) = role() {
        return body(&url);
    }
    let Some(world) = World::make() else { return };
    let output = play(name, "body", Path::new(&world.url), LockKind::PrivateTable).output().expect("runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    must_succeed(&output);
}

#[test]
fn an_inherited_handle_on_a_server_says_so_and_the_child_can_open_its_own() {
    in_a_process("an_inherited_handle_on_a_server_says_so_and_the_child_can_open_its_own", |url| {
        let db = SessionDb::open(url).expect("opens");
        db.append_message("s", message("before")).expect("appends");
        let child = fork(|| {
            let refused = db.append_message("s", message("inherited"));
            let own = SessionDb::open(url).expect("opens in the child");
            own.append_message("s", message("own")).expect("writes in the child");
            let count = own.message_count(None).expect("reads in the child");
            own.close().expect("closes");
            let refused_again = db.message_count(None);
            count == 2
                && matches!(refused, Err(Error::Forked { .. }))
                && matches!(refused_again, Err(Error::Forked { .. }))
        });
        wait(child).expect("the child ends well");
        db.append_message("s", message("parent")).expect("the parent goes on");
        assert_eq!(db.message_count(None).expect("counts"), 3);
    });
}

#[test]
fn five_hundred_forks_while_threads_open_read_and_write_hang_and_lose_nothing() {
    in_a_process("five_hundred_forks_while_threads_open_read_and_write_hang_and_lose_nothing", |url| {
        const FORKS: usize = 500;
        let db = SessionDb::open(url).expect("opens");
        let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut failures = Vec::new();
        let mut from_children = 0;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (db, stop, written) = (&db, &stop, &written);
                scope.spawn(move || {
                    let mut number = 0;
                    while !stop.load(Ordering::Relaxed) {
                        db.append_message("s", message(&format!("thread {thread}"))).expect("writes");
                        written.fetch_add(1, Ordering::Relaxed);
                        db.message_count(None).expect("reads");
                        number += 1;
                        if thread == 0 && number % 10 == 0 {
                            // Threads come and go, with their runtimes and connections.
                            let url = format!("{}&application_name=n{number}", url.display());
                            let another = SessionDb::open(url).expect("opens another");
                            another.message_count(None).expect("reads");
                        }
                    }
                });
            }
            for number in 0..FORKS {
                // Most children only come and go; every fifth does what a forked worker does.
                let works = number % 5 == 0;
                let child = fork(|| {
                    if !works {
                        return true;
                    }
                    let own = SessionDb::open(url).expect("opens in the child");
                    own.append_message("s", message("child")).is_ok() && own.close().is_ok()
                });
                match wait(child) {
                    Ok(()) => from_children += usize::from(works),
                    Err(how) => failures.push(format!("child {number}: {how}")),
                }
                if failures.len() > 2 {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(failures.is_empty(), "{failures:?}");
        let acknowledged = written.into_inner() + from_children;
        assert_eq!(db.message_count(None).expect("counts"), i64::try_from(acknowledged).expect("few"));
        println!("{FORKS} forks, {acknowledged} messages");
    });
}
