//! What copying whole stores asks of the server: the sequence of ids, the index of words in bulk, statistics.

use super::search::index::pieces;
use super::transaction::ServerTransaction;
use crate::error::Result;
use crate::search::snippet::Texts;
use crate::search::tokens::with_tokenizer;
use crate::statement::{groups, tuples};
use crate::transaction::{Bulk, Transaction};
use crate::value::Value;

/// As the schema makes it.
const INDEX: &str = "CREATE INDEX idx_message_words_words ON message_words USING gin (words) WITH (fastupdate = off)";

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

    fn index_messages(&mut self, messages: &[(i64, Texts<'_>)]) -> Result<()> {
        let mut rows: Vec<[Value; 4]> = Vec::with_capacity(messages.len());
        for (id, texts) in messages {
            let pieces = with_tokenizer(|tokenizer| pieces(tokenizer, texts))?;
            let all = i64::try_from(pieces.len()).unwrap_or(i64::MAX);
            rows.extend(
                (0_i64..).zip(pieces).map(|(number, words)| [(*id).into(), number.into(), all.into(), words.into()]),
            );
        }
        // In a list of values the server takes every parameter for text, hence the casts.
        for group in groups(&rows) {
            let sql = format!(
                "INSERT INTO message_words (message_id, piece, pieces, words) \
                 SELECT CAST(i AS bigint), CAST(p AS bigint), CAST(n AS bigint), CAST(w AS tsvector) \
                 FROM (VALUES {}) AS given (i, p, n, w)",
                tuples(group.len(), 4)
            );
            let parameters: Vec<Value> = group.iter().flatten().cloned().collect();
            self.session.send(&sql, &parameters)?;
        }
        Ok(())
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

impl ServerTransaction<'_> {
    fn integer(&mut self, sql: &str) -> Result<i64> {
        let transaction: &mut dyn Transaction = self;
        Ok(transaction.scalar(sql, &[])?.as_i64().unwrap_or_default())
    }
}
