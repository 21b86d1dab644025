//! Upkeep that is killed at random leaves the store whole and every message where it was, and the same call again does the
//! rest; two processes at once do no work twice.
#![cfg(target_os = "linux")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use hermes_state::{
    LockKind, NewMessage, NewSession, OptimizeOptions, PruneFilter, SearchOptions, SessionDb, StepPace,
};
use support::{play, python_says, role};

const PACE: StepPace = StepPace { rows: 100, duty_factor: 0.0, min_pause: Duration::ZERO };
const SESSIONS: usize = 300;
const KEPT: usize = 900;

/// What holds at any moment, beside what a job is about.
const WHOLE: &str = "c = sqlite3.connect(path, isolation_level=None)\n\
    assert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
    assert c.execute('PRAGMA foreign_key_check').fetchall() == []\n\
    assert c.execute('SELECT COUNT(*) FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id)').fetchone()[0] == 0\n\
    assert c.execute(\"SELECT COUNT(DISTINCT content) FROM messages WHERE session_id = 'kept' AND content LIKE 'walrus %'\").fetchone()[0] == 900\n\
    if c.execute(\"SELECT COUNT(*) FROM state_meta WHERE key = 'fts_rebuild_high_water'\").fetchone()[0] == 0:\n\
    \x20   for t in ('messages_fts', 'messages_fts_trigram'): c.execute(f\"INSERT INTO {t}({t}, rank) VALUES('integrity-check', 1)\")\n\
    print(c.execute('SELECT COUNT(*) FROM sessions').fetchone()[0])";

fn old() -> PruneFilter {
    PruneFilter { source: Some("old".into()), ..PruneFilter::default() }
}

/// Each kind of upkeep, as the child that is killed does it and the test once more.
fn work(job: &str, db: SessionDb) {
    match job {
        "delete" => drop(db.delete_session("long", None).expect("deletes")),
        "archive" => drop(db.archive_sessions(&old()).expect("archives")),
        "roots" => db.backfill_repo_roots([("/work", "/root")]).expect("notes"),
        "rebuild" => drop(db.rebuild_fts(PACE).expect("rebuilds")),
        "merge" => drop(db.optimize_fts().expect("merges")),
        "optimise" => {
            db.optimize_fts_storage(&OptimizeOptions { vacuum: true, pace: PACE }, &mut |_| Ok(())).expect("optimises");
        }
        "space" => drop(db.release_space().expect("gives back")),
        "vacuum" => drop(db.vacuum().expect("rewrites")),
        "close" => {
            let large = "x".repeat(1 << 20);
            (0..6).for_each(|n| db.set_meta(format!("large{n}"), large.as_str()).expect("stores"));
            db.close().expect("closes");
        }
        other => panic!("no job {other}"),
    }
}

/// A store in which there is something to do for each of them.
fn filled(path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    db.create_session(NewSession::new("kept", "cli")).expect("creates");
    let text = |n: usize| NewMessage::new("user", format!("walrus {n} {}", "words ".repeat(40)));
    for part in 0..KEPT / 100 {
        db.append_messages("kept", (0..100).map(|n| text(part * 100 + n)).collect()).expect("appends");
    }
    db.create_session(NewSession::new("long", "cli")).expect("creates");
    db.append_messages("long", (0..600).map(text).collect()).expect("appends");
    db.create_session(NewSession::new("gone", "cli")).expect("creates");
    db.append_messages("gone", (0..600).map(text).collect()).expect("appends");
    for n in 0..SESSIONS {
        db.create_session(NewSession::new(format!("s{n}"), "old").cwd("/work")).expect("creates");
        db.end_session(format!("s{n}"), "done").expect("ends");
    }
    db.delete_session("gone", None).expect("deletes");
    db.close().expect("closes");
}

fn is_done(job: &str, path: &Path) {
    let db = SessionDb::open(path).expect("opens");
    let number = |sql: &str| -> usize {
        python_says(path, &format!("print(sqlite3.connect(path).execute(\"{sql}\").fetchone()[0])"))
            .parse()
            .expect("a number")
    };
    match job {
        "delete" => assert!(db.session("long").expect("reads").is_none()),
        "archive" => assert_eq!(number("SELECT COUNT(*) FROM sessions WHERE archived = 1"), SESSIONS),
        "roots" => assert_eq!(number("SELECT COUNT(*) FROM sessions WHERE git_repo_root = '/root'"), SESSIONS),
        "rebuild" | "optimise" => {
            assert!(!db.fts_optimize_available().expect("reads"));
            let all = SearchOptions { limit: -1, ..SearchOptions::default() };
            let found = db.search_messages("walrus", &all).expect("searches");
            assert_eq!((found.len(), found.degraded), (KEPT + 600, false));
        }
        "merge" => assert_eq!(number("SELECT COUNT(DISTINCT segid) FROM messages_fts_idx"), 1),
        "space" | "vacuum" => {
            drop(db);
            assert_eq!(number("PRAGMA freelist_count"), 0);
        }
        "close" => assert_eq!(number("SELECT COUNT(*) FROM state_meta WHERE key LIKE 'large%'"), 6),
        other => panic!("no job {other}"),
    }
}

struct Player {
    child: Child,
    reader: BufReader<ChildStdout>,
}

impl Player {
    fn start(name: &str, role: &str, path: &Path) -> Self {
        let mut child = play(name, role, path, LockKind::PrivateTable)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("runs");
        let reader = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, reader }
    }

    /// What it says behind this word, on a line of its own; the test harness says things too.
    fn hears(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.reader.read_line(&mut line).expect("reads") > 0, "it ended without a word of {word}");
            if let Some((_, rest)) = line.trim().split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"go\n").expect("is told");
    }
}

