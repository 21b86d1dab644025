//! Compaction: a conversation is archived, and a shorter one goes on in its place.

use std::collections::HashMap;

use super::message::Batch;
use super::{Promise, Write};
use crate::error::Result;
use crate::message::NewMessage;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::{Value, identity};

/// Archives a session's active messages and puts others in their place.
///
/// Messages that are kept come again in the batch. They are copies of those that are archived, and are told by having
/// all that [`LIKENESS`] names in common with them, their time too. One that comes without its time takes that of the
/// message it repeats, so that it is a copy like the others.
pub(crate) struct ArchiveAndCompact {
    batch: Batch,
    /// From here to the end of the batch messages came without a time. One before a message that has its time is new, as
    /// a summary is: who knows the times of what is kept gives them all.
    untimed_from: usize,
}

/// What makes two messages alike, besides their time. [`crate::query::message::distinct_count`] counts by it.
pub(crate) const LIKENESS: &str = "role, content, tool_call_id, tool_calls, tool_name";

/// A longer list of texts is not looked for one by one.
const LISTED: usize = 256;

impl ArchiveAndCompact {
    pub(crate) fn new(session_id: Value, messages: Vec<NewMessage>) -> Self {
        let untimed = messages.iter().rev().take_while(|message| message.timestamp.is_none()).count();
        Self { untimed_from: messages.len() - untimed, batch: Batch::new(session_id, messages) }
    }

    /// The times of messages that came without one, by their place, where they repeat an active message. Each of those is
    /// repeated once at most, the newest first.
    fn times(&self, transaction: &mut dyn Transaction) -> Result<HashMap<usize, f64>> {
        let mut times = HashMap::new();
        let untimed = &self.batch.messages[self.untimed_from..];
        if untimed.is_empty() {
            return Ok(times);
        }
        let mut wanted: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (place, message) in untimed.iter().enumerate() {
            wanted.entry(likeness(message)).or_default().push(self.untimed_from + place);
        }
        let mut statement = Statement::default();
        let session = statement.bind(self.batch.session_id.clone());
        statement
            .push(&format!("SELECT {LIKENESS}, timestamp FROM messages WHERE session_id = {session} AND active = 1"));
        if untimed.len() <= LISTED {
            let contents: Vec<Value> = untimed.iter().map(|message| message.content.encode()).collect();
            let listed = statement.bind_all(contents.iter().filter(|content| !content.is_null()).cloned());
            let conditions = [
                (!listed.is_empty()).then(|| format!("content IN ({listed})")),
                contents.iter().any(Value::is_null).then(|| "content IS NULL".to_owned()),
            ];
            let conditions: Vec<String> = conditions.into_iter().flatten().collect();
            statement.push(&format!(" AND ({})", conditions.join(" OR ")));
        }
        statement.push(" ORDER BY id DESC");
        transaction.query(&statement.sql, &statement.parameters, &mut |mut row| {
            let time = row.pop().and_then(|time| time.as_f64());
            if let (Some(places), Some(time)) = (wanted.get_mut(&identity(&row)), time)
                && let Some(place) = places.pop()
            {
                times.insert(place, time);
            }
            Ok(())
        })?;
        Ok(times)
    }
}

/// The columns of [`LIKENESS`] as they will be stored.
fn likeness(message: &NewMessage) -> Vec<u8> {
    let text_of = |value: Value| match value {
        Value::Integer(number) => Value::Text(number.to_string()),
        value => value,
    };
    identity(
        &[
            message.role.clone(),
            message.content.encode(),
            message.tool_call_id.clone(),
            message.tool_calls.text().into(),
            message.tool_name.clone(),
        ]
        .map(text_of),
    )
}

impl Write for ArchiveAndCompact {
    type Answer = i64;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<i64>> {
        self.batch.count(transaction)?;
        let times = self.times(transaction)?;
        transaction.execute(
            "UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ?1 AND active = 1",
            std::slice::from_ref(&self.batch.session_id),
        )?;
        self.batch.insert(transaction, |place| times.get(&place).copied(), self.batch.len())
    }

    fn subject(&self) -> Option<&str> {
        self.batch.session_id.as_str()
    }
}
