//! Listings and counts of sessions: which are in them, in which order, and as what a compressed conversation is shown.

use std::collections::HashMap;

use super::lineage::{self, Conversation};
use super::needle::{Needle, in_folder};
use super::session::{finish, rich, rich_columns};
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

/// How many sessions a listing with these filters has, children left out on request.
pub(crate) fn count(transaction: &mut dyn Transaction, query: &SessionQuery) -> Result<i64> {
    let mut statement = Statement::default();
    statement.push("SELECT COUNT(*) FROM sessions s WHERE ");
    let admitted = admission(&mut statement, query)?;
    statement.push(&admitted);
    Ok(transaction.scalar(&statement.sql, &statement.parameters)?.as_i64().unwrap_or_default())
}

/// The condition under which a session `s` is in a listing, judged by its own row.
pub(crate) fn admission(statement: &mut Statement, query: &SessionQuery) -> Result<String> {
    let mut conditions = Vec::new();
    if !query.include_children {
        conditions.push(lineage::is_listable("s"));
    }
    if let Some(source) = query.source.as_deref().filter(|source| !source.is_empty()) {
        // Said so that the index over sources is not taken for the way in: a listing goes along its order, and most
        // sources are frequent in it.
        conditions.push(format!("NOT (s.source <> {})", statement.bind(source)));
    }
    if !query.exclude_sources.is_empty() {
        conditions.push(format!("s.source NOT IN ({})", statement.bind_all(query.exclude_sources.iter().cloned())));
    }
    if let Some(prefix) = query.cwd_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        conditions.push(in_folder(statement, "s.cwd", prefix)?);
    }
    if query.min_message_count > 0 {
        conditions.push(format!("s.message_count >= {}", statement.bind(query.min_message_count)));
    }
    if query.archived_only {
        conditions.push("s.archived = 1".to_owned());
    } else if !query.include_archived {
        conditions.push("s.archived = 0".to_owned());
    }
    Ok(if conditions.is_empty() { "1 = 1".to_owned() } else { conditions.join(" AND ") })
}

/// The conditions that a member `x` of a conversation meets the texts that are looked for.
pub(crate) fn text_conditions(statement: &mut Statement, query: &SessionQuery) -> Result<Vec<String>> {
    let mut conditions = Vec::new();
    if let Some(needle) = Needle::of_query(statement, query.id_query.as_deref()) {
        conditions.push(needle.within(statement, "x.id")?);
    }
    if let Some(needle) = Needle::of_query(statement, query.search_query.as_deref()) {
        let mut alternatives = vec![needle.within(statement, "x.title")?, needle.within(statement, "x.id")?];
        alternatives.extend(needle.within_squeezed(statement, "x.title")?);
        conditions.push(format!("({})", alternatives.join(" OR ")));
    }
    Ok(conditions)
}

/// A listing.
pub(crate) fn list(transaction: &mut dyn Transaction, query: &SessionQuery) -> Result<Vec<Session>> {
    if query.order_by_last_active {
        let chosen = choose(transaction, query, &|statement| {
            let mut conditions = vec![admission(statement, query)?];
            for condition in text_conditions(statement, query)? {
                conditions.push(Conversation::of("s").has(&condition));
            }
            Ok(Terms { conditions, until: None, from: None })
        })?;
        let roots: Vec<String> = chosen.into_iter().map(|chosen| chosen.root).collect();
        let rows = rows_of(transaction, &roots, query.compact_rows)?;
        return shown(transaction, rows, query);
    }
    let mut statement = Statement::default();
    let admitted = admission(&mut statement, query)?;
    let columns = rich_columns(transaction, query.compact_rows)?;
    statement.push(&format!("SELECT {columns} FROM sessions s WHERE {admitted} ORDER BY s.started_at DESC, s.id DESC"));
    statement.push_page(query.limit, query.offset);
    let rows = transaction.records(&statement.sql, &statement.parameters)?;
    shown(transaction, rows, query)
}

/// Which conversations `s` are chosen by their activity.
pub(crate) struct Terms {
    pub(crate) conditions: Vec<String>,
    /// As of when; a placeholder, as the next.
    pub(crate) until: Option<String>,
    /// Active then at the latest.
    pub(crate) from: Option<String>,
}

