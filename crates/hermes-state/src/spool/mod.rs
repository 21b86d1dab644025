//! The spool: where writes of a transcript are kept that the store cannot take for now, on the disk and in order, until
//! somebody can store them.

mod cause;
mod folder;
mod frame;
pub(crate) mod health;
mod log;
mod record;
mod replay;
mod ticket;

use std::collections::{HashMap, hash_map};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use self::frame::{Line, Lines, frame};
use self::log::{Log, Outcome};
pub use self::record::SpooledWrite;
pub use self::replay::ReplayReport;
pub use self::ticket::Ticket;
use crate::backend::sqlite::lock;
use crate::error::{Error, Result};
use crate::message::NewMessage;
use crate::value::Value;

/// How long somebody who stores what is spooled is waited for before it is discarded.
const DISCARDING: Duration = Duration::from_secs(20);

/// How much a spool keeps before it refuses more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Bytes of its logs.
    pub bytes: u64,
    /// Writes in them.
    pub writes: u64,
}

impl Default for SpoolLimits {
    fn default() -> Self {
        Self { bytes: 256 << 20, writes: 100_000 }
    }
}

/// What a spool holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpoolStatus {
    /// Its folder, which is there only while it holds something.
    pub folder: PathBuf,
    /// Writes that wait for the store.
    pub writes: u64,
    /// Bytes of the logs that they stand in.
    pub bytes: u64,
    /// The oldest of the waiting writes.
    pub oldest: Option<Ticket>,
    /// Writes that the store refused; they are kept, and hold up nobody.
    pub refused: u64,
    /// Lines of logs that cannot be read; they are kept, and hold up nobody.
    pub damaged: u64,
}

/// The spool of one store.
///
/// It needs no store that can be opened, so that what is spooled can always be looked at.
///
/// ```
/// use hermes_state::Spool;
/// let folder = tempfile::tempdir().unwrap();
/// let spool = Spool::of(folder.path().join("state.db"), None)?.unwrap();
/// assert_eq!(spool.status()?.writes, 0);
/// # Ok::<(), hermes_state::Error>(())
/// ```
pub struct Spool {
    location: PathBuf,
    folder: PathBuf,
    limits: SpoolLimits,
    writer: Mutex<Writer>,
    /// Logs all of whose records up to this length are stored, and that could not be removed.
    settled: Mutex<HashMap<PathBuf, u64>>,
}

#[derive(Default)]
struct Writer {
    log: Option<Log>,
    /// How much of each log was looked at, and how many records that were.
    counted: HashMap<PathBuf, (u64, u64)>,
    /// The newest ticket that was seen.
    newest: Option<Ticket>,
}

/// A place in a log, and what is there.
struct Entry {
    ticket: Ticket,
    log: usize,
    at: u64,
    length: u64,
}

/// What the logs hold.
#[derive(Default)]
struct Contents {
    logs: Vec<LogState>,
    /// In the order in which they were spooled.
    entries: Vec<Entry>,
}

struct LogState {
    path: PathBuf,
    /// How much of it was understood.
    length: u64,
    damaged: u64,
    foreign: bool,
}

impl Spool {
    /// The spool of the store at `location`: beside its file, or in `folder`, which the spools of any number of stores may
    /// share and those on servers need. `None` if there is no place for one.
    ///
    /// # Errors
    /// [`Error::CannotOpen`] if the location has no absolute path, [`Error::Server`] if it is no URL.
    pub fn of(location: impl AsRef<Path>, folder: Option<&Path>) -> Result<Option<Self>> {
        Self::with_limits(location.as_ref(), folder, SpoolLimits::default())
    }

    pub(crate) fn with_limits(location: &Path, folder: Option<&Path>, limits: SpoolLimits) -> Result<Option<Self>> {
        let Some(known) = crate::backend::store::identify(location)? else { return Ok(None) };
        let folder = match folder {
            Some(folder) => folder.join(name_of(&known)),
            None if crate::is_url(&known) => return Ok(None),
            None => {
                let mut name = known.clone().into_os_string();
                name.push("-spool");
                name.into()
            }
        };
        Ok(Some(Self { location: known, folder, limits, writer: Mutex::default(), settled: Mutex::default() }))
    }

