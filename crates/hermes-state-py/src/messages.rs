//! Messages: what Python's methods hand over, and rows back.

use hermes_state::{AnchoredViewOptions, MessageQuery};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

use crate::handle::Store;
use crate::lease::Lease;
use crate::message::{Keywords, batch, content, from_mapping};
use crate::row;
use crate::value::{filter_text, row_number, texts, to_scrubbed_value, to_value};
use crate::write::Write;

#[pymethods]
impl Store {
    #[staticmethod]
    #[pyo3(signature = (session_id, role, content=None, tool_name=None, tool_calls=None, tool_call_id=None,
        token_count=None, finish_reason=None, reasoning=None, reasoning_content=None, reasoning_details=None,
        codex_reasoning_items=None, codex_message_items=None, platform_message_id=None, observed=None,
        effect_disposition=None, timestamp=None, api_content=None, client_key=None))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of append_message")]
    fn append_message(
        session_id: &Bound<'_, PyAny>,
        role: &Bound<'_, PyAny>,
        content: Option<&Bound<'_, PyAny>>,
        tool_name: Option<&Bound<'_, PyAny>>,
        tool_calls: Option<&Bound<'_, PyAny>>,
        tool_call_id: Option<&Bound<'_, PyAny>>,
        token_count: Option<&Bound<'_, PyAny>>,
        finish_reason: Option<&Bound<'_, PyAny>>,
        reasoning: Option<&Bound<'_, PyAny>>,
        reasoning_content: Option<&Bound<'_, PyAny>>,
        reasoning_details: Option<&Bound<'_, PyAny>>,
        codex_reasoning_items: Option<&Bound<'_, PyAny>>,
        codex_message_items: Option<&Bound<'_, PyAny>>,
        platform_message_id: Option<&Bound<'_, PyAny>>,
        observed: Option<&Bound<'_, PyAny>>,
        effect_disposition: Option<&Bound<'_, PyAny>>,
        timestamp: Option<&Bound<'_, PyAny>>,
        api_content: Option<&Bound<'_, PyAny>>,
        client_key: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Write> {
        let keywords = Keywords {
            role,
            content,
            tool_name,
            tool_calls,
            tool_call_id,
            token_count,
            finish_reason,
            reasoning,
            reasoning_content,
            reasoning_details,
            codex_reasoning_items,
            codex_message_items,
            platform_message_id,
            observed,
            effect_disposition,
            timestamp,
            api_content,
            client_key,
        };
        let message = keywords.message()?;
        let id = to_value(session_id)?;
        Ok(Write::of_a_turn("append_message", move |db| db.append_message(id.clone(), message.clone())))
    }

    #[staticmethod]
    fn append_messages(session_id: &Bound<'_, PyAny>, messages: &Bound<'_, PyAny>) -> PyResult<Write> {
        let session_id = to_value(session_id)?;
        let messages = messages.try_iter()?.map(|message| from_mapping(&message?)).collect::<PyResult<Vec<_>>>()?;
        Ok(Write::of_a_turn("append_messages", move |db| db.append_messages(session_id.clone(), messages.clone())))
    }

    #[staticmethod]
    #[pyo3(signature = (session_id, messages, active_only, lease=None))]
    fn replace_messages(
        session_id: &Bound<'_, PyAny>,
        messages: &Bound<'_, PyAny>,
        active_only: &Bound<'_, PyAny>,
        lease: Option<Lease>,
    ) -> PyResult<Write> {
        let (id, messages, active_only) = (to_value(session_id)?, batch(messages)?, active_only.is_truthy()?);
        Ok(Write::of_a_turn("replace_messages", move |db| {
            let (id, messages) = (id.clone(), messages.clone());
            match &lease {
                Some(lease) => db.under(&lease.0).replace_messages(id, messages, active_only),
                None => db.replace_messages(id, messages, active_only),
            }
        }))
    }

    #[staticmethod]
    #[pyo3(signature = (session_id, messages, lease=None))]
    fn archive_and_compact(
        session_id: &Bound<'_, PyAny>,
        messages: &Bound<'_, PyAny>,
        lease: Option<Lease>,
    ) -> PyResult<Write> {
        let (id, messages) = (to_value(session_id)?, batch(messages)?);
        Ok(Write::of_a_turn("archive_and_compact", move |db| {
            let (id, messages) = (id.clone(), messages.clone());
            match &lease {
                Some(lease) => db.under(&lease.0).archive_and_compact(id, messages),
                None => db.archive_and_compact(id, messages),
            }
        }))
    }

    #[staticmethod]
    fn clear_messages(session_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("clear_messages", move |db| db.clear_messages(id.clone())))
    }

    #[staticmethod]
    fn set_latest_user_api_content(
        session_id: &Bound<'_, PyAny>,
        of: &Bound<'_, PyAny>,
        api_content: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (id, of, api_content) = (to_value(session_id)?, content(of)?, to_scrubbed_value(api_content)?);
        Ok(Write::new("set_latest_user_api_content", move |db| {
            db.set_latest_user_api_content(id.clone(), of.clone(), api_content.clone()).map(i64::from)
        }))
    }

    #[staticmethod]
    fn rewind_to_message(session_id: &Bound<'_, PyAny>, target_message_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (id, target) = (to_value(session_id)?, to_value(target_message_id)?);
        Ok(Write::new("rewind_to_message", move |db| db.rewind_to_message(id.clone(), target.clone())))
    }

    #[staticmethod]
    fn restore_rewound(session_id: &Bound<'_, PyAny>, since_message_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (id, since) = (to_value(session_id)?, to_value(since_message_id)?);
        Ok(Write::new("restore_rewound", move |db| db.restore_rewound(id.clone(), since.clone())))
    }

    fn has_archived_messages(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let id = to_value(session_id)?;
        self.wait(py, |db| db.has_archived_messages(id))
    }

    fn recent_messages<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        limit: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let id = to_value(session_id)?;
        let limit = if limit.is_none() { -1 } else { row_number(limit)? };
        row::messages(py, &self.wait(py, |db| db.recent_messages(id, limit))?)
    }

    fn recent_user_messages<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        limit: i64,
        include_inactive: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (id, inactive) = (to_value(session_id)?, include_inactive.is_truthy()?);
        row::user_messages(py, &self.wait(py, |db| db.recent_user_messages(id, limit, inactive))?)
    }

    fn messages_around<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        message_id: &Bound<'py, PyAny>,
        window: i64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (id, message_id) = (to_value(session_id)?, to_value(message_id)?);
        row::window(py, &self.wait(py, |db| db.messages_around(id, message_id, window))?)
    }

    fn anchored_view<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        message_id: &Bound<'py, PyAny>,
        window: i64,
        bookend: i64,
        keep_roles: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (id, message_id) = (to_value(session_id)?, to_value(message_id)?);
        let keep_roles = if keep_roles.is_none() { None } else { Some(texts(keep_roles)?) };
        let options = AnchoredViewOptions { window, bookend, keep_roles };
        row::view(py, &self.wait(py, |db| db.anchored_view(id, message_id, &options))?)
    }

    fn has_platform_message_id(
        &self,
        py: Python<'_>,
        session_id: &Bound<'_, PyAny>,
        platform_message_id: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (id, platform) = (to_value(session_id)?, to_scrubbed_value(platform_message_id)?);
        self.wait(py, |db| db.has_platform_message_id(id, platform))
    }

    fn distinct_message_count(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<i64> {
        let id = to_value(session_id)?;
        self.wait(py, |db| db.distinct_message_count(id))
    }

    fn messages<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        include_inactive: &Bound<'py, PyAny>,
        limit: &Bound<'py, PyAny>,
        offset: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let id = to_value(session_id)?;
        let limit = if limit.is_none() { None } else { Some(row_number(limit)?) };
        let offset = if limit.is_some() || offset.is_truthy()? { row_number(offset)? } else { 0 };
        let query = MessageQuery { include_inactive: include_inactive.is_truthy()?, limit, offset };
        row::messages(py, &self.wait(py, |db| db.messages(id, &query))?)
    }

    fn message_count(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<i64> {
        let id = filter_text(session_id)?;
        self.wait(py, |db| db.message_count(id.as_deref()))
    }
}