#[expect(clippy::print_stdout, reason = "the test hears it")]
fn say(words: &str) {
    println!("\n{words}");
}

fn wait_for_line() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
}

#[test]
fn killed_upkeep_leaves_everything_whole_and_can_be_repeated() {
    const NAME: &str = "killed_upkeep_leaves_everything_whole_and_can_be_repeated";
    if let Some((job, path)) = role() {
        let db = SessionDb::open(&path).expect("opens");
        say("begun");
        return work(&job, db);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let original = folder.path().join("original.db");
    filled(&original);
    for (at, job) in ["delete", "archive", "roots", "rebuild", "merge", "optimise", "space", "vacuum", "close"]
        .into_iter()
        .enumerate()
    {
        let path = folder.path().join(format!("{job}.db"));
        #[expect(clippy::disallowed_methods, reason = "a file that nobody has open")]
        std::fs::copy(&original, &path).expect("copies");
        if job == "optimise" {
            SessionDb::open(&path).expect("opens").demote_legacy_fts_to_trash().expect("sets aside");
        }
        for n in 0..5_usize {
            let mut player = Player::start(NAME, job, &path);
            player.hears("begun");
            std::thread::sleep(Duration::from_millis(((n * 7 + at * 3) % 31) as u64));
            player.child.kill().expect("killed, or done");
            player.child.wait().expect("reaped");
            let sessions: usize = python_says(&path, WHOLE).parse().expect("a number");
            assert!(sessions == SESSIONS + 2 || job == "delete" && sessions == SESSIONS + 1, "{job}: {sessions}");
        }
        work(job, SessionDb::open(&path).expect("opens"));
        is_done(job, &path);
        python_says(&path, WHOLE);
    }
}

#[test]
fn two_prunes_at_once_count_each_session_once() {
    const NAME: &str = "two_prunes_at_once_count_each_session_once";
    if let Some((_, path)) = role() {
        let db = SessionDb::open(&path).expect("opens");
        say("ready");
        wait_for_line();
        return say(&format!("pruned {}", db.prune_sessions(&old(), None).expect("prunes")));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    filled(&path);
    let mut players = [0, 1].map(|_| Player::start(NAME, "prune", &path));
    for player in &mut players {
        player.hears("ready");
    }
    players.iter_mut().for_each(Player::go);
    let pruned: Vec<usize> =
        players.iter_mut().map(|player| player.hears("pruned").parse().expect("a number")).collect();
    for player in &mut players {
        assert!(player.child.wait().expect("ends").success());
    }
    assert_eq!(pruned.iter().sum::<usize>(), SESSIONS, "{pruned:?}");
    assert_eq!(python_says(&path, WHOLE), "2");
}

#[test]
fn two_rebuilds_at_once_index_each_row_once() {
    const NAME: &str = "two_rebuilds_at_once_index_each_row_once";
    if let Some((_, path)) = role() {
        let db = SessionDb::open(&path).expect("opens");
        let mut steps = 0;
        let rebuilt = db.rebuild_fts_with(PACE, &mut |_| {
            steps += 1;
            if steps == 1 {
                say("joined");
                wait_for_line();
            }
            ControlFlow::Continue(())
        });
        assert_eq!(rebuilt.expect("rebuilds"), 2);
        return say(&format!("steps {steps}"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    filled(&path);
    let mut players = [0, 1].map(|_| Player::start(NAME, "rebuild", &path));
    for player in &mut players {
        player.hears("joined");
    }
    players.iter_mut().for_each(Player::go);
    let steps: Vec<usize> = players.iter_mut().map(|player| player.hears("steps").parse().expect("a number")).collect();
    for player in &mut players {
        assert!(player.child.wait().expect("ends").success());
    }
    // Of 1,500 ids a hundred a step; each process may take one more to see that it is over.
    assert!(steps.iter().sum::<usize>() <= 15 + 2, "{steps:?}");
    assert_eq!(python_says(&path, WHOLE), (SESSIONS + 2).to_string());
}
