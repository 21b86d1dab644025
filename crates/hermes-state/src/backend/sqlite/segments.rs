//! What parts an FTS5 index consists of, as its structure record says.
//!
//! Merging all parts into one writes the whole index anew. That is for many small parts; to do it again because a few
//! messages came in since, or because another process has begun with it, would be the same work twice.

use rusqlite::{Connection, OptionalExtension};

/// Up to so many pages an index is merged for the asking.
const SMALL: u64 = 16;

/// The parts of an index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// How many pages each has.
    pages: Vec<u64>,
    /// Whether a merge of some of them has begun.
    merging: bool,
}

impl Parts {
    /// Reads the record of an index; one that cannot be understood tells of no parts.
    pub(super) fn read(connection: &Connection, table: &str) -> rusqlite::Result<Self> {
        const STRUCTURE: i64 = 10;
        let mut statement = connection.prepare_cached(&format!("SELECT block FROM {table}_data WHERE id = ?1"))?;
        let block = statement.query_row([STRUCTURE], |row| row.get::<_, Vec<u8>>(0)).optional()?;
        Ok(block.and_then(|block| Self::parse(&block)).unwrap_or_default())
    }

    fn parse(block: &[u8]) -> Option<Self> {
        /// Stands in front of records with more in them, which indexes that can delete without their text have.
        const LARGER: [u8; 4] = [0xff, 0, 0, 1];
        let mut rest = block.get(4..)?;
        if rest.starts_with(&LARGER) {
            return None;
        }
        let (levels, _, _) = (varint(&mut rest)?, varint(&mut rest)?, varint(&mut rest)?);
        let mut parts = Self::default();
        for _ in 0..levels {
            parts.merging |= varint(&mut rest)? > 0;
            for _ in 0..varint(&mut rest)? {
                let (_, first, last) = (varint(&mut rest)?, varint(&mut rest)?, varint(&mut rest)?);
                parts.pages.push((last + 1).saturating_sub(first));
            }
        }
        Some(parts)
    }

    /// Whether to merge all of them, rather than to go on with what was begun.
    pub(super) fn are_worth_merging(&self) -> bool {
        let total: u64 = self.pages.iter().sum();
        let largest = self.pages.iter().max().copied().unwrap_or_default();
        !self.merging && self.pages.len() > 1 && (total <= SMALL || (total - largest) * 10 >= total)
    }
}

/// Reads a number as SQLite writes it: seven bits a byte, the highest first, the ninth byte whole.
fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..9 {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        if place == 8 {
            return Some(number << 8 | u64::from(*byte));
        }
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE VIRTUAL TABLE t USING fts5(text)").unwrap();
        connection
    }

    fn add(connection: &Connection, words: usize) {
        let text: String = (0..words).map(|n| format!("word{n} ")).collect();
        connection.execute("INSERT INTO t (text) VALUES (?1)", [text]).unwrap();
    }

    fn merge(connection: &Connection, pages: i32) {
        connection.execute("INSERT INTO t (t, rank) VALUES ('merge', ?1)", [pages]).unwrap();
    }

    #[test]
    fn parts_are_counted_as_fts5_makes_them() {
        let connection = index();
        assert_eq!(Parts::read(&connection, "t").unwrap(), Parts::default());
        (0..3).for_each(|_| add(&connection, 10));
        let parts = Parts::read(&connection, "t").unwrap();
        assert_eq!((parts.pages.len(), parts.merging), (3, false));
        assert!(parts.are_worth_merging());
        merge(&connection, -1000);
        let parts = Parts::read(&connection, "t").unwrap();
        assert_eq!((parts.pages.len(), parts.are_worth_merging()), (1, false));
    }

    #[test]
    fn a_merge_that_was_begun_is_gone_on_with_and_a_merged_index_left_alone() {
        let connection = index();
        connection.execute("INSERT INTO t (t, rank) VALUES ('automerge', 0)", []).unwrap();
        (0..3).for_each(|_| add(&connection, 200_000));
        assert!(Parts::read(&connection, "t").unwrap().are_worth_merging());
        merge(&connection, -8);
        let parts = Parts::read(&connection, "t").unwrap();
        assert!(parts.merging && !parts.are_worth_merging(), "{parts:?}");
        (0..1000).for_each(|_| merge(&connection, 100));
        add(&connection, 10);
        let parts = Parts::read(&connection, "t").unwrap();
        assert!(parts.pages.len() == 2 && !parts.merging && !parts.are_worth_merging(), "{parts:?}");
    }
}
