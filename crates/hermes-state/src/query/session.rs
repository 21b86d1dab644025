//! Reads of sessions: single rows, counts and listings.

use super::lineage;
use crate::blank;
use crate::error::Result;
use crate::session::Session;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::{Record, Value};

/// Which sessions a listing shows, in which order and which part of it.
///
/// ```
/// use hermes_state::SessionQuery;
/// let recent = SessionQuery { limit: 10, order_by_last_active: true, ..SessionQuery::default() };
/// assert_eq!(recent.offset, 0);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct SessionQuery {
    /// Only sessions from this source.
    pub source: Option<String>,
    /// No sessions from these sources. NULL among them leaves nothing, as in SQL.
    pub exclude_sources: Vec<Value>,
    /// Only sessions whose working folder is this one or lies in it.
    pub cwd_prefix: Option<String>,
    /// At most so many; negative: all.
    pub limit: i64,
    /// Leave out so many of the first.
    pub offset: i64,
    /// Also sub-agents, continuations and other children.
    pub include_children: bool,
    /// Only sessions with at least so many active messages.
    pub min_message_count: i64,
    /// Show a compressed conversation as it stands now, at its last continuation.
    pub project_compression_tips: bool,
    /// Order by the newest message of the whole conversation instead of by its start.
    pub order_by_last_active: bool,
    /// Also archived sessions.
    pub include_archived: bool,
    /// Only archived sessions.
    pub archived_only: bool,
    /// With `order_by_last_active`: only conversations one of whose ids contains this text.
    pub id_query: Option<String>,
    /// With `order_by_last_active`: only conversations one of whose titles or ids contains this text.
    pub search_query: Option<String>,
    /// Without the system prompt, which can be very long.
    pub compact_rows: bool,
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self {
            source: None,
            exclude_sources: Vec::new(),
            cwd_prefix: None,
            limit: 20,
            offset: 0,
            include_children: false,
            min_message_count: 0,
            project_compression_tips: true,
            order_by_last_active: false,
            include_archived: false,
            archived_only: false,
            id_query: None,
            search_query: None,
            compact_rows: false,
        }
    }
}

/// What a projected row takes over from the last continuation.
const OF_THE_TIP: [&str; 13] = [
    "id",
    "ended_at",
    "end_reason",
    "message_count",
    "tool_call_count",
    "title",
    "last_active",
    "preview",
    "model",
    "system_prompt",
    "cwd",
    "git_branch",
    "git_repo_root",
];

/// Columns that compact rows leave out.
pub const COMPACT_EXCLUDED: [&str; 1] = ["system_prompt"];

/// One session by its id.
pub(crate) fn get(transaction: &mut dyn Transaction, id: &Value) -> Result<Option<Session>> {
    Ok(transaction.first("SELECT * FROM sessions WHERE id = ?1", std::slice::from_ref(id))?.map(Session::new))
}

/// The title of a session.
pub(crate) fn title(transaction: &mut dyn Transaction, id: &Value) -> Result<Option<String>> {
    let title = transaction.scalar("SELECT title FROM sessions WHERE id = ?1", std::slice::from_ref(id))?;
    Ok(title.as_str().map(str::to_owned))
}

/// How many sessions a listing with these filters has, children left out on request.
pub(crate) fn count(transaction: &mut dyn Transaction, query: &SessionQuery) -> Result<i64> {
    let mut statement = Statement::default();
    statement.push("SELECT COUNT(*) FROM sessions s WHERE ");
    let admitted = admission(&mut statement, query);
    statement.push(&admitted);
    Ok(transaction.scalar(&statement.sql, &statement.parameters)?.as_i64().unwrap_or_default())
}