    /// The store that it is for: the resolved path of its file, or its URL without the password.
    #[must_use]
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// Where it keeps what it holds.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::Spool {
            folder: self.folder.clone(),
            message: error.to_string(),
            errno: error.raw_os_error(),
            cause: None,
        }
    }

    /// Whether this user could keep something here.
    pub(crate) fn has_a_place(&self) -> bool {
        let there = self.folder.ancestors().find(|folder| folder.exists());
        there.is_some_and(|folder| folder.is_dir() && crate::backend::sqlite::writable(folder))
    }

    /// Whether there may be something to store. One look at the file system, as the folder is not there mostly.
    pub(crate) fn may_hold_something(&self) -> bool {
        self.folder.exists()
    }

    /// Keeps a write that the store could not take because of `cause`. It is on the disk when this returns.
    pub(crate) fn keep(
        &self,
        session_id: &Value,
        messages: &[NewMessage],
        attempt: Option<Uuid>,
        cause: &Error,
    ) -> Result<Ticket> {
        let mut writer = self.writer();
        let unkept =
            Unkept { session_id: session_id.clone(), messages: messages.to_vec(), attempt, cause: cause.clone() };
        let kept = writer.keep(&self.folder, self.limits, &unkept);
        if !matches!(&kept, Err(Error::Spool { errno: Some(libc::EMFILE | libc::ENFILE), .. })) {
            return kept;
        }
        // The store's threads may have descriptors of their own. What is opened there has to be closed there.
        let (folder, limits, newest) = (self.folder.clone(), self.limits, writer.newest);
        let elsewhere = move || Writer { newest, ..Writer::default() }.keep(&folder, limits, &unkept);
        let kept = lock::crew::owners().run(elsewhere).unwrap_or(kept)?;
        writer.newest = Some(kept);
        Ok(kept)
    }

    /// What it holds.
    ///
    /// # Errors
    /// [`Error::Spool`] if it cannot be read.
    pub fn status(&self) -> Result<SpoolStatus> {
        let failed = |error| self.failed(&error);
        let files = folder::files(&self.folder).map_err(failed)?;
        let mut damaged = 0;
        for path in &files.damaged {
            damaged += read_log(path, 0, &mut Vec::new()).map_err(failed)?.map_or(0, |log| log.damaged);
        }
        let contents = self.contents(&files.logs).map_err(failed)?;
        Ok(SpoolStatus {
            folder: self.folder.clone(),
            writes: contents.entries.len() as u64,
            bytes: contents.logs.iter().map(|log| log.length).sum(),
            oldest: contents.entries.first().map(|entry| entry.ticket),
            refused: files.refused.len() as u64,
            damaged: damaged + contents.logs.iter().map(|log| log.damaged).sum::<u64>(),
        })
    }

    /// Everything that it holds, in the order in which it was spooled; what the store refused comes last.
    ///
    /// # Errors
    /// As [`status`](Spool::status).
    pub fn writes(&self) -> Result<Vec<SpooledWrite>> {
        let failed = |error| self.failed(&error);
        let files = folder::files(&self.folder).map_err(failed)?;
        let contents = self.contents(&files.logs).map_err(failed)?;
        let mut writes: Vec<_> =
            read_records(&contents, &contents.entries).map_err(failed)?.into_iter().flatten().collect();
        for path in &files.refused {
            let mut found = Vec::new();
            let Some(log) = read_log(path, 0, &mut found).map_err(failed)? else { continue };
            let contents = Contents { logs: vec![log], entries: found };
            writes.extend(read_records(&contents, &contents.entries).map_err(failed)?.into_iter().flatten());
        }
        Ok(writes)
    }

    /// Drops a write for good; says whether there was one of this ticket.
    ///
    /// # Errors
    /// [`Error::Busy`] while another process is storing what is spooled; [`Error::Spool`] if it cannot be changed.
    pub fn discard(&self, ticket: Ticket) -> Result<bool> {
        let failed = |error| self.failed(&error);
        let _turn = self.turn(Instant::now() + DISCARDING)?;
        let refused = self.folder.join(folder::refused_name(ticket));
        let mut found = refused.exists();
        if found {
            folder::remove(&refused).map_err(failed)?;
        }
        for path in folder::files(&self.folder).map_err(failed)?.logs {
            found |= self.without(&path, ticket).map_err(failed)?;
        }
        folder::remove_if_empty(&self.folder);
        Ok(found)
    }

    /// Drops everything for good; returns how much that was: writes that waited or were refused, and records that cannot
    /// be read.
    ///
    /// # Errors
    /// As [`discard`](Spool::discard).
    pub fn discard_all(&self) -> Result<u64> {
        let failed = |error| self.failed(&error);
        let _turn = self.turn(Instant::now() + DISCARDING)?;
        let held = self.status()?;
        let files = folder::files(&self.folder).map_err(failed)?;
        for path in files.logs.iter().chain(&files.refused).chain(&files.damaged) {
            folder::remove(path).map_err(failed)?;
        }
        folder::remove_if_empty(&self.folder);
        Ok(held.writes + held.refused + held.damaged)
    }

    /// Writes a log anew without this record; says whether it had it.
    fn without(&self, path: &Path, ticket: Ticket) -> std::io::Result<bool> {
        let mut entries = Vec::new();
        let Some(log) = read_log(path, 0, &mut entries)? else { return Ok(false) };
        let Some(unwanted) = entries.iter().find(|entry| entry.ticket == ticket) else { return Ok(false) };
        let mut input = folder::read_file(path)?;
        // Its writer begins another one when it finds this one locked or gone.
        input.get_ref().lock()?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut input, &mut bytes)?;
        let from = usize::try_from(unwanted.at).unwrap_or(usize::MAX);
        let to = usize::try_from(unwanted.at + unwanted.length).unwrap_or(usize::MAX);
        bytes.drain(from..to);
        if entries.len() == 1 && log.damaged == 0 && bytes == frame::HEAD {
            folder::remove(path)?;
        } else {
            folder::replace_file(path, &bytes)?;
        }
        Ok(true)
    }

    /// Reads the logs. One that is removed meanwhile holds nothing any more.
    fn contents(&self, logs: &[PathBuf]) -> std::io::Result<Contents> {
        let mut contents = Contents::default();
        for path in logs {
            if let Some(log) = read_log(path, contents.logs.len(), &mut contents.entries)? {
                contents.logs.push(log);
            }
        }
        contents.entries.sort_by_key(|entry| entry.ticket);
        Ok(contents)
    }
}

