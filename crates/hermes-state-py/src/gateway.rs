//! Gateway sessions and the routing index.

use hermes_state::{GatewayPeer, GatewaySessionQuery, SessionOrigin, Value};
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList};

use crate::handle::Store;
use crate::row;
use crate::value::{filter_text, to_value, values};
use crate::write::Write;

/// The text of an argument: of anything what `str` makes of it; `None` stays `None`.
fn text(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if value.is_none() { Ok(None) } else { Ok(Some(value.str()?.to_cow()?.into_owned())) }
}

#[pymethods]
impl Store {
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the keywords of record_gateway_session_peer")]
    fn record_gateway_session_peer(
        session_id: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        user_id: &Bound<'_, PyAny>,
        session_key: &Bound<'_, PyAny>,
        chat_id: &Bound<'_, PyAny>,
        chat_type: &Bound<'_, PyAny>,
        thread_id: &Bound<'_, PyAny>,
        display_name: &Bound<'_, PyAny>,
        origin_json: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let id = to_value(session_id)?;
        let peer = GatewayPeer::new(to_value(source)?, to_value(session_key)?)
            .user_id(to_value(user_id)?)
            .chat_id(to_value(chat_id)?)
            .chat_type(to_value(chat_type)?)
            .thread_id(to_value(thread_id)?)
            .display_name(to_value(display_name)?)
            .origin_json(to_value(origin_json)?);
        Ok(Write::new("record_gateway_session_peer", move |db| {
            db.record_gateway_session_peer(id.clone(), peer.clone())
        }))
    }

    #[staticmethod]
    fn save_gateway_routing_entry(
        session_key: &Bound<'_, PyAny>,
        entry_json: &Bound<'_, PyAny>,
        scope: &Bound<'_, PyAny>,
    ) -> PyResult<Write> {
        let (key, entry, scope) = (to_value(session_key)?, to_value(entry_json)?, to_value(scope)?);
        Ok(Write::new("save_gateway_routing_entry", move |db| {
            db.save_gateway_routing_entry(key.clone(), entry.clone(), scope.clone())
        }))
    }

    /// The entries are pairs that say something.
    #[staticmethod]
    fn replace_gateway_routing_entries(entries: &Bound<'_, PyAny>, scope: &Bound<'_, PyAny>) -> PyResult<Write> {
        let pair = |item: PyResult<Bound<'_, PyAny>>| {
            let (key, entry): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
            Ok((to_value(&key)?, to_value(&entry)?))
        };
        let entries = entries.try_iter()?.map(pair).collect::<PyResult<Vec<(Value, Value)>>>()?;
        let scope = to_value(scope)?;
        Ok(Write::new("replace_gateway_routing_entries", move |db| {
            db.replace_gateway_routing_entries(entries.clone(), scope.clone())
        }))
    }

    #[staticmethod]
    fn delete_gateway_routing_entries(session_keys: &Bound<'_, PyAny>, scope: &Bound<'_, PyAny>) -> PyResult<Write> {
        let (keys, scope) = (values(session_keys)?, to_value(scope)?);
        Ok(Write::new("delete_gateway_routing_entries", move |db| {
            db.delete_gateway_routing_entries(keys.clone(), scope.clone())
        }))
    }

    fn gateway_routing_entries<'py>(&self, py: Python<'py>, scope: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let scope = to_value(scope)?;
        let dict = PyDict::new(py);
        for (key, entry) in self.wait(py, |db| db.load_gateway_routing_entries(scope))? {
            dict.set_item(key, entry)?;
        }
        Ok(dict)
    }

    fn gateway_sessions<'py>(
        &self,
        py: Python<'py>,
        platform: &Bound<'py, PyAny>,
        active_only: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let query = GatewaySessionQuery { platform: filter_text(platform)?, active_only: active_only.is_truthy()? };
        row::sessions(py, &self.wait(py, |db| db.list_gateway_sessions(&query))?)
    }

    fn session_by_origin(
        &self,
        py: Python<'_>,
        platform: &Bound<'_, PyAny>,
        chat_id: &Bound<'_, PyAny>,
        thread_id: &Bound<'_, PyAny>,
        user_id: &Bound<'_, PyAny>,
    ) -> PyResult<Option<String>> {
        let origin = SessionOrigin {
            platform: filter_text(platform)?.unwrap_or_default(),
            chat_id: text(chat_id)?.unwrap_or_default(),
            thread_id: text(thread_id)?,
            user_id: text(user_id)?,
        };
        self.wait(py, |db| db.find_session_by_origin(&origin))
    }

    #[expect(clippy::too_many_arguments, reason = "the keywords of find_latest_gateway_session_for_peer")]
    fn latest_gateway_session_for_peer<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        user_id: &Bound<'py, PyAny>,
        session_key: &Bound<'py, PyAny>,
        chat_id: &Bound<'py, PyAny>,
        chat_type: &Bound<'py, PyAny>,
        thread_id: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let peer = GatewayPeer::new(to_value(source)?, to_value(session_key)?)
            .user_id(to_value(user_id)?)
            .chat_id(to_value(chat_id)?)
            .chat_type(to_value(chat_type)?)
            .thread_id(to_value(thread_id)?);
        let found = self.wait(py, |db| db.find_latest_gateway_session_for_peer(&peer))?;
        found.map(|found| row::session(py, &found)).transpose()
    }
}
