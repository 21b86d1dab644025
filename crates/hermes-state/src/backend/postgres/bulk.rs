//! What copying whole stores asks of the server: the sequence of ids, the index of words in bulk, statistics.

use super::search::index::pieces;
use super::transaction::ServerTransaction;
use crate::error::Result;
use crate::search::snippet::Texts;
use crate::search::tokens::with_tokenizer;
use crate::transaction::{Bulk, Transaction};
use crate::value::Value;

/// As the schema makes it.
const INDEX: &str = "CREATE INDEX idx_message_words_words ON message_words USING gin (words) \
    WITH (fastupdate = on, gin_pending_list_limit = 128)";

impl Bulk for ServerTransaction<'_> {
    /// Ids that were given by copying have not moved the sequence, so the rows are asked too.
    fn highest_message_id(&mut self) -> Result<i64> {
        let given = self.integer("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM messages_id_seq")?;
        let stored = self.integer("SELECT MAX(id) FROM messages")?;
        Ok(given.max(stored))
    }

    fn raise_message_ids(&mut self, upto: i64) -> Result<()> {
        // A sequence takes no number below one.
        if upto >= 1 {
            self.execute(
                "SELECT setval('messages_id_seq', CAST(?1 AS bigint)) FROM messages_id_seq \
                 WHERE last_value < CAST(?1 AS bigint) OR (last_value = CAST(?1 AS bigint) AND NOT is_called)",
                &[upto.into()],
            )?;
        }
        Ok(())
    }

    fn copy_in(&mut self, table: &str, columns: &[&str], rows: &[Vec<&Value>]) -> Result<bool> {
        self.session.copy_rows(table, &columns.join(", "), rows)?;
        Ok(true)
    }

    fn index_messages(&mut self, messages: &[(i64, Texts<'_>)]) -> Result<()> {
        let mut lines = String::new();
        for (id, texts) in messages {
            let pieces = with_tokenizer(|tokenizer| pieces(tokenizer, texts))?;
            let all = pieces.len();
            for (number, words) in pieces.iter().enumerate() {
                lines.push_str(&format!("{id}\t{number}\t{all}\t"));
                push_copied(&mut lines, words);
                lines.push('\n');
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.session.copy_lines("COPY message_words (message_id, piece, pieces, words) FROM STDIN", lines)
    }

    /// Word by word the index takes most of the time of copying; made at once from all rows it takes a fraction. Whoever
    /// does not own it leaves it.
    fn defer_index(&mut self, _: i64) -> Result<()> {
        let owned = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class \
                     WHERE oid = to_regclass('idx_message_words_words')";
        if self.integer(owned)? == 1
            && self.integer("SELECT COUNT(*) FROM (SELECT 1 FROM messages LIMIT 1) AS one")? == 0
        {
            self.execute("DROP INDEX idx_message_words_words", &[])?;
        }
        Ok(())
    }

    fn index_deferred(&mut self) -> Result<Option<(i64, i64)>> {
        if self.integer("SELECT to_regclass('idx_message_words_words') IS NOT NULL")? == 1 {
            return Ok(None);
        }
        self.execute("SET LOCAL statement_timeout = 0", &[])?;
        // What one maintenance command of a server may take anyway, and plenty for sorting words.
        self.execute("SET LOCAL maintenance_work_mem = '256MB'", &[])?;
        self.execute(INDEX, &[])?;
        Ok(Some((1, 1)))
    }

    fn settle(&mut self) -> Result<()> {
        for table in ["sessions", "messages", "message_words", "session_model_usage"] {
            self.execute(&format!("ANALYZE {table}"), &[])?;
        }
        Ok(())
    }
}

/// A value in COPY's own text form. A word holds neither tabs nor line ends, but the quotation around it may hold
/// backslashes.
fn push_copied(lines: &mut String, text: &str) {
    for character in text.chars() {
        if character == '\\' {
            lines.push(character);
        }
        lines.push(character);
    }
}

impl ServerTransaction<'_> {
    fn integer(&mut self, sql: &str) -> Result<i64> {
        let transaction: &mut dyn Transaction = self;
        Ok(transaction.scalar(sql, &[])?.as_i64().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_made_again_as_the_schema_makes_it() {
        let plain = |sql: &str| sql.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain(include_str!("schema/0001.sql")).contains(&format!("{};", plain(INDEX))));
    }
}
