//! One open store of this process: its writing thread, its readers, and what was found when it was opened. All handles
//! on the same file share it, which is what lets their writes be committed together.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::backup::watch::Progress;
use super::connection::{Location, open_writer};
use super::engine::{SqliteEngine, patiently};
use super::errors::classify;
use super::identity::{FileIdentity, sidecar};
use super::index_state::IndexState;
use super::journal;
use super::lock::{self, PerProcess, crew};
use super::maintenance;
use super::onlooker;
use super::readers::{self, Readers, no_thread, on_crew};
use super::schema::{self, Adoption, Context, Inspection, Note};
use super::soundness::Soundness;
use super::status;
use crate::backend::{Opening, Operation, WriteEngine};
use crate::backup::{BackupOptions, BackupReport};
use crate::error::{Error, Holder, Result};
use crate::gate::{Gate, Interrupt, Tell};
use crate::op::Write;
use crate::status::{EngineStatus, Status, User};
use crate::transaction::Transaction;

/// The stores this process has open, by path and whether they are only looked at, so that a second handle on a file joins
/// the first.
static OPEN: PerProcess<Mutex<HashMap<(PathBuf, bool), Slot>>> = PerProcess::new(Mutex::default);

/// One file's entry, locked while the file is being opened.
type Slot = Arc<Mutex<Weak<Store>>>;

/// With what a file is brought up to date.
fn context(opening: &Opening) -> Context {
    Context { sessions_json: None, cjk: opening.cjk, alone: false }
}

/// With what an old file is completed from; a gateway's file that cannot be read has nothing to tell.
#[expect(clippy::disallowed_methods, reason = "a file of the gateway, never a store")]
fn context_with_sessions(opening: &Opening) -> Context {
    let sessions_json = opening.sessions_json.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    Context { sessions_json, ..context(opening) }
}

/// An open store.
pub(crate) struct Store {
    location: Location,
    readers: Arc<Readers>,
    access: Access,
    indexes: Arc<IndexState>,
    soundness: Arc<Soundness>,
}

enum Access {
    Write {
        gate: Arc<Gate<SqliteEngine>>,
        identity: Option<FileIdentity>,
        closed: Mutex<Receiver<()>>,
    },
    Look,
    /// The file is of a release with this newer schema.
    TooNew(i64),
}

/// The one name of the file at `path`, whether it is there or not; `None` for a store in memory.
pub(crate) fn identify(path: &Path) -> Result<Option<PathBuf>> {
    if path.as_os_str() == ":memory:" { Ok(None) } else { absolute(path).map(resolved).map(Some) }
}

