//! The one public handle on a store: opening, closing, and every operation.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use crate::backend::Opening;
use crate::backend::sqlite::lock;
use crate::backend::store::Store;
use crate::error::{Error, Holder, Result};
use crate::gate::Interrupt;
use crate::message::{Message, NewMessage};
use crate::op::message::AppendMessages;
use crate::op::meta::SetMeta;
use crate::op::session::{CreateSession, EndSession, ReopenSession, SetTitle};
use crate::query::conversation::{ConversationMessage, ConversationOptions, ResumeConversations};
use crate::query::message::MessageQuery;
use crate::query::session::SessionQuery;
use crate::query::{conversation, message as messages, search, session as sessions};
use crate::search::hit::{SearchHit, SearchOptions, SearchResults};
use crate::session::{NewSession, Session};
use crate::status::Status;
use crate::title::sanitize_title;
use crate::value::Value;

/// How long a write waits for a sibling that holds the write lock, before it gives up with [`Error::Busy`]. Zero means
/// a single attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the writes a turn needs: messages.
    pub transcript: Duration,
    /// For all others.
    pub routine: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { transcript: Duration::from_secs(60), routine: Duration::from_secs(20) }
    }
}

/// Which search indexes of a file serve, as of its opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SearchIndexes {
    /// The index of words.
    pub words: bool,
    /// The index of trigrams, for parts of words.
    pub trigrams: bool,
    /// The index of Chinese, Japanese and Korean words.
    pub cjk: bool,
}

/// How a store is opened.
///
/// ```
/// use hermes_state::OpenOptions;
/// let folder = tempfile::tempdir().unwrap();
/// let db = OpenOptions::new().open(folder.path().join("state.db"))?;
/// assert_eq!(db.session_count(&Default::default())?, 0);
/// # Ok::<(), hermes_state::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    read_only: bool,
    patience: Patience,
    sessions_json: Option<PathBuf>,
    cjk: bool,
    rollback_journal: bool,
    password: Option<String>,
    interrupt: Option<Arc<Interrupt>>,
}

impl OpenOptions {
    /// For reading and writing, creating the file if it is missing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only look: nothing is created, nothing is changed, no lock is waited for.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// How long the opening (by the routine patience) and later writes wait for others.
    #[must_use]
    pub fn patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// The gateway's `sessions/sessions.json`, from which files of schema versions before 18 take what they do not have
    /// themselves; other files do not have it read. The library knows no home folder; its callers do.
    #[must_use]
    pub fn sessions_json(mut self, path: impl Into<Option<PathBuf>>) -> Self {
        self.sessions_json = path.into();
        self
    }

    /// Whether this machine's other programs have the tokenizer `cjk_unicode61`, so that an index which needs it may
    /// be kept in the file.
    #[must_use]
    pub fn cjk(mut self, loaded: bool) -> Self {
        self.cjk = loaded;
        self
    }

    /// Do not ask for a write-ahead log, for file systems that do not share memory between processes reliably. A file
    /// that has one keeps it. Readers then wait while a writer writes its pages.
    #[must_use]
    pub fn rollback_journal(mut self, rollback: bool) -> Self {
        self.rollback_journal = rollback;
        self
    }

    /// The password for a server whose URL has none, so that it need not stand in a command line.
    #[must_use]
    pub fn password(mut self, password: impl Into<Option<String>>) -> Self {
        self.password = password.into();
        self
    }

    /// What to ask, about ten times a second and on the calling thread, while one of this handle's writes waits for the
    /// lock: `true` withdraws the write, which then fails with [`Error::Interrupted`]. A write that is being committed
    /// is not withdrawn any more.
    #[must_use]
    pub fn interrupt(mut self, wanted_no_longer: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.interrupt = Some(Arc::new(wanted_no_longer));
        self
    }

