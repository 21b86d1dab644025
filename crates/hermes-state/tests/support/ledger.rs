//! Writers on a server in processes of their own, what was acknowledged to them, and whether the store has just that.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of this")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;

use hermes_state::{NewMessage, NewSession, SearchOptions, SessionDb};

/// One acknowledged append of a writer: the ids of its parts.
#[derive(Debug)]
pub struct Acknowledged {
    session: String,
    writer: String,
    number: u64,
    ids: Vec<i64>,
}

impl Acknowledged {
    pub fn writer(&self) -> &str {
        &self.writer
    }

    /// The first words of its parts, with their ids.
    pub fn words(&self) -> impl Iterator<Item = (String, i64)> {
        let of = self.ids.len();
        self.ids.iter().enumerate().map(move |(part, id)| (word(&self.writer, self.number, part, of), *id))
    }

    fn line(&self) -> String {
        let ids: Vec<String> = self.ids.iter().map(ToString::to_string).collect();
        format!("ack {} {} {} {};", self.session, self.writer, self.number, ids.join(","))
    }

    /// A line that a kill cut short has no end and says nothing.
    fn read(line: &str) -> Option<Self> {
        // The harness may print the name of its test before it on the same line.
        let mut fields = line.split_once("ack ")?.1.strip_suffix(';')?.split(' ');
        Some(Self {
            session: fields.next()?.to_owned(),
            writer: fields.next()?.to_owned(),
            number: fields.next()?.parse().ok()?,
            ids: fields.next()?.split(',').map(|id| id.parse().ok()).collect::<Option<_>>()?,
        })
    }
}

/// The first word of a message's text, which no other message has.
fn word(writer: &str, number: u64, part: usize, of: usize) -> String {
    format!("{writer}n{number}p{part}of{of}")
}

/// Appends, singly and in batches of three, until told to stop; says on standard output what was acknowledged. `writer`
/// must be letters and digits. Panics when a write fails: the writer gave up.
pub fn write_until(db: &SessionDb, session: &str, writer: &str, stop: &AtomicBool) -> u64 {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let of = if number % 5 == 0 { 3 } else { 1 };
        let messages = (0..of)
            .map(|part| {
                let filler = "filler ".repeat(usize::try_from(number % 40).unwrap_or(0));
                NewMessage::new("user", format!("{} {filler}", word(writer, number, part, of)))
            })
            .collect();
        let stored =
            db.append_messages(session, messages).unwrap_or_else(|error| panic!("{writer} gave up: {error:?}"));
        let ids = stored.stored().expect("stored");
        let acknowledged = Acknowledged { session: session.to_owned(), writer: writer.to_owned(), number, ids };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", acknowledged.line()).and_then(|()| out.flush()).expect("the test listens");
        number += 1;
    }
    number
}

/// The life of a process with `threads` writers: they share three sessions with the other processes, or have their own.
/// Ends when standard input does.
pub fn write_as_process(url: &std::path::Path, name: &str, threads: usize) {
    let db = SessionDb::open(url).expect("opens");
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (db, stop) = (&db, &*stop);
            scope.spawn(move || {
                let writer = format!("w{name}t{thread}");
                let session =
                    if thread % 2 == 0 { format!("shared{}", thread / 2 % 3) } else { format!("own-{writer}") };
                db.create_session(NewSession::new(session.as_str(), "cli")).expect("creates");
                write_until(db, &session, &writer, stop);
            });
        }
    });
    db.close().expect("closes");
}

/// A process with writers, and the thread that listens to it.
pub struct Writers {
    pub child: Child,
    listener: JoinHandle<()>,
}

impl Writers {
    pub fn start(mut command: Command, acknowledged: &Sender<Acknowledged>) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let acknowledged = acknowledged.clone();
        let listener = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(one) = Acknowledged::read(&line) {
                    let _ = acknowledged.send(one);
                }
            }
        });
        Self { child, listener }
    }

    /// Tells them to stop and waits for their last acknowledgements; fails if one of them gave up.
    pub fn stop(mut self) {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        let status = self.child.wait().expect("ends");
        self.listener.join().expect("listens");
        assert!(status.success(), "{status}\n{said}");
    }

    /// Kills them where they stand.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
        self.listener.join().expect("listens");
    }
}

/// What the store has.
pub struct Found {
    pub acknowledged: usize,
    pub stored: usize,
}

/// Checks that everything acknowledged is there, exactly once, under its id and in its order; that batches are whole; that
/// counters agree with rows; and that everything is found by search. `psql` runs SQL on the store's schema.
pub fn check(url: &str, acknowledged: Receiver<Acknowledged>, psql: &dyn Fn(&str) -> String) -> Found {
    let rows = psql("SELECT id, session_id, split_part(content, ' ', 1) FROM messages ORDER BY id;");
    let mut stored: HashMap<String, (i64, String)> = HashMap::new();
    for row in rows.lines() {
        let mut columns = row.split('|');
        let mut next = || columns.next().expect("a column").to_owned();
        let (id, session, word) = (next().parse::<i64>().expect("an id"), next(), next());
        let before = stored.insert(word.clone(), (id, session));
        assert!(before.is_none(), "stored twice: {word} as {before:?} and {id}");
    }
    let mut count = 0;
    let mut order: HashMap<String, BTreeMap<u64, i64>> = HashMap::new();
    for one in acknowledged {
        let of = one.ids.len();
        for (part, id) in one.ids.iter().enumerate() {
            let word = word(&one.writer, one.number, part, of);
            let found = stored.get(&word).unwrap_or_else(|| panic!("lost: {word}, acknowledged as {id}"));
            assert_eq!(found, &(*id, one.session.clone()), "{word}");
            count += 1;
        }
        assert!(one.ids.is_sorted(), "{one:?}");
        order.entry(one.writer).or_default().insert(one.number, one.ids[0]);
    }
    for (writer, ids) in order {
        assert!(ids.values().is_sorted(), "{writer} out of order: {ids:?}");
    }
    let whole: HashSet<&str> = stored.keys().map(String::as_str).collect();
    for word in &whole {
        let (start, of) = word.rsplit_once("of").expect("a word of ours");
        let (start, _) = start.rsplit_once('p').expect("a word of ours");
        for part in 0..of.parse::<usize>().expect("a number") {
            assert!(whole.contains(format!("{start}p{part}of{of}").as_str()), "a batch is not whole: {word}");
        }
    }
    let disagreeing = psql(
        "SELECT id FROM sessions s WHERE message_count <> (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id);",
    );
    assert_eq!(disagreeing, "", "the counters of these sessions disagree with their rows");
    let unindexed = psql("SELECT COUNT(*) FROM messages WHERE id NOT IN (SELECT message_id FROM message_words);");
    assert_eq!(unindexed, "0", "messages without words in the index");
    let db = SessionDb::open(url).expect("opens");
    let step = stored.len() / 100 + 1;
    for (word, (id, _)) in stored.iter().step_by(step) {
        let hits = db.search_messages(word, &SearchOptions::default()).expect("searches");
        let found: Vec<i64> = hits.iter().map(|hit| hit.id).collect();
        assert_eq!(found, [*id], "{word}");
    }
    Found { acknowledged: count, stored: stored.len() }
}
