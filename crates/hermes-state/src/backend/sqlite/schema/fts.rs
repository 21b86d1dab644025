//! The full-text indexes of messages: their tables, and the triggers by which every process on the file keeps them.
//!
//! The triggers are the index's only writers, so every program that writes messages keeps the index whatever language
//! it is in. Older programs share these objects: names, columns, options and conditions may not change. Objects are
//! made only where the name is missing and never replaced.

use rusqlite::Connection;

use super::catalog::{self, Catalog};
use super::{Context, Note};

/// A file has one of these, and opening never changes which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Three columns each, text read from `messages` itself.
    Current,
    /// One column that holds its own copy of all text, joined.
    Inline,
    /// The oldest: one column, text read from `messages.content`. Its trigram table, if any, is inline.
    External,
}

impl Layout {
    pub(super) fn of(catalog: &Catalog) -> Self {
        let legacy = |table| catalog.definition(table).map(|sql| !sql.contains("tool_name"));
        match legacy(MESSAGES.table) {
            Some(true) if catalog.has_table("messages_fts_content") => Self::Inline,
            Some(true) => Self::External,
            // A lone legacy trigram table: current triggers would fail on it and with them every message.
            None if legacy(TRIGRAM.table) == Some(true) => Self::Inline,
            _ => Self::Current,
        }
    }

    pub(super) fn is_legacy(self) -> bool {
        self != Self::Current
    }
}

/// One index: a table, the view it reads its text from if that is not `messages`, and three triggers.
pub(super) struct Surface {
    pub(super) table: &'static str,
    /// A surface with a view leaves tool rows out: they are most of the bytes and of little worth to substring search.
    pub(super) view: Option<&'static str>,
    tokenizer: Option<&'static str>,
    /// The prefix of the two markers that tell how far a backfill has come.
    markers: &'static str,
}

pub(super) const MESSAGES: Surface =
    Surface { table: "messages_fts", view: None, tokenizer: None, markers: "fts_rebuild" };
pub(super) const TRIGRAM: Surface = Surface {
    table: "messages_fts_trigram",
    view: Some("messages_fts_trigram_src"),
    tokenizer: Some("trigram"),
    markers: "fts_rebuild",
};
pub(super) const CJK: Surface = Surface {
    table: "messages_fts_cjk",
    view: Some("messages_fts_cjk_src"),
    tokenizer: Some("cjk_unicode61"),
    markers: "fts_cjk_rebuild",
};

/// Text of the columns that are indexed, NULL as empty, as the inline layout holds it.
fn joined(row: &str) -> String {
    ["content", "tool_name", "tool_calls"].map(|column| format!("coalesce({row}{column}, '')")).join(" || ' ' || ")
}

impl Surface {
    pub(super) fn triggers(&self) -> [String; 3] {
        ["insert", "delete", "update"].map(|event| format!("{}_{event}", self.table))
    }

    pub(super) fn high_water(&self) -> String {
        format!("{}_high_water", self.markers)
    }

    pub(super) fn progress(&self) -> String {
        format!("{}_progress", self.markers)
    }

    /// Says that the backfill was begun by a release that others may join in it.
    pub(super) fn ours(&self) -> String {
        format!("hermes_state_{}", self.markers)
    }

    /// Whether every object of the surface is there.
    fn complete(&self, catalog: &Catalog, layout: Layout) -> bool {
        self.has_table(catalog, layout) && self.triggers().iter().all(|trigger| catalog.has_trigger(trigger))
    }

    pub(super) fn has_table(&self, catalog: &Catalog, layout: Layout) -> bool {
        catalog.has_table(self.table) && (layout.is_legacy() || self.view.is_none_or(|view| catalog.has_view(view)))
    }

    /// The layout of this index in a file of that layout: in the oldest files a trigram index came later.
    fn layout(&self, file: Layout) -> Layout {
        if file == Layout::External && self.view.is_some() { Layout::Inline } else { file }
    }

    fn script(&self, file: Layout) -> String {
        match self.layout(file) {
            Layout::Current => self.current_table() + &self.current_triggers(),
            Layout::Inline => self.inline_script(),
            Layout::External => self.external_script(),
        }
    }

