//! Gateway peers: who a session of a messaging gateway belongs to.

use crate::value::{Value, value_setters};

/// Whom a gateway session talks to, as a gateway names it: what is recorded of a session, and what one is looked for by.
///
/// ```
/// use hermes_state::GatewayPeer;
/// let peer = GatewayPeer::new("telegram", "agent:main:telegram:dm:7").user_id("7").chat_id("7").chat_type("dm");
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GatewayPeer {
    pub(crate) source: Value,
    pub(crate) session_key: Value,
    pub(crate) user_id: Value,
    pub(crate) chat_id: Value,
    pub(crate) chat_type: Value,
    pub(crate) thread_id: Value,
    pub(crate) display_name: Value,
    pub(crate) origin_json: Value,
}

impl GatewayPeer {
    /// A peer on this platform, with this routing key.
    #[must_use]
    pub fn new(source: impl Into<Value>, session_key: impl Into<Value>) -> Self {
        Self { source: source.into(), session_key: session_key.into(), ..Self::default() }
    }

    value_setters! {
        /// The person.
        user_id
        /// The chat it takes place in.
        chat_id
        /// What kind of chat that is.
        chat_type
        /// The thread within the chat.
        thread_id
        /// The name to show. No part of what a session is looked for by.
        display_name
        /// The whole origin as JSON text, which the store does not read. No part of what a session is looked for by.
        origin_json
    }
}
