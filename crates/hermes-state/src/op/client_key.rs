//! Keys by which callers call their messages: what is written again under its key is found instead of stored twice.
//!
//! A key belongs to one row of its session, in whatever state that is. Two messages under one key are the same if all
//! is equal that was said of them, but for the time (a retry may be told later) and for what was sent to the model (which
//! is noted later).

use std::collections::{HashMap, HashSet};

use super::session::named;
use crate::error::{Error, Result};
use crate::message::{MAX_CLIENT_KEY_CHARS, NewMessage};
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// What is known of a message that is to be appended.
pub(super) enum Known {
    /// It is new.
    No,
    /// It is stored, under this id.
    Stored(i64),
    /// It is the same as the one at this place of the batch.
    At(usize),
}

/// Makes text of keys; whether there are any. Refuses what is no key, and one key for two messages.
pub(super) fn check(session_id: &Value, messages: &mut [NewMessage]) -> Result<bool> {
    let mut keyed = false;
    for message in &mut *messages {
        if let Value::Integer(number) = message.client_key {
            message.client_key = Value::Text(number.to_string());
        }
        match &message.client_key {
            Value::Null => continue,
            Value::Text(key) if !key.is_empty() && key.chars().count() <= MAX_CLIENT_KEY_CHARS => keyed = true,
            _ => return Err(Error::Invalid(format!("a client key is text of 1 to {MAX_CLIENT_KEY_CHARS} characters"))),
        }
    }
    let mut first: HashMap<&str, &NewMessage> = HashMap::new();
    for message in messages.iter().filter(|_| keyed) {
        if let Some(key) = message.client_key.as_str()
            && let Some(earlier) = first.insert(key, message)
            && !are_same(earlier, message)
        {
            return Err(in_use(session_id, key, None));
        }
    }
    Ok(keyed)
}

fn are_same(one: &NewMessage, other: &NewMessage) -> bool {
    let said = |message: &NewMessage| NewMessage { timestamp: None, api_content: Value::Null, ..message.clone() };
    said(one) == said(other)
}

fn in_use(session_id: &Value, key: &str, message_id: Option<i64>) -> Error {
    Error::ClientKeyInUse { session: named(session_id), key: key.to_owned(), message_id }
}

/// The columns that may differ between two writes of one message.
const MAY_DIFFER: [&str; 2] = ["timestamp", "api_content"];

/// Looks for messages by their keys. Whoever asks holds the session, so that nobody adds one meanwhile.
pub(super) fn find(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    messages: &[NewMessage],
) -> Result<Vec<Known>> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut asked = Vec::new();
    let mut known = Vec::with_capacity(messages.len());
    for (place, message) in messages.iter().enumerate() {
        known.push(Known::No);
        let Some(key) = message.client_key.as_str() else { continue };
        if let Some(earlier) = places.get(key) {
            known[place] = Known::At(*earlier);
            continue;
        }
        places.insert(key, place);
        let mut statement = Statement::default();
        let (session, bound) = (statement.bind(session_id.clone()), statement.bind(key));
        let said = message.columns().into_iter().filter(|(column, _)| !MAY_DIFFER.contains(column));
        let same: Vec<String> =
            said.map(|(column, value)| format!("{column} IS NOT DISTINCT FROM {}", statement.bind(value))).collect();
        statement.push(&format!(
            "SELECT id, CASE WHEN {} THEN 1 ELSE 0 END FROM messages WHERE session_id = {session} AND client_key = {bound}",
            same.join(" AND ")
        ));
        // They are sent one after the other and answered together.
        asked.push((place, key, transaction.send(&statement.sql, &statement.parameters)?));
    }
    for (place, key, sent) in asked {
        let rows = transaction.receive(sent)?;
        let Some(row) = rows.first() else { continue };
        let id = row.first().and_then(Value::as_i64);
        match (id, row.get(1).and_then(Value::as_i64)) {
            (Some(id), Some(1)) => known[place] = Known::Stored(id),
            _ => return Err(in_use(session_id, key, id)),
        }
    }
    Ok(known)
}

/// How many keys are looked for by one statement.
const AT_ONCE: usize = 500;

/// Which of the messages' keys the session's rows have.
pub(super) fn taken(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    messages: &[NewMessage],
) -> Result<HashSet<String>> {
    let keys: Vec<&str> = messages.iter().filter_map(|message| message.client_key.as_str()).collect();
    let mut taken = HashSet::new();
    for keys in keys.chunks(AT_ONCE) {
        let mut statement = Statement::default();
        let session = statement.bind(session_id.clone());
        let listed = statement.bind_all(keys.iter().copied());
        statement.push(&format!(
            "SELECT client_key FROM messages WHERE session_id = {session} AND client_key IN ({listed})"
        ));
        transaction.query(&statement.sql, &statement.parameters, &mut |row| {
            taken.extend(row.into_iter().next().and_then(|key| key.as_str().map(str::to_owned)));
            Ok(())
        })?;
    }
    Ok(taken)
}
