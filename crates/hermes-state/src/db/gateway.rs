//! Operations on sessions of messaging gateways and on the routing index.

use std::collections::BTreeMap;

use super::SessionDb;
use crate::error::Result;
use crate::gateway::GatewayPeer;
use crate::op::gateway::{DeleteRoutingEntries, RecordPeer, ReplaceRoutingEntries, SaveRoutingEntry};
use crate::query::gateway::{self as gateways, GatewaySessionQuery, SessionOrigin};
use crate::session::Session;
use crate::value::Value;

impl SessionDb {
    /// Records whom a session talks to. What tells peers apart is overwritten, so what is not given becomes NULL;
    /// display name and origin keep what is stored where they are not given. Without a session id or a routing key, and
    /// for a session that does not exist, this does nothing.
    ///
    /// ```
    /// # use hermes_state::{GatewayPeer, NewSession, SessionDb};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s1", "telegram"))?;
    /// db.record_gateway_session_peer("s1", GatewayPeer::new("telegram", "k").chat_id("-100").display_name("Harbour"))?;
    /// assert_eq!(db.session("s1")?.unwrap().record().text("session_key"), Some("k"));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Constraint`](crate::Error::Constraint) without a source.
    pub fn record_gateway_session_peer(&self, session_id: impl Into<Value>, peer: GatewayPeer) -> Result<()> {
        let session_id = session_id.into();
        if session_id.is_falsy() || peer.session_key.is_falsy() {
            return Ok(());
        }
        self.routine(RecordPeer { session_id, peer })
    }

    /// Sets one entry of the routing index, of which the store reads nothing. Without a key or a value this does nothing.
    ///
    /// # Errors
    /// [`Error::Constraint`](crate::Error::Constraint) for a scope that is NULL.
    pub fn save_gateway_routing_entry(
        &self,
        session_key: impl Into<Value>,
        entry_json: impl Into<Value>,
        scope: impl Into<Value>,
    ) -> Result<()> {
        let (session_key, entry_json, scope) = (session_key.into(), entry_json.into(), scope.into());
        if session_key.is_falsy() || entry_json.is_falsy() {
            return Ok(());
        }
        self.routine(SaveRoutingEntry { scope, session_key, entry_json })
    }

    /// Replaces all entries of a scope by these, at once; pairs without a key or a value are left out. Other scopes
    /// are left alone.
    ///
    /// # Errors
    /// [`Error::Constraint`](crate::Error::Constraint) for a key that comes twice, or a scope that is NULL; then nothing
    /// has changed.
    pub fn replace_gateway_routing_entries<K: Into<Value>, E: Into<Value>>(
        &self,
        entries: impl IntoIterator<Item = (K, E)>,
        scope: impl Into<Value>,
    ) -> Result<()> {
        let entries = entries.into_iter().map(|(key, entry)| (key.into(), entry.into()));
        self.routine(ReplaceRoutingEntries::new(scope.into(), entries))
    }

    /// The entries of exactly this scope, by routing key.
    ///
    /// # Errors
    /// Those of every read.
    pub fn load_gateway_routing_entries(&self, scope: impl Into<Value>) -> Result<BTreeMap<String, String>> {
        let scope = scope.into();
        self.read(move |transaction| gateways::routing_entries(transaction, &scope))
    }

    /// Removes entries of a scope, at once; keys that it does not have are passed over.
    ///
    /// # Errors
    /// Those of every write.
    pub fn delete_gateway_routing_entries<K: Into<Value>>(
        &self,
        session_keys: impl IntoIterator<Item = K>,
        scope: impl Into<Value>,
    ) -> Result<()> {
        let session_keys: Vec<Value> = session_keys.into_iter().map(Into::into).collect();
        if session_keys.is_empty() {
            return Ok(());
        }
        self.routine(DeleteRoutingEntries { scope: scope.into(), session_keys })
    }

    /// The newest session of each routing key, most active first, with its last activity. The newest is chosen before
    /// anything is left out: one that has ended hides older ones that have not.
    ///
    /// # Errors
    /// Those of every read.
    pub fn list_gateway_sessions(&self, query: &GatewaySessionQuery) -> Result<Vec<Session>> {
        let query = query.clone();
        self.read(move |transaction| gateways::list(transaction, &query))
    }

    /// The id of the live gateway session that a message from there belongs to; `None` if there is none, or if it could
    /// be one of several people's. The only session of a chat is found whoever it belongs to.
    ///
    /// # Errors
    /// Those of every read.
    pub fn find_session_by_origin(&self, origin: &SessionOrigin) -> Result<Option<String>> {
        let origin = origin.clone();
        self.read(move |transaction| gateways::find_by_origin(transaction, &origin))
    }

    /// The newest session of a peer that a gateway can go on with: live or closed by accident, and not empty. It is
    /// looked for by source and routing key, then, if chat and type of chat are given, by source, user, chat, type and
    /// thread; so its routing key may be another one. It is not reopened.
    ///
    /// # Errors
    /// Those of every read.
    pub fn find_latest_gateway_session_for_peer(&self, peer: &GatewayPeer) -> Result<Option<Session>> {
        let peer = peer.clone();
        self.read(move |transaction| gateways::find_latest_for_peer(transaction, &peer))
    }
}
