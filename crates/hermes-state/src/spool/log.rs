//! Writing a log: each record is on the disk when the call returns.
//!
//! A log is locked only while a record is being written. Who has stored all of its records removes it under the same lock, so
//! a writer that finds its log locked, or gone, begins another one.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::folder::{self, is_at};
use super::frame::HEAD;

/// A log that this process writes.
pub(super) struct Log {
    file: File,
    path: PathBuf,
    /// Up to here it holds whole records.
    length: u64,
    /// Its head is written with the first record.
    born: bool,
}

/// What became of a record.
pub(super) enum Outcome {
    Written,
    /// The log is somebody else's by now.
    Lost,
}

impl Log {
    /// Makes a log of this name, with its folder if that is missing. Both are this user's alone.
    pub(super) fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(name);
        // The folder is removed when the last record is stored, which may be just now.
        for _ in 0..100 {
            folder::make(folder)?;
            match folder::create_file(&path) {
                Ok(file) => return Ok(Self { file, path, length: 0, born: false }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        folder::create_file(&path).map(|file| Self { file, path, length: 0, born: false })
    }

    /// Adds a line and waits for the disk. What could not be written is taken back.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<Outcome> {
        match self.file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Ok(Outcome::Lost),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let outcome = if is_at(&self.file, &self.path) { self.write(line) } else { Ok(Outcome::Lost) };
        let _ = self.file.unlock();
        outcome
    }

    fn write(&mut self, line: &[u8]) -> io::Result<Outcome> {
        let written = if self.born {
            self.file.write_all(line).and_then(|()| self.file.sync_data())
        } else {
            self.file
                .write_all(&[HEAD, line].concat())
                .and_then(|()| self.file.sync_all())
                .and_then(|()| folder::sync(self.path.parent().unwrap_or(Path::new("."))))
        };
        match written {
            Ok(()) => {
                self.length += line.len() as u64 + if self.born { 0 } else { HEAD.len() as u64 };
                self.born = true;
                Ok(Outcome::Written)
            }
            Err(error) => {
                // A caller who is told that nothing was kept must not see it stored later.
                let _ = self.file.set_len(self.length).and_then(|()| self.file.sync_all());
                Err(error)
            }
        }
    }
}
