//! Writes of Telegram topics.

use super::{Promise, Write};
use crate::clock;
use crate::error::{Error, Result};
use crate::topic::{NewTopicBinding, TopicCapabilities};
use crate::transaction::{TOPIC_BINDINGS, TOPIC_MODE, Transaction};
use crate::value::Value;

/// The key of `state_meta` that says which shape the tables have.
const STAMP: &str = "telegram_dm_topic_schema_version";
const VERSION: u64 = 2;

/// Makes the tables of topics, or brings them to their present shape.
pub(crate) struct MigrateTopics;

impl Write for MigrateTopics {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        migrate(transaction)?;
        Ok(Promise::Kept(()))
    }
}

/// All in the caller's transaction, so that nothing is ever left half done. What a newer release has made is left as it
/// is.
fn migrate(transaction: &mut dyn Transaction) -> Result<()> {
    let stamp = transaction.scalar("SELECT value FROM state_meta WHERE key = ?1", &[STAMP.into()])?;
    let current = VERSION.to_string();
    let is_newer = stamp.as_str().is_some_and(is_newer);
    transaction.make_topic_tables(!is_newer)?;
    if !is_newer && stamp.as_str() != Some(&current) {
        transaction.execute(
            "INSERT INTO state_meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            &[STAMP.into(), current.into()],
        )?;
    }
    Ok(())
}

fn is_newer(stamp: &str) -> bool {
    let is_number = !stamp.is_empty() && stamp.bytes().all(|byte| byte.is_ascii_digit());
    // A number that does not fit is greater than any version of ours.
    is_number && stamp.parse::<u64>().map_or(true, |version| version > VERSION)
}

/// Switches topic mode on for a chat.
pub(crate) struct EnableTopicMode {
    pub(crate) chat_id: Value,
    pub(crate) user_id: Value,
    pub(crate) capabilities: TopicCapabilities,
}

impl Write for EnableTopicMode {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        migrate(transaction)?;
        let TopicCapabilities { has_topics_enabled, allows_users_to_create_topics } = self.capabilities;
        transaction.execute(
            "INSERT INTO telegram_dm_topic_mode (chat_id, user_id, enabled, activated_at, updated_at, \
                 has_topics_enabled, allows_users_to_create_topics, capability_checked_at) \
             VALUES (?1, ?2, 1, ?3, ?3, ?4, ?5, ?3) \
             ON CONFLICT (chat_id) DO UPDATE SET user_id = excluded.user_id, enabled = 1, \
                 updated_at = excluded.updated_at, has_topics_enabled = excluded.has_topics_enabled, \
                 allows_users_to_create_topics = excluded.allows_users_to_create_topics, \
                 capability_checked_at = excluded.capability_checked_at",
            &[
                self.chat_id.clone(),
                self.user_id.clone(),
                clock::now().into(),
                has_topics_enabled.into(),
                allows_users_to_create_topics.into(),
            ],
        )?;
        Ok(Promise::Kept(()))
    }
}

fn switch_off(transaction: &mut dyn Transaction, chat_id: &Value) -> Result<()> {
    if transaction.has_table(TOPIC_MODE)? {
        transaction.execute(
            "UPDATE telegram_dm_topic_mode SET enabled = 0, updated_at = ?2 WHERE chat_id = ?1",
            &[chat_id.clone(), clock::now().into()],
        )?;
    }
    Ok(())
}

/// Switches topic mode off for a chat.
pub(crate) struct DisableTopicMode {
    pub(crate) chat_id: Value,
    pub(crate) clear_bindings: bool,
}

impl Write for DisableTopicMode {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        switch_off(transaction, &self.chat_id)?;
        if self.clear_bindings && transaction.has_table(TOPIC_BINDINGS)? {
            let sql = "DELETE FROM telegram_dm_topic_bindings WHERE chat_id = ?1";
            transaction.execute(sql, std::slice::from_ref(&self.chat_id))?;
        }
        Ok(Promise::Kept(()))
    }
}

/// Binds a topic to a session, which must not be bound to another one.
pub(crate) struct BindTopic(pub(crate) NewTopicBinding);

impl Write for BindTopic {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.0.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        migrate(transaction)?;
        let NewTopicBinding { chat_id, thread_id, session_id, user_id, session_key, managed_mode } = &self.0;
        let elsewhere = transaction.first(
            "SELECT session_id, chat_id, thread_id FROM telegram_dm_topic_bindings \
             WHERE session_id = ?1 AND NOT (chat_id = ?2 AND thread_id = ?3)",
            &[session_id.clone(), chat_id.clone(), thread_id.clone()],
        )?;
        if let Some(found) = elsewhere {
            let text = |column: &str| found.text(column).unwrap_or_default().to_owned();
            return Err(Error::SessionHasTopic {
                session: text("session_id"),
                chat: text("chat_id"),
                thread: text("thread_id"),
            });
        }
        transaction.execute(
            "INSERT INTO telegram_dm_topic_bindings \
                 (chat_id, thread_id, user_id, session_key, session_id, managed_mode, linked_at, updated_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7) \
             ON CONFLICT (chat_id, thread_id) DO UPDATE SET user_id = excluded.user_id, \
                 session_key = excluded.session_key, session_id = excluded.session_id, \
                 managed_mode = excluded.managed_mode, updated_at = excluded.updated_at",
            &[
                chat_id.clone(),
                thread_id.clone(),
                user_id.clone(),
                session_key.clone(),
                session_id.clone(),
                managed_mode.clone(),
                clock::now().into(),
            ],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Removes the binding of a topic; with a chat's last one its topic mode goes off. Answers how many rows were removed.
pub(crate) struct DeleteTopicBinding {
    pub(crate) chat_id: Value,
    pub(crate) thread_id: Value,
}

impl Write for DeleteTopicBinding {
    type Answer = i64;

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<i64>> {
        if !transaction.has_table(TOPIC_BINDINGS)? {
            return Ok(Promise::Kept(0));
        }
        let removed = transaction.execute(
            "DELETE FROM telegram_dm_topic_bindings WHERE chat_id = ?1 AND thread_id = ?2",
            &[self.chat_id.clone(), self.thread_id.clone()],
        )?;
        if removed > 0 {
            let left = "SELECT 1 FROM telegram_dm_topic_bindings WHERE chat_id = ?1 LIMIT 1";
            if transaction.scalar(left, std::slice::from_ref(&self.chat_id))?.is_null() {
                switch_off(transaction, &self.chat_id)?;
            }
        }
        Ok(Promise::Kept(i64::try_from(removed).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_greater_number_is_newer() {
        for (stamp, newer) in [("", false), ("x", false), ("-3", false), ("3.0", false), ("1", false), ("02", false)] {
            assert_eq!(is_newer(stamp), newer, "{stamp:?}");
        }
        for stamp in ["3", "0003", "99999999999999999999999"] {
            assert!(is_newer(stamp), "{stamp}");
        }
    }
}