/// The condition under which a session `s` is in a listing, judged by its own row.
fn admission(statement: &mut Statement, query: &SessionQuery) -> String {
    let mut conditions = Vec::new();
    if !query.include_children {
        conditions.push(lineage::is_listable("s"));
    }
    if let Some(source) = query.source.as_deref().filter(|source| !source.is_empty()) {
        conditions.push(format!("s.source = {}", statement.bind(source)));
    }
    if !query.exclude_sources.is_empty() {
        conditions.push(format!("s.source NOT IN ({})", statement.bind_all(query.exclude_sources.iter().cloned())));
    }
    if let Some(prefix) = query.cwd_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        conditions.push(in_folder(statement, prefix));
    }
    if query.min_message_count > 0 {
        conditions.push(format!("s.message_count >= {}", statement.bind(query.min_message_count)));
    }
    if query.archived_only {
        conditions.push("s.archived = 1".to_owned());
    } else if !query.include_archived {
        conditions.push("s.archived = 0".to_owned());
    }
    if conditions.is_empty() { "1 = 1".to_owned() } else { conditions.join(" AND ") }
}

/// The working folder is the given one, or one within it; `/` holds all absolute paths.
fn in_folder(statement: &mut Statement, prefix: &str) -> String {
    let trimmed = prefix.trim_end_matches(['/', '\\']);
    let folder = if trimmed.is_empty() { prefix } else { trimmed };
    let exact = statement.bind(folder);
    let below = |statement: &mut Statement, separator: &str| {
        let pattern = if trimmed.is_empty() {
            format!("{}%", like_literal(folder))
        } else {
            format!("{}{}%", like_literal(folder), like_literal(separator))
        };
        like(statement, "s.cwd", &pattern)
    };
    let unix = below(statement, "/");
    let windows = below(statement, "\\");
    format!("(s.cwd = {exact} OR {unix} OR {windows})")
}

/// The condition that a column matches a LIKE pattern, case ignored for ASCII: what an engine's own LIKE makes of case
/// differs.
fn like(statement: &mut Statement, column: &str, pattern: &str) -> String {
    format!("LOWER({column}) LIKE {} ESCAPE '\\'", statement.bind(pattern.to_ascii_lowercase()))
}

/// A text as a LIKE pattern that matches just it.
pub(crate) fn like_literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// The columns of a rich row of session `s`: its own, then its last activity and the text its preview is made of.
fn rich_columns(transaction: &mut dyn Transaction, compact: bool) -> Result<String> {
    let own = if compact {
        let columns = transaction.query("SELECT * FROM sessions LIMIT 0", &[], &mut |_| Ok(()))?;
        columns
            .iter()
            .filter(|column| !COMPACT_EXCLUDED.contains(&&***column))
            .map(|column| format!("s.\"{}\"", column.replace('"', "\"\"")))
            .collect::<Vec<_>>()
            .join(", ")
    } else {
        "s.*".to_owned()
    };
    Ok(format!(
        "{own}, {} AS last_active, (SELECT m.content FROM messages m WHERE m.session_id = s.id AND m.role = 'user' \
         AND m.content IS NOT NULL ORDER BY m.timestamp, m.id LIMIT 1) AS preview",
        lineage::last_active("s")
    ))
}

/// The beginning of a message in one line: cut to 63 characters, blanks at the ends removed, then to 60 with dots.
pub(crate) fn preview(text: &str) -> String {
    let cut: String = text
        .chars()
        .take_while(|character| *character != '\0')
        .take(63)
        .map(|character| if matches!(character, '\n' | '\r') { ' ' } else { character })
        .collect();
    let trimmed = blank::trim(&cut);
    if trimmed.chars().count() > 60 {
        trimmed.chars().take(60).chain("...".chars()).collect()
    } else {
        trimmed.to_owned()
    }
}

fn finish(record: &Record) -> Record {
    let text = record.text("preview").map(preview).unwrap_or_default();
    lineage::with_column(record, "preview", text.into())
}

/// One rich row by its id.
fn rich(transaction: &mut dyn Transaction, id: &str, compact: bool) -> Result<Option<Record>> {
    let sql = format!("SELECT {} FROM sessions s WHERE s.id = ?1", rich_columns(transaction, compact)?);
    Ok(transaction.first(&sql, &[id.into()])?.map(|record| finish(&record)))
}

