//! What is written: text of about a kilobyte in which words recur as they do in talk, the same for both sides.

use std::path::{Path, PathBuf};

use hermes_state::{NewMessage, NewSession, SessionDb};
use rusqlite::Connection;

const WORDS: [&str; 48] = [
    "harbour", "crane", "the", "of", "build", "failed", "because", "tests", "line", "return", "session", "write",
    "lock", "and", "then", "we", "looked", "into", "config", "which", "says", "timeout", "seconds", "agent", "please",
    "check", "whether", "branch", "merge", "review", "function", "parser", "token", "stream", "memory", "cache",
    "index", "query", "result", "error", "trace", "deploy", "server", "request", "user", "answer", "question", "fix",
];

/// The `n`th text: reproducible, about 1 KB.
pub(crate) fn text(n: usize) -> String {
    let mut state = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = format!("message {n}:");
    while text.len() < 1000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push(' ');
        text.push_str(WORDS[usize::try_from(state % 48).unwrap_or(0)]);
        if state.is_multiple_of(11) {
            text.push_str(&format!("{:x}", state >> 40));
        }
    }
    text
}

/// The `n`th text is said by one and the next by the other.
pub(crate) fn role(n: usize) -> &'static str {
    if n.is_multiple_of(2) { "user" } else { "assistant" }
}

pub(crate) fn message(n: usize) -> NewMessage {
    NewMessage::new(role(n), text(n))
}

/// A new store with one session `s`.
pub(crate) fn store(folder: &Path, name: &str) -> (PathBuf, SessionDb) {
    let path = folder.join(name);
    let db = SessionDb::open(&path).expect("opens");
    db.create_session(NewSession::new("s", "bench")).expect("creates");
    (path, db)
}

/// The same file with SQLite alone: same schema, same pragmas, no store in between.
pub(crate) fn bare(folder: &Path, name: &str) -> Connection {
    let (path, db) = store(folder, name);
    db.close().expect("closes");
    connect(&path)
}

pub(crate) fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("opens");
    connection.pragma_update(None, "synchronous", "FULL").expect("a pragma");
    connection.busy_timeout(std::time::Duration::from_secs(60)).expect("a time-out");
    connection
}

/// One row and its commit, as bare as it gets.
pub(crate) fn bare_append(connection: &Connection, n: usize) {
    connection
        .prepare_cached("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', ?1, ?2, 1.0)")
        .and_then(|mut insert| insert.execute((role(n), text(n))))
        .expect("inserts");
}
