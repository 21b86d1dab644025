//! The tokenizer `trigram` as all releases of SQLite in use have it: a text ends at its first NUL.
//!
//! The bundled SQLite reads on behind a NUL, releases up to 3.40 and some after it do not. They work on the same index:
//! what one puts into it the other has to find when it takes the row out, or the index is damaged. Structured content
//! begins with a NUL, so this is no rare case. The index of words has no such difference.
#![expect(unsafe_code, reason = "FTS5 takes its tokenizers through C only")]

use std::ffi::{c_char, c_int, c_void};

use rusqlite::{Connection, ffi};

use super::tokens::Receive;
use super::wrapped_tokenizer::{self, Wrapped};

/// The name of SQLite's own, which this takes the place of on a connection.
const NAME: &std::ffi::CStr = c"trigram";

/// Puts the tokenizer in the place of SQLite's own on a connection.
///
/// # Errors
/// SQLite's, if it has none or no memory.
pub(crate) fn register(connection: &Connection) -> rusqlite::Result<()> {
    wrapped_tokenizer::register(connection, NAME, NAME, tokenize)
}

unsafe extern "C" fn tokenize(
    instance: *mut ffi::Fts5Tokenizer,
    context: *mut c_void,
    flags: c_int,
    text: *const c_char,
    length: c_int,
    emit: Option<Receive>,
) -> c_int {
    let whole = match usize::try_from(length) {
        Ok(length @ 1..) if !text.is_null() => {
            // SAFETY: FTS5 hands over a text of this length, which it leaves alone during the call.
            unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) }
        }
        _ => &[],
    };
    let end = whole.iter().position(|byte| *byte == 0).unwrap_or(whole.len());
    // SAFETY: FTS5 calls with a live instance of ours; what is passed on is FTS5's own, and the text only shorter.
    unsafe {
        let instance = &*instance.cast::<Wrapped>();
        (instance.tokenize)(instance.inner, context, flags, text, c_int::try_from(end).unwrap_or(length), emit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(connection: &Connection, text: &str) -> i64 {
        let sql = "SELECT COUNT(*) FROM t WHERE t MATCH ?1";
        connection.query_row(sql, [format!("\"{text}\"")], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_text_ends_at_its_first_nul_for_every_connection() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        connection.execute_batch("CREATE VIRTUAL TABLE t USING fts5(x, tokenize = 'trigram')").unwrap();
        for text in ["abc\0defgh", "\0json:[\"porcupine\"]", "", "plain 東京タワー text"] {
            connection.execute("INSERT INTO t VALUES (?1)", [text]).unwrap();
        }
        let seen = ["abc", "defg", "porcupine", "東京タ", "lain te"].map(|text| found(&connection, text));
        assert_eq!(seen, [1, 0, 0, 1, 0]);
        assert_eq!(found(&connection, "タワー te"), 1);
        connection.execute("DELETE FROM t WHERE x LIKE 'abc%'", []).unwrap();
        connection.execute_batch("INSERT INTO t(t) VALUES ('integrity-check')").unwrap();
    }

    #[test]
    fn arguments_reach_the_original_and_bad_ones_are_refused() {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        connection
            .execute_batch("CREATE VIRTUAL TABLE t USING fts5(x, tokenize = 'trigram case_sensitive 1')")
            .unwrap();
        connection.execute("INSERT INTO t VALUES ('Harbour')", []).unwrap();
        assert_eq!((found(&connection, "Harb"), found(&connection, "harb")), (1, 0));
        let wrong = "CREATE VIRTUAL TABLE w USING fts5(x, tokenize = 'trigram case_sensitive 7')";
        assert!(connection.execute_batch(wrong).is_err());
    }
}