    /// Opens the store at `path`; `:memory:` is a private one that ends with its handle, and a URL
    /// (`postgresql://user@host/database?schema=name`) one on a server, in builds with the feature `postgres`.
    ///
    /// # Errors
    /// See [`SessionDb::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<SessionDb> {
        let opening = Opening {
            read_only: self.read_only,
            patience: self.patience.routine,
            rollback_journal: self.rollback_journal,
            sessions_json: self.sessions_json.clone(),
            cjk: self.cjk,
            password: self.password.clone(),
        };
        let (store, notes) = Store::open(path.as_ref(), &opening)?;
        for note in notes {
            tracing::warn!(path = %store.path().display(), "{note}");
        }
        Ok(SessionDb {
            path: store.path().to_owned(),
            generation: lock::generation(),
            opened_by: std::process::id(),
            read_only: self.read_only,
            routine: AtomicU64::new(nanoseconds(self.patience.routine)),
            transcript: AtomicU64::new(nanoseconds(self.patience.transcript)),
            interrupt: self.interrupt.clone(),
            store: RwLock::new(Some(store)),
        })
    }
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("read_only", &self.read_only)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

fn nanoseconds(patience: Duration) -> u64 {
    u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)
}

/// A handle on a store. It may be used from any number of threads at once; several handles on one file, in this process
/// or in others, see each other's writes.
///
/// A call returns when what it wrote is durable: no acknowledged message is ever lost. A sibling that holds the write
/// lock makes writes wait, never fail before their [`Patience`] is over, and never makes a read wait.
///
/// A handle does not survive a fork: the child gets [`Error::Forked`] and opens its own.
///
/// ```
/// use hermes_state::{NewMessage, NewSession, SessionDb};
/// let folder = tempfile::tempdir().unwrap();
/// let db = SessionDb::open(folder.path().join("state.db"))?;
/// db.create_session(NewSession::new("s1", "cli"))?;
/// db.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?;
/// assert_eq!(db.messages("s1", &Default::default())?[0].content().text(), Some("Where is the harbour?"));
/// # Ok::<(), hermes_state::Error>(())
/// ```
pub struct SessionDb {
    path: PathBuf,
    generation: u64,
    opened_by: u32,
    read_only: bool,
    routine: AtomicU64,
    transcript: AtomicU64,
    interrupt: Option<Arc<Interrupt>>,
    store: RwLock<Option<Store>>,
}

/// A running call's hold on the store; closing waits for it.
struct Open<'a>(RwLockReadGuard<'a, Option<Store>>);

impl std::ops::Deref for Open<'_> {
    type Target = Store;
    fn deref(&self) -> &Store {
        self.0.as_ref().expect("checked when the hold was taken")
    }
}

