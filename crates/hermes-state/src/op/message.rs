//! Writes of transcripts.

use std::collections::HashSet;
use std::sync::Arc;

use super::client_key::{self, Known};
use super::{Promise, Write};
use crate::backend::Operation;
use crate::error::Result;
use crate::message::{NewMessage, timed};
use crate::statement::Statement;
use crate::transaction::{Sent, Transaction};
use crate::value::Value;

/// Adds messages to the end of a session, all or none.
#[derive(Clone)]
pub(crate) struct AppendMessages {
    session_id: Value,
    messages: Arc<[NewMessage]>,
    /// Whether callers have keys for some of them.
    keyed: bool,
}

impl AppendMessages {
    /// Refuses keys that are none, and keys of two messages.
    pub(crate) fn new(session_id: Value, mut messages: Vec<NewMessage>) -> Result<Self> {
        timed(&mut messages);
        let keyed = client_key::check(&session_id, &mut messages)?;
        Ok(Self { session_id, messages: messages.into(), keyed })
    }

    pub(crate) fn session_id(&self) -> &Value {
        &self.session_id
    }

    pub(crate) fn messages(&self) -> &[NewMessage] {
        &self.messages
    }

    /// Whether no store would take it, which can be told without one.
    pub(crate) fn lacks_what_it_needs(&self) -> bool {
        self.session_id.is_null() || self.messages.iter().any(|message| message.role.is_null())
    }

    /// Where some may be stored already: looks for them when the session is ours, and adds the others.
    fn add_missing(&self, transaction: &mut dyn Transaction) -> Result<Promise<Vec<i64>>> {
        hold(transaction, &self.session_id)?;
        transaction.make_client_keys()?;
        let known = client_key::find(transaction, &self.session_id, &self.messages)?;
        let missing = || self.messages.iter().zip(&known).filter(|(_, known)| matches!(known, Known::No));
        let calls = missing().map(|(message, _)| message.tool_calls.count()).sum();
        let counted = count_more(transaction, &self.session_id, missing().count(), calls)?;
        let mut inserted = missing()
            .map(|(message, _)| insert(transaction, &self.session_id, message, message.timestamp, true))
            .collect::<Result<Vec<_>>>()?
            .into_iter();
        Ok(Promise::Later(Box::new(move |transaction| {
            transaction.receive(counted)?;
            let mut ids: Vec<i64> = Vec::with_capacity(known.len());
            for known in known {
                ids.push(match known {
                    Known::Stored(id) => id,
                    Known::At(earlier) => ids[earlier],
                    Known::No => inserted.next().map_or(Ok(0), |sent| transaction.receive(sent).map(first_integer))?,
                });
            }
            Ok(ids)
        })))
    }
}

impl Write for AppendMessages {
    type Answer = Vec<i64>;
    const OPERATION: Operation = Operation::Transcript;

    /// The session is updated first: where several writers are at work at once this is what they wait for, so that a
    /// session's messages are numbered in the order in which they become visible.
    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Vec<i64>>> {
        if self.keyed {
            return self.add_missing(transaction);
        }
        let calls = self.messages.iter().map(|message| message.tool_calls.count()).sum();
        let counted = count_more(transaction, &self.session_id, self.messages.len(), calls)?;
        let inserted = self
            .messages
            .iter()
            .map(|message| insert(transaction, &self.session_id, message, message.timestamp, false))
            .collect::<Result<Vec<_>>>()?;
        Ok(Promise::Later(Box::new(|transaction| {
            transaction.receive(counted)?;
            inserted.into_iter().map(|sent| transaction.receive(sent).map(first_integer)).collect()
        })))
    }

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn answer_of_row(&self, id: i64) -> Option<Vec<i64>> {
        (self.messages.len() == 1 && !self.keyed).then(|| vec![id])
    }
}

fn count_more(transaction: &mut dyn Transaction, session_id: &Value, messages: usize, calls: i64) -> Result<Sent> {
    let added = i64::try_from(messages).unwrap_or(i64::MAX);
    transaction.send(
        "UPDATE sessions SET message_count = message_count + ?1, tool_call_count = tool_call_count + ?2 WHERE id = ?3",
        &[added.into(), calls.into(), session_id.clone()],
    )
}

fn first_integer(rows: Vec<Vec<Value>>) -> i64 {
    rows.first().and_then(|row| row.first()).and_then(Value::as_i64).unwrap_or_default()
}

/// Has others who would write to this session wait. Whatever looks before it changes a transcript begins with an update
/// of the session: appending does, and looks at nothing.
pub(super) fn hold(transaction: &mut dyn Transaction, session_id: &Value) -> Result<()> {
    transaction
        .execute("UPDATE sessions SET message_count = message_count WHERE id = ?1", std::slice::from_ref(session_id))
        .map(drop)
}

macro_rules! insertion {
    ($column:literal, $value:literal) => {
        concat!(
            "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, effect_disposition, \
                 timestamp, token_count, finish_reason, reasoning, reasoning_content, reasoning_details, \
                 codex_reasoning_items, codex_message_items, platform_message_id, observed, active, api_content",
            $column,
            ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, 1, ?18",
            $value,
            ") RETURNING id"
        )
    };
}
const INSERT: &str = insertion!("", "");
const INSERT_WITH_KEY: &str = insertion!(", client_key", ", ?19");

