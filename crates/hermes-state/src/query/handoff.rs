//! Reads of handoffs.

use crate::error::Result;
use crate::session::Session;
use crate::transaction::Transaction;
use crate::value::Value;

/// How the handoff of a session stands; all `None` if none was ever asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handoff {
    /// `pending`, `running`, `completed` or `failed`.
    pub state: Option<String>,
    /// The platform that is to take the session over, as it was named.
    pub platform: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The handoff of a session; `None` if there is no such session.
pub(crate) fn get(transaction: &mut dyn Transaction, session_id: &Value) -> Result<Option<Handoff>> {
    let sql = "SELECT handoff_state, handoff_platform, handoff_error FROM sessions WHERE id = ?1";
    Ok(transaction.first(sql, std::slice::from_ref(session_id))?.map(|record| {
        let text = |column: &str| record.text(column).map(str::to_owned);
        Handoff { state: text("handoff_state"), platform: text("handoff_platform"), error: text("handoff_error") }
    }))
}

/// The sessions that wait for a platform to take them over, the oldest first.
pub(crate) fn pending(transaction: &mut dyn Transaction) -> Result<Vec<Session>> {
    let sql = "SELECT * FROM sessions WHERE handoff_state = 'pending' ORDER BY started_at, id";
    Ok(transaction.records(sql, &[])?.into_iter().map(Session::new).collect())
}
