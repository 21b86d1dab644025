//! Processes that use the file without the library: an older release that writes, one that sits on the lock, and one that
//! damages search indexes, which hold nothing that is not elsewhere.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rusqlite::Connection;

/// Whether there is a Python whose library can do what the store's triggers need.
pub(crate) fn python_is_there() -> bool {
    let script = "import sqlite3; sqlite3.connect(':memory:').execute(\"CREATE VIRTUAL TABLE t USING fts5(a, tokenize='trigram')\")";
    Command::new("python3").args(["-c", script]).output().is_ok_and(|output| output.status.success())
}

/// An older release as it writes, with the SQLite of Python's own library: a message in a transaction of its own, and said
/// when it is stored. What damaged indexes do to it is not the library's doing, and no acknowledgement.
pub(crate) fn older_release(name: &str, path: &Path) -> Command {
    const SCRIPT: &str = "import select, sqlite3, sys, time
name, path = sys.argv[1:]
c = sqlite3.connect(path, timeout=60, isolation_level=None)
c.execute('PRAGMA foreign_keys = ON')
n = 0
print('begun;', flush=True)
while not select.select([sys.stdin], [], [], 0.03)[0]:
    try:
        c.execute('BEGIN IMMEDIATE')
        c.execute(\"INSERT INTO messages (session_id, role, content, timestamp) VALUES ('older', 'user', ?, ?)\", (f'{name}n{n}p0of1 harbour', time.time()))
        c.execute(\"UPDATE sessions SET message_count = message_count + 1 WHERE id = 'older'\")
        c.execute('COMMIT')
        print(f'stored older {name} {n} 1;', flush=True)
    except sqlite3.DatabaseError as error:
        if c.in_transaction: c.execute('ROLLBACK')
        print(f\"did older_release {'waited' if 'locked' in str(error) else 'refused'};\", flush=True)
    n += 1
";
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT, name]).arg(path);
    command
}

fn connect(path: &Path) -> Result<Connection, String> {
    let connection = Connection::open(path).map_err(|error| error.to_string())?;
    connection.busy_timeout(Duration::from_secs(30)).map_err(|error| error.to_string())?;
    Ok(connection)
}

/// Takes the write lock, says so by `held`, and keeps it so long.
pub(crate) fn sit_on_the_lock(path: &Path, long: Duration, held: impl FnOnce()) -> Result<(), String> {
    let connection = connect(path)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(|error| error.to_string())?;
    held();
    std::thread::sleep(long);
    connection.execute_batch("COMMIT").map_err(|error| error.to_string())
}

/// Damages a search index in one of several ways.
pub(crate) fn damage_an_index(path: &Path) -> Result<(), String> {
    let index = if fastrand::bool() { "messages_fts" } else { "messages_fts_trigram" };
    let sql = match fastrand::u8(..4) {
        // How the index is built up, and what it counts.
        0 => format!("UPDATE {index}_data SET block = zeroblob(64) WHERE id IN (1, 10)"),
        1 => format!(
            "UPDATE {index}_data SET block = zeroblob(length(block))
             WHERE id IN (SELECT id FROM {index}_data WHERE id > 10 ORDER BY random() LIMIT 5)"
        ),
        2 => {
            format!("DELETE FROM {index}_docsize WHERE id IN (SELECT id FROM {index}_docsize ORDER BY id DESC LIMIT 5)")
        }
        _ => format!("DROP TRIGGER IF EXISTS {index}_insert"),
    };
    connect(path)?.execute_batch(&sql).map_err(|error| error.to_string())
}
