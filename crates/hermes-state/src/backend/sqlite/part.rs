//! Which part of a damaged file is damaged, as far as that can be told in a short time.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::deadline;
use super::errors::extended_code;
use super::schema::{TRASH, quoted};

/// A part that was found damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The table or index.
    pub(super) name: String,
    /// Whether it belongs to a search index, which can be made anew from the messages.
    pub(super) is_search: bool,
}

/// How long it may take where nothing is waiting but the answer about the damage.
pub(super) const SEARCH_FOR_PART: Duration = Duration::from_secs(2);

struct Tree {
    name: String,
    table: String,
    root: i64,
}

impl Part {
    fn of(name: &str, table: &str) -> Self {
        Self { name: name.to_owned(), is_search: is_search(table) }
    }
}

/// Tables that hold nothing but what is in the messages too.
fn is_search(table: &str) -> bool {
    table.starts_with("messages_fts") || table.starts_with(TRASH)
}

/// Looks for the damaged part, at most for so long. What cannot be made anew is looked at first.
pub(super) fn find(connection: &Connection, at_most: Duration) -> Option<Part> {
    deadline::until(Instant::now() + at_most, || match trees(connection) {
        Ok(trees) => in_order(&trees).into_iter().find_map(|table| damaged_part(connection, table, &trees)),
        Err(error) if is_damage(&error) => Some(Part::of("sqlite_schema", "sqlite_schema")),
        Err(_) => None,
    })
}

/// Whether SQLite says that the file is damaged, or is none.
fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(extended_code(error) & 0xff, rusqlite::ffi::SQLITE_CORRUPT | rusqlite::ffi::SQLITE_NOTADB)
}

fn trees(connection: &Connection) -> rusqlite::Result<Vec<Tree>> {
    let mut statement = connection.prepare(
        "SELECT name, tbl_name, rootpage FROM sqlite_schema WHERE type IN ('table', 'index') AND rootpage > 0",
    )?;
    let rows = statement.query_map([], |row| Ok(Tree { name: row.get(0)?, table: row.get(1)?, root: row.get(2)? }))?;
    rows.collect()
}

fn in_order(trees: &[Tree]) -> Vec<&str> {
    let mut tables: Vec<&str> =
        trees.iter().filter(|tree| tree.name == tree.table).map(|tree| tree.table.as_str()).collect();
    tables.sort_by_key(|table| (is_search(table), *table != "sessions", *table != "messages", *table));
    tables
}

fn damaged_part(connection: &Connection, table: &str, trees: &[Tree]) -> Option<Part> {
    let found = || -> rusqlite::Result<Option<String>> {
        let mut check = connection.prepare(&format!("PRAGMA quick_check({})", quoted(table)))?;
        let mut rows = check.query([])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(row.get::<_, String>(0)?).filter(|finding| finding != "ok"))
    };
    match found() {
        Ok(None) => None,
        Ok(Some(finding)) => Some(Part::of(named(&finding, table, trees), table)),
        Err(error) if is_damage(&error) => Some(Part::of(table, table)),
        Err(_) => None,
    }
}

/// SQLite names a tree by its first page.
fn named<'a>(finding: &str, table: &'a str, trees: &'a [Tree]) -> &'a str {
    // Before the first finding stands a line that names the database.
    let root = finding.lines().find_map(|line| line.strip_prefix("Tree ")?.split(' ').next()?.parse::<i64>().ok());
    let tree = root.and_then(|root| trees.iter().find(|tree| tree.root == root));
    tree.map_or(table, |tree| &tree.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_named_by_the_tree_it_is_in() {
        let tree = |name: &str, root| Tree { name: name.to_owned(), table: "messages".to_owned(), root };
        let trees = [tree("messages", 4), tree("idx_messages_session", 9)];
        let of = |finding| named(finding, "messages", &trees);
        assert_eq!(
            of("*** in database main ***\nTree 9 page 12: btreeInitPage() returns error code 11"),
            "idx_messages_session"
        );
        assert_eq!(
            (of("Tree 4 page 4 cell 2: Extends off end of page"), of("NULL value in messages.role")),
            ("messages", "messages")
        );
    }
}
