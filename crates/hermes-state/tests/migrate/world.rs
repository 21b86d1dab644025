//! Stores to copy, places to copy them to, and everything that is in a file as text.

use std::path::{Path, PathBuf};

use hermes_state::{
    MigrateOptions, MigrationReport, NewMessage, NewSession, Result, SCHEMA_SQL, SchemaColumns, SessionDb, ToolCalls,
    migrate, parse_schema_columns,
};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use tempfile::TempDir;

pub(crate) struct World {
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file with awkward content in every table and column.
    pub(crate) fn awkward(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let db = SessionDb::open(&path).expect("opens");
        db.create_session(NewSession::new("plain", "cli").model("large-1")).expect("creates");
        for number in 0..300 {
            db.append_message("plain", NewMessage::new("user", format!("plain message {number}"))).expect("appends");
        }
        let call = r#"[{"id":"c1","function":{"name":"find","arguments":"{\"q\":\"x\"}"}}]"#.to_owned();
        let call = ToolCalls::from_text(Some(call), 1);
        db.append_message("plain", NewMessage::new("assistant", "").tool_calls(call)).expect("appends");
        db.apply_telegram_topic_migration().expect("makes the tables of topics");
        db.close().expect("closes");
        let connection = Connection::open(&path).expect("opens");
        fill(&connection);
        path
    }
}

/// Every text that something has ever been done to.
const TEXTS: [&str; 9] = [
    "",
    "a\0b\0",
    "\u{10FFFE}\u{10FFFF}\u{FFFFF} and \u{10FFFF}b00",
    "\u{FFFD} a replacement",
    "日本語 and ไทย and 😀",
    "\r\n\t'\"\\ ;--",
    "[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:,\"}}]",
    "NULL",
    "12",
];

/// The tables of a file with their columns: the base, those of topics and keys of callers if it has them.
fn columns_of(connection: &Connection) -> SchemaColumns {
    let topics =
        "SELECT COALESCE(group_concat(sql, ';'), '') FROM sqlite_master WHERE name LIKE 'telegram\\_%' ESCAPE '\\'";
    let topics: String = connection.query_row(topics, [], |row| row.get(0)).expect("reads");
    let mut columns = parse_schema_columns(SCHEMA_SQL).expect("valid");
    columns.extend(parse_schema_columns(&topics).expect("valid"));
    let keyed = "SELECT COUNT(*) FROM pragma_table_info('messages') WHERE name = 'client_key'";
    if connection.query_row(keyed, [], |row| row.get(0)).expect("reads") {
        let messages = columns.iter_mut().find(|(table, _)| table == "messages").expect("a table");
        messages.1.push(("client_key".to_owned(), "TEXT".to_owned()));
    }
    columns
}

fn fill(connection: &Connection) {
    // As a store with keys of callers has it.
    connection.execute_batch("ALTER TABLE messages ADD COLUMN client_key TEXT").expect("a column more");
    let columns = columns_of(connection);
    let insert = |table: &str, given: &dyn Fn(usize, &str, &str) -> rusqlite::types::Value| {
        let (_, columns) = columns.iter().find(|(name, _)| name == table).expect("a table");
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let places: Vec<String> = (1..=names.len()).map(|number| format!("?{number}")).collect();
        let sql = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), places.join(", "));
        let values = columns.iter().enumerate().map(|(place, (name, kind))| given(place, name, kind));
        connection.execute(&sql, rusqlite::params_from_iter(values)).expect("inserts");
    };
    let some = |seed: usize, place: usize, kind: &str| -> rusqlite::types::Value {
        let number = seed * 31 + place * 7;
        match kind.split(' ').next() {
            Some("INTEGER") => [i64::MAX, i64::MIN, 0, -1, 1 << 53][number % 5].into(),
            Some("REAL") => [0.1, 1e300, -5.0, 1_700_000_000.123_456_7, f64::INFINITY][number % 5].into(),
            _ if number % 11 == 3 && !kind.contains("NOT NULL") => rusqlite::types::Value::Null,
            _ if number % 13 == 5 => vec![0_u8, 255, 39].into(),
            _ => TEXTS[number % TEXTS.len()].to_owned().into(),
        }
    };
    connection.execute_batch("PRAGMA foreign_keys = ON; BEGIN").expect("begins");
    let ids: Vec<String> =
        ["zz later", "a\0b", "a", "\u{10FFFF}b61", "\u{10FFFE}", "日本", " "].map(str::to_owned).into();
    for (seed, id) in ids.iter().enumerate() {
        insert("sessions", &|place, name, kind| match name {
            "id" => id.clone().into(),
            "title" => format!("title {seed}\0").into(),
            "parent_session_id" => rusqlite::types::Value::Null,
            "source" => "cli".to_owned().into(),
            _ => some(seed, place, kind),
        });
        for number in 0..20_usize {
            insert("messages", &|place, name, kind| match name {
                "id" => i64::try_from(1000 + seed * 1000 + number * 3).expect("small").into(),
                "session_id" => id.clone().into(),
                "role" => ["user", "tool", "assistant"][number % 3].to_owned().into(),
                "content" if number == 7 && seed == 0 => format!("long {} end", "x".repeat(2 << 20)).into(),
                "active" if number == 8 => 1_i64.into(),
                "client_key" => [None, Some(format!("key {number}\0"))][number % 2].clone().into(),
                "content" if number == 8 => format!("{{\"harbour\": {seed}}}").into(),
                _ => some(seed * 20 + number, place, kind),
            });
            insert("session_model_usage", &|place, name, kind| match name {
                "session_id" => id.clone().into(),
                "model" => format!("m{number}").into(),
                "billing_provider" | "billing_base_url" | "billing_mode" | "task" => {
                    TEXTS[number % 5].to_owned().into()
                }
                _ => some(seed + number, place, kind),
            });
        }
    }
    // Parents that sort behind, a session that is its own parent, and two that are each other's.
    for (child, parent) in [("a", "zz later"), ("a\0b", "a\0b"), ("日本", " "), (" ", "日本")] {
        let linked = connection
            .execute("UPDATE sessions SET parent_session_id = ?2 WHERE id = ?1", [child, parent])
            .expect("links");
        assert_eq!(linked, 1);
    }
    for seed in 0..40_usize {
        let key = format!("{} {seed}", TEXTS[seed % TEXTS.len()]);
        for table in ["state_meta", "gateway_routing", "compression_locks", "async_delegations"] {
            insert(table, &|place, name, kind| match name {
                "key" | "session_key" | "delegation_id" => key.clone().into(),
                "scope" => TEXTS[seed % 4].to_owned().into(),
                "session_id" => vec![u8::try_from(seed).expect("small"), 0].into(),
                _ => some(seed, place, kind),
            });
        }
    }
    for (seed, id) in ids.iter().enumerate() {
        for table in ["telegram_dm_topic_mode", "telegram_dm_topic_bindings"] {
            insert(table, &|place, name, kind| match name {
                "chat_id" => format!("{} {seed}", TEXTS[seed]).into(),
                "thread_id" => TEXTS[seed % 3].to_owned().into(),
                "session_id" => id.clone().into(),
                _ => some(seed, place, kind),
            });
        }
    }
    // The highest id ever used is of a message that is gone.
    let gone = "INSERT INTO messages (id, session_id, role, timestamp) VALUES (777777, 'a', 'user', 1); \
                DELETE FROM messages WHERE id = 777777; COMMIT";
    connection.execute_batch(gone).expect("commits");
}

