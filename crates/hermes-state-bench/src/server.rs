//! The engine on a server, against a bare client of the same server.
#![expect(clippy::print_stdout, reason = "the processes report on their standard output")]

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use hermes_state::{
    MigrateOptions, MigrationPhase, NewMessage, NewSession, SearchOptions, SessionDb, SessionQuery, migrate,
};
use hermes_state_testkit::{Server, ServerConfig};
use postgres::{Client, NoTls, Statement};

use crate::report::{Budget, Report, median};
use crate::workload::{message, role, text};

/// Rows of each block of the single writer.
const ROWS: usize = 100;

/// Processes, and writers in each of them.
const PROCESSES: usize = 4;
const WRITERS: usize = 8;

/// Rows of each writer.
const APPENDS: usize = 100;

/// Measures everything about the engine on a server.
pub(crate) fn measure(report: &mut Report, rounds: usize) {
    // The rest is as a server comes: durable, with its own defaults.
    let server = match Server::start_with(&ServerConfig::new().setting("shared_buffers = 512MB")) {
        Ok(server) => server,
        Err(missing) => {
            missing.skip();
            return report.left_out("the engine on a server", "there is no PostgreSQL here");
        }
    };
    if std::env::args().any(|argument| argument == "--migrating") {
        return migrating(report, &server);
    }
    one_writer(report, &server, rounds);
    many_writers(report, &server, rounds);
    reading(report, &server);
    migrating(report, &server);
}

fn url(server: &Server, schema: &str) -> String {
    format!("{}?schema={schema}", server.url())
}

/// A connection that inserts rows into the messages of a schema and commits each, as bare as it gets.
struct Bare {
    client: Client,
    insert: Statement,
    session: String,
}

impl Bare {
    /// On a schema that a store has made; only what every message has is written.
    fn connect(server_url: &str, schema: &str, session: &str) -> Self {
        let mut client = Client::connect(server_url, NoTls).expect("connects");
        client.batch_execute(&format!("SET search_path TO {schema}")).expect("a setting");
        let insert = client
            .prepare("INSERT INTO messages (session_id, role, content, timestamp) VALUES ($1, $2, $3, 1.0)")
            .expect("prepares");
        Self { client, insert, session: session.to_owned() }
    }

    fn append(&mut self, n: usize) {
        let mut transaction = self.client.transaction().expect("begins");
        transaction.execute(&self.insert, &[&self.session, &role(n), &text(n)]).expect("inserts");
        transaction.commit().expect("commits");
    }
}

/// A connection that inserts the same rows as an append: the message, its words, the id of the write, and the session's
/// counter; in one statement, with the words cut beforehand and on the server already.
struct SameRows {
    client: Client,
    insert: Statement,
    cut: Statement,
    session: String,
}

impl SameRows {
    fn connect(server_url: &str, schema: &str, session: &str) -> Self {
        let mut client = Client::connect(server_url, NoTls).expect("connects");
        client
            .batch_execute(&format!(
                "SET search_path TO {schema}; CREATE TEMP TABLE cut (n bigint PRIMARY KEY, words tsvector NOT NULL)"
            ))
            .expect("a table of words");
        let cut = client.prepare("INSERT INTO cut VALUES ($1, to_tsvector('simple', $2))").expect("prepares");
        let insert = client
            .prepare(
                "WITH message AS (INSERT INTO messages (session_id, role, content, timestamp) \
                     VALUES ($1, $2, $3, 1.0) RETURNING id), \
                 words AS (INSERT INTO message_words (message_id, piece, pieces, words) \
                     SELECT message.id, 0, 1, cut.words FROM message, cut WHERE cut.n = $4), \
                 noted AS (INSERT INTO applied_writes (id, attempt, row_id) SELECT gen_random_uuid(), 0, id FROM message) \
                 UPDATE sessions SET message_count = message_count + 1 WHERE id = $1",
            )
            .expect("prepares");
        Self { client, insert, cut, session: session.to_owned() }
    }