    pub(super) fn current_table(&self) -> String {
        let Self { table, .. } = self;
        let view = self.view.map_or(String::new(), |view| {
            format!(
                "CREATE VIEW IF NOT EXISTS {view} AS
                     SELECT id, role, content, tool_name, tool_calls FROM messages WHERE role <> 'tool';"
            )
        });
        // The words `tool_name` in the definition are how every program recognises this layout.
        format!(
            "{view}
             CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5(
                 content, tool_name, tool_calls, content='{source}', content_rowid='id'{tokenizer}
             );",
            source = self.view.unwrap_or("messages"),
            tokenizer = self.tokenize_option(),
        )
    }

    pub(super) fn current_triggers(&self) -> String {
        let Self { table, .. } = self;
        let [insert, delete, update] = self.triggers();
        let add = format!("INSERT INTO {table}(rowid, content, tool_name, tool_calls)");
        let remove = format!("INSERT INTO {table}({table}, rowid, content, tool_name, tool_calls)");
        let (new, old) = (
            "new.id, new.content, new.tool_name, new.tool_calls",
            "old.id, old.content, old.tool_name, old.tool_calls",
        );
        let (new_gate, old_gate) = (self.gate("new.id"), self.gate("old.id"));
        let covered = |row: &str| if self.view.is_some() { format!("{row}.role <> 'tool'") } else { "1".into() };
        let role_differs = if self.view.is_some() { " OR old.role IS NOT new.role" } else { "" };
        format!(
            "CREATE TRIGGER IF NOT EXISTS {insert} AFTER INSERT ON messages WHEN {new_covered} AND {new_gate} BEGIN
                 {add} VALUES ({new});
             END;
             CREATE TRIGGER IF NOT EXISTS {delete} AFTER DELETE ON messages WHEN {old_covered} AND {old_gate} BEGIN
                 {remove} VALUES ('delete', {old});
             END;
             CREATE TRIGGER IF NOT EXISTS {update} AFTER UPDATE ON messages
             WHEN (old.content IS NOT new.content OR old.tool_name IS NOT new.tool_name
                   OR old.tool_calls IS NOT new.tool_calls{role_differs}) AND {old_gate} BEGIN
                 {remove} SELECT 'delete', {old} WHERE {old_covered};
                 {add} SELECT {new} WHERE {new_covered};
             END;",
            new_covered = covered("new"),
            old_covered = covered("old"),
        )
    }

    /// Whether the index holds the row with this id: it was written after the index was emptied, or the backfill has
    /// passed it. Removing from an index what it never held corrupts it, so each trigger asks at firing time.
    fn gate(&self, id: &str) -> String {
        let marker =
            |key: String| format!("coalesce((SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '{key}'), -1)");
        format!("({id} > {} OR {id} <= {})", marker(self.high_water()), marker(self.progress()))
    }

    fn inline_script(&self) -> String {
        let Self { table, .. } = self;
        let [insert, delete, update] = self.triggers();
        let tokenizer = self.tokenize_option();
        let add = format!("INSERT INTO {table}(rowid, content) VALUES (new.id, {})", joined("new."));
        let remove = format!("DELETE FROM {table} WHERE rowid = old.id");
        format!(
            "CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5(content{tokenizer});
             CREATE TRIGGER IF NOT EXISTS {insert} AFTER INSERT ON messages BEGIN {add}; END;
             CREATE TRIGGER IF NOT EXISTS {delete} AFTER DELETE ON messages BEGIN {remove}; END;
             CREATE TRIGGER IF NOT EXISTS {update} AFTER UPDATE ON messages BEGIN {remove}; {add}; END;"
        )
    }

    /// Triggers for the oldest table, which exists: nothing makes a new one of this shape.
    fn external_script(&self) -> String {
        let Self { table, .. } = self;
        let [insert, delete, update] = self.triggers();
        let add = format!("INSERT INTO {table}(rowid, content) VALUES (new.id, new.content)");
        let remove = format!("INSERT INTO {table}({table}, rowid, content) VALUES ('delete', old.id, old.content)");
        format!(
            "CREATE TRIGGER IF NOT EXISTS {insert} AFTER INSERT ON messages BEGIN {add}; END;
             CREATE TRIGGER IF NOT EXISTS {delete} AFTER DELETE ON messages BEGIN {remove}; END;
             CREATE TRIGGER IF NOT EXISTS {update} AFTER UPDATE ON messages BEGIN {remove}; {add}; END;"
        )
    }