/// A conversation in the order of activity.
pub(crate) struct Chosen {
    pub(crate) root: String,
    pub(crate) latest: f64,
}

/// The largest page that is looked for among recent sessions, and how many of these are looked at for each of its rows.
const RECENT_PAGE: i64 = 1000;
const RECENT_FOR_EACH: i64 = 4;
const RECENT_AT_LEAST: i64 = 100;

/// The conversations of a page in the order of their activity.
///
/// When each session was last active the indexes tell; everything else is in its row, which can be long. So first only
/// those conversations are looked at that one of the most recently active sessions belongs to. What these yield is the
/// page, if it is full and its last row more recent than all that was left out; otherwise everything is looked at.
pub(crate) fn choose(
    transaction: &mut dyn Transaction,
    query: &SessionQuery,
    terms: &dyn Fn(&mut Statement) -> Result<Terms>,
) -> Result<Vec<Chosen>> {
    let wanted = query.offset.max(0).saturating_add(query.limit);
    // What looks for a text looks far.
    let looks_far = query.id_query.is_some() || query.search_query.is_some();
    if (1..=RECENT_PAGE).contains(&wanted) && query.limit > 0 && !looks_far {
        let recent = RECENT_FOR_EACH * wanted + RECENT_AT_LEAST;
        let (chosen, floor) = choose_among(transaction, query, terms, Some(recent))?;
        let is_full = i64::try_from(chosen.len()) == Ok(query.limit);
        if is_full && chosen.last().is_some_and(|last| last.latest > floor) {
            return Ok(chosen);
        }
    }
    Ok(choose_among(transaction, query, terms, None)?.0)
}

/// The page among the conversations of the most recently active sessions, so many of them, and the time of the last of
/// these; or among all.
fn choose_among(
    transaction: &mut dyn Transaction,
    query: &SessionQuery,
    terms: &dyn Fn(&mut Statement) -> Result<Terms>,
    recent: Option<i64>,
) -> Result<(Vec<Chosen>, f64)> {
    let mut statement = Statement::default();
    let Terms { mut conditions, until, from } = terms(&mut statement)?;
    let conversation = Conversation::of("s").until(until.as_deref());
    let (mut with, mut least) = (String::new(), "0.0");
    if let Some(recent) = recent {
        with = conversation.of_recent(from.as_deref(), &statement.bind_count(recent));
        conditions.push("s.id IN (SELECT root FROM roots)".to_owned());
        least = "(SELECT MIN(latest) FROM recent)";
    }
    statement.push(&format!(
        "{with} SELECT s.id AS root, {} AS latest, {least} AS least FROM sessions s WHERE {} \
         ORDER BY latest DESC, s.started_at DESC, s.id DESC",
        conversation.activity(),
        conditions.join(" AND ")
    ));
    statement.push_page(query.limit, query.offset);
    let rows = transaction.records(&statement.sql, &statement.parameters)?;
    let floor = rows.first().and_then(|row| row.real("least")).unwrap_or(f64::INFINITY);
    let chosen = |row: &Record| Chosen {
        root: row.text("root").unwrap_or_default().to_owned(),
        latest: row.real("latest").unwrap_or_default(),
    };
    Ok((rows.iter().map(chosen).collect(), floor))
}

/// How many rows are asked for by their ids at once.
const ROWS: usize = 500;

/// The rich rows of these sessions, in their order.
pub(crate) fn rows_of(transaction: &mut dyn Transaction, ids: &[String], compact: bool) -> Result<Vec<Record>> {
    let columns = rich_columns(transaction, compact)?;
    let mut rows = Vec::with_capacity(ids.len());
    for some in ids.chunks(ROWS) {
        let mut statement = Statement::default();
        let listed = statement.bind_all(some);
        statement.push(&format!("SELECT {columns} FROM sessions s WHERE s.id IN ({listed})"));
        let found = transaction.records(&statement.sql, &statement.parameters)?;
        let mut found: HashMap<String, Record> =
            found.into_iter().filter_map(|row| Some((row.text("id")?.to_owned(), row))).collect();
        rows.extend(some.iter().filter_map(|id| found.remove(id)));
    }
    Ok(rows)
}

