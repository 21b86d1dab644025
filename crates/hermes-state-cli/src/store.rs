//! Finds the store, a file or a schema of a server, and opens it, for looking or for writing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_state::{Error, Examination, OpenOptions, Patience, ServerTrouble, SessionDb, Spool, is_url};

use crate::arguments::Global;
use crate::environment::{self, Home};
use crate::error::{CommandError, Kind};
use crate::output::note;

/// A store to look at; nobody may have made it yet.
pub(crate) struct Looked {
    location: PathBuf,
    pub(crate) db: Option<SessionDb>,
}

impl Looked {
    /// Where it is: the path, or the URL without its password.
    pub(crate) fn location(&self) -> String {
        shown(&self.location)
    }

    /// Tells people why there is nothing to see.
    pub(crate) fn note_if_missing(&self) {
        if self.db.is_none() {
            note(&self.missing());
        }
    }

    /// That there is nothing to see.
    pub(crate) fn missing(&self) -> String {
        format!("there is no store at {} yet", self.location())
    }
}

/// A location of the library's as text for people and for JSON, which have none for names that are no UTF-8.
pub(crate) fn shown(location: &Path) -> String {
    location.to_string_lossy().into_owned()
}

/// Where the store is, whether it is there or not.
pub(crate) fn location(global: &Global) -> Result<PathBuf, CommandError> {
    locate(global).map(|(location, _)| location)
}

/// Opens the store for looking: creates nothing and changes nothing.
pub(crate) fn look(global: &Global) -> Result<Looked, CommandError> {
    let (location, _) = locate(global)?;
    if is_url(&location) {
        return match options(&location)?.read_only(true).open(&location) {
            Ok(db) => Ok(Looked { location: db.path().to_owned(), db: Some(db) }),
            Err(Error::Server { path, trouble: ServerTrouble::NoStore { .. } }) => {
                Ok(Looked { location: path, db: None })
            }
            Err(error) => Err(error.into()),
        };
    }
    // An empty file is a store that nobody has written to.
    let exists = match location.metadata() {
        Ok(metadata) => !metadata.is_file() || metadata.len() > 0,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error.into()),
    };
    let db = if exists { Some(SessionDb::open_read_only(&location)?) } else { None };
    Ok(Looked { location, db })
}

/// Opens the store for writing, making it if it is missing. `patience` replaces how long writes wait for others.
pub(crate) fn open(global: &Global, patience: Option<Duration>) -> Result<SessionDb, CommandError> {
    open_with(global, patience, |options| options.spool(false))
}

/// The same with the store's spool, which takes the messages that the store cannot take.
pub(crate) fn open_with_spool(global: &Global, patience: Option<Duration>) -> Result<SessionDb, CommandError> {
    let (location, home) = locate(global)?;
    let folder = spool_folder(&location, home.as_ref());
    open_with(global, patience, |options| options.spool_folder(folder))
}

/// The spool of the store, which need not be there.
pub(crate) fn spool(global: &Global) -> Result<Option<Spool>, CommandError> {
    let (location, home) = locate(global)?;
    Ok(Spool::of(&location, spool_folder(&location, home.as_ref()).as_deref())?)
}

/// Examines the store and its spool.
pub(crate) fn examine(global: &Global) -> Result<Examination, CommandError> {
    let (location, home) = locate(global)?;
    Ok(options(&location)?.spool_folder(spool_folder(&location, home.as_ref())).examine(&location)?)
}

/// Beside a file; for a server, which has no place for it, in the home folder.
fn spool_folder(location: &Path, home: Option<&Home>) -> Option<PathBuf> {
    home.filter(|_| is_url(location)).map(Home::spools)
}

fn open_with(
    global: &Global,
    patience: Option<Duration>,
    more: impl FnOnce(OpenOptions) -> OpenOptions,
) -> Result<SessionDb, CommandError> {
    let (location, home) = locate(global)?;
    let patience = patience.map_or_else(Patience::default, |time| Patience { transcript: time, routine: time });
    let mut options = options(&location)?.patience(patience);
    if let Some(home) = home {
        options = options.sessions_json(home.sessions_json()).cjk(home.has_cjk_tokenizer());
    }
    Ok(more(options).open(&location)?)
}

/// How to open what is at this location, as far as the environment says.
pub(crate) fn options(location: &Path) -> Result<OpenOptions, CommandError> {
    let options = OpenOptions::new();
    Ok(if is_url(location) { options.password(environment::password()?) } else { options })
}

/// What is in memory ends with the process, which is of no use to anybody here.
pub(crate) fn refuse_memory(location: &Path) -> Result<(), CommandError> {
    if location == Path::new(":memory:") {
        let message = "a store in memory would end with this command; name a file or a server";
        return Err(CommandError::new(Kind::Usage, message));
    }
    Ok(())
}

fn locate(global: &Global) -> Result<(PathBuf, Option<Home>), CommandError> {
    let home = Home::find();
    let named = match &global.db {
        Some(location) => Some(location.clone()),
        None => environment::server_url()?,
    };
    if let Some(location) = named {
        refuse_memory(&location)?;
        let location = if is_url(&location) { location } else { std::path::absolute(location)? };
        return Ok((location, home));
    }
    let home = home.ok_or_else(|| {
        CommandError::new(Kind::Usage, "this user has no home folder")
            .hint("Name the store with --db, or a server's by HERMES_STATE_URL.")
    })?;
    if let Some(warning) = &home.warning {
        note(warning);
    }
    Ok((home.store(), Some(home)))
}
