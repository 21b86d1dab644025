//! Finds the store and opens it, for looking or for writing.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_state::{OpenOptions, Patience, SessionDb};

use crate::arguments::Global;
use crate::environment::Home;
use crate::error::{CommandError, Kind};
use crate::output::note;

/// A store to look at; nobody may have made it yet.
pub(crate) struct Looked {
    pub(crate) path: PathBuf,
    pub(crate) db: Option<SessionDb>,
}

impl Looked {
    /// Tells people why there is nothing to see.
    pub(crate) fn note_if_missing(&self) {
        if self.db.is_none() {
            note(&format!("there is no store at {} yet", self.path.display()));
        }
    }
}

/// Opens the store for looking: creates nothing and changes nothing.
pub(crate) fn look(global: &Global) -> Result<Looked, CommandError> {
    let (path, _) = locate(global)?;
    // An empty file is a store that nobody has written to.
    let exists = match path.metadata() {
        Ok(metadata) => !metadata.is_file() || metadata.len() > 0,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error.into()),
    };
    let db = if exists { Some(SessionDb::open_read_only(&path)?) } else { None };
    Ok(Looked { path, db })
}

/// Opens the store for writing, making it if it is missing. `patience` replaces how long writes wait for others.
pub(crate) fn open(global: &Global, patience: Option<Duration>) -> Result<SessionDb, CommandError> {
    let (path, home) = locate(global)?;
    let patience = patience.map_or_else(Patience::default, |time| Patience { transcript: time, routine: time });
    let mut options = OpenOptions::new().patience(patience);
    if let Some(home) = home {
        options = options.sessions_json(home.sessions_json()).cjk(home.has_cjk_tokenizer());
    }
    Ok(options.open(&path)?)
}

fn locate(global: &Global) -> Result<(PathBuf, Option<Home>), CommandError> {
    let home = Home::find();
    if let Some(path) = &global.db {
        if path == Path::new(":memory:") {
            return Err(CommandError::new(Kind::Usage, "a store in memory would end with this command; name a file"));
        }
        return Ok((path.clone(), home));
    }
    let home = home.ok_or_else(|| {
        CommandError::new(Kind::Usage, "this user has no home folder").hint("Name the store with --db PATH.")
    })?;
    if let Some(warning) = &home.warning {
        note(warning);
    }
    Ok((home.store(), Some(home)))
}
