//! Searching, against the bare FTS5 query with its snippets and the same context, on a store of many sessions and a long
//! one.

use std::path::Path;
use std::time::Instant;

use hermes_state::{NewMessage, NewSession, OpenOptions, SearchOptions, SessionDb};
use rusqlite::Connection;

use crate::report::{Budget, Report, median};
use crate::workload::text;

/// What every text has some of.
const CJK: [&str; 6] = ["杭州西湖边", "龙井茶已经买好", "下周去拍照", "缓存的配置", "明日の会議は十時", "灵隐寺门票"];

fn message(n: usize) -> NewMessage {
    let rare = if n.is_multiple_of(2_500) { " kingfisher" } else { "" };
    let cjk = if n.is_multiple_of(9) { CJK[n / 9 % CJK.len()] } else { "" };
    NewMessage::new(if n.is_multiple_of(2) { "user" } else { "assistant" }, format!("{}{rare} {cjk}", text(n)))
}

/// 600 sessions of 40 messages and one of 4,000.
fn fill(path: &Path) -> SessionDb {
    let db = OpenOptions::new().cjk(true).open(path).expect("opens");
    let mut n = 0;
    for session in 0..601 {
        let id = format!("s{session}");
        db.create_session(NewSession::new(id.as_str(), "bench")).expect("creates");
        let messages = if session == 600 { 4_000 } else { 40 };
        for batch in (0..messages).collect::<Vec<_>>().chunks(500) {
            db.append_messages(
                id.as_str(),
                batch
                    .iter()
                    .map(|_| {
                        n += 1;
                        message(n)
                    })
                    .collect(),
            )
            .expect("appends");
        }
    }
    db.optimize_fts().expect("merges");
    db
}

/// The query as it is, with snippets, and of each hit its neighbours: what a person would write.
fn bare(connection: &Connection, table: &str, query: &str) -> usize {
    let sql = format!(
        "SELECT m.id, m.session_id, m.role, snippet({table}, -1, '>>>', '<<<', '...', 40), m.timestamp, m.tool_name, s.source, \
             s.model, s.started_at FROM {table} JOIN messages m ON m.id = {table}.rowid JOIN sessions s ON s.id = m.session_id \
         WHERE {table} MATCH ?1 AND (m.active = 1 OR m.compacted = 1) ORDER BY rank LIMIT 20"
    );
    let mut hits = connection.prepare_cached(&sql).expect("prepares");
    let mut before = connection
        .prepare_cached("SELECT role, substr(content, 1, 200) FROM messages WHERE session_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")
        .expect("prepares");
    let mut after = connection
        .prepare_cached(
            "SELECT role, substr(content, 1, 200) FROM messages WHERE session_id = ?1 AND id >= ?2 ORDER BY id LIMIT 2",
        )
        .expect("prepares");
    let mut shown = 0;
    let found: Vec<(i64, String, String)> = hits
        .query_map([query], |row| Ok((row.get(0)?, row.get(1)?, row.get(3)?)))
        .and_then(Iterator::collect)
        .expect("finds");
    for (id, session, snippet) in &found {
        for neighbours in [&mut before, &mut after] {
            let lines: rusqlite::Result<Vec<(String, String)>> =
                neighbours.query_map((session, id), |row| Ok((row.get(0)?, row.get(1)?))).and_then(Iterator::collect);
            shown += lines.expect("reads").len();
        }
        shown += snippet.len().min(1);
    }
    shown
}

pub(crate) fn measure(report: &mut Report, rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("state.db");
    drop(fill(&path));
    let others = folder.path().join("bare.db");
    let plain = Connection::open(&path).expect("opens");
    plain.execute("VACUUM INTO ?1", [others.to_str().expect("a path")]).expect("copies");
    plain.close().expect("closes");
    let connection = Connection::open(&others).expect("opens");
    let with_pairs = OpenOptions::new().cjk(true).open(&path).expect("opens");
    let timed = |ours: &str, table: &str, query: &str| {
        let (mut spent, mut bare_spent) = (Vec::new(), Vec::new());
        for _ in 0..rounds * 6 {
            let started = Instant::now();
            let hits = with_pairs.search_messages(ours, &SearchOptions::default()).expect("finds");
            spent.push(started.elapsed().as_secs_f64() * 1e6);
            assert!(!hits.is_empty() && !hits.degraded, "{ours}");
            if !table.is_empty() {
                let started = Instant::now();
                assert!(bare(&connection, table, query) > hits.len());
                bare_spent.push(started.elapsed().as_secs_f64() * 1e6);
            }
        }
        (median(&spent), median(&bare_spent))
    };
    let mut three = 0.0;
    for (what, ours, table, query) in [
        ("a common word", "harbour", "messages_fts", "harbour"),
        ("a rare word", "kingfisher", "messages_fts", "kingfisher"),
        ("a phrase", "\"tests line\"", "messages_fts", "\"tests line\""),
        ("three CJK characters", "西湖边", "messages_fts_trigram", "\"西湖边\""),
    ] {
        let (ours, bare) = timed(ours, table, query);
        report.figure(&format!("search for {what}: median against bare FTS5"), ours / bare, "x", &Budget::AtMost(1.5));
        report.note("medians", &format!("ours {ours:.0} µs, bare {bare:.0} µs"));
        three = ours;
    }
    let (two, _) = timed("西湖", "", "");
    report.figure("search for two CJK characters against three", two / three, "x", &Budget::AtMost(2.0));
    report.note("median", &format!("{two:.0} µs"));
}
