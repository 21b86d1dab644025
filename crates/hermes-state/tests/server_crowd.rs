//! Many at once on a server: threads share commits and connections, processes open together, and nobody is refused
//! because of the others.
#![cfg(all(feature = "postgres", target_os = "linux"))]
#![expect(clippy::print_stdout, reason = "tests say what they saw")]

mod support;
#[path = "support/world.rs"]
mod world;

use std::collections::HashSet;
use std::path::Path;
use std::process::Stdio;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hermes_state::{Error, LockKind, MessageQuery, NewMessage, NewSession, SessionDb};
use hermes_state_testkit::ServerConfig;
use support::{must_succeed, play, role};
use world::{World, open_with, wait_until};

fn message(text: &str) -> NewMessage {
    NewMessage::new("user", text)
}

#[test]
fn threads_that_write_at_once_share_commits_and_one_that_fails_fails_alone() {
    let Some(world) = World::make() else { return };
    let db = world.open();
    const THREADS: usize = 64;
    const EACH: usize = 5;
    let together = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, together) = (&db, &together);
            scope.spawn(move || {
                together.wait();
                for n in 0..EACH {
                    // One of them always fails, and none of the others with it.
                    let session = if thread == 7 { "missing" } else { "s" };
                    let outcome = db.append_message(session, message(&format!("{thread} {n}")));
                    if thread == 7 {
                        assert!(matches!(outcome, Err(Error::Constraint { code: 787, .. })), "{outcome:?}");
                    } else {
                        outcome.expect("is stored");
                    }
                }
            });
        }
    });
    let stored = (THREADS - 1) * EACH;
    assert_eq!(world.texts().len(), stored);
    assert_eq!(world.psql("SELECT message_count FROM sessions WHERE id = 's';"), stored.to_string());

    // Without failures, transactions are told apart by what they left in their rows.
    let before: usize = world.psql("SELECT max(id) FROM messages;").parse().expect("an id");
    let together = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, together) = (&db, &together);
            scope.spawn(move || {
                together.wait();
                for n in 0..EACH {
                    db.append_message("s", message(&format!("again {thread} {n}"))).expect("is stored");
                }
            });
        }
    });
    let commits: usize = world
        .psql(&format!("SELECT count(DISTINCT CAST(CAST(xmin AS text) AS bigint)) FROM messages WHERE id > {before};"))
        .parse()
        .expect("a number");
    println!("{} writes in {commits} commits", THREADS * EACH);
    assert!(commits * 4 < THREADS * EACH, "{commits} commits for {} writes", THREADS * EACH);
}

#[test]
fn twenty_processes_open_a_fresh_schema_at_once_and_make_it_once() {
    const NAME: &str = "twenty_processes_open_a_fresh_schema_at_once_and_make_it_once";
    if let Some((name, url)) = role() {
        // All begin when the test says so.
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        let db = SessionDb::open(&url).expect("opens");
        db.create_session(NewSession::new(name.as_str(), "cli")).expect("creates");
        db.append_message(name.as_str(), message("here")).expect("appends");
        return;
    }
    let Some(world) = World::make() else { return };
    let fresh = world.url.replace("schema=hermes", "schema=fresh");
    let mut crowd: Vec<_> = (0..20)
        .map(|number| {
            play(NAME, &format!("s{number}"), Path::new(&fresh), LockKind::Ordinary)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("runs")
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    crowd.iter_mut().for_each(|one| drop(one.stdin.take()));
    for one in crowd {
        must_succeed(&one.wait_with_output().expect("ends"));
    }
    let made = "SELECT (SELECT count(*) = max(version) FROM fresh.server_layout), (SELECT count(*) FROM fresh.schema_version), \
                (SELECT count(*) FROM fresh.sessions), (SELECT count(*) FROM fresh.messages);";
    assert_eq!(world.psql(made), "t|1|20|20");
}

#[test]
fn a_process_has_at_most_five_connections_and_none_after_its_last_handle() {
    let Some(world) = World::make() else { return };
    let url = format!("{}&application_name=crowd", world.url);
    let db = SessionDb::open(&url).expect("opens");
    let connections = || -> usize {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowd';";
        world.psql(sql).parse().expect("a number")
    };
    let (stop, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..100 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if thread % 4 == 0 {
                        db.append_message("s", message("crowd")).expect("appends");
                    } else {
                        db.messages("s", &MessageQuery { limit: Some(3), ..Default::default() }).expect("reads");
                    }
                }
            });
        }
        for _ in 0..20 {
            most.fetch_max(connections(), Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let most = most.into_inner();
    assert!((2..=5).contains(&most), "{most} connections");
    // Somebody in the way is asked for on one more, which goes again.
    let mut other = world.other_session("BEGIN; LOCK TABLE messages;");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| db.append_message("s", message("waited")));
        std::thread::sleep(Duration::from_secs(3));
        other.say("COMMIT;");
        waiting.join().expect("no panic").expect("is stored");
    });
    wait_until("no more connections than before", || connections() <= 5);
    drop(db);
    wait_until("no connection is left", || connections() == 0);
}