/// Changes a file as another program would, which has it open for no longer than that: two connections of one process that
/// do not know of each other would drop each other's locks.
pub(crate) fn behind_its_back(path: &Path, sql: &str) {
    Connection::open(path).expect("opens").execute_batch(sql).expect("changes");
}

/// Everything in a file as text: all tables but the index's own, all rows by their keys, with types. Left out are the
/// rows of `state_meta` that are about the index.
pub(crate) fn dump(path: &Path) -> String {
    let connection = Connection::open(path).expect("opens");
    let mut text = String::new();
    for (table, columns) in columns_of(&connection) {
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let order: Vec<String> = (1..=names.len().min(6)).map(|number| number.to_string()).collect();
        let only = if table == "state_meta" { "WHERE key NOT LIKE 'fts\\_%' ESCAPE '\\'" } else { "" };
        let sql = format!("SELECT {} FROM {table} {only} ORDER BY {}", names.join(", "), order.join(", "));
        let mut statement = connection.prepare(&sql).expect("prepares");
        let mut rows = statement.query([]).expect("reads");
        while let Some(row) = rows.next().expect("reads") {
            text.push_str(&table);
            for place in 0..names.len() {
                text.push_str(&match row.get_ref(place).expect("a value") {
                    ValueRef::Null => " NULL".to_owned(),
                    ValueRef::Integer(number) => format!(" {number}"),
                    ValueRef::Real(number) => format!(" {number:?}"),
                    ValueRef::Text(bytes) => format!(" {:?}", String::from_utf8_lossy(bytes)),
                    ValueRef::Blob(bytes) => format!(" x{bytes:?}"),
                });
            }
            text.push('\n');
        }
    }
    let sequence: i64 = connection
        .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'messages'", [], |row| row.get(0))
        .unwrap_or_default();
    text + &format!("next id above {sequence}\n")
}

/// Fails unless the file and its indexes are whole and no work is left over.
pub(crate) fn must_be_whole(path: &Path) {
    let connection = Connection::open(path).expect("opens");
    let check = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0)).expect("checks");
    assert_eq!(check("PRAGMA integrity_check"), "ok");
    for table in ["messages_fts", "messages_fts_trigram"] {
        connection
            .execute(&format!("INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)"), [])
            .expect(table);
    }
    let left =
        "SELECT COUNT(*) FROM state_meta WHERE key LIKE 'fts\\_rebuild%' ESCAPE '\\' OR key = 'unfinished_migration'";
    assert_eq!(connection.query_row(left, [], |row| row.get::<_, i64>(0)).expect("counts"), 0);
    let indexed: i64 =
        connection.query_row("SELECT COUNT(*) FROM messages_fts_docsize", [], |row| row.get(0)).expect("counts");
    let stored: i64 = connection.query_row("SELECT COUNT(*) FROM messages", [], |row| row.get(0)).expect("counts");
    assert_eq!(indexed, stored);
}

/// Opens both and copies.
pub(crate) fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<MigrationReport> {
    run(from, to, &MigrateOptions::new())
}

pub(crate) fn run(from: impl AsRef<Path>, to: impl AsRef<Path>, options: &MigrateOptions) -> Result<MigrationReport> {
    let (from, to) = (SessionDb::open_read_only(from)?, SessionDb::open(to)?);
    migrate(&from, &to, options, &mut |_| {})
}
