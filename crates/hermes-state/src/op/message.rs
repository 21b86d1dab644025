//! Writes of transcripts.

use super::Write;
use crate::backend::Operation;
use crate::clock;
use crate::error::Result;
use crate::message::NewMessage;
use crate::transaction::Transaction;
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

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Vec<i64>> {
        let ids = self
            .messages
            .iter()
            .map(|message| insert(transaction, &self.session_id, message))
            .collect::<Result<Vec<_>>>()?;
        let calls: i64 = self.messages.iter().map(|message| message.tool_calls.count()).sum();
        let added = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        transaction.execute(
            "UPDATE sessions SET message_count = message_count + ?1, tool_call_count = tool_call_count + ?2 WHERE id = ?3",
            &[added.into(), calls.into(), self.session_id.clone()],
        )?;
        Ok(ids)
    }
}

fn insert(transaction: &mut dyn Transaction, session_id: &Value, message: &NewMessage) -> Result<i64> {
    let id = transaction.scalar(
        "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, tool_name, effect_disposition, \
             timestamp, token_count, finish_reason, reasoning, reasoning_content, reasoning_details, \
             codex_reasoning_items, codex_message_items, platform_message_id, observed, active, api_content) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, 1, ?18) RETURNING id",
        &[
            session_id.clone(),
            message.role.clone(),
            message.content.encode(),
            message.tool_call_id.clone(),
            message.tool_calls.text().into(),
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
    Ok(id.as_i64().unwrap_or_default())
}
