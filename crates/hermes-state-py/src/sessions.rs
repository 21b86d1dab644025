//! Sessions: what Python's methods hand over, and rows back.

use hermes_state::NewSession;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList, PyString};

use crate::handle::Store;
use crate::lease::Lease;
use crate::row;
use crate::value::{filter_text, lookup_text, to_value};
use crate::write::Write;

#[pymethods]
impl Store {
    #[staticmethod]
    #[pyo3(signature = (session_id, source, model, model_config, system_prompt, user_id, session_key, chat_id, chat_type,
        thread_id, parent_session_id, cwd, profile_name, git_repo_root, lease=None))]
    #[expect(clippy::too_many_arguments, reason = "the keywords of create_session")]
    fn create_session(
        session_id: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        model: &Bound<'_, PyAny>,
        model_config: Option<&Bound<'_, PyAny>>,
        system_prompt: &Bound<'_, PyAny>,
        user_id: &Bound<'_, PyAny>,
        session_key: &Bound<'_, PyAny>,
        chat_id: &Bound<'_, PyAny>,
        chat_type: &Bound<'_, PyAny>,
        thread_id: &Bound<'_, PyAny>,
        parent_session_id: &Bound<'_, PyAny>,
        cwd: &Bound<'_, PyAny>,
        profile_name: &Bound<'_, PyAny>,
        git_repo_root: &Bound<'_, PyAny>,
        lease: Option<Lease>,
    ) -> PyResult<Write> {
        let model_config = model_config.map(crate::json::dumps_truthy).transpose()?.flatten();
        let session = NewSession::new(to_value(session_id)?, to_value(source)?)
            .model(to_value(model)?)
            .model_config(model_config)
            .system_prompt(to_value(system_prompt)?)
            .user_id(to_value(user_id)?)
            .session_key(to_value(session_key)?)
            .chat_id(to_value(chat_id)?)
            .chat_type(to_value(chat_type)?)
            .thread_id(to_value(thread_id)?)
            .parent_session_id(to_value(parent_session_id)?)
            .cwd(to_value(cwd)?)
            .profile_name(to_value(profile_name)?)
            .git_repo_root(to_value(git_repo_root)?);
        Ok(Write::new("create_session", move |db| {
            let session = session.clone();
            match &lease {
                Some(lease) => db.under(&lease.0).create_session(session),
                None => db.create_session(session),
            }
        }))
    }

    #[staticmethod]
    #[pyo3(signature = (session_id, end_reason, lease=None))]
    fn end_session(
        session_id: &Bound<'_, PyAny>,
        end_reason: &Bound<'_, PyAny>,
        lease: Option<Lease>,
    ) -> PyResult<Write> {
        let (id, reason) = (to_value(session_id)?, to_value(end_reason)?);
        Ok(Write::new("end_session", move |db| match &lease {
            Some(lease) => db.under(&lease.0).end_session(id.clone(), reason.clone()),
            None => db.end_session(id.clone(), reason.clone()),
        }))
    }

    #[staticmethod]
    fn reopen_session(session_id: &Bound<'_, PyAny>) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("reopen_session", move |db| db.reopen_session(id.clone())))
    }

    #[staticmethod]
    fn promote_to_session_reset(session_id: &Bound<'_, PyAny>, reason: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (id, reason) = (to_value(session_id)?, to_value(reason)?);
        Ok(Write::new("promote_to_session_reset", move |db| db.promote_to_session_reset(id.clone(), reason.clone())))
    }

    #[staticmethod]
    fn set_expiry_finalized(session_id: &Bound<'_, PyAny>, finalized: bool) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("set_expiry_finalized", move |db| db.set_expiry_finalized(id.clone(), finalized)))
    }

    #[staticmethod]
    fn set_session_archived(session_id: &Bound<'_, PyAny>, archived: bool) -> PyResult<Write> {
        let id = to_value(session_id)?;
        Ok(Write::new("set_session_archived", move |db| db.set_session_archived(id.clone(), archived)))
    }

    #[staticmethod]
    fn update_session_cwd(
        session_id: &Bound<'_, PyAny>,
        cwd: &Bound<'_, PyAny>,
        git_branch: &Bound<'_, PyAny>,
        git_repo_root: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (id, cwd) = (to_value(session_id)?, to_value(cwd)?);
        let (branch, root) = (to_value(git_branch)?, to_value(git_repo_root)?);
        Ok(Write::new("update_session_cwd", move |db| {
            db.update_session_cwd(id.clone(), cwd.clone(), branch.clone(), root.clone())
        }))
    }

    #[staticmethod]
    fn backfill_repo_roots(pairs: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>) -> PyResult<Write> {
        let pairs = pairs.iter().map(|(cwd, root)| Ok((to_value(cwd)?, to_value(root)?)));
        let pairs = pairs.collect::<PyResult<Vec<_>>>()?;
        Ok(Write::new("backfill_repo_roots", move |db| db.backfill_repo_roots(pairs.iter().cloned())))
    }

    #[staticmethod]
    fn update_session_meta(
        session_id: &Bound<'_, PyAny>,
        model_config: &Bound<'_, PyAny>,
        model: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (id, model_config, model) = (to_value(session_id)?, to_value(model_config)?, to_value(model)?);
        Ok(Write::new("update_session_meta", move |db| {
            db.update_session_meta(id.clone(), model_config.clone(), model.clone())
        }))
    }

    #[staticmethod]
    fn update_system_prompt(session_id: &Bound<'_, PyAny>, system_prompt: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (id, prompt) = (to_value(session_id)?, to_value(system_prompt)?);
        Ok(Write::new("update_system_prompt", move |db| db.update_system_prompt(id.clone(), prompt.clone())))
    }

    #[staticmethod]
    fn update_session_model(session_id: &Bound<'_, PyAny>, model: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (id, model) = (to_value(session_id)?, to_value(model)?);
        Ok(Write::new("update_session_model", move |db| db.update_session_model(id.clone(), model.clone())))
    }

    fn session<'py>(&self, py: Python<'py>, session_id: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let id = to_value(session_id)?;
        let found = self.wait(py, |db| db.session(id))?;
        found.map(|found| row::session(py, &found)).transpose()
    }

    fn resolve_session_id(&self, py: Python<'_>, id_or_prefix: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let text = lookup_text(id_or_prefix)?;
        self.wait(py, |db| db.resolve_session_id(&text))
    }

    fn rich_session<'py>(
        &self,
        py: Python<'py>,
        session_id: &Bound<'_, PyAny>,
        compact: bool,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(id) = filter_text(session_id)? else { return Ok(None) };
        let found = self.wait(py, |db| db.rich_session(&id, compact))?;
        found.map(|found| row::session(py, &found)).transpose()
    }

    /// What is given comes back where nothing continues it.
    fn compression_tip<'py>(&self, py: Python<'py>, session_id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let Some(id) = filter_text(session_id)? else { return Ok(session_id.clone()) };
        let tip = self.wait(py, |db| db.compression_tip(&id))?;
        if tip == id { Ok(session_id.clone()) } else { Ok(PyString::new(py, &tip).into_any()) }
    }

    fn working_folders<'py>(&self, py: Python<'py>, include_archived: bool) -> PyResult<Bound<'py, PyList>> {
        let folders = self.wait(py, |db| db.working_folders(include_archived))?;
        let dicts = folders.iter().map(|folder| {
            let dict = PyDict::new(py);
            dict.set_item(intern!(py, "cwd"), &folder.cwd)?;
            dict.set_item(intern!(py, "sessions"), folder.sessions)?;
            dict.set_item(intern!(py, "last_active"), folder.last_active)?;
            Ok(dict)
        });
        PyList::new(py, dicts.collect::<PyResult<Vec<_>>>()?)
    }
}
