//! Rewinding a conversation to an earlier message, and taking that back.

use super::message::{hold, set_counters};
use super::{Promise, Write};
use crate::error::{Error, Result};
use crate::message::{Message, stored_call_count};
use crate::transaction::Transaction;
use crate::value::Value;

/// What rewinding did.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rewound {
    /// How many messages it took out of the conversation.
    pub rewound_count: i64,
    /// The message that it went back to, as it was before.
    pub target: Message,
    /// The last message of the conversation now; `None` if none is left.
    pub new_head_id: Option<i64>,
}

/// Takes a message of the user, and all that followed, out of the conversation.
pub(crate) struct RewindToMessage {
    pub(crate) session_id: Value,
    pub(crate) message_id: Value,
}

impl Write for RewindToMessage {
    type Answer = Rewound;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<Rewound>> {
        let target = transaction
            .first(
                "SELECT * FROM messages WHERE session_id = ?1 AND id = ?2",
                &[self.session_id.clone(), self.message_id.clone()],
            )?
            .and_then(|row| Message::all(vec![row]).pop())
            .ok_or_else(|| {
                let (message, session) = (named(&self.message_id), named(&self.session_id));
                Error::Invalid(format!("message {message} is not in session {session}; nothing was rewound"))
            })?;
        if target.role() != "user" {
            return Err(Error::Invalid(format!(
                "a rewind goes to a message of the user, and message {} has the role '{}'; nothing was rewound",
                target.id(),
                target.role()
            )));
        }
        transaction.execute(
            "UPDATE sessions SET rewind_count = COALESCE(rewind_count, 0) + 1 WHERE id = ?1",
            std::slice::from_ref(&self.session_id),
        )?;
        let changed = transaction.execute(
            "UPDATE messages SET active = 0 WHERE session_id = ?1 AND active = 1 AND id >= ?2",
            &[self.session_id.clone(), target.id().into()],
        )?;
        recount(transaction, &self.session_id)?;
        let head = transaction.scalar(
            "SELECT MAX(id) FROM messages WHERE session_id = ?1 AND active = 1",
            std::slice::from_ref(&self.session_id),
        )?;
        let rewound_count = i64::try_from(changed).unwrap_or(i64::MAX);
        Ok(Promise::Kept(Rewound { rewound_count, target, new_head_id: head.as_i64() }))
    }

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }
}

fn named(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Null => "None".to_owned(),
        Value::Blob(bytes) => format!("of {} bytes", bytes.len()),
    }
}

/// Puts rewound messages back into the conversation; archived ones stay archived.
pub(crate) struct RestoreRewound {
    pub(crate) session_id: Value,
    pub(crate) since_message_id: Value,
}

impl Write for RestoreRewound {
    type Answer = i64;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<i64>> {
        hold(transaction, &self.session_id)?;
        let changed = transaction.execute(
            "UPDATE messages SET active = 1 WHERE session_id = ?1 AND active = 0 AND COALESCE(compacted, 0) = 0 AND id >= ?2",
            &[self.session_id.clone(), self.since_message_id.clone()],
        )?;
        recount(transaction, &self.session_id)?;
        Ok(Promise::Kept(i64::try_from(changed).unwrap_or(i64::MAX)))
    }

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }
}

/// Makes a session's counters those of its active messages.
fn recount(transaction: &mut dyn Transaction, session_id: &Value) -> Result<()> {
    let messages = transaction.scalar(
        "SELECT COUNT(*) FROM messages WHERE session_id = ?1 AND active = 1",
        std::slice::from_ref(session_id),
    )?;
    let mut calls = 0;
    transaction.query(
        "SELECT tool_calls FROM messages WHERE session_id = ?1 AND active = 1 AND tool_calls IS NOT NULL",
        std::slice::from_ref(session_id),
        &mut |row| {
            calls += row.first().and_then(Value::as_str).map_or(0, stored_call_count);
            Ok(())
        },
    )?;
    set_counters(transaction, session_id, messages.as_i64().unwrap_or_default(), calls)
}
