//! Listing sessions, in a small store and in a large one, against the bare statement that gives the same rows.

use std::path::{Path, PathBuf};
use std::time::Instant;

use hermes_state::{PageQuery, SessionDb, SessionQuery};
use rusqlite::Connection;

use crate::report::{Budget, Report, median};
use crate::workload::{bare, connect};

const SMALL: usize = 1_000;
const LARGE: usize = 50_000;
const PAGE: i64 = 50;
const MESSAGES: usize = 6;

/// What is listed, and the bare statement for it.
struct Kind {
    name: &'static str,
    query: SessionQuery,
    bare: String,
    /// Whether a large store may cost no more than a small one.
    flat: bool,
}

/// The rule by which a session is listed, of configurations that are all JSON.
const LISTED: &str = "s.archived = 0 AND (s.parent_session_id IS NULL \
     OR json_extract(s.model_config, '$._branched_from') IS NOT NULL \
     OR EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id AND p.end_reason = 'branched' \
     AND s.started_at >= p.ended_at)) AND json_extract(s.model_config, '$._delegate_from') IS NULL";
const LATEST: &str =
    "COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = s.id), s.started_at) AS latest";
const PREVIEW: &str = "(SELECT SUBSTR(m.content, 1, 63) FROM messages m WHERE m.session_id = s.id \
     AND m.role = 'user' AND m.content IS NOT NULL ORDER BY m.timestamp, m.id LIMIT 1)";

fn kinds() -> [Kind; 3] {
    let page = SessionQuery { limit: PAGE, ..SessionQuery::default() };
    let by_start = |filter: &str| {
        format!(
            "SELECT s.*, {LATEST}, {PREVIEW} FROM sessions s WHERE {LISTED}{filter} \
             ORDER BY s.started_at DESC, s.id DESC LIMIT 50"
        )
    };
    [
        Kind { name: "by start", query: page.clone(), bare: by_start(""), flat: true },
        Kind {
            name: "by start, one frequent source",
            query: SessionQuery { source: Some("cli".into()), ..page.clone() },
            bare: by_start(" AND +s.source = 'cli'"),
            flat: true,
        },
        Kind {
            name: "by activity",
            query: SessionQuery { order_by_last_active: true, ..page },
            // Less than is asked of the store: no session of these goes on with another's conversation.
            bare: format!(
                "SELECT s.*, a.latest, {PREVIEW} FROM (SELECT s.id, {LATEST} FROM sessions s WHERE {LISTED} \
                 ORDER BY latest DESC, s.started_at DESC, s.id DESC LIMIT 50) a \
                 JOIN sessions s ON s.id = a.id ORDER BY a.latest DESC, s.started_at DESC, s.id DESC"
            ),
            flat: false,
        },
    ]
}

/// A store with so many sessions: a tenth are sub-agents', some prompts are long, the newest are not always the last said.
fn filled(folder: &Path, sessions: usize) -> (SessionDb, PathBuf) {
    let name = format!("{sessions}.db");
    let connection = bare(folder, &name);
    connection
        .execute_batch(
            "PRAGMA synchronous = OFF; DROP TRIGGER messages_fts_insert; DROP TRIGGER messages_fts_trigram_insert",
        )
        .expect("a store without indexes to keep");
    connection.execute_batch("BEGIN; DELETE FROM sessions").expect("begins");
    for n in 0..sessions {
        let agent = n % 10 == 3;
        let insert = "INSERT INTO sessions (id, source, started_at, system_prompt, parent_session_id, model_config, \
                      message_count) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 6)";
        let parent = agent.then(|| format!("s{}", n - 1));
        let config = if agent { r#"{"_delegate_from": "x"}"# } else { r#"{"temperature": 1}"# };
        let row = (format!("s{n}"), if n % 5 == 0 { "web" } else { "cli" }, n as f64, "p".repeat(4000), parent, config);
        connection.prepare_cached(insert).and_then(|mut insert| insert.execute(row)).expect("inserts");
        for k in 0..MESSAGES {
            let insert = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?1, ?2, ?3, ?4)";
            let said = n as f64 + k as f64 / 10.0 + if n % 7 == 0 { (n * 7919 % sessions) as f64 } else { 0.0 };
            let row = (format!("s{n}"), if k % 2 == 0 { "user" } else { "assistant" }, "hello there", said);
            connection.prepare_cached(insert).and_then(|mut insert| insert.execute(row)).expect("inserts");
        }
    }
    connection.execute_batch("COMMIT").expect("commits");
    drop(connection);
    let path = folder.join(name);
    // Opening for writing restores the triggers and would fill the indexes; a store that is only looked at stays as it is.
    (SessionDb::open_read_only(&path).expect("opens"), path)
}

fn time(rounds: usize, mut once: impl FnMut()) -> f64 {
    let mut times = Vec::new();
    once();
    for _ in 0..rounds.max(3) {
        let started = Instant::now();
        once();
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    median(&times)
}

fn read_all(connection: &Connection, sql: &str) -> usize {
    let mut statement = connection.prepare_cached(sql).expect("prepares");
    let width = statement.column_count();
    let mut rows = statement.query([]).expect("runs");
    let mut read = 0;
    while let Some(row) = rows.next().expect("a row") {
        for column in 0..width {
            std::hint::black_box(row.get::<_, rusqlite::types::Value>(column).expect("a value"));
        }
        read += 1;
    }
    read
}

/// Listings of fifty sessions in both stores.
pub(crate) fn listings(report: &mut Report, rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let (small, _) = filled(folder.path(), SMALL);
    let (large, path) = filled(folder.path(), LARGE);
    let mut measured = Vec::new();
    for kind in kinds() {
        let ours =
            |db: &SessionDb| time(rounds, || assert_eq!(db.list_sessions(&kind.query).expect("lists").len(), 50));
        measured.push((ours(&small), ours(&large), kind));
    }
    let page = |cursor| PageQuery {
        cursor,
        sessions: SessionQuery { limit: PAGE, ..SessionQuery::default() },
        ..PageQuery::default()
    };
    let mut cursor = None;
    for _ in 0..100 {
        cursor = large.list_sessions_page(&page(cursor)).expect("a page").next;
    }
    let first = time(rounds, || drop(large.list_sessions_page(&page(None))));
    let later = time(rounds, || drop(large.list_sessions_page(&page(cursor.clone()))));
    report.figure("page 101 by start against page 1", later / first, "x", &Budget::AtMost(1.5));
    // The bare connection has the file to itself.
    drop(large);
    let connection = connect(&path);
    for (few, many, kind) in measured {
        let bare = time(rounds, || assert_eq!(read_all(&connection, &kind.bare), 50));
        let name = kind.name;
        report.figure(&format!("list 50 of 50,000 {name}: against bare"), many / bare, "x", &Budget::AtMost(1.5));
        report.note("medians", &format!("{few:.2} ms of 1,000, {many:.2} ms of 50,000, bare {bare:.2} ms"));
        if kind.flat {
            let what = format!("list 50 {name}: of 50,000 against of 1,000");
            report.figure(&what, many / few, "x", &Budget::AtMost(1.5));
        }
    }
}