impl Store {
    /// Opens the store at `path`, or joins the one that this process has open there. Returns what the caller should
    /// log: nothing is logged on the threads of the crew.
    pub(crate) fn open(path: &Path, opening: &Opening) -> Result<(Arc<Self>, Vec<Note>)> {
        if path.as_os_str() == ":memory:" {
            static UNIQUE: AtomicU64 = AtomicU64::new(0);
            let name = format!("hermes-state-{}", UNIQUE.fetch_add(1, Ordering::Relaxed));
            return Self::open_new(Location::Memory(name), opening);
        }
        let path = absolute(path)?;
        if !opening.read_only {
            prepare_folder(&path)?;
        }
        let path = resolved(path);
        let slot = {
            let mut open = OPEN.get().lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || slot.lock().is_ok_and(|store| store.strong_count() > 0)
            });
            open.entry((path.clone(), opening.read_only)).or_default().clone()
        };
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = known.upgrade()
            && store.is_still_at(&path)
        {
            let notes = store.adopt_again(opening)?;
            return Ok((store, notes));
        }
        let (store, notes) = Self::open_new(Location::File(path), opening)?;
        *known = Arc::downgrade(&store);
        Ok((store, notes))
    }

    fn open_new(location: Location, opening: &Opening) -> Result<(Arc<Self>, Vec<Note>)> {
        let indexes = Arc::new(IndexState::new(opening.cjk));
        if opening.read_only {
            return Self::open_to_look(location, indexes, Access::Look);
        }
        let gate = Arc::new(Gate::new());
        let (report, opened) = sync_channel(1);
        let (close, closed) = sync_channel(1);
        let (served, at, how, state) = (gate.clone(), location.clone(), opening.clone(), indexes.clone());
        let started = crew::owners().start(move || {
            match open_to_write(&at, &how, state) {
                Ok(Opened::Writable(mut engine, notes)) => {
                    let _ = report.send(Ok(Ok((notes, engine.readers().clone(), engine.soundness().clone()))));
                    served.serve(&mut *engine);
                    engine.close();
                }
                Ok(Opened::TooNew(found)) => drop(report.send(Ok(Err(found)))),
                Err(error) => drop(report.send(Err(error))),
            }
            let _ = close.send(());
        });
        started.map_err(|error| no_thread(&error))?;
        match opened.recv().map_err(|_| no_thread(&std::io::Error::from(std::io::ErrorKind::OutOfMemory)))?? {
            Ok((notes, readers, soundness)) => {
                let identity = FileIdentity::of(location.path());
                readers.remember_identity();
                let store = Arc::new(Self {
                    readers,
                    location,
                    access: Access::Write { gate, identity, closed: Mutex::new(closed) },
                    indexes,
                    soundness,
                });
                Ok((store, notes))
            }
            Err(newer) => {
                let _ = closed.recv();
                Self::open_to_look(location, indexes, Access::TooNew(newer))
            }
        }
    }

    fn open_to_look(location: Location, indexes: Arc<IndexState>, access: Access) -> Result<(Arc<Self>, Vec<Note>)> {
        let soundness = Soundness::of(location.path());
        let readers = Arc::new(Readers::new(location.clone(), true, indexes.clone(), soundness.clone()));
        let (pool, at) = (readers.clone(), location.clone());
        on_crew(move || {
            let opened = readers::patiently_reading(at.path(), || {
                let reading = onlooker::open(&at)?;
                reading.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
                Ok(reading)
            });
            pool.adopt(opened?);
            pool.remember_identity();
            Ok(())
        })?;
        Ok((Arc::new(Self { readers, location, access, indexes, soundness }), Vec::new()))
    }

    /// Whether the file at this path is still the one that is open.
    fn is_still_at(&self, path: &Path) -> bool {
        match &self.access {
            Access::Write { identity, .. } => *identity == FileIdentity::of(path),
            Access::Look | Access::TooNew(_) => false,
        }
    }

    /// Brings the file up to date once more for a handle that joins: others may have changed its schema meanwhile.
    fn adopt_again(&self, opening: &Opening) -> Result<Vec<Note>> {
        let Access::Write { gate, .. } = &self.access else { return Ok(Vec::new()) };
        let opening = opening.clone();
        self.indexes.set_cjk(opening.cjk);
        gate.with_engine(move |engine| {
            // A second connection on these files would read the new log by the index of the old one, so a handle cannot
            // be had before the old ones are closed.
            engine.check_files()?;
            let deadline = Instant::now() + opening.patience;
            bring_up_to_date(engine, &opening, deadline)
        })
    }

    /// The path, as errors and `status` name it.
    pub(crate) fn path(&self) -> &Path {
        self.location.path()
    }

    /// Runs `read` in one read transaction on a connection of its own.
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _permit = self.readers.permit();
        let readers = self.readers.clone();
        on_crew(move || readers.read(read))
    }

    /// Commits a write; returns when it is durable.
    pub(crate) fn write<W: Write>(
        &self,
        id: Uuid,
        write: W,
        patience: Duration,
        interrupt: Option<&Interrupt>,
        tell: &Tell<'_>,
    ) -> Result<W::Answer> {
        let gate = self.gate()?;
        let answer = gate.write(id, write, patience, interrupt, tell);
        if let Some(chore) = self.indexes.next_chore() {
            gate.afterwards(move |engine| engine.tend_indexes(chore));
        }
        answer
    }

    /// What writes found and mended on the way, for the caller to log.
    pub(crate) fn take_notes(&self) -> Vec<Note> {
        self.indexes.take_notes()
    }

    /// Rewrites the file without its free pages, waiting for others' locks for so long.
    pub(crate) fn rewrite(&self, patience: Duration) -> Result<()> {
        self.gate()?.with_engine(move |engine| engine.rewrite(Instant::now() + patience))
    }

    /// Merges the log into the main file as far as that makes nobody wait.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let gate = self.gate()?;
        let readers = self.readers.clone();
        on_crew(move || readers.merge_log())?;
        gate.with_engine(SqliteEngine::checkpoint).map(drop)
    }

    /// Gives free pages back in steps, between which others write and `goes_on` is told how many bytes of how many are done;
    /// returns the bytes before and after.
    pub(crate) fn release_space(
        &self,
        patience: Duration,
        goes_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(u64, u64)> {
        let gate = self.gate()?;
        let (before, free) = gate.with_engine(|engine| Ok((engine.bytes()?, engine.free_bytes()?)))?;
        let mut steps = maintenance::Steps::default();
        loop {
            let (more, after, so_far) = gate.with_engine(move |engine| {
                let more = engine.release_some(&mut steps, patience)?;
                Ok((more, engine.bytes()?, steps))
            })?;
            steps = so_far;
            if !more || !goes_on(before.saturating_sub(after).min(free), free) {
                return Ok((before, after));
            }
        }
    }

    /// Rewrites the whole file; returns its bytes before and after.
    pub(crate) fn vacuum(&self, patience: Duration) -> Result<(u64, u64)> {
        self.gate()?.with_engine(move |engine| {
            let before = engine.bytes()?;
            engine.vacuum(patience)?;
            Ok((before, engine.bytes()?))
        })
    }

    /// Copies the store into a file, beside whoever writes to it.
    pub(crate) fn backup(
        &self,
        target: &Path,
        options: &BackupOptions,
        progress: Progress<'_>,
    ) -> Result<BackupReport> {
        super::backup::backup(&self.readers, target, options, progress)
    }

    /// Who has the store open, as far as can be seen.
    pub(crate) fn users(&self) -> Result<Vec<User>> {
        Ok(status::users(self.path()))
    }

    /// How the store stands.
    pub(crate) fn status(&self) -> Result<Status> {
        let path = self.path().to_owned();
        let _permit = self.readers.permit();
        let readers = self.readers.clone();
        let reading = on_crew(move || {
            readers.read_directly(|connection, path| status::read(connection).map_err(|error| classify(path, &error)))
        })?;
        Ok(Status {
            read_only: !matches!(self.access, Access::Write { .. }),
            engine: EngineStatus::File {
                main_bytes: status::bytes(&path),
                wal_bytes: status::bytes(&sidecar(&path, "-wal")),
                shm_bytes: status::bytes(&sidecar(&path, "-shm")),
                journal_mode: reading.journal_mode,
                lock_kind: lock::in_force(),
            },
            schema_version: reading.schema_version,
            sessions: reading.sessions,
            messages: reading.messages,
            open_by: status::users(&path),
            path,
        })
    }

    /// The error with which a write would be refused at once, if one would.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.gate().map(drop)
    }

    /// Who holds the write lock now, if that can be seen.
    pub(crate) fn write_lock_holder(&self) -> Option<Holder> {
        status::holder(self.path())
    }

    fn gate(&self) -> Result<&Gate<SqliteEngine>> {
        match &self.access {
            // At once, and not when the turn comes.
            Access::Write { gate, .. } => {
                self.soundness.check()?;
                Ok(gate)
            }
            Access::Look => Err(Error::ReadOnly { path: self.path().to_owned() }),
            Access::TooNew(found) => {
                Err(Error::TooNew { path: self.path().to_owned(), found: *found, supported: schema::SCHEMA_VERSION })
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let readers = self.readers.clone();
        // The connections of a store must be closed where they were opened; if that fails they stay open, which is
        // what the end of the process makes of them anyway.
        let _ = on_crew(move || {
            readers.close();
            Ok(())
        });
        if let Access::Write { gate, closed, .. } = &self.access {
            gate.close();
            let _ = closed.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}

enum Opened {
    Writable(Box<SqliteEngine>, Vec<Note>),
    TooNew(i64),
}

/// Opens the write connection and brings the file up to date; one patience covers all of it. Runs on a crew thread.
fn open_to_write(location: &Location, opening: &Opening, indexes: Arc<IndexState>) -> Result<Opened> {
    let deadline = Instant::now() + opening.patience;
    if let Location::File(path) = location {
        create(path)?;
    }
    let (inspected, (connection, log), file) = patient_step(location, opening, deadline, || {
        let file = FileIdentity::of(location.path());
        let connection = open_writer(location)?;
        Ok((schema::inspect(&connection.0, &context(opening))?, connection, file))
    })?;
    if let Inspection::TooNew { found } = inspected {
        return Ok(Opened::TooNew(found));
    }
    if connection.is_readonly("main").map_err(|error| classify(location.path(), &error))? {
        return Err(Error::ReadOnly { path: location.path().to_owned() });
    }
    patient_step(location, opening, deadline, || {
        if !opening.rollback_journal {
            journal::use_wal(&connection)?;
        }
        // Reading once makes the sidecars, which from then on must stay the same.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
    })?;
    let mut engine = SqliteEngine::new((connection, log), location.clone(), indexes)?;
    if FileIdentity::of(location.path()) != file {
        // A repair ended between the two: the connection is on the damaged file, which has another name now.
        let what = "another file took its place while it was being opened".to_owned();
        return Err(Error::Replaced { path: location.path().to_owned(), what });
    }
    let found = bring_up_to_date(&mut engine, opening, deadline)?;
    Ok(Opened::Writable(Box::new(engine), found))
}

/// Repeats a step of opening while somebody's lock is in its way, as long as the patience lasts.
fn patient_step<T>(
    location: &Location,
    opening: &Opening,
    deadline: Instant,
    step: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T> {
    let path = location.path();
    match patiently(deadline, step).map_err(|error| classify(path, &error))? {
        Some(done) => Ok(done),
        None => Err(Error::Busy {
            path: path.to_owned(),
            waited: opening.patience,
            holder: lock::holder::of_write_lock(path),
        }),
    }
}

/// Makes the file what this release expects, in one transaction, if it is not that already.
fn bring_up_to_date(engine: &mut SqliteEngine, opening: &Opening, deadline: Instant) -> Result<Vec<Note>> {
    let started = Instant::now();
    let path = engine.location().path().to_owned();
    let failed = |error: rusqlite::Error| classify(&path, &error);
    let too_new = |found| Error::TooNew { path: path.clone(), found, supported: schema::SCHEMA_VERSION };
    let inspected = patiently(deadline, || schema::inspect(engine.connection(), &context(opening)));
    let context = match inspected.map_err(failed)? {
        Some(Inspection::UpToDate(_)) => return Ok(Vec::new()),
        Some(Inspection::TooNew { found }) => return Err(too_new(found)),
        Some(Inspection::NeedsWork { sessions_json: true }) => context_with_sessions(opening),
        Some(Inspection::NeedsWork { sessions_json: false }) | None => context(opening),
    };
    let done = match engine.begin(Operation::Open, deadline) {
        Ok(true) => match schema::adopt(engine.connection(), &context).map_err(failed) {
            Ok(Adoption::Done { notes, .. }) => engine.commit(deadline).map(|committed| {
                if committed && notes.contains(&Note::IndexesBegun) {
                    engine.note_begun_indexes();
                }
                committed.then_some(notes)
            }),
            Ok(Adoption::TooNew { found }) => Err(too_new(found)),
            Err(error) => Err(error),
        },
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    engine.rollback();
    engine.end();
    done?.ok_or_else(|| {
        let holder = engine.holder();
        engine.busy(started.elapsed(), holder, false)
    })
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::CannotOpen { path: path.to_owned(), reason: error.to_string() })
}

/// The path without symbolic links, so that one file has one name, also of a file that is not there yet; as it stands
/// where that cannot be told.
pub(super) fn resolved(mut path: PathBuf) -> PathBuf {
    // As many links as the system itself follows.
    for _ in 0..40 {
        if let Ok(found) = path.canonicalize() {
            return found;
        }
        let Some(folder) = path.parent() else { return path };
        match std::fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => {
                let Some(name) = path.file_name() else { return path };
                return folder.canonicalize().map_or_else(|_| path.clone(), |folder| folder.join(name));
            }
        }
    }
    path
}

/// Makes the folder of the store and its ancestors, readable for this user only; those there are keep their modes.
pub(super) fn prepare_folder(path: &Path) -> Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| Error::Directory {
        path: folder.to_owned(),
        message: error.to_string(),
        errno: error.raw_os_error(),
    })
}

/// Refuses a file that was truncated or removed: SQLite would take it for a new one and throw its log away, which may
/// hold all that is left.
pub(super) fn refuse_truncated(path: &Path) -> Result<()> {
    let log = sidecar(path, "-wal");
    let lost = match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() == 0 => Some("is empty"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some("is missing"),
        _ => None,
    };
    if let Some(lost) = lost
        && std::fs::metadata(&log).is_ok_and(|found| found.len() > 0)
    {
        let message =
            format!("the file {lost} though its log {} holds data: it was truncated or removed", log.display());
        return Err(Error::Corrupt { path: path.to_owned(), message, part: None, code: rusqlite::ffi::SQLITE_CORRUPT });
    }
    Ok(())
}

/// Lets a new file be born readable for this user only; SQLite gives the sidecars the same mode. Whatever prevents it
/// also prevents SQLite from opening the file, which then says so.
fn create(path: &Path) -> Result<()> {
    refuse_truncated(path)?;
    birth::create_private(path);
    Ok(())
}

pub(super) mod birth {
    //! Creating a file without holding it open: closing a descriptor could drop somebody's lock.
    use std::path::Path;

    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "mknod(2) has no safe wrapper")]
    pub(in super::super) fn create_private(path: &Path) {
        use std::os::unix::ffi::OsStrExt;
        let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return };
        // SAFETY: a NUL-terminated string that outlives the call; no descriptor is made.
        unsafe { libc::mknod(path.as_ptr(), libc::S_IFREG | 0o600, 0) };
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::disallowed_methods, reason = "only makes a file that was not there, so nobody holds locks on it")]
    pub(in super::super) fn create_private(path: &Path) {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let _ = options.open(path);
    }
}