#[test]
fn conflicts_between_processes_and_threads_reach_no_caller_and_leave_everything_consistent() {
    const NAME: &str = "conflicts_between_processes_and_threads_reach_no_caller_and_leave_everything_consistent";
    if let Some((name, url)) = role() {
        return quarrel(&url, &name);
    }
    let Some(world) = World::make() else { return };
    let started = Instant::now();
    let quarrellers: Vec<_> = (0..3)
        .map(|number| {
            play(NAME, &number.to_string(), Path::new(&world.url), LockKind::Ordinary)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("runs")
        })
        .collect();
    let mut wins = 0;
    for one in quarrellers {
        let output = one.wait_with_output().expect("ends");
        must_succeed(&output);
        let said = String::from_utf8(output.stdout).expect("text");
        let won = said.split("titles ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a number");
        wins += won.parse::<usize>().expect("a number");
    }
    println!("{wins} titles won in {:.1} s", started.elapsed().as_secs_f64());
    // A title belongs to one session, a parent's folder came to every child, and no message was counted twice.
    assert_eq!(
        world.psql("SELECT title FROM sessions WHERE title IS NOT NULL GROUP BY title HAVING count(*) > 1;"),
        ""
    );
    assert_eq!(
        world.psql("SELECT count(*) FROM sessions WHERE id LIKE 'child%' AND cwd IS DISTINCT FROM '/project';"),
        "0"
    );
    assert_eq!(world.psql("SELECT count(*) FROM sessions WHERE id LIKE 'child%';"), "10");
    let miscounted =
        "SELECT id FROM sessions s WHERE message_count <> (SELECT count(*) FROM messages m WHERE m.session_id = s.id);";
    assert_eq!(world.psql(miscounted), "");
    assert_eq!(world.psql("SELECT count(*) FROM messages;"), (3 * 8 * 20).to_string());
}

/// Eight threads that want the same titles, make the same sessions, end and reopen them and write to them, in different
/// orders.
fn quarrel(url: &Path, name: &str) {
    let db = SessionDb::open(url).expect("opens");
    let won = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8_usize {
            let (db, won) = (&db, &won);
            scope.spawn(move || {
                for n in 0..20 {
                    let (parent, child) = (format!("parent{}", n % 2), format!("child{}", (n + thread) % 10));
                    db.create_session(NewSession::new(parent.as_str(), "cli").cwd("/project")).expect("creates");
                    let new = NewSession::new(child.as_str(), "cli").parent_session_id(parent.as_str());
                    db.create_session(new).expect("creates");
                    match db.set_session_title(child.as_str(), Some(&format!("title {}", n % 3))) {
                        Ok(true) => drop(won.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::TitleInUse { .. }) => {}
                        other => panic!("{other:?}"),
                    }
                    db.append_message(child.as_str(), message(&format!("{name} {thread} {n}"))).expect("appends");
                    db.end_session(child.as_str(), "done").expect("ends");
                    db.set_meta("last", child.as_str()).expect("sets");
                    db.reopen_session(child.as_str()).expect("reopens");
                    db.set_session_title(child.as_str(), None).expect("takes it away");
                }
            });
        }
    });
    println!("titles {}", won.into_inner());
}

