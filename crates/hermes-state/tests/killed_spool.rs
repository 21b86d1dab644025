//! Processes killed while they spool and while they store what is spooled: every acknowledged message is there, once, in order.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use hermes_state::{LockKind, NewMessage, NewSession, OpenOptions, Patience, SessionDb};
use support::{play, python_says, python_started, role};

const NAME: &str = "processes_killed_while_they_spool_or_replay_lose_and_double_nothing";
const ROUNDS: usize = 12;
const WRITERS: usize = 3;

/// Appends while somebody holds the lock, and says each text once it is acknowledged.
fn write(path: &Path) {
    let none = Patience { transcript: Duration::ZERO, routine: Duration::ZERO };
    let db = OpenOptions::new().patience(none).open(path).expect("opens");
    let pid = std::process::id();
    for number in 0.. {
        let texts: Vec<String> = (0..if number % 7 == 0 { 3 } else { 1 })
            .map(|part| format!("ack-{pid}-{:06} {}", number * 10 + part, "filler ".repeat(number % 60 * 9)))
            .collect();
        let messages = texts.iter().map(|text| NewMessage::new("user", text.as_str())).collect();
        let answer = db.append_messages(format!("s{}", pid % 2), messages).expect("is kept");
        assert!(answer.is_spooled(), "somebody holds the lock");
        let mut out = std::io::stdout().lock();
        for text in texts {
            writeln!(out, "{}", text.split(' ').next().unwrap_or_default()).expect("the test listens");
        }
        out.flush().expect("the test listens");
    }
}

/// Stores what is spooled, and says that it begins.
fn replay(path: &Path) {
    println!("begins");
    let db = SessionDb::open(path).expect("opens");
    db.replay_spool(false).expect("replays");
}

fn start(role: &str, path: &Path) -> Child {
    play(NAME, role, path, LockKind::PrivateTable).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs")
}

fn listen(child: &mut Child, acknowledged: &Sender<String>) {
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let acknowledged = acknowledged.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // The harness adds its own words; a line that a kill cut short is no acknowledgement in full.
            if let Some(start) = line.find("ack-").filter(|start| line.len() == start + line_length(&line[*start..])) {
                let _ = acknowledged.send(line[start..].to_owned());
            }
        }
    });
}

/// As long as the line is whole.
fn line_length(line: &str) -> usize {
    let digits = line.rsplit('-').next().unwrap_or_default().len();
    line.len() + 6 - digits
}

fn kill(mut child: Child) {
    child.kill().expect("killed");
    child.wait().expect("reaped");
}

/// Waits until so many messages are acknowledged.
fn gather(acknowledged: &Receiver<String>, all: &mut Vec<String>, many: usize) {
    for _ in 0..many {
        all.push(acknowledged.recv_timeout(Duration::from_secs(120)).expect("writers write"));
    }
}

#[test]
fn processes_killed_while_they_spool_or_replay_lose_and_double_nothing() {
    if let Some((role, path)) = role() {
        return if role == "writer" { write(&path) } else { replay(&path) };
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let db = SessionDb::open(&path).expect("opens");
    for session in ["s0", "s1"] {
        db.create_session(NewSession::new(session, "cli")).expect("creates");
    }
    drop(db);
    let mut all = Vec::new();
    let mut dice = u64::from(std::process::id()) | 1;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    let mut cut_short = 0;
    for _ in 0..ROUNDS {
        let holder = python_started(
            &path,
            "c = sqlite3.connect(path, isolation_level=None)\nc.execute('BEGIN IMMEDIATE')\nprint('held', flush=True)\ntime.sleep(600)",
        );
        let (acknowledged, received) = channel();
        let writers: Vec<Child> = (0..WRITERS)
            .map(|_| {
                let mut child = start("writer", &path);
                listen(&mut child, &acknowledged);
                child
            })
            .collect();
        drop(acknowledged);
        for writer in writers {
            gather(&received, &mut all, 40 + usize::try_from(roll(60)).expect("few"));
            kill(writer);
        }
        all.extend(received.iter());
        kill(holder);
        // Two at once, killed somewhere on the way; what they leave is stored with the next round's.
        for _ in 0..3 {
            let mut replayers = [start("replayer", &path), start("replayer", &path)];
            let mut line = String::new();
            BufReader::new(replayers[0].stdout.as_mut().expect("piped")).read_line(&mut line).expect("begins");
            std::thread::sleep(Duration::from_micros(roll(60_000)));
            cut_short += usize::from(replayers[0].try_wait().expect("asks").is_none());
            replayers.into_iter().for_each(kill);
        }
    }
    let db = SessionDb::open(&path).expect("opens");
    db.replay_spool(false).expect("replays");
    assert_eq!(db.spool_status().expect("reads").expect("has one").writes, 0);
    drop(db);
    let stored = python_says(
        &path,
        "c = sqlite3.connect(path)\n\
         assert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
         assert c.execute('SELECT COUNT(*) FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id)').fetchone()[0] == 0\n\
         print('\\n'.join(r[0].split(' ')[0] for r in c.execute('SELECT content FROM messages ORDER BY id')))",
    );
    let mut times: HashMap<&str, usize> = HashMap::new();
    let mut newest: HashMap<&str, &str> = HashMap::new();
    for line in stored.lines() {
        *times.entry(line).or_default() += 1;
        let (writer, number) = line.rsplit_once('-').expect("a text of ours");
        let before = newest.insert(writer, number);
        assert!(before.is_none_or(|before| before < number), "{line} comes after {before:?}");
    }
    let lost: Vec<_> = all.iter().filter(|text| !times.contains_key(text.as_str())).collect();
    let doubled: Vec<_> = times.iter().filter(|(_, count)| **count > 1).collect();
    println!("{} acknowledged, {} stored, {cut_short} replays cut short", all.len(), times.len());
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(doubled.is_empty(), "doubled: {doubled:?}");
}
