//! Writes of transcripts.

use super::{Promise, Write};
use crate::backend::Operation;
use crate::clock;
use crate::error::Result;
use crate::message::NewMessage;
use crate::transaction::{Sent, Transaction};
use crate::value::Value;

/// Adds messages to the end of a session, all or none.
pub(crate) struct AppendMessages {
    session_id: Value,
    messages: Vec<NewMessage>,
}

/// The step by which rows without a time of their own follow each other, in seconds.
const TICK: f64 = 1e-6;

impl AppendMessages {
    /// Messages without a time get one now, before any lock is waited for: the time they were said. In a batch these
    /// times ascend; a later time given for a message pushes them on, an earlier one never pulls them back.
    pub(crate) fn new(session_id: Value, mut messages: Vec<NewMessage>) -> Self {
        let mut clock = clock::now();
        for message in &mut messages {
            let time = *message.timestamp.get_or_insert(clock);
            clock = clock.max(time) + TICK;
        }
        Self { session_id, messages }
    }
}

impl Write for AppendMessages {
    type Answer = Vec<i64>;
    const OPERATION: Operation = Operation::Transcript;

    /// The session is updated first: where several writers are at work at once this is what they wait for, so that a
    /// session's messages are numbered in the order in which they become visible.
    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Vec<i64>>> {
        let calls: i64 = self.messages.iter().map(|message| message.tool_calls.count()).sum();
        let added = i64::try_from(self.messages.len()).unwrap_or(i64::MAX);
        let counted = transaction.send(
            "UPDATE sessions SET message_count = message_count + ?1, tool_call_count = tool_call_count + ?2 WHERE id = ?3",
            &[added.into(), calls.into(), self.session_id.clone()],
        )?;
        let inserted = self
            .messages
            .iter()
            .map(|message| insert(transaction, &self.session_id, message))
            .collect::<Result<Vec<_>>>()?;
        Ok(Promise::Later(Box::new(|transaction| {
            transaction.receive(counted)?;
            inserted.into_iter().map(|sent| Ok(first_integer(transaction.receive(sent)?))).collect()
        })))
    }

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }
}

fn first_integer(rows: Vec<Vec<Value>>) -> i64 {
    rows.first().and_then(|row| row.first()).and_then(Value::as_i64).unwrap_or_default()
}

fn insert(transaction: &mut dyn Transaction, session_id: &Value, message: &NewMessage) -> Result<Sent> {
    let (content, tool_calls) = (message.content.encode(), Value::from(message.tool_calls.text()));
    let sent = transaction.send(
        "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, effect_disposition, \
             timestamp, token_count, finish_reason, reasoning, reasoning_content, reasoning_details, \
             codex_reasoning_items, codex_message_items, platform_message_id, observed, active, api_content) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, 1, ?18) RETURNING id",
        &[
            session_id.clone(),
            message.role.clone(),
            content.clone(),
            message.tool_call_id.clone(),
            tool_calls.clone(),
            message.tool_name.clone(),
            message.effect_disposition.clone(),
            message.timestamp.into(),
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
        ],
    )?;
    transaction.index_message(&content, &message.tool_name, &tool_calls)?;
    Ok(sent)
}
