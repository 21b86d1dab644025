//! The transaction trait over a session.

use std::time::{Duration, Instant};

use super::search::TsQuery;
use super::search::index::pieces;
use super::session::Session;
use crate::error::Result;
use crate::search::index::TextIndex;
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
                 VALUES (lastval(), ?1, ?2, CAST(CAST(?3 AS text) AS tsvector))",
                &[number.into(), all.clone(), words.into()],
            )?;
        }
        Ok(())
    }

    fn text_index(&self) -> &'static dyn TextIndex {
        &TsQuery
    }
}
