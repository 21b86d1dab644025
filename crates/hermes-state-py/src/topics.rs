//! Telegram topics. Ids arrive as texts.

use hermes_state::{NewTopicBinding, TopicBinding, TopicCapabilities};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

use crate::handle::Store;
use crate::row;
use crate::value::to_value;
use crate::write::Write;

fn capability(value: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    if value.is_none() { Ok(None) } else { value.is_truthy().map(Some) }
}

/// A binding as a dictionary of its columns.
fn dict<'py>(py: Python<'py>, binding: &TopicBinding) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "chat_id"), &binding.chat_id)?;
    dict.set_item(intern!(py, "thread_id"), &binding.thread_id)?;
    dict.set_item(intern!(py, "user_id"), &binding.user_id)?;
    dict.set_item(intern!(py, "session_key"), &binding.session_key)?;
    dict.set_item(intern!(py, "session_id"), &binding.session_id)?;
    dict.set_item(intern!(py, "managed_mode"), &binding.managed_mode)?;
    dict.set_item(intern!(py, "linked_at"), binding.linked_at)?;
    dict.set_item(intern!(py, "updated_at"), binding.updated_at)?;
    Ok(dict)
}

#[pymethods]
impl Store {
    #[staticmethod]
    fn apply_telegram_topic_migration() -> Write {
        Write::new("apply_telegram_topic_migration", hermes_state::SessionDb::apply_telegram_topic_migration)
    }

    #[staticmethod]
    fn enable_telegram_topic_mode(
        chat_id: &Bound<'_, PyAny>,
        user_id: &Bound<'_, PyAny>,
        has_topics_enabled: &Bound<'_, PyAny>,
        allows_users_to_create_topics: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (chat, user) = (to_value(chat_id)?, to_value(user_id)?);
        let capabilities = TopicCapabilities {
            has_topics_enabled: capability(has_topics_enabled)?,
            allows_users_to_create_topics: capability(allows_users_to_create_topics)?,
        };
        Ok(Write::new("enable_telegram_topic_mode", move |db| {
            db.enable_telegram_topic_mode(chat.clone(), user.clone(), capabilities)
        }))
    }

    #[staticmethod]
    fn disable_telegram_topic_mode(chat_id: &Bound<'_, PyAny>, clear_bindings: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (chat, clear) = (to_value(chat_id)?, clear_bindings.is_truthy()?);
        Ok(Write::new("disable_telegram_topic_mode", move |db| db.disable_telegram_topic_mode(chat.clone(), clear)))
    }

    #[staticmethod]
    fn bind_telegram_topic(
        chat_id: &Bound<'_, PyAny>,
        thread_id: &Bound<'_, PyAny>,
        user_id: &Bound<'_, PyAny>,
        session_key: &Bound<'_, PyAny>,
        session_id: &Bound<'_, PyAny>,
        managed_mode: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let binding = NewTopicBinding::new(to_value(chat_id)?, to_value(thread_id)?, to_value(session_id)?)
            .user_id(to_value(user_id)?)
            .session_key(to_value(session_key)?)
            .managed_mode(to_value(managed_mode)?);
        Ok(Write::new("bind_telegram_topic", move |db| db.bind_telegram_topic(binding.clone())))
    }

    #[staticmethod]
    fn delete_telegram_topic_binding(chat_id: &Bound<'_, PyAny>, thread_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (chat, thread) = (to_value(chat_id)?, to_value(thread_id)?);
        Ok(Write::new("delete_telegram_topic_binding", move |db| {
            db.delete_telegram_topic_binding(chat.clone(), thread.clone())
        }))
    }

    fn is_telegram_topic_mode_enabled(
        &self,
        py: Python<'_>,
        chat_id: &Bound<'_, PyAny>,
        user_id: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (chat, user) = (to_value(chat_id)?, to_value(user_id)?);
        self.wait(py, |db| db.is_telegram_topic_mode_enabled(chat, user))
    }

    fn telegram_topic_binding<'py>(
        &self,
        py: Python<'py>,
        chat_id: &Bound<'py, PyAny>,
        thread_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (chat, thread) = (to_value(chat_id)?, to_value(thread_id)?);
        let found = self.wait(py, |db| db.telegram_topic_binding(chat, thread))?;
        found.map(|found| dict(py, &found)).transpose()
    }

    fn telegram_topic_binding_by_session<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let session = to_value(session_id)?;
        let found = self.wait(py, |db| db.telegram_topic_binding_by_session(session))?;
        found.map(|found| dict(py, &found)).transpose()
    }

    fn telegram_topic_bindings_for_chat<'py>(
        &self,
        py: Python<'py>,
        chat_id: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let chat = to_value(chat_id)?;
        let found = self.wait(py, |db| db.list_telegram_topic_bindings_for_chat(chat))?;
        PyList::new(py, found.iter().map(|binding| dict(py, binding)).collect::<PyResult<Vec<_>>>()?)
    }

    fn is_telegram_session_linked_to_topic(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let session = to_value(session_id)?;
        self.wait(py, |db| db.is_telegram_session_linked_to_topic(session))
    }

    fn unlinked_telegram_sessions<'py>(
        &self,
        py: Python<'py>,
        user_id: &Bound<'py, PyAny>,
        limit: i64,
    ) -> PyResult<Bound<'py, PyList>> {
        let user = to_value(user_id)?;
        row::sessions(py, &self.wait(py, |db| db.list_unlinked_telegram_sessions_for_user(user, limit))?)
    }
}
