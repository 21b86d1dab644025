//! The transaction trait over a session.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::errors::SQLITE_INTERRUPT;
use super::search::TsQuery;
use super::search::index::pieces;
use super::session::Session;
use crate::error::{Error, Result};
use crate::search::index::{Indexes, TextIndex};
use crate::search::snippet::Texts;
use crate::search::tokens::with_tokenizer;
use crate::transaction::{Sent, Transaction};
use crate::value::{Columns, Value};

/// Cutting the words of a longer message can take so long that the server would think us gone.
const LONG: usize = 1 << 20;

/// A session on which a transaction has been begun by whoever made this.
pub(super) struct ServerTransaction<'a> {
    pub(super) session: &'a mut Session,
    /// How long each query may take, where not the whole transaction has one time.
    pub(super) renewed: Option<Duration>,
}

impl Transaction for ServerTransaction<'_> {
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<usize> {
        let number = self.session.send(sql, parameters)?;
        let (_, changed) = self.session.receive(number)?;
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: &[Value],
        row: &mut dyn FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<Columns> {
        if let Some(patience) = self.renewed {
            self.session.wait_until(Instant::now() + patience);
        }
        self.session.query(sql, parameters, row)
    }

    fn has_table(&mut self, name: &str) -> Result<bool> {
        let transaction: &mut dyn Transaction = self;
        let found = transaction.scalar("SELECT to_regclass(?1) IS NOT NULL", &[name.into()])?;
        Ok(!found.is_falsy())
    }

    /// They are a part of the schema.
    fn make_topic_tables(&mut self, _: bool) -> Result<()> {
        Ok(())
    }

    /// They belong to the layout.
    fn make_client_keys(&mut self) -> Result<()> {
        Ok(())
    }

    /// It belongs to the layout.
    fn make_lease_table(&mut self) -> Result<()> {
        Ok(())
    }

    fn make_spool_notes(&mut self) -> Result<()> {
        Ok(())
    }

    /// Noting it waits for an attempt that is still being committed. The note keeps that from being stored later.
    fn was_stored(&mut self, write: Uuid) -> Result<bool> {
        let noted = self.session.send_native(
            "INSERT INTO applied_writes (id, attempt) VALUES (?1, 0) ON CONFLICT (id) DO NOTHING",
            vec![Box::new(write)],
        )?;
        let (_, changed) = self.session.receive(noted)?;
        Ok(changed == 0)
    }

    fn send(&mut self, sql: &str, parameters: &[Value]) -> Result<Sent> {
        Ok(Sent::Under(self.session.send(sql, parameters)?))
    }

    fn receive(&mut self, sent: Sent) -> Result<Vec<Vec<Value>>> {
        match sent {
            Sent::Done(rows) => Ok(rows),
            Sent::Under(number) => {
                let (rows, _) = self.session.receive(number)?;
                self.session.values(&rows)
            }
        }
    }

    /// The words are cut here and travel with the message. `lastval` is the id that it got: no other statement of ours
    /// takes a number from a sequence.
    fn index_message(&mut self, content: &Value, tool_name: &Value, tool_calls: &Value) -> Result<()> {
        let texts = Texts { content: content.as_str(), tool_name: tool_name.as_str(), tool_calls: tool_calls.as_str() };
        let bytes: usize = texts.columns().into_iter().flatten().map(str::len).sum();
        if bytes > LONG {
            self.session.allow_idleness()?;
        }
        let pieces = with_tokenizer(|tokenizer| pieces(tokenizer, &texts))?;
        let all = Value::Integer(i64::try_from(pieces.len()).unwrap_or(i64::MAX));
        for (number, words) in (0_i64..).zip(pieces) {
            self.session.send(
                "INSERT INTO message_words (message_id, piece, pieces, words) \
                 VALUES (lastval(), ?1, ?2, ?3)",
                &[number.into(), all.clone(), Value::Blob(words)],
            )?;
        }
        Ok(())
    }

    fn text_index(&self) -> Box<dyn TextIndex> {
        Box::new(TsQuery)
    }

    /// Words have an index. Parts of words are found by reading what the words leave, which needs no index of its own.
    fn indexes(&mut self) -> Result<Indexes> {
        Ok(Indexes { words: true, trigrams: true, pairs: false })
    }

    /// The server bounds each statement. Going back to where it began ends that, and a transaction that failed stands again.
    fn until(&mut self, deadline: Instant, work: &mut dyn FnMut(&mut dyn Transaction) -> Result<()>) -> Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis();
        if left == 0 {
            return Ok(false);
        }
        // The longest that the server takes.
        let left = left.min(i32::MAX as u128);
        self.session.send_batch(&format!("SAVEPOINT bounded; SET LOCAL statement_timeout = {left}"))?;
        let outcome = work(self);
        let in_time = match outcome {
            Err(Error::Engine { code: SQLITE_INTERRUPT, .. }) => false,
            outcome => outcome.map(|()| true)?,
        };
        self.session.send_batch("ROLLBACK TO SAVEPOINT bounded; RELEASE SAVEPOINT bounded")?;
        Ok(in_time)
    }
}
