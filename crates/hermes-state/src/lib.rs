//! The session store that every AI agent on a machine can share.
#![allow(dead_code, unused_imports)]

mod backend;
mod blank;
mod clock;
mod content;
mod db;
mod error;
mod gate;
mod json;
mod message;
mod op;
mod query;
mod raw_json;
mod session;
mod status;
mod title;
mod transaction;
mod value;

pub use backend::sqlite::lock::{LockKind, require_lock_kind};
pub use content::Content;
pub use db::{OpenOptions, Patience, SessionDb};
pub use error::{Error, Holder, Result};
pub use json::json_text;
pub use message::{Message, NewMessage, ToolCalls};
pub use query::cjk::{contains_cjk, count_cjk, has_lone_cjk_run};
pub use query::conversation::{ConversationMessage, ConversationOptions, ConversationValue, ResumeConversations};
pub use query::message::MessageQuery;
pub use query::search::{ContextLine, SearchHit, SearchOptions, SearchResults, SearchSort};
pub use query::search_text::{MAX_FTS5_QUERY_CHARS, sanitize_fts5_query};
pub use query::session::{COMPACT_EXCLUDED, SessionQuery};
pub use session::{NewSession, Session};
pub use status::{Status, User};
pub use title::{MAX_TITLE_LENGTH, sanitize_title};
pub use value::{Columns, Record, Value};
