//! What copying whole stores asks of the server: the sequence of ids, the index of words in bulk, statistics.

use std::thread;

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

    /// Their words are cut while the server is busy with the rows.
    fn copy_messages(&mut self, columns: &[&str], rows: &[Vec<&Value>], texts: &[(i64, Texts<'_>)]) -> Result<bool> {
        let words = thread::scope(|scope| {
            let cutting = thread::Builder::new().name("hermes-words".into()).spawn_scoped(scope, || words_of(texts));
            self.session.copy_rows("messages", &columns.join(", "), rows)?;
            match cutting {
                Ok(cutting) => cutting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // Without another thread it is done on this one.
                Err(_) => words_of(texts),
            }
        })?;
        self.copy_words(&words)?;
        Ok(true)
    }

    fn index_messages(&mut self, messages: &[(i64, Texts<'_>)]) -> Result<()> {
        self.copy_words(&words_of(messages)?)
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
        // Words are gathered in a tree of this size before they are filed. One that a processor's cache holds takes half
        // of the time of one that does not.
        self.execute("SET LOCAL maintenance_work_mem = '8MB'", &[])?;
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

/// A row of the index of words.
type WordsRow = [Value; 4];

fn words_of(messages: &[(i64, Texts<'_>)]) -> Result<Vec<WordsRow>> {
    let mut rows = Vec::new();
    for (id, texts) in messages {
        let pieces = with_tokenizer(|tokenizer| pieces(tokenizer, texts))?;
        let all = Value::Integer(i64::try_from(pieces.len()).unwrap_or(i64::MAX));
        for (number, words) in (0..).zip(pieces) {
            rows.push([Value::Integer(*id), Value::Integer(number), all.clone(), Value::Blob(words)]);
        }
    }
    Ok(rows)
}

impl ServerTransaction<'_> {
    fn copy_words(&mut self, rows: &[WordsRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<Vec<&Value>> = rows.iter().map(|row| row.iter().collect()).collect();
        self.session.copy_rows("message_words", "message_id, piece, pieces, words", &rows)
    }

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