#[test]
fn a_routine_write_is_not_starved_by_those_who_write_to_the_same_session_without_pause() {
    const NAME: &str = "a_routine_write_is_not_starved_by_those_who_write_to_the_same_session_without_pause";
    if let Some((name, url)) = role() {
        let db = SessionDb::open(&url).expect("opens");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        db.append_message("s", message(&name)).expect("appends");
                    }
                });
            }
            let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
            stop.store(true, Ordering::Relaxed);
        });
        return;
    }
    let Some(world) = World::make() else { return };
    let mut writers: Vec<_> = (0..3)
        .map(|number| {
            play(NAME, &number.to_string(), Path::new(&world.url), LockKind::Ordinary)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("runs")
        })
        .collect();
    wait_until("they write", || world.texts().len() > 100);
    let db = world.open();
    let mut longest = Duration::ZERO;
    for n in 0..20 {
        let started = Instant::now();
        db.set_session_title("s", Some(&format!("title {n}"))).expect("is not starved");
        db.end_session("s", "done").expect("is not starved");
        db.reopen_session("s").expect("is not starved");
        longest = longest.max(started.elapsed());
    }
    println!("the longest of 20 rounds took {:.2} s", longest.as_secs_f64());
    writers.iter_mut().for_each(|one| drop(one.stdin.take()));
    for one in writers {
        must_succeed(&one.wait_with_output().expect("ends"));
    }
}

#[test]
fn a_server_that_only_reads_for_a_while_is_waited_for_and_then_named() {
    let Some(world) = World::make() else { return };
    let db = open_with(&world.url, 3.0);
    db.append_message("s", message("before")).expect("appends");
    let set = |on: &str| {
        let sql = format!("ALTER SYSTEM SET default_transaction_read_only = {on};\nSELECT pg_reload_conf();");
        let _ = world.psql(&sql);
        wait_until("it is set", || world.psql("SHOW default_transaction_read_only;") == on);
    };
    set("on");
    let started = Instant::now();
    let error = db.append_message("s", message("refused")).expect_err("it only reads");
    let Error::Unreachable { message: said, perhaps_stored: false, .. } = &error else { panic!("{error:?}") };
    assert!(said.contains("only reads"), "{said}");
    assert!(started.elapsed() >= Duration::from_millis(2900), "{:?}", started.elapsed());
    assert_eq!(db.message_count(None).expect("reads are served"), 1);
    db.set_patience(world::patience(60.0));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| db.append_message("s", message("patient")));
        std::thread::sleep(Duration::from_millis(500));
        set("off");
        waiting.join().expect("no panic").expect("is stored");
    });
    assert_eq!(world.texts(), ["before", "patient"]);
}

#[test]
fn a_server_without_a_free_connection_is_waited_for_and_then_named() {
    let config = ServerConfig::new().setting("max_connections = 8").setting("superuser_reserved_connections = 0");
    let Some(world) = World::with(&config) else { return };
    let mut held: Vec<_> = (0..7).map(|_| world.other_session("SELECT 1;")).collect();
    held.push(world.other_session("SELECT 1;"));
    let options = || hermes_state::OpenOptions::new();
    let error = options().patience(world::patience(2.0)).open(&world.url).expect_err("it is full");
    let Error::Server { trouble, .. } = &error else { panic!("{error:?}") };
    assert!(trouble.to_string().contains("too many clients"), "{trouble}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| options().open(&world.url));
        // Longer than a wrong location would be tried.
        std::thread::sleep(Duration::from_secs(6));
        assert!(!waiting.is_finished());
        held.clear();
        let db = waiting.join().expect("no panic").expect("opens");
        db.append_message("s", message("in the end")).expect("appends");
        let ids: HashSet<i64> =
            db.messages("s", &MessageQuery::default()).expect("reads").iter().map(|message| message.id()).collect();
        assert_eq!(ids.len(), 1);
    });
}