/// Reads these records; of a newer release's there is nothing that could be understood.
fn read_records(contents: &Contents, entries: &[Entry]) -> std::io::Result<Vec<Option<SpooledWrite>>> {
    use std::io::{Read as _, Seek as _};
    let mut open: HashMap<usize, std::io::BufReader<std::fs::File>> = HashMap::new();
    let mut writes = Vec::with_capacity(entries.len());
    for entry in entries {
        let input = match open.entry(entry.log) {
            hash_map::Entry::Occupied(open) => open.into_mut(),
            hash_map::Entry::Vacant(vacant) => vacant.insert(folder::read_file(&contents.logs[entry.log].path)?),
        };
        input.seek(std::io::SeekFrom::Start(entry.at))?;
        let mut line = vec![0; usize::try_from(entry.length).unwrap_or_default()];
        input.read_exact(&mut line)?;
        writes.push(match frame::read(line.strip_suffix(b"\n").unwrap_or(&line)) {
            Some(Line::Record { ticket, body }) => SpooledWrite::from_json(ticket, &body),
            _ => None,
        });
    }
    Ok(writes)
}

/// A write that is to be kept, and why.
struct Unkept {
    session_id: Value,
    messages: Vec<NewMessage>,
    attempt: Option<Uuid>,
    cause: Error,
}

