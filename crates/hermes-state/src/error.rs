//! What can go wrong, as types that carry the facts and the next step.

use std::path::PathBuf;
use std::time::Duration;

use crate::migrate::trouble::MigrationTrouble;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Who holds the write lock of a store, as far as the lock itself and the registry of siblings tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process that holds the lock.
    pub pid: i32,
    /// The program it runs, if the system tells.
    pub program: Option<String>,
    /// What it is doing under the lock, if that is known.
    pub operation: Option<&'static str>,
    /// For how long it has been at it, if that is known.
    pub since: Option<Duration>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pid {}", self.pid)?;
        if let Some(program) = &self.program {
            write!(f, " ({program})")?;
        }
        if let Some(operation) = self.operation {
            write!(f, ", {operation}")?;
        }
        match self.since {
            Some(since) => write!(f, ", for {:.1} s", since.as_secs_f64()),
            None => Ok(()),
        }
    }
}

/// What keeps a server from being used; waiting does not mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerTrouble {
    /// The location does not read as a URL of a server, or asks for what there is not.
    #[error("{0}; write postgresql://user@host:port/database?schema=name")]
    BadUrl(String),
    /// No such host.
    #[error("the host {host} is not known; check the host in the URL")]
    UnknownHost {
        /// The name that was asked for.
        host: String,
    },
    /// Nothing listens there.
    #[error("nothing accepts connections at {at}; check the host and port in the URL, and whether the server runs")]
    Refused {
        /// Host and port, or the socket.
        at: String,
    },
    /// Nothing answers there.
    #[error("no answer from {at}; check the host and port in the URL, and whether a firewall is in the way")]
    NoAnswer {
        /// Host and port, or the socket.
        at: String,
    },
    /// The server takes no connections for now: it is starting, stopping or crowded, or it broke off.
    #[error("the server at {at} takes no connections now ({message}); try again when it is up and has room")]
    Unavailable {
        /// Host and port, or the socket.
        at: String,
        /// What was seen of it.
        message: String,
    },
    /// The server only reads, or does what `target_session_attrs` rules out.
    #[error("the server at {at} is not of the asked kind: {message}; name the primary server in the URL")]
    WrongServer {
        /// Host and port, or the socket.
        at: String,
        /// Which kind it is.
        message: String,
    },
    /// What listens there does not speak PostgreSQL's protocol.
    #[error(
        "what answers at {at} does not speak as a PostgreSQL server does ({message}); check the host and port in the URL"
    )]
    NotAServer {
        /// Host and port, or the socket.
        at: String,
        /// What was seen of it.
        message: String,
    },
    /// The database cannot hold every text.
    #[error("the database {database} is encoded in {found}, and a store needs UTF8; create one with ENCODING 'UTF8'")]
    Encoding {
        /// The database.
        database: String,
        /// Its encoding.
        found: String,
    },
    /// The server does not let this user in.
    #[error("the server refuses the user {user} ({message}); check user and password")]
    Login {
        /// The user.
        user: String,
        /// What the server said.
        message: String,
    },
    /// The server has no such database.
    #[error("the server has no database {database}; create it, or name another in the URL")]
    NoDatabase {
        /// The database.
        database: String,
    },
    /// The user may not use or make the schema.
    #[error("the user may not {what} in schema {schema} ({message}); have its owner GRANT it, or name another schema")]
    NoRights {
        /// The schema.
        schema: String,
        /// What was attempted.
        what: &'static str,
        /// What the server said.
        message: String,
    },
    /// There is no store in this schema, and only looking was asked for.
    #[error("there is no store in schema {schema} yet")]
    NoStore {
        /// The schema.
        schema: String,
    },
    /// The server is older than what is supported.
    #[error("the server is PostgreSQL {found}, and 14 is the oldest that serves; upgrade the server")]
    TooOld {
        /// Its version.
        found: String,
    },
    /// Encryption was demanded and is not offered.
    #[error("the server offers no TLS, which sslmode demands; switch it on there, or ask for sslmode=prefer")]
    NoTls,
    /// The connection could not be encrypted as demanded.
    #[error("TLS failed: {0}; check the certificate, sslrootcert and sslmode")]
    Tls(String),
    /// This build has no client for servers.
    #[error("this build has no client for servers; build it with the feature `postgres`")]
    NotBuilt,
}