    /// Has the words of a row ready; not a part of what is measured.
    fn prepare(&mut self, n: usize) {
        self.client.execute(&self.cut, &[&number(n), &text(n)]).expect("cuts");
    }

    fn append(&mut self, n: usize) {
        let mut transaction = self.client.transaction().expect("begins");
        transaction.execute(&self.insert, &[&self.session, &role(n), &text(n), &number(n)]).expect("inserts");
        transaction.commit().expect("commits");
    }
}

/// Notes the microseconds that each of the rows takes.
fn timed(times: &mut Vec<f64>, rows: Range<usize>, mut append: impl FnMut(usize)) {
    for row in rows {
        let started = Instant::now();
        append(row);
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
}

fn number(n: usize) -> i64 {
    i64::try_from(n).expect("a few thousand rows")
}

/// One append against a bare insert and its commit, in blocks taken in turn.
fn one_writer(report: &mut Report, server: &Server, rounds: usize) {
    let db = SessionDb::open(url(server, "one")).expect("opens");
    for session in ["s", "bare", "same"] {
        db.create_session(NewSession::new(session, "bench")).expect("creates");
    }
    let mut bare = Bare::connect(&server.url(), "one", "bare");
    let mut same = SameRows::connect(&server.url(), "one", "same");
    let (mut ours, mut message_alone, mut same_rows) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds * 2 {
        let block = |number: usize| (round * 3 + number) * ROWS..(round * 3 + number + 1) * ROWS;
        timed(&mut message_alone, block(0), |n| bare.append(n));
        block(1).for_each(|n| same.prepare(n));
        timed(&mut same_rows, block(1), |n| same.append(n));
        timed(&mut ours, block(2), |n| {
            db.append_message("s", message(n)).expect("appends");
        });
    }
    let (ours, message_alone, same_rows) = (median(&ours), median(&message_alone), median(&same_rows));
    report.figure(
        "server, one writer: median against a bare insert of the same rows",
        ours / same_rows,
        "x",
        &Budget::AtMost(1.6),
    );
    report.note(
        "medians",
        &format!(
            "ours {ours:.0} µs, bare {same_rows:.0} µs; bare, the row of the message alone {message_alone:.0} µs, \
             to which ours is {:.2} x",
            ours / message_alone
        ),
    );
}

/// What one of the processes does: `url schema first-session`.
pub(crate) fn play(role: &str, arguments: &[String]) {
    if role == "role:server-migrate" {
        return migrate_and_report(&arguments[0], &arguments[1]);
    }
    let [server, schema, process] = arguments else { panic!("url, schema, process") };
    let sessions: Vec<String> = (0..WRITERS).map(|writer| format!("w{process}-{writer}")).collect();
    match role {
        "role:server-writer" => {
            let db = SessionDb::open(format!("{server}?schema={schema}")).expect("opens");
            for session in &sessions {
                db.ensure_session(NewSession::new(session.as_str(), "bench")).expect("creates");
            }
            report_appends(sessions.iter().map(|session| {
                let db = &db;
                move |n| {
                    db.append_message(session.as_str(), message(n)).expect("appends");
                }
            }));
        }
        "role:server-bare" => {
            let connections = sessions.iter().map(|session| Bare::connect(server, schema, session));
            report_appends(connections.map(|mut bare| move |n| bare.append(n)));
        }
        other => panic!("no role {other}"),
    }
}

/// Says that it is ready, waits for the start, appends in one thread each, and reports the longest append.
fn report_appends(writers: impl Iterator<Item = impl FnMut(usize) + Send>) {
    let writers: Vec<_> = writers.collect();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the start");
    let longest = std::thread::scope(|scope| {
        let threads: Vec<_> = writers
            .into_iter()
            .map(|mut append| {
                scope.spawn(move || {
                    let times = (0..APPENDS).map(|n| {
                        let started = Instant::now();
                        append(n);
                        started.elapsed().as_secs_f64() * 1e3
                    });
                    times.fold(0.0, f64::max)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no writer fails")).fold(0.0, f64::max)
    });
    println!("{longest}");
}

/// Runs the writers of all processes at once; gives rows a second and the longest append in milliseconds.
fn run(server: &Server, role: &str, schema: &str) -> (f64, f64) {
    let mut processes: Vec<(Child, BufReader<ChildStdout>)> = (0..PROCESSES)
        .map(|process| {
            let mut child = Command::new(std::env::current_exe().expect("this program"))
                .args([format!("role:{role}"), server.url(), schema.to_owned(), process.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("starts");
            let reader = BufReader::new(child.stdout.take().expect("piped"));
            (child, reader)
        })
        .collect();
    let mut line = String::new();
    for (_, reader) in &mut processes {
        reader.read_line(&mut line).expect("ready");
    }
    let started = Instant::now();
    for (child, _) in &mut processes {
        child.stdin.take().expect("piped").write_all(b"go\n").expect("starts");
    }
    let mut longest: f64 = 0.0;
    for (child, reader) in &mut processes {
        line.clear();
        reader.read_line(&mut line).expect("a report");
        longest = longest.max(line.trim().parse().expect("a number"));
        assert!(child.wait().expect("ends").success());
    }
    ((PROCESSES * WRITERS * APPENDS) as f64 / started.elapsed().as_secs_f64(), longest)
}

/// Thirty-two writers in four processes, against as many bare connections.
fn many_writers(report: &mut Report, server: &Server, rounds: usize) {
    let (mut totals, mut longest) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let schema = format!("many{round}");
        let db = SessionDb::open(url(server, &schema)).expect("opens");
        for process in 0..PROCESSES {
            for writer in 0..WRITERS {
                db.create_session(NewSession::new(format!("w{process}-{writer}"), "bench")).expect("creates");
            }
        }
        let (bare_total, bare_longest) = run(server, "server-bare", &schema);
        let (total, wait) = run(server, "server-writer", &schema);
        report.note(
            "rows a second",
            &format!("ours {total:.0}, longest {wait:.0} ms; bare {bare_total:.0}, longest {bare_longest:.0} ms"),
        );
        totals.push(total / bare_total);
        longest.push(wait / bare_longest);
    }
    report.figure("server, 32 writers in 4 processes: total against bare", median(&totals), "x", &Budget::AtLeast(0.8));
    report.figure("server, 32 writers: longest append against bare", median(&longest), "x", &Budget::AtMost(10.0));
}

/// Messages and sessions of the store that is searched and listed.
const MESSAGES: usize = 200_000;
const SESSIONS: usize = 5_000;

/// Searching and listing a big store.
fn reading(report: &mut Report, server: &Server) {
    let db = SessionDb::open(url(server, "big")).expect("opens");
    let started = Instant::now();
    let per_session = MESSAGES / SESSIONS;
    std::thread::scope(|scope| {
        for part in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for session in (part..SESSIONS).step_by(4) {
                    let id = format!("s{session}");
                    db.create_session(NewSession::new(id.as_str(), "bench")).expect("creates");
                    let messages = (0..per_session).map(|n| said(session * per_session + n));
                    db.append_messages(id.as_str(), messages.collect()).expect("appends");
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    report.note("stored in batches of one session", &format!("{:.0} messages a second", MESSAGES as f64 / seconds));
    server.psql("ANALYZE");
    for (what, query) in [
        ("a common word", "harbour"),
        ("a phrase", "\"looked into\""),
        ("Chinese", "杭州西湖"),
        ("two characters of Chinese", "西湖"),
        ("a rare word", "message77777"),
        ("two common words", "harbour crane"),
    ] {
        let mut times = Vec::new();
        let mut hits = 0;
        for _ in 0..40 {
            let started = Instant::now();
            hits = db.search_messages(query, &SearchOptions::default()).expect("searches").len();
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        report.note("median", &format!("{:.1} ms for {hits} hits", median(&times)));
        let p95 = times[times.len() * 95 / 100];
        report.figure(
            &format!("server, search of {MESSAGES} messages for {what}: p95"),
            p95,
            "ms",
            &Budget::AtMost(50.0),
        );
    }
    let mut times = Vec::new();
    for _ in 0..40 {
        let started = Instant::now();
        let query = SessionQuery { limit: 50, ..SessionQuery::default() };
        assert_eq!(db.list_sessions(&query).expect("lists").len(), 50);
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    report.figure("server, listing 50 of 5000 sessions: median", median(&times), "ms", &Budget::AtMost(10.0));
}

/// Mostly talk of half a kilobyte; every fiftieth message is Chinese.
fn said(n: usize) -> NewMessage {
    let mut text = text(n);
    text.truncate(400);
    if n.is_multiple_of(50) {
        text.push_str(" 下周去杭州西湖拍照");
    }
    NewMessage::new(if n.is_multiple_of(2) { "user" } else { "assistant" }, format!("message{n} {text}"))
}

/// Messages that are moved from store to store.
const MOVED: usize = 100_000;

/// Copies a store and prints seconds, the seconds of each phase, and the most memory that this process had.
fn migrate_and_report(from: &str, to: &str) {
    let (from, to) = (SessionDb::open_read_only(from).expect("opens"), SessionDb::open(to).expect("opens"));
    let started = Instant::now();
    let mut phases: Vec<(MigrationPhase, f64)> = Vec::new();
    let mut since = started;
    let report = migrate(&from, &to, &MigrateOptions::new(), &mut |progress| {
        let now = since.elapsed().as_secs_f64();
        since = Instant::now();
        match phases.last_mut() {
            Some((phase, seconds)) if *phase == progress.phase => *seconds += now,
            _ => phases.push((progress.phase, now)),
        }
    });
    assert!(report.expect("migrates").is_equal());
    phases.push((MigrationPhase::Indexing, since.elapsed().as_secs_f64()));
    let seconds = started.elapsed().as_secs_f64();
    let shown: Vec<String> = phases.iter().map(|(phase, seconds)| format!("{phase:?} {seconds:.1} s")).collect();
    println!("{seconds};{};{}", peak_megabytes(), shown.join(", "));
}

/// The most memory that this process had so far.
fn peak_megabytes() -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a file of the system, never a store")]
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line of it");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}

/// Moving a file to a server and back.
fn migrating(report: &mut Report, server: &Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let db = SessionDb::open(path("from.db")).expect("opens");
    for session in 0..MOVED / 100 {
        let id = format!("s{session}");
        db.create_session(NewSession::new(id.as_str(), "bench")).expect("creates");
        let messages = (0..100).map(|n| said(session * 100 + n));
        db.append_messages(id.as_str(), messages.collect()).expect("appends");
    }
    db.close().expect("closes");
    for (what, from, to) in [
        ("a file to the server", path("from.db"), url(server, "moved")),
        ("the server to a file", url(server, "moved"), path("to.db")),
    ] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["role:server-migrate", &from, &to])
            .stderr(Stdio::inherit())
            .output()
            .expect("runs");
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("text");
        let fields: Vec<&str> = text.trim().splitn(3, ';').collect();
        let number = |at: usize| fields[at].parse::<f64>().expect("a number");
        report.note("phases", fields[2]);
        let rate = MOVED as f64 / number(0);
        report.figure(&format!("moving {what}: messages a second"), rate, "/s", &Budget::AtLeast(10_000.0));
        report.figure(&format!("moving {what}: peak memory"), number(1), "MB", &Budget::AtMost(100.0));
    }
}
