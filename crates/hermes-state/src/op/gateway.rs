//! Writes of gateway sessions and of the routing index.

use super::{Promise, Write};
use crate::clock;
use crate::error::Result;
use crate::gateway::GatewayPeer;
use crate::statement::{groups, tuples};
use crate::transaction::Transaction;
use crate::value::Value;

/// Records whom a session talks to: all that tells peers apart is overwritten, what is only shown is kept where nothing
/// is given.
pub(crate) struct RecordPeer {
    pub(crate) session_id: Value,
    pub(crate) peer: GatewayPeer,
}

impl Write for RecordPeer {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        let GatewayPeer { source, session_key, user_id, chat_id, chat_type, thread_id, display_name, origin_json } =
            &self.peer;
        let parameters = [&self.session_id, source, session_key, user_id, chat_id, chat_type, thread_id]
            .into_iter()
            .chain([display_name, origin_json])
            .cloned()
            .collect::<Vec<_>>();
        transaction.execute(
            "UPDATE sessions SET source = ?2, session_key = ?3, user_id = ?4, chat_id = ?5, chat_type = ?6, \
                 thread_id = ?7, display_name = COALESCE(?8, display_name), origin_json = COALESCE(?9, origin_json) \
             WHERE id = ?1",
            &parameters,
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Sets one entry of the routing index, whatever it held.
pub(crate) struct SaveRoutingEntry {
    pub(crate) scope: Value,
    pub(crate) session_key: Value,
    pub(crate) entry_json: Value,
}

impl Write for SaveRoutingEntry {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (scope, session_key) DO UPDATE SET entry_json = excluded.entry_json, \
                 updated_at = excluded.updated_at",
            &[self.scope.clone(), self.session_key.clone(), self.entry_json.clone(), clock::now().into()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// Replaces all entries of a scope by these. Not cut into parts: a reader sees either the old ones or the new ones.
pub(crate) struct ReplaceRoutingEntries {
    scope: Value,
    rows: Vec<Vec<Value>>,
}

impl ReplaceRoutingEntries {
    /// Entries without a key or a value are left out; all others carry the same time.
    pub(crate) fn new(scope: Value, entries: impl IntoIterator<Item = (Value, Value)>) -> Self {
        let now = clock::now();
        let says_something = |(key, entry): &(Value, Value)| !key.is_falsy() && !entry.is_falsy();
        let rows = entries.into_iter().filter(says_something).map(|(key, entry)| [key, entry, now.into()]);
        let rows = rows.map(|row| std::iter::once(scope.clone()).chain(row).collect()).collect();
        Self { scope, rows }
    }
}

impl Write for ReplaceRoutingEntries {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        let scope = std::slice::from_ref(&self.scope);
        let mut sent = vec![transaction.send("DELETE FROM gateway_routing WHERE scope = ?1", scope)?];
        for group in groups(&self.rows) {
            let places = tuples(group.len(), 4);
            let sql =
                format!("INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at) VALUES {places}");
            sent.push(transaction.send(&sql, &group.concat())?);
        }
        Ok(Promise::Later(Box::new(|transaction| {
            sent.into_iter().try_for_each(|sent| transaction.receive(sent).map(drop))
        })))
    }
}

/// Removes entries of a scope.
pub(crate) struct DeleteRoutingEntries {
    pub(crate) scope: Value,
    pub(crate) session_keys: Vec<Value>,
}

impl Write for DeleteRoutingEntries {
    type Answer = ();

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        for group in groups(&self.session_keys) {
            let places: Vec<_> = (0..group.len()).map(|index| format!("?{}", index + 2)).collect();
            let sql =
                format!("DELETE FROM gateway_routing WHERE scope = ?1 AND session_key IN ({})", places.join(", "));
            let parameters: Vec<_> = std::iter::once(&self.scope).chain(group).cloned().collect();
            transaction.execute(&sql, &parameters)?;
        }
        Ok(Promise::Kept(()))
    }
}