/// Inserts a message, said at `timestamp`, with the caller's key if it is free.
pub(super) fn insert(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    message: &NewMessage,
    timestamp: Option<f64>,
    key_is_free: bool,
) -> Result<Sent> {
    let (content, tool_calls) = (message.content.encode(), Value::from(message.tool_calls.text()));
    let mut parameters = Vec::with_capacity(19);
    parameters.extend([
        session_id.clone(),
        message.role.clone(),
        content.clone(),
        message.tool_call_id.clone(),
        tool_calls.clone(),
        message.tool_name.clone(),
        message.effect_disposition.clone(),
        timestamp.into(),
        message.token_count.clone(),
        message.finish_reason.clone(),
        message.reasoning.clone(),
        message.reasoning_content.clone(),
        message.reasoning_details.clone(),
        message.codex_reasoning_items.clone(),
        message.codex_message_items.clone(),
        message.platform_message_id.clone(),
        message.observed.into(),
        message.api_content.clone(),
    ]);
    let keyed = key_is_free && !message.client_key.is_null();
    if keyed {
        parameters.push(message.client_key.clone());
    }
    let sent = transaction.send(if keyed { INSERT_WITH_KEY } else { INSERT }, &parameters)?;
    transaction.index_message(&content, &message.tool_name, &tool_calls)?;
    Ok(sent)
}

/// A transcript, or a part of it, that is written anew.
pub(super) struct Batch {
    pub(super) session_id: Value,
    pub(super) messages: Vec<NewMessage>,
}

impl Batch {
    pub(super) fn new(session_id: Value, messages: Vec<NewMessage>) -> Self {
        Self { session_id, messages: NewMessage::batch(messages) }
    }

    pub(super) fn len(&self) -> i64 {
        i64::try_from(self.messages.len()).unwrap_or(i64::MAX)
    }

    /// Makes the session's counters those of the batch. Comes first, as in every write of a transcript.
    pub(super) fn count(&self, transaction: &mut dyn Transaction) -> Result<()> {
        let calls = self.messages.iter().map(|message| message.tool_calls.count()).sum();
        set_counters(transaction, &self.session_id, self.len(), calls)
    }

    /// Inserts the batch. Keys that other rows of the session have stay theirs.
    pub(super) fn insert<A: Send + 'static>(
        &self,
        transaction: &mut dyn Transaction,
        time_of: impl Fn(usize) -> Option<f64>,
        answer: A,
    ) -> Result<Promise<A>> {
        if self.messages.iter().any(|message| !message.client_key.is_null()) {
            transaction.make_client_keys()?;
        }
        let taken = client_key::taken(transaction, &self.session_id, &self.messages)?;
        let mut seen = HashSet::new();
        let mut inserted = Vec::with_capacity(self.messages.len());
        for (index, message) in self.messages.iter().enumerate() {
            let is_free = message.client_key.as_str().is_some_and(|key| !taken.contains(key) && seen.insert(key));
            let timestamp = time_of(index).or(message.timestamp);
            inserted.push(insert(transaction, &self.session_id, message, timestamp, is_free)?);
        }
        Ok(Promise::Later(Box::new(move |transaction| {
            inserted.into_iter().try_for_each(|sent| transaction.receive(sent).map(drop))?;
            Ok(answer)
        })))
    }
}

pub(super) fn set_counters(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    messages: i64,
    calls: i64,
) -> Result<()> {
    transaction
        .execute(
            "UPDATE sessions SET message_count = ?2, tool_call_count = ?3 WHERE id = ?1",
            &[session_id.clone(), messages.into(), calls.into()],
        )
        .map(drop)
}

/// Puts other messages in the place of a session's.
pub(crate) struct ReplaceMessages {
    batch: Batch,
    active_only: bool,
}

impl ReplaceMessages {
    pub(crate) fn new(session_id: Value, messages: Vec<NewMessage>, active_only: bool) -> Self {
        Self { batch: Batch::new(session_id, messages), active_only }
    }
}

impl Write for ReplaceMessages {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        self.batch.count(transaction)?;
        let which = if self.active_only { " AND active = 1" } else { "" };
        transaction.execute(
            &format!("DELETE FROM messages WHERE session_id = ?1{which}"),
            std::slice::from_ref(&self.batch.session_id),
        )?;
        self.batch.insert(transaction, |_| None, ())
    }

    fn subject(&self) -> Option<&str> {
        self.batch.session_id.as_str()
    }
}

/// Removes all messages of a session.
pub(crate) struct ClearMessages {
    pub(crate) session_id: Value,
}

impl Write for ClearMessages {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        set_counters(transaction, &self.session_id, 0, 0)?;
        transaction
            .execute("DELETE FROM messages WHERE session_id = ?1", std::slice::from_ref(&self.session_id))
            .map(|_| Promise::Kept(()))
    }

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }
}

/// Notes what was really sent to the model for the newest message of the user, if it is the one that is meant.
pub(crate) struct SetLatestUserApiContent {
    pub(crate) session_id: Value,
    /// As it is stored.
    pub(crate) content: Value,
    pub(crate) api_content: Value,
}

impl Write for SetLatestUserApiContent {
    type Answer = bool;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<bool>> {
        hold(transaction, &self.session_id)?;
        let mut statement = Statement::default();
        let api_content = statement.bind(self.api_content.clone());
        let (session, content) = (statement.bind(self.session_id.clone()), statement.bind(self.content.clone()));
        statement.push(&format!(
            "UPDATE messages SET api_content = {api_content} WHERE content IS NOT DISTINCT FROM {content} AND id = \
             (SELECT MAX(id) FROM messages WHERE session_id = {session} AND active = 1 AND role = 'user')"
        ));
        Ok(Promise::Kept(transaction.execute(&statement.sql, &statement.parameters)? > 0))
    }

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_for_others_have_the_columns_that_are_inserted_here() {
        let columns = NewMessage::default().columns().map(|(column, _)| column).join(", ");
        assert!(
            INSERT.contains(&format!("(session_id, {}, active, api_content)", columns.replace(", api_content", "")))
        );
        assert!(INSERT_WITH_KEY.contains("active, api_content, client_key)") && !INSERT.contains("client_key"));
    }
}
