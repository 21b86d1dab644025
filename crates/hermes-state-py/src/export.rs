//! Sessions on their way out and in: exports as dictionaries, and entries of an import as the text the store takes.

use hermes_state::{ImportEntry, ImportLimits, ImportOptions, ImportReport, Message, SessionExport};
use pyo3::exceptions::{PyRecursionError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

use crate::handle::Store;
use crate::json;
use crate::row;
use crate::value::{filter_text, to_value};
use crate::write::Write;

type Exported = (hermes_state::Session, Vec<Message>);

fn read(export: SessionExport<'_>) -> hermes_state::Result<Exported> {
    let session = export.session().clone();
    Ok((session, export.collect::<hermes_state::Result<_>>()?))
}

fn to_dict<'py>(py: Python<'py>, (session, messages): &Exported) -> PyResult<Bound<'py, PyDict>> {
    let dict = row::session(py, session)?;
    dict.set_item(intern!(py, "messages"), row::messages(py, messages)?)?;
    Ok(dict)
}

#[pymethods]
impl Store {
    fn export_session<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let id = to_value(session_id)?;
        let found = self.wait(py, |db| db.export_session(id)?.map(read).transpose())?;
        found.map(|found| to_dict(py, &found)).transpose()
    }

    fn export_session_lineage<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(id) = filter_text(session_id)? else { return Ok(None) };
        let found = self.wait(py, |db| {
            let Some(export) = db.export_session_lineage(id)? else { return Ok(None) };
            let session = export.session().clone();
            let segments = export.into_segments().into_iter().map(read).collect::<hermes_state::Result<Vec<_>>>()?;
            Ok(Some((session, segments)))
        })?;
        let Some((session, segments)) = found else { return Ok(None) };
        let whole = row::session(py, &session)?;
        let messages = PyList::empty(py);
        whole.set_item(intern!(py, "messages"), &messages)?;
        let (parts, ids) = (PyList::empty(py), PyList::empty(py));
        for segment in &segments {
            let part = to_dict(py, segment)?;
            for message in part.as_any().get_item(intern!(py, "messages"))?.try_iter()? {
                messages.append(message?)?;
            }
            parts.append(part)?;
            ids.append(segment.0.id())?;
        }
        whole.set_item(intern!(py, "message_count"), messages.len())?;
        whole.set_item(intern!(py, "segments"), parts)?;
        whole.set_item(intern!(py, "lineage_session_ids"), ids)?;
        Ok(Some(whole))
    }

    fn export_all<'py>(&self, py: Python<'py>, source: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let source = filter_text(source)?;
        let db = &self.0;
        let mut sessions = self.wait(py, |_| db.export_all(source.as_deref()))?;
        let exports = PyList::empty(py);
        // One after the other, so that the store's form and Python's are not both held of all.
        while let Some(export) = self.wait(py, |_| sessions.next().map(|export| export.and_then(read)).transpose())? {
            exports.append(to_dict(py, &export)?)?;
        }
        Ok(exports)
    }

    /// The limits are those of sessions, messages of one, messages of all, bytes of one, bytes of all.
    #[staticmethod]
    fn import_sessions(sessions: &Bound<'_, PyList>, limits: [usize; 5]) -> PyResult<Write> {
        let [most, messages_per_session, total_messages, session_bytes, total_bytes] = limits;
        let limits = ImportLimits { sessions: most, messages_per_session, total_messages, session_bytes, total_bytes };
        // More than is taken is refused by the number alone.
        let taken = if sessions.len() > most { PyList::empty(sessions.py()) } else { sessions.clone() };
        let mut entries = taken.iter().map(|session| entry(&session)).collect::<PyResult<Vec<_>>>()?;
        entries.resize(sessions.len(), ImportEntry::Json(String::new()));
        let options = ImportOptions { limits, dry_run: false };
        Ok(Write::new("import_sessions", move |db| db.import_sessions(entries.clone(), &options)))
    }
}

/// An entry as JSON text; one that cannot be written so is reduced to what the checks before that look at.
fn entry(session: &Bound<'_, PyAny>) -> PyResult<ImportEntry> {
    let py = session.py();
    let Ok(session) = session.cast::<PyDict>() else { return Ok(ImportEntry::Json("null".to_owned())) };
    let messages = session.get_item(intern!(py, "messages"))?;
    let messages = match messages {
        Some(messages) if messages.is_truthy()? => Some(messages),
        _ => None,
    };
    // A tuple would become a list.
    if messages.as_ref().is_none_or(|messages| messages.is_instance_of::<PyList>()) {
        match json::dumps(session) {
            Ok(text) => return Ok(ImportEntry::Json(text)),
            Err(error) if error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyRecursionError>(py) => {}
            Err(error) => return Err(error),
        }
    }
    let reduced = PyDict::new(py);
    if let Some(id) = session.get_item(intern!(py, "id"))?
        && id.is_truthy()?
    {
        reduced.set_item(intern!(py, "id"), id.str()?)?;
    }
    match messages.as_ref().map(|messages| messages.cast::<PyList>()) {
        None => {}
        Some(Err(_)) => reduced.set_item(intern!(py, "messages"), true)?,
        Some(Ok(messages)) => {
            let kinds = messages.iter().map(|message| {
                if message.is_instance_of::<PyDict>() {
                    PyDict::new(py).into_any()
                } else {
                    PyList::empty(py).into_any()
                }
            });
            reduced.set_item(intern!(py, "messages"), PyList::new(py, kinds.collect::<Vec<_>>())?)?;
        }
    }
    Ok(ImportEntry::Unserializable(json::dumps(&reduced)?))
}

/// The report as callers know it.
pub(crate) fn report<'py>(py: Python<'py>, report: &ImportReport) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "ok"), report.is_ok())?;
    dict.set_item(intern!(py, "imported"), report.imported_ids.len())?;
    dict.set_item(intern!(py, "skipped"), report.skipped_ids.len())?;
    dict.set_item(intern!(py, "detached"), report.detached_ids.len())?;
    if report.is_ok() {
        dict.set_item(intern!(py, "imported_ids"), &report.imported_ids)?;
        dict.set_item(intern!(py, "skipped_ids"), &report.skipped_ids)?;
    }
    let errors = PyList::empty(py);
    for problem in &report.errors {
        let error = PyDict::new(py);
        error.set_item(intern!(py, "index"), problem.index)?;
        if let Some(id) = &problem.session_id {
            error.set_item(intern!(py, "session_id"), id)?;
        }
        error.set_item(intern!(py, "error"), &problem.error)?;
        errors.append(error)?;
    }
    dict.set_item(intern!(py, "errors"), errors)?;
    Ok(dict.into_any())
}