impl Writer {
    fn keep(&mut self, folder: &Path, limits: SpoolLimits, unkept: &Unkept) -> Result<Ticket> {
        let because = |error: std::io::Error| Error::Spool {
            folder: folder.to_owned(),
            message: error.to_string(),
            errno: error.raw_os_error(),
            cause: Some(Box::new(unkept.cause.clone())),
        };
        let (bytes, writes) = self.count(folder).map_err(because)?;
        let ticket = Ticket::next(self.newest);
        let write = SpooledWrite {
            ticket,
            session_id: unkept.session_id.clone(),
            messages: unkept.messages.clone(),
            attempt: unkept.attempt,
            refused: None,
        };
        let line = frame(ticket, &write.to_json());
        if writes >= limits.writes || bytes + line.len() as u64 > limits.bytes {
            let cause = Box::new(unkept.cause.clone());
            return Err(Error::SpoolFull { folder: folder.to_owned(), writes, bytes, cause });
        }
        loop {
            let mut log = match self.log.take() {
                Some(log) => log,
                None => Log::create(folder, &folder::log_name(Ticket::next(None))).map_err(because)?,
            };
            if let Outcome::Written = log.append(&line).map_err(because)? {
                self.log = Some(log);
                self.newest = Some(ticket);
                return Ok(ticket);
            }
        }
    }

    /// The bytes of the logs and the records in them. What others add is read once.
    fn count(&mut self, folder: &Path) -> std::io::Result<(u64, u64)> {
        let logs = folder::files(folder)?.logs;
        let before = std::mem::take(&mut self.counted);
        let mut bytes = 0;
        for path in logs {
            let Ok(found) = std::fs::metadata(&path) else { continue };
            bytes += found.len();
            let known = before.get(&path).copied().filter(|(length, _)| *length == found.len());
            let known = match known {
                Some(known) => known,
                None => self.count_log(&path, before.get(&path).copied())?,
            };
            self.counted.insert(path, known);
        }
        Ok((bytes, self.counted.values().map(|(_, records)| records).sum()))
    }

    fn count_log(&mut self, path: &Path, before: Option<(u64, u64)>) -> std::io::Result<(u64, u64)> {
        let mut input = folder::read_file(path)?;
        let (from, mut records) = before.unwrap_or_default();
        let Some((mut length, mut lines)) = Lines::resume(&mut input, from)? else {
            return Ok((0, 0));
        };
        while let Some((at, bytes, line)) = lines.next()? {
            length = at + bytes;
            if let Line::Record { ticket, .. } = line {
                records += 1;
                self.newest = self.newest.max(Some(ticket));
            }
        }
        Ok((length, records))
    }
}

/// Reads a log through and adds its records; `None` if it is not there any more.
fn read_log(path: &Path, number: usize, entries: &mut Vec<Entry>) -> std::io::Result<Option<LogState>> {
    let mut input = match folder::read_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        input => input?,
    };
    let (head, mut lines) = Lines::begin(&mut input)?;
    let mut log = LogState { path: path.to_owned(), length: 0, damaged: 0, foreign: head == frame::Head::Foreign };
    if head == frame::Head::Ours {
        log.length = frame::HEAD.len() as u64;
        while let Some((at, length, line)) = lines.next()? {
            log.length = at + length;
            match line {
                Line::Record { ticket, .. } => entries.push(Entry { ticket, log: number, at, length }),
                Line::Damaged => log.damaged += 1,
            }
        }
    }
    Ok(Some(log))
}

/// The name of a store's folder among those of others: what people know it by, and what tells it from others of that name.
fn name_of(location: &Path) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(location.as_os_str().as_encoded_bytes());
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let name = location.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(64).collect();
    format!("{name}-{digest}")
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("folder", &self.folder).finish_non_exhaustive()
    }
}