impl SessionDb {
    /// Opens the store at `path` for reading and writing; creates it, and its folder, if it is missing. A file of an
    /// older release is brought up to date, keeping every row, in one step that waits for siblings with patience.
    ///
    /// A URL (`postgresql://user@host/database?schema=name`) is a store in a schema of a server, in builds with the
    /// feature `postgres`; [`is_url`](crate::is_url) tells which is which.
    ///
    /// # Errors
    /// [`Error::Directory`], [`Error::CannotOpen`], [`Error::NotADatabase`], [`Error::Corrupt`], [`Error::ReadOnly`]
    /// at once, according to what is in the way; [`Error::Busy`] when the routine patience is over. Of a URL
    /// [`Error::Server`], within some seconds, says what to change; [`Error::Unreachable`] that the server broke off.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Opens the store at `path` for reading only: creates nothing and leaves everything as it was found.
    ///
    /// # Errors
    /// As [`SessionDb::open`]; a missing file is [`Error::CannotOpen`], a schema without a store [`Error::Server`] with
    /// [`ServerTrouble::NoStore`](crate::ServerTrouble::NoStore).
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().read_only(true).open(path)
    }

    /// The file of the store, absolute and without symbolic links, or the URL without its password.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the handle only reads.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Sets how long this handle's next writes wait.
    pub fn set_patience(&self, patience: Patience) {
        self.routine.store(nanoseconds(patience.routine), Ordering::Relaxed);
        self.transcript.store(nanoseconds(patience.transcript), Ordering::Relaxed);
    }

    /// How long this handle's next writes wait.
    #[must_use]
    pub fn patience(&self) -> Patience {
        Patience {
            routine: Duration::from_nanos(self.routine.load(Ordering::Relaxed)),
            transcript: Duration::from_nanos(self.transcript.load(Ordering::Relaxed)),
        }
    }

    /// Closes the handle once its running calls are done. The last handle on a store merges its log as far as that
    /// makes nobody wait. Closing twice does nothing.
    ///
    /// # Errors
    /// None today; a handle inherited by a fork is left alone.
    pub fn close(&self) -> Result<()> {
        if self.is_inherited() {
            return Ok(());
        }
        let store = self.store.write().unwrap_or_else(PoisonError::into_inner).take();
        drop(store);
        Ok(())
    }

    fn is_inherited(&self) -> bool {
        self.generation != lock::generation()
    }

    /// In a forked child not even the handle's own lock may be touched: its owner does not exist there.
    fn open_store(&self) -> Result<Open<'_>> {
        if self.is_inherited() {
            return Err(Error::Forked { path: self.path.clone(), opened_by: self.opened_by });
        }
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        if store.is_none() {
            return Err(Error::Closed { path: self.path.clone() });
        }
        Ok(Open(store))
    }

    pub(crate) fn routine<W: crate::op::Write>(&self, write: W) -> Result<W::Answer> {
        self.open_store()?.write(write, self.patience().routine, self.interrupt.as_deref())
    }

    pub(crate) fn patiently<W: crate::op::Write>(&self, write: W, patience: Duration) -> Result<W::Answer> {
        self.open_store()?.write(write, patience, self.interrupt.as_deref())
    }

    pub(crate) fn transcript<W: crate::op::Write>(&self, write: W) -> Result<W::Answer> {
        self.open_store()?.write(write, self.patience().transcript, self.interrupt.as_deref())
    }

    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn crate::transaction::Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.open_store()?.read(read)
    }

    pub(crate) fn read_at_length<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn crate::transaction::Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.open_store()?.read_at_length(read)
    }

    /// Whether the columns of the store have one type each, which values of other types cannot be stored in.
    pub(crate) fn is_typed(&self) -> Result<bool> {
        Ok(self.open_store()?.is_typed())
    }

    /// Which search indexes of the file serve.
    ///
    /// # Errors
    /// [`Error::Closed`] and [`Error::Forked`].
    pub fn search_indexes(&self) -> Result<SearchIndexes> {
        let indexes = self.open_store()?.indexes();
        Ok(SearchIndexes { words: indexes.words, trigrams: indexes.trigrams, cjk: indexes.pairs })
    }

    /// Creates a session. If one with this id is there, what it leaves open is filled from the new one and nothing is
    /// overwritten. A child inherits its parent's working folder; a continuation of a compressed conversation also
    /// inherits the conversation's routing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty id; [`Error::Constraint`] for a parent that does not exist.
    pub fn create_session(&self, session: NewSession) -> Result<()> {
        if session.id.is_falsy() {
            return Err(Error::Invalid("a session needs an id".into()));
        }
        self.routine(CreateSession(session))
    }

    /// Creates the session if it is missing: the same as [`create_session`](SessionDb::create_session), under the name
    /// that says that it may be there.
    ///
    /// # Errors
    /// As [`create_session`](SessionDb::create_session).
    pub fn ensure_session(&self, session: NewSession) -> Result<()> {
        self.create_session(session)
    }

    /// Ends a live session. The first end wins: on a session that has ended, or does not exist, this does nothing.
    ///
    /// # Errors
    /// Those of every write.
    pub fn end_session(&self, id: impl Into<Value>, reason: impl Into<Value>) -> Result<()> {
        self.routine(EndSession { id: id.into(), reason: reason.into() })
    }

    /// Makes a session live again, whatever ended it.
    ///
    /// # Errors
    /// Those of every write.
    pub fn reopen_session(&self, id: impl Into<Value>) -> Result<()> {
        self.routine(ReopenSession { id: id.into() })
    }

    /// One session, or `None`.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session(&self, id: impl Into<Value>) -> Result<Option<Session>> {
        let id = id.into();
        self.read(move |transaction| sessions::get(transaction, &id))
    }

    /// How many sessions a listing with these filters could page through.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session_count(&self, query: &SessionQuery) -> Result<i64> {
        let query = query.clone();
        self.read(move |transaction| sessions::count(transaction, &query))
    }

    /// A listing of sessions with their last activity and a preview.
    ///
    /// # Errors
    /// Those of every read.
    pub fn list_sessions(&self, query: &SessionQuery) -> Result<Vec<Session>> {
        let query = query.clone();
        self.read(move |transaction| sessions::list(transaction, &query))
    }

    /// Gives a session a title, cleaned by [`sanitize_title`]; `None` takes it away. Returns whether the session
    /// exists. A compressed conversation's title moves along to its continuation.
    ///
    /// # Errors
    /// [`Error::TitleTooLong`]; [`Error::TitleInUse`] if another session has it.
    pub fn set_session_title(&self, id: impl Into<Value>, title: Option<&str>) -> Result<bool> {
        let title = title.map(sanitize_title).transpose()?.flatten();
        self.routine(SetTitle { id: id.into(), title })
    }

    /// The title of a session; `None` if it has none or does not exist.
    ///
    /// # Errors
    /// Those of every read.
    pub fn session_title(&self, id: impl Into<Value>) -> Result<Option<String>> {
        let id = id.into();
        self.read(move |transaction| sessions::title(transaction, &id))
    }

    /// Appends a message and returns its id once it is durable.
    ///
    /// # Errors
    /// [`Error::Constraint`] for a missing session or role; [`Error::Busy`] when the transcript patience is over.
    pub fn append_message(&self, session_id: impl Into<Value>, message: NewMessage) -> Result<i64> {
        let ids = self.append_messages(session_id, vec![message])?;
        ids.first().copied().ok_or_else(|| Error::Invalid("the store returned no id for the message".into()))
    }

    /// Appends messages in one transaction, all or none, and returns their ids in order.
    ///
    /// # Errors
    /// As [`append_message`](SessionDb::append_message).
    pub fn append_messages(&self, session_id: impl Into<Value>, messages: Vec<NewMessage>) -> Result<Vec<i64>> {
        self.transcript(AppendMessages::new(session_id.into(), messages))
    }

    /// The messages of a session in the order of insertion, whatever their clocks said.
    ///
    /// # Errors
    /// Those of every read.
    pub fn messages(&self, session_id: impl Into<Value>, query: &MessageQuery) -> Result<Vec<Message>> {
        let (session_id, query) = (session_id.into(), query.clone());
        self.read(move |transaction| messages::list(transaction, &session_id, &query))
    }

    /// How many messages are stored, in any state, for one session or (`None`) for all.
    ///
    /// # Errors
    /// Those of every read.
    pub fn message_count(&self, session_id: Option<&str>) -> Result<i64> {
        let session_id = Value::from(session_id);
        self.read(move |transaction| messages::count(transaction, &session_id))
    }

    /// A session as a conversation for replay, in the order of insertion; empty for a session that does not exist.
    ///
    /// # Errors
    /// Those of every read.
    pub fn conversation(
        &self,
        session_id: impl Into<String>,
        options: &ConversationOptions,
    ) -> Result<Vec<ConversationMessage>> {
        let (session_id, options) = (session_id.into(), *options);
        self.read(move |transaction| conversation::read(transaction, &session_id, options))
    }

    /// What a resumed session tells the model and what it shows to people, from one read.
    ///
    /// # Errors
    /// Those of every read.
    pub fn resume_conversations(&self, session_id: impl Into<String>) -> Result<ResumeConversations> {
        let session_id = session_id.into();
        self.read(move |transaction| conversation::resume(transaction, &session_id))
    }

    /// The conversation of all sessions that this one descends from, to be shown before its own.
    ///
    /// # Errors
    /// Those of every read.
    pub fn ancestor_display_prefix(&self, session_id: impl Into<String>) -> Result<Vec<ConversationMessage>> {
        let session_id = session_id.into();
        self.read(move |transaction| conversation::ancestors(transaction, &session_id))
    }

    /// Searches all messages. Words are all required; `OR`, `NOT` and `AND` in upper case join them, `"…"` is a phrase
    /// and `word*` a beginning. A query that is no such expression (a path, an address, a price) is looked for as it
    /// stands. Chinese, Japanese and Korean text is found anywhere within a message.
    ///
    /// ```
    /// use hermes_state::{NewMessage, NewSession, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("s1", "cli"))?;
    /// db.append_message("s1", NewMessage::new("user", "Where is the harbour?"))?;
    /// let hits = db.search_messages("harbour", &Default::default())?;
    /// assert_eq!(hits[0].snippet.as_deref(), Some("Where is the >>>harbour<<<?"));
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every read. No query is an error by itself.
    pub fn search_messages(&self, query: &str, options: &SearchOptions) -> Result<SearchResults> {
        let store = self.open_store()?;
        let (indexes, query, options) = (store.indexes(), query.to_owned(), options.clone());
        store.read(move |transaction| search::search(transaction, &query, &options, indexes))
    }

    /// The hits of a cleaned query among messages that a running rebuild of the search indexes has not reached yet,
    /// newest first, without context. Every term is looked for as it stands.
    ///
    /// # Errors
    /// Those of every read.
    pub fn search_unindexed_gap(&self, cleaned: &str, options: &SearchOptions) -> Result<Vec<SearchHit>> {
        let (cleaned, options) = (cleaned.to_owned(), options.clone());
        self.read(move |transaction| search::search_gap(transaction, &cleaned, &options))
    }

    /// Who would answer a query, for diagnostics: `empty` (nothing is left of it but what is searched literally),
    /// `fts5`, `fts_cjk`, `trigram` or `like_scan`. Filters are not considered.
    ///
    /// # Errors
    /// Those of a handle that is closed or inherited.
    pub fn describe_search_path(&self, query: &str) -> Result<&'static str> {
        Ok(search::describe_path(query, self.open_store()?.indexes()))
    }

    /// The value of a key of the store's key-value table.
    ///
    /// # Errors
    /// Those of every read.
    pub fn meta(&self, key: impl Into<Value>) -> Result<Option<String>> {
        Ok(match self.meta_value(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        })
    }

    /// The value of a key as it is stored, whatever its type; NULL if there is none.
    ///
    /// # Errors
    /// Those of every read.
    pub fn meta_value(&self, key: impl Into<Value>) -> Result<Value> {
        let key = key.into();
        self.read(move |transaction| messages::meta(transaction, &key))
    }

    /// Sets a key of the store's key-value table.
    ///
    /// # Errors
    /// Those of every write.
    pub fn set_meta(&self, key: impl Into<Value>, value: impl Into<Value>) -> Result<()> {
        self.routine(SetMeta { key: key.into(), value: value.into() })
    }

    /// How the store stands: its files, its settings, and who has it open.
    ///
    /// # Errors
    /// Those of every read.
    pub fn status(&self) -> Result<Status> {
        self.open_store()?.status()
    }

    /// Whether the store takes writes.
    ///
    /// # Errors
    /// Those with which a write would be refused at once: [`Error::ReadOnly`], [`Error::TooNew`], [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn check_writable(&self) -> Result<()> {
        self.open_store()?.check_writable()
    }

    /// Who holds the write lock now, if somebody does and can be named. Of use to callers that work on the file through
    /// a connection of their own.
    #[must_use]
    pub fn write_lock_holder(&self) -> Option<Holder> {
        self.open_store().ok()?.write_lock_holder()
    }

    /// Merges the store's log into its main file, as far as that makes nobody wait. Writes do it by themselves from
    /// time to time.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn checkpoint(&self) -> Result<()> {
        self.open_store()?.checkpoint()
    }
}

impl Drop for SessionDb {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The parent's threads and connections are not here: releasing anything of theirs would do harm.
            std::mem::forget(self.store.get_mut().ok().and_then(Option::take));
        } else {
            let _ = self.close();
        }
    }
}

impl std::fmt::Debug for SessionDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionDb")
            .field("path", &self.path)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}