/// A listing.
pub(crate) fn list(transaction: &mut dyn Transaction, query: &SessionQuery) -> Result<Vec<Session>> {
    let columns = rich_columns(transaction, query.compact_rows)?;
    let mut statement = Statement::default();
    let admitted = admission(&mut statement, query);
    if query.order_by_last_active {
        by_activity(&mut statement, query, &columns, &admitted);
    } else {
        statement
            .push(&format!("SELECT {columns} FROM sessions s WHERE {admitted} ORDER BY s.started_at DESC, s.id DESC"));
    }
    statement.push_page(query.limit, query.offset);
    let mut sessions = Vec::new();
    for record in transaction.records(&statement.sql, &statement.parameters)? {
        let mut record = finish(&record);
        if query.project_compression_tips && !query.include_children {
            record = projected(transaction, record, query.compact_rows)?;
        }
        sessions.push(Session::new(record));
    }
    Ok(sessions)
}

/// Orders by the activity of the whole conversation: the row and everything reachable along continuations. `UNION`
/// drops what was reached before, which is what ends a cycle.
fn by_activity(statement: &mut Statement, query: &SessionQuery, columns: &str, admitted: &str) {
    let mut matched = String::new();
    for condition in [id_condition(statement, query), text_condition(statement, query)].into_iter().flatten() {
        matched.push_str(&format!(
            " AND EXISTS (SELECT 1 FROM conversation v JOIN sessions x ON x.id = v.member \
             WHERE v.root = s.id AND {condition})"
        ));
    }
    statement.push(&format!(
        "WITH RECURSIVE conversation (root, member) AS ( \
             SELECT s.id, s.id FROM sessions s WHERE {admitted} \
             UNION \
             SELECT v.root, c.id FROM conversation v JOIN sessions p ON p.id = v.member AND p.end_reason = 'compression' \
                 JOIN sessions c ON c.parent_session_id = p.id WHERE {continuation}), \
         activity (root, latest) AS ( \
             SELECT v.root, MAX({last_active}) FROM conversation v JOIN sessions x ON x.id = v.member GROUP BY v.root) \
         SELECT {columns} FROM activity a JOIN sessions s ON s.id = a.root WHERE 1 = 1{matched} \
         ORDER BY a.latest DESC, s.started_at DESC, s.id DESC",
        continuation = lineage::is_continuation("c"),
        last_active = lineage::last_active("x"),
    ));
}

/// The needle of a text filter: without blanks at the ends, in lower case; none if nothing is left.
fn needle(text: Option<&String>) -> Option<String> {
    text.map(|text| blank::trim(text).to_lowercase()).filter(|needle| !needle.is_empty())
}

fn contains(statement: &mut Statement, column: &str, needle: &str) -> String {
    like(statement, column, &format!("%{}%", like_literal(needle)))
}

fn id_condition(statement: &mut Statement, query: &SessionQuery) -> Option<String> {
    let needle = needle(query.id_query.as_ref())?;
    Some(contains(statement, "x.id", &needle))
}

fn text_condition(statement: &mut Statement, query: &SessionQuery) -> Option<String> {
    let needle = needle(query.search_query.as_ref())?;
    let mut alternatives = vec![contains(statement, "x.title", &needle), contains(statement, "x.id", &needle)];
    let squeezed: String = needle.chars().filter(|character| character.is_alphanumeric()).collect();
    if !squeezed.is_empty() {
        let title = "REPLACE(REPLACE(REPLACE(REPLACE(x.title, '-', ''), '_', ''), '.', ''), ' ', '')";
        alternatives.push(contains(statement, title, &squeezed));
    }
    Some(format!("({})", alternatives.join(" OR ")))
}

/// The row of a compressed conversation with what has become of it since.
fn projected(transaction: &mut dyn Transaction, root: Record, compact: bool) -> Result<Record> {
    if root.text("end_reason") != Some("compression") {
        return Ok(root);
    }
    let id = root.text("id").unwrap_or_default().to_owned();
    let tip = lineage::compression_tip(transaction, &id)?;
    if tip == id {
        return Ok(root);
    }
    let Some(tip) = rich(transaction, &tip, compact)? else { return Ok(root) };
    let mut row = root;
    for column in OF_THE_TIP {
        if let Some(value) = tip.get(column)
            && row.get(column).is_some()
        {
            row = lineage::with_column(&row, column, value.clone());
        }
    }
    Ok(lineage::with_column(&row, "_lineage_root_id", id.into()))
}