/// A lease on compressing a session that is over: what was to be stored under it may have been compressed by another.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "the lease of '{holder}' on compressing session {session} is over (number {fence}; {}); nothing was changed; read the session again, and acquire a new lease if it is still to be compressed",
    self.whose()
)]
pub struct LeaseLost {
    /// The session.
    pub session: String,
    /// Who had the lease.
    pub holder: String,
    /// Its number among the leases on the session.
    pub fence: i64,
    /// Who has a lease on the session now.
    pub taken_by: Option<String>,
    /// The number of that one, unless an older release has given it.
    pub newest: Option<i64>,
    /// How long ago the term ended, in seconds, if nobody has taken the lease since.
    pub lapsed_for: Option<f64>,
}

impl LeaseLost {
    fn whose(&self) -> String {
        match (&self.taken_by, self.newest, self.lapsed_for) {
            (Some(holder), Some(number), _) => format!("'{holder}' has it now, as number {number}"),
            (Some(holder), None, _) => format!("'{holder}' has it now"),
            (None, _, Some(seconds)) => format!("its term ended {seconds:.1} s ago"),
            (None, _, None) => "it was released, or taken by another who is done".to_owned(),
        }
    }
}

/// Everything that an operation on a store can fail with.
///
/// Texts that callers of the older store match on are kept: a busy store says `database is locked`, a read-only one
/// `attempt to write a readonly database`, a missing file `unable to open database file`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The write lock was not to be had within the patience of the call. The store is well; try again later. The text
    /// leaves out the path: callers look for words such as `disk` in it, which a path may hold.
    #[error(
        "database is locked: another Hermes process{} has held the write lock for the whole {:.1} s that this call waited; the database itself is healthy, retry when that process has finished",
        holder.as_ref().map(|h| format!(", {h},")).unwrap_or_default(), waited.as_secs_f64()
    )]
    Busy {
        /// The store.
        path: PathBuf,
        /// How long this call waited.
        waited: Duration,
        /// Who held the lock when the patience ended, if that could be seen.
        holder: Option<Holder>,
    },

    /// What needs the file to itself found it open elsewhere; nothing was changed.
    #[error(
        "{} is in use by {}, so it is left alone (database is locked): end these programs and try again", path.display(),
        if users.is_empty() { "another program".to_owned() } else { users.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ") }
    )]
    InUse {
        /// The store.
        path: PathBuf,
        /// Who has it open, as far as that can be seen.
        users: Vec<Holder>,
    },

    /// A write to a store that was opened read-only, or whose file the system protects.
    #[error("attempt to write a readonly database: {}", path.display())]
    ReadOnly {
        /// The store.
        path: PathBuf,
    },

    /// The file cannot be opened; `reason` says what is in the way.
    #[error("unable to open database file: {}: {reason}", path.display())]
    CannotOpen {
        /// The store.
        path: PathBuf,
        /// What is in the way and what to do about it.
        reason: String,
    },

    /// The file cannot be opened or made, since this user may not.
    #[error(
        "unable to open database file: {}: this user may not open or make it; check the permissions of the file and its folder", path.display()
    )]
    NotPermitted {
        /// The store.
        path: PathBuf,
    },

    /// The file cannot be opened although this user may open it: the process has as many files open as it may have.
    #[error(
        "unable to open database file: {}: the system refuses although this user may open it; this process may have too many files open", path.display()
    )]
    TooManyFiles {
        /// The store.
        path: PathBuf,
    },

    /// The directory of the store cannot be made or entered.
    #[error("cannot create the directory {}: {message}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        message: String,
        /// The system's error number, for callers that tell kinds apart.
        errno: Option<i32>,
    },

    /// The file holds something else than an SQLite database.
    #[error(
        "file is not a database: {} does not begin like one; if it was a store, keep it and its sidecars and restore a backup elsewhere", path.display()
    )]
    NotADatabase {
        /// The store.
        path: PathBuf,
    },

    /// The database file is damaged.
    #[error(
        "database disk image is malformed: {}: {message}{}; work on a copy, or restore a backup", path.display(),
        part.as_ref().map(|part| format!(" (in {part})")).unwrap_or_default()
    )]
    Corrupt {
        /// The store.
        path: PathBuf,
        /// SQLite's word on the damage.
        message: String,
        /// The table or index that is damaged, if that could be told.
        part: Option<String>,
        /// SQLite's extended result code.
        code: i32,
    },

    /// The file was written by a release with a newer schema; it can be read, not written.
    #[error(
        "{} has schema version {found}, this release writes version {supported}: it can be read but not written; upgrade this program", path.display()
    )]
    TooNew {
        /// The store.
        path: PathBuf,
        /// The version the file has.
        found: i64,
        /// The version this release writes.
        supported: i64,
    },

    /// The store's files were replaced, removed or truncated under a live handle; nothing is acknowledged any more.
    #[error("{} was replaced while it was open ({what}): nothing is acknowledged any more; close every handle that this process has on it, then open it again", path.display())]
    Replaced {
        /// The store.
        path: PathBuf,
        /// Which of its files changed, and how.
        what: String,
    },

    /// The handle was opened in another process: it does not survive a fork.
    #[error("this handle on {} was opened in another process (pid {opened_by}); open the store again in this one", path.display())]
    Forked {
        /// The store.
        path: PathBuf,
        /// The process that opened the handle.
        opened_by: u32,
    },

    /// The handle was closed.
    #[error("the store {} is closed; open it again", path.display())]
    Closed {
        /// The store.
        path: PathBuf,
    },

    /// No room on the disk of the store.
    #[error("database or disk is full: {}: free some space and try again", path.display())]
    Full {
        /// The store.
        path: PathBuf,
    },

    /// The server of the store cannot be used as asked.
    #[error("unable to open the store {}: {trouble}", path.display())]
    Server {
        /// The store's URL, without its password.
        path: PathBuf,
        /// What is in the way, and what to change.
        trouble: ServerTrouble,
    },

    /// The server could not be reached, or broke off, for as long as this call was patient.
    #[error(
        "the server of {} has been unreachable for {:.1} s ({message}), as long as this call waited{}; retry when the server is back", path.display(), since.as_secs_f64(),
        if *perhaps_stored { "; the connection broke while the write was being committed, so it may be stored" } else { "" }
    )]
    Unreachable {
        /// The store's URL, without its password.
        path: PathBuf,
        /// How long it has been unreachable.
        since: Duration,
        /// What was last seen of it.
        message: String,
        /// Whether the write may have been stored all the same.
        perhaps_stored: bool,
    },

    /// The store could not take a write of a transcript, and its spool holds as much as it may. Nothing was kept.
    #[error(
        "{cause}; and the spool {} is full ({writes} writes, {bytes} bytes): mend the store, then run `hermes-state spool replay`", folder.display()
    )]
    SpoolFull {
        /// The folder of the spool.
        folder: PathBuf,
        /// The writes that it holds.
        writes: u64,
        /// Their bytes.
        bytes: u64,
        /// Why the store could not take the write.
        cause: Box<Error>,
    },

    /// The spool cannot be read or written. Nothing was kept of a write that the store could not take.
    #[error(
        "{}the spool {} cannot be used: {message}; check the folder's permissions and the room on its disk",
        cause.as_ref().map(|cause| format!("{cause}; and ")).unwrap_or_default(), folder.display()
    )]
    Spool {
        /// The folder of the spool.
        folder: PathBuf,
        /// What the system said.
        message: String,
        /// The system's error number.
        errno: Option<i32>,
        /// Why the store could not take the write, if there was one.
        cause: Option<Box<Error>>,
    },

    /// Another session of the server held a lock that the write needs, for as long as this call was patient.
    #[error(
        "database is locked: {} holds a lock that this write needs; waited {:.1} s; the store itself is healthy, retry when that one has finished",
        holder.as_ref().map_or_else(|| "another session of the server".to_owned(), |h| format!("the server's process {h}")), waited.as_secs_f64()
    )]
    LockedOnServer {
        /// The store's URL, without its password.
        path: PathBuf,
        /// How long this call waited.
        waited: Duration,
        /// The session that holds the lock, by the server's process id and its application name.
        holder: Option<Holder>,
    },

    /// A constraint refused the write: a missing session, a missing role, a title that is taken.
    #[error("{message}")]
    Constraint {
        /// SQLite's text, such as `FOREIGN KEY constraint failed`.
        message: String,
        /// SQLite's extended result code.
        code: i32,
    },

    /// The title belongs to another session.
    #[error(
        "Title '{title}' is already in use by session {holder} (source {holder_source}, {})",
        if *archived { "archived" } else { "not archived" }
    )]
    TitleInUse {
        /// The title asked for.
        title: String,
        /// The session that has it.
        holder: String,
        /// Where that session comes from.
        holder_source: String,
        /// Whether that session is archived.
        archived: bool,
    },

    /// The title is longer than a title may be.
    #[error("Title too long ({length} characters, max {max})")]
    TitleTooLong {
        /// Its length after cleaning, in code points.
        length: usize,
        /// The longest allowed.
        max: usize,
    },

    /// The session is bound to another topic, and a session has one at most.
    #[error(
        "session '{session}' is already linked to another Telegram topic (chat {chat}, thread {thread}); unlink it there first, or link another session"
    )]
    SessionHasTopic {
        /// The session.
        session: String,
        /// The chat of the topic that has it.
        chat: String,
        /// The thread of that chat.
        thread: String,
    },

    /// The key that a caller gave a message belongs to a message that says something else.
    #[error(
        "client key '{key}' of session {session} belongs to {} with other content; nothing was stored; send the same message again, or give the new one a key of its own",
        message_id.map_or_else(|| "an earlier message of the batch".to_owned(), |id| format!("message {id}"))
    )]
    ClientKeyInUse {
        /// The session.
        session: String,
        /// The key.
        key: String,
        /// The message that has it; `None` if it was to be stored by the same call.
        message_id: Option<i64>,
    },

    /// The lease under which this was to be stored is over; nothing was changed.
    #[error("{0}")]
    LeaseLost(Box<LeaseLost>),

    /// An argument that the contract does not allow; nothing was changed.
    #[error("{0}")]
    Invalid(String),

    /// A search that can neither be read as an expression nor looked for as it stands.
    #[error("invalid query: {reason}")]
    InvalidQuery {
        /// What is the matter with it.
        reason: String,
    },

    /// The caller withdrew its write while it was waiting.
    #[error(
        "interrupted while waiting to write; {}",
        if *perhaps_stored { "the connection broke while it was being committed, so it may be stored" } else { "nothing was stored" }
    )]
    Interrupted {
        /// Whether the write may have been stored all the same; never with a file.
        perhaps_stored: bool,
    },

    /// A store cannot be copied into another as asked.
    #[error("{0}")]
    Migration(Box<MigrationTrouble>),

    /// Any other error of the database engine.
    #[error("{message}")]
    Engine {
        /// The engine's text.
        message: String,
        /// The engine's extended result code (SQLite) or 0.
        code: i32,
    },
}

impl Error {
    /// The same, saying in which part the damage is.
    pub(crate) fn in_part(self, found: Option<String>) -> Self {
        match self {
            Error::Corrupt { path, message, part: None, code } => Error::Corrupt { path, message, part: found, code },
            other => other,
        }
    }

    /// The primary SQLite result code behind the error, 0 if there is none. The Python face picks its exception by it.
    #[must_use]
    pub fn sqlite_code(&self) -> i32 {
        match self {
            Error::Busy { .. } | Error::LockedOnServer { .. } | Error::InUse { .. } => 5,
            Error::ReadOnly { .. } => 8,
            Error::CannotOpen { .. }
            | Error::NotPermitted { .. }
            | Error::TooManyFiles { .. }
            | Error::Server { .. }
            | Error::Unreachable { .. } => 14,
            Error::NotADatabase { .. } => 26,
            Error::Full { .. } => 13,
            Error::SpoolFull { cause, .. } | Error::Spool { cause: Some(cause), .. } => cause.sqlite_code(),
            Error::ClientKeyInUse { .. } | Error::LeaseLost(_) => 19,
            Error::Corrupt { code, .. } | Error::Constraint { code, .. } | Error::Engine { code, .. } => code & 0xff,
            _ => 0,
        }
    }
}