    /// Replaces the rows of a range in an index with its own copy of all text; the `last` range takes along what no message
    /// has any more.
    pub(super) fn replace(&self, conn: &Connection, range: [i64; 2], last: bool) -> rusqlite::Result<()> {
        let Self { table, .. } = self;
        if last {
            let strays = "rowid > ?1 AND rowid NOT IN (SELECT id FROM messages) OR rowid <= 0";
            conn.execute(&format!("DELETE FROM {table} WHERE {strays}"), [range[1]])?;
        }
        conn.execute(&format!("DELETE FROM {table} WHERE rowid > ?1 AND rowid <= ?2"), range)?;
        let rows = format!("SELECT id, {} FROM messages WHERE id > ?1 AND id <= ?2", joined(""));
        conn.execute(&format!("INSERT INTO {table}(rowid, content) {rows}"), range).map(drop)
    }

    fn tokenize_option(&self) -> String {
        self.tokenizer.map_or(String::new(), |tokenizer| format!(", tokenize='{tokenizer}'"))
    }

    /// Fills the index from the messages, whatever it held.
    pub(super) fn rebuild(&self, conn: &Connection, file: Layout) -> rusqlite::Result<()> {
        let Self { table, .. } = self;
        conn.execute_batch(&match self.layout(file) {
            Layout::Inline => format!(
                "DELETE FROM {table};
                 INSERT INTO {table}(rowid, content) SELECT id, {} FROM messages;",
                joined("")
            ),
            // An index that reads its text from elsewhere must hold exactly that text: its triggers remove what they
            // read there, and a rest that they do not know of would stay for ever.
            Layout::Current | Layout::External => format!("INSERT INTO {table}({table}) VALUES ('rebuild');"),
        })
    }
}

/// Whether the index is there and kept by its triggers.
pub(super) fn is_kept(surface: &Surface, catalog: &Catalog) -> bool {
    surface.complete(catalog, Layout::of(catalog))
}

/// Whether both indexes that every file has are there and kept.
pub(super) fn complete(catalog: &Catalog) -> bool {
    is_kept(&MESSAGES, catalog) && is_kept(&TRIGRAM, catalog)
}

/// From so many messages on, or so much text, an index is not rebuilt under the lock of an open.
const MANY: i64 = 1000;
const MUCH: i64 = 256 << 10;

/// Makes what is missing. An index of which anything was missing has gaps of unknown extent, because triggers go
/// missing when a process that could not run them dropped them; so it is rebuilt at once, or begun anew where that would
/// make others wait. Old layouts, which cannot say how far they are filled, are rebuilt at once whatever it takes.
pub(super) fn ensure(
    conn: &Connection,
    catalog: &Catalog,
    context: &Context,
    notes: &mut Vec<Note>,
) -> rusqlite::Result<()> {
    let layout = Layout::of(catalog);
    let incomplete: Vec<Surface> =
        [MESSAGES, TRIGRAM].into_iter().filter(|surface| !surface.complete(catalog, layout)).collect();
    if incomplete.is_empty() {
        return Ok(());
    }
    for surface in &incomplete {
        conn.execute_batch(&surface.script(layout))?;
    }
    // Both indexes share one backfill. A rebuilt one is ahead of its markers, and filling it again would index rows
    // twice, so then both are rebuilt and the backfill is over.
    let backfill = catalog::has_marker(conn, &MESSAGES.high_water())?;
    let stale = if layout == Layout::Current && backfill { vec![MESSAGES, TRIGRAM] } else { incomplete };
    let note = catalog::has_rows(conn, "messages")?;
    if layout == Layout::Current && !context.alone && is_large(conn)? {
        super::renewal::renew(conn)?;
        catalog::set_marker(conn, super::renewal::DAMAGED, "1")?;
        notes.push(Note::IndexesBegun);
        return Ok(());
    }
    for surface in &stale {
        surface.rebuild(conn, layout)?;
        if note {
            notes.push(Note::IndexRebuilt(surface.table));
        }
    }
    if layout == Layout::Current {
        catalog::clear_marker(conn, &MESSAGES.high_water())?;
        catalog::clear_marker(conn, &MESSAGES.progress())?;
    }
    Ok(())
}

fn is_large(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row(
        "SELECT count(*) >= ?1 OR total(bytes) >= ?2 FROM (
             SELECT OCTET_LENGTH(coalesce(content, '')) + OCTET_LENGTH(coalesce(tool_calls, '')) AS bytes FROM messages LIMIT ?1)",
        [MANY, MUCH],
        |row| row.get(0),
    )
}
