//! Processes killed at random: every acknowledged message is there, once, and the counters agree with the rows.
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "processes report, and tests say what they saw")]

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use hermes_state::{LockKind, NewMessage, NewSession, SessionDb};
use support::{play, python_says, role};

const NAME: &str = "a_storm_of_killed_writers_loses_no_acknowledged_message";
/// How long processes are killed; long enough for some hundred kills.
const STORM: Duration = Duration::from_secs(20);
const WRITERS: usize = 6;

/// A writer: appends, singly, in batches and from two threads, and says each text once it is acknowledged.
fn write(path: &Path) {
    let pid = std::process::id();
    let session = format!("s{}", pid % 3);
    let mut number = 0;
    loop {
        let db = SessionDb::open(path).expect("opens");
        for _ in 0..40 {
            let texts: Vec<String> = (0..if number % 7 == 0 { 3 } else { 1 })
                .map(|part| format!("ack-{pid}-{number}-{part} {}", "filler ".repeat(number % 60)))
                .collect();
            let messages = texts.iter().map(|text| NewMessage::new("user", text.as_str())).collect();
            db.append_messages(session.as_str(), messages).expect("appends");
            let mut out = std::io::stdout().lock();
            for text in texts {
                writeln!(out, "{}", text.split(' ').next().unwrap_or_default()).expect("the test listens");
            }
            out.flush().expect("the test listens");
            number += 1;
        }
    }
}

fn start(path: &Path, kind: LockKind, acknowledged: &Sender<String>) -> Child {
    let mut child =
        play(NAME, "writer", path, kind).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let acknowledged = acknowledged.clone();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // A line that a kill cut short names no message that was acknowledged in full; the harness adds its own.
            if let Some(start) = line.find("ack-") {
                let _ = acknowledged.send(line[start..].to_owned());
            }
        }
    });
    child
}

#[test]
fn a_storm_of_killed_writers_loses_no_acknowledged_message() {
    if let Some((_, path)) = role() {
        return write(&path);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    let db = SessionDb::open(&path).expect("opens");
    for session in ["s0", "s1", "s2"] {
        db.create_session(NewSession::new(session, "cli")).expect("creates");
    }
    drop(db);
    let (acknowledged, received) = channel();
    let kinds = [LockKind::PrivateTable, LockKind::PrivateTable, LockKind::OpenFileDescription];
    let mut writers: Vec<Child> =
        (0..WRITERS).map(|writer| start(&path, kinds[writer % kinds.len()], &acknowledged)).collect();
    let started = Instant::now();
    let mut kills = 0;
    let mut dice = u64::from(std::process::id()) | 1;
    while started.elapsed() < STORM {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        std::thread::sleep(Duration::from_millis(20 + dice % 180));
        let victim = usize::try_from(dice / 256).unwrap_or(0) % WRITERS;
        writers[victim].kill().expect("killed");
        writers[victim].wait().expect("reaped");
        writers[victim] = start(&path, kinds[victim % kinds.len()], &acknowledged);
        kills += 1;
    }
    for writer in &mut writers {
        writer.kill().expect("killed");
        writer.wait().expect("reaped");
    }
    drop(acknowledged);
    let acknowledged: Vec<String> = received.iter().collect();

    let stored = python_says(
        &path,
        "c = sqlite3.connect(path)\n\
         assert c.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
         assert c.execute('SELECT COUNT(*) FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id)').fetchone()[0] == 0\n\
         for table in ('messages_fts', 'messages_fts_trigram'): c.execute(f\"INSERT INTO {table}({table}) VALUES('integrity-check')\")\n\
         print('\\n'.join(r[0].split(' ')[0] for r in c.execute('SELECT content FROM messages')))",
    );
    let mut times: HashMap<&str, usize> = HashMap::new();
    for line in stored.lines() {
        *times.entry(line).or_default() += 1;
    }
    let lost: Vec<_> = acknowledged.iter().filter(|text| !times.contains_key(text.as_str())).collect();
    let doubled: Vec<_> = times.iter().filter(|(_, count)| **count > 1).collect();
    println!("{kills} kills, {} acknowledged, {} stored", acknowledged.len(), times.len());
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(doubled.is_empty(), "doubled: {doubled:?}");
    assert!(kills > 50 && acknowledged.len() > 500, "the storm was no storm");
}