/// Rich rows as a listing shows them.
pub(crate) fn shown(
    transaction: &mut dyn Transaction,
    rows: Vec<Record>,
    query: &SessionQuery,
) -> Result<Vec<Session>> {
    let projects = query.project_compression_tips && !query.include_children;
    rows.into_iter()
        .map(|row| {
            let row = finish(row);
            Ok(Session::new(if projects { projected(transaction, row, query.compact_rows)? } else { row }))
        })
        .collect()
}

/// The conversations one of whose ids contains a text: first those that have one that is it, then those that have one
/// that begins with it, each of these newest first.
pub(crate) fn by_id(transaction: &mut dyn Transaction, query: &SessionQuery) -> Result<Vec<Session>> {
    let mut statement = Statement::default();
    let Some(needle) = Needle::of_query(&mut statement, query.id_query.as_deref()) else { return Ok(Vec::new()) };
    let is = needle.equals(&mut statement, "x.id");
    let begins = needle.begins(&mut statement, "x.id")?;
    let within = needle.within(&mut statement, "x.id")?;
    let admitted = admission(&mut statement, query)?;
    let conversation = Conversation::of("s");
    let selected = format!(
        "SELECT s.id AS root, {} AS latest, CASE WHEN {} THEN 0 WHEN {} THEN 1 ELSE 2 END AS class \
         FROM sessions s WHERE {admitted} AND {} ORDER BY class, latest DESC, s.started_at DESC, s.id DESC",
        conversation.activity(),
        conversation.has(&is),
        conversation.has(&begins),
        conversation.has(&within),
    );
    statement.push(&selected);
    statement.push_page(query.limit, query.offset);
    let chosen = transaction.records(&statement.sql, &statement.parameters)?;
    let roots: Vec<String> = chosen.iter().filter_map(|row| row.text("root").map(str::to_owned)).collect();
    let rows = rows_of(transaction, &roots, query.compact_rows)?;
    shown(transaction, rows, query)
}

/// The runs of a scheduled job, newest first. Their ids begin with the job's, so they are a range of the index over
/// source and id; it is read first, whatever order an engine would like better.
pub(crate) fn cron_runs(transaction: &mut dyn Transaction, job: &str, limit: i64, offset: i64) -> Result<Vec<Session>> {
    let mut statement = Statement::default();
    // The range ends before what begins like the prefix but has, for its last character, the next one after `_`.
    let (first, behind) = (statement.bind(format!("cron_{job}_")), statement.bind(format!("cron_{job}`")));
    let columns = rich_columns(transaction, false)?;
    statement.push(&format!(
        "WITH runs AS MATERIALIZED (SELECT r.id, r.started_at FROM sessions r \
             WHERE r.source = 'cron' AND r.id >= {first} AND r.id < {behind}) \
         SELECT {columns} FROM (SELECT id FROM runs ORDER BY started_at DESC, id DESC"
    ));
    statement.push_page(limit, offset);
    statement.push(") chosen JOIN sessions s ON s.id = chosen.id ORDER BY s.started_at DESC, s.id DESC");
    let rows = transaction.records(&statement.sql, &statement.parameters)?;
    Ok(rows.into_iter().map(|row| Session::new(finish(row))).collect())
}

/// All sessions, or those from one source, most recently active first.
pub(crate) fn search(
    transaction: &mut dyn Transaction,
    source: Option<&str>,
    limit: i64,
    offset: i64,
) -> Result<Vec<Session>> {
    let mut statement = Statement::default();
    let source = source.filter(|source| !source.is_empty()).map(|source| statement.bind(source));
    let condition = source.map(|source| format!("WHERE s.source = {source} ")).unwrap_or_default();
    statement.push(&format!(
        "SELECT s.*, chosen.latest AS last_active FROM (SELECT s.id, {} AS latest FROM sessions s {condition}\
         ORDER BY latest DESC, s.started_at DESC, s.id DESC",
        lineage::last_active("s")
    ));
    statement.push_page(limit, offset);
    statement
        .push(") chosen JOIN sessions s ON s.id = chosen.id ORDER BY chosen.latest DESC, s.started_at DESC, s.id DESC");
    Ok(transaction.records(&statement.sql, &statement.parameters)?.into_iter().map(Session::new).collect())
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
            row = row.with(column, value.clone());
        }
    }
    Ok(row.with("_lineage_root_id", id.into()))
}
