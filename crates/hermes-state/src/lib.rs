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
//! let id = db.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?.id(); // durable when it returns
//! assert_eq!(Some(db.messages("s1", &MessageQuery::default())?[0].id()), id);
//! assert_eq!(Some(db.search_messages("harbour", &SearchOptions::default())?[0].id), id);
//! db.close()
//! # }
//! ```
//!
//! [`SessionDb`] is the one handle; it may be used from any number of threads, and a call blocks until it is done. The
//! library reads no environment, no home folder and no terminal, and never prints; what is worth telling goes to
//! [`tracing`] on the caller's thread.

mod backend;
mod backup;
mod blank;
mod clock;
mod columns;
mod content;
mod db;
mod doctor;
mod error;
mod error_kind;
mod gate;
mod gateway;
mod json;
mod message;
mod migrate;
mod op;
mod process;
mod query;
mod raw_json;
mod repair;
mod retention;
mod search;
mod session;
mod session_files;
mod spool;
mod statement;
mod status;
mod title;
mod topic;
mod transaction;
mod usage;
mod value;

pub use backend::location::is_url;
pub use backend::sqlite::lock::{LockKind, require_lock_kind};
pub(crate) use backend::sqlite::schema::TOPICS_SQL;
pub use backend::sqlite::schema::{
    FTS_STORAGE_VERSION, SCHEMA_SQL, SCHEMA_VERSION, SchemaColumns, parse_schema_columns,
};
#[doc(hidden)]
pub use backend::sqlite::siblings::registry_upkeep;
pub use backup::{BackupOptions, BackupPhase, BackupProgress, BackupReport, RestoreOptions, RestoreReport};
pub use content::Content;
pub use db::backup::restore;
pub use db::{
    Appended, AutoPruneOptions, AutoPruneReport, ExportAll, LineageExport, OpenOptions, OptimizeOptions, OptimizePhase,
    OptimizeProgress, Patience, SearchIndexes, SessionDb, SessionExport, SpaceReport, StepPace, StepProgress,
    UnderLease,
};
pub use doctor::{
    Examination, FileAccess, FileExamination, FileSystem, Finding, IndexLag, Probe, ServerExamination, Severity,
};
pub use error::{Error, Holder, LeaseLost, Result, ServerTrouble};
pub use error_kind::ErrorKind;
pub use gateway::GatewayPeer;
pub use json::json_text;
pub use message::{MAX_CLIENT_KEY_CHARS, Message, NewMessage, ToolCalls};
pub use migrate::report::{MigrationPhase, MigrationProblem, MigrationProgress, MigrationReport, TableReport};
pub use migrate::trouble::MigrationTrouble;
pub use migrate::{MigrateOptions, MigrationTarget, migrate, plan_migration};
pub use op::import::{ImportEntry, ImportLimits, ImportOptions, ImportProblem, ImportReport};
pub use op::lease::Lease;
pub use op::rewind::Rewound;
pub use query::compression::CompressionCooldown;
pub use query::conversation::{
    ConversationMessage, ConversationOptions, ConversationValue, MAX_RESUMED_MESSAGES, ResumeConversations,
    ResumeOptions, conversation_of_rows, is_background_review_harness,
};
pub use query::gateway::{GatewaySessionQuery, SessionOrigin};
pub use query::handoff::Handoff;
pub use query::listing::SessionQuery;
pub use query::message::{MessageQuery, UserMessage};
pub use query::page::{Cursor, PageQuery, SessionPage};
pub use query::prune::{PruneFilter, PrunePlan};
pub use query::session::COMPACT_EXCLUDED;
pub use query::window::{AnchoredView, AnchoredViewOptions, MessageWindow};
pub use repair::{
    CheckDepth, Health, Part, PartHealth, PartState, RepairOptions, RepairReport, RepairStrategy, RepairedTable,
};
pub use retention::{
    PlannedSession, RetentionPlan, RetentionPolicy, RetentionReport, RetentionRule, SessionState, age_from_text,
};
pub use search::cjk::{contains_cjk, count_cjk, has_lone_cjk_run};
pub use search::hit::{ContextLine, SearchHit, SearchOptions, SearchResults, SearchSort};
pub use search::text::{MAX_FTS5_QUERY_CHARS, sanitize_fts5_query};
pub use search::upkeep::RebuildStatus;
pub use session::{NewSession, Session, WorkingFolder};
pub use session_files::remove_session_files;
pub use spool::{ReplayReport, Spool, SpoolLimits, SpoolStatus, SpooledWrite, Ticket};
pub use status::{EngineStatus, Status, User};
pub use title::{MAX_TITLE_LENGTH, sanitize_title};
pub use topic::{NewTopicBinding, TopicBinding, TopicCapabilities};
pub use usage::Usage;
pub use value::{Columns, Record, Value};
