//! Conversations and lineages: what Python's methods hand over, and rows back.

use hermes_state::{ConversationOptions, Record, ResumeOptions, conversation_of_rows};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyList, PyString};

use crate::handle::Store;
use crate::json::as_dict;
use crate::row;
use crate::value::{filter_text, row_number, scrubbed, to_value};

/// A bound on messages: `None` for all.
fn bound(value: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if value.is_none() {
        return Ok(None);
    }
    let number = row_number(value)?;
    let number = usize::try_from(number).map_err(|_| PyValueError::new_err("max_messages must not be negative"))?;
    Ok(Some(number))
}

type Conversation<'py> = Bound<'py, PyList>;

#[pymethods]
impl Store {
    fn conversation<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        include_ancestors: &Bound<'py, PyAny>,
        include_inactive: &Bound<'py, PyAny>,
        repair_alternation: &Bound<'py, PyAny>,
        max_messages: &Bound<'py, PyAny>,
    ) -> PyResult<Conversation<'py>> {
        let options = ConversationOptions {
            include_ancestors: include_ancestors.is_truthy()?,
            include_inactive: include_inactive.is_truthy()?,
            repair_alternation: repair_alternation.is_truthy()?,
            max_messages: bound(max_messages)?,
        };
        let Some(id) = filter_text(session_id)? else { return Ok(PyList::empty(py)) };
        row::conversation(py, &self.wait(py, |db| db.conversation(id, &options))?)
    }

    /// What is for the model and what is for people.
    fn resume_conversations<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
        max_messages: &Bound<'py, PyAny>,
    ) -> PyResult<(Conversation<'py>, Conversation<'py>)> {
        let options = ResumeOptions { max_messages: bound(max_messages)? };
        let Some(id) = filter_text(session_id)? else { return Ok((PyList::empty(py), PyList::empty(py))) };
        let resumed = self.wait(py, |db| db.resume_conversations(id, &options))?;
        Ok((row::conversation(py, &resumed.model_history)?, row::conversation(py, &resumed.display_history)?))
    }

    fn ancestor_display_prefix<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
    ) -> PyResult<Conversation<'py>> {
        let Some(id) = filter_text(session_id)? else { return Ok(PyList::empty(py)) };
        row::conversation(py, &self.wait(py, |db| db.ancestor_display_prefix(id))?)
    }

    fn session_lineage(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let Some(id) = filter_text(session_id)? else { return Ok(Vec::new()) };
        self.wait(py, |db| db.session_lineage(id))
    }

    fn compression_lineage(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let Some(id) = filter_text(session_id)? else { return Ok(Vec::new()) };
        self.wait(py, |db| db.compression_lineage(id))
    }

    fn resolve_resume_session_id(&self, py: Python<'_>, session_id: &Bound<'_, PyAny>) -> PyResult<String> {
        let id = filter_text(session_id)?.unwrap_or_default();
        self.wait(py, |db| db.resolve_resume_session_id(id))
    }
}

/// Rows of the table of messages, mappings of columns to what is stored, as a conversation.
#[pyfunction]
pub(crate) fn rows_to_conversation<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    include_ancestors: &Bound<'py, PyAny>,
    repair_alternation: &Bound<'py, PyAny>,
) -> PyResult<Conversation<'py>> {
    let options = ConversationOptions {
        include_ancestors: include_ancestors.is_truthy()?,
        repair_alternation: repair_alternation.is_truthy()?,
        ..ConversationOptions::default()
    };
    let rows = rows.try_iter()?.map(|row| record(&row?)).collect::<PyResult<Vec<_>>>()?;
    row::conversation(py, &conversation_of_rows(&rows, &options))
}

fn record(row: &Bound<'_, PyAny>) -> PyResult<Record> {
    let (mut columns, mut values) = (Vec::<Box<str>>::new(), Vec::new());
    for (name, value) in as_dict(row)?.iter() {
        columns.push(name.cast::<PyString>()?.to_cow()?.into());
        values.push(to_value(&value)?);
    }
    Ok(Record::new(columns.into(), values))
}

/// Whether text of this role is the instruction of a review in the background.
#[pyfunction]
pub(crate) fn is_background_review_harness(role: &Bound<'_, PyString>, text: &Bound<'_, PyString>) -> PyResult<bool> {
    Ok(hermes_state::is_background_review_harness(&scrubbed(role)?, &scrubbed(text)?))
}
