//! The session store that every AI agent on a machine can share: sessions, transcripts, search and memory in one file,
//! used at once by a gateway, command lines, cron runs and sub-agents.
//!
//! Two promises come before everything: **no acknowledged message is ever lost; a turn never dies because a sibling is
//! busy.**
//!
//! ```
//! use hermes_state::{MessageQuery, NewMessage, NewSession, SearchOptions, SessionDb};
//!
//! # fn main() -> hermes_state::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("state.db");
//! let db = SessionDb::open(path)?;
//! db.ensure_session(NewSession::new("s1", "cli"))?;
//! let id = db.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?; // durable when it returns
//! assert_eq!(db.messages("s1", &MessageQuery::default())?[0].id(), id);
//! assert_eq!(db.search_messages("harbour", &SearchOptions::default())?[0].id, id);
//! db.close()
//! # }
//! ```
//!
//! [`SessionDb`] is the one handle; it may be used from any number of threads, and a call blocks until it is done. The
//! library reads no environment, no home folder and no terminal, and never prints; what is worth telling goes to
//! [`tracing`] on the caller's thread.

mod backend;
mod blank;
mod clock;
mod columns;
mod content;
mod db;
mod error;
mod gate;
mod json;
mod message;
mod migrate;
mod op;
mod query;
mod raw_json;
mod search;
mod session;
mod statement;
mod status;
mod title;
mod transaction;
mod value;

pub use backend::location::is_url;
pub use backend::sqlite::lock::{LockKind, require_lock_kind};
pub use backend::sqlite::schema::{
    FTS_STORAGE_VERSION, SCHEMA_SQL, SCHEMA_VERSION, SchemaColumns, parse_schema_columns,
};
pub use content::Content;
pub use db::{OpenOptions, Patience, SearchIndexes, SessionDb};
pub use error::{Error, Holder, Result, ServerTrouble};
pub use json::json_text;
pub use message::{Message, NewMessage, ToolCalls};
pub use migrate::report::{MigrationPhase, MigrationProblem, MigrationProgress, MigrationReport, TableReport};
pub use migrate::trouble::MigrationTrouble;
pub use migrate::{MigrateOptions, MigrationTarget, migrate, plan_migration};
pub use query::conversation::{ConversationMessage, ConversationOptions, ConversationValue, ResumeConversations};
pub use query::message::MessageQuery;
pub use query::session::{COMPACT_EXCLUDED, SessionQuery};
pub use search::cjk::{contains_cjk, count_cjk, has_lone_cjk_run};
pub use search::hit::{ContextLine, SearchHit, SearchOptions, SearchResults, SearchSort};
pub use search::text::{MAX_FTS5_QUERY_CHARS, sanitize_fts5_query};
pub use session::{NewSession, Session};
pub use status::{EngineStatus, Status, User};
pub use title::{MAX_TITLE_LENGTH, sanitize_title};
pub use value::{Columns, Record, Value};
