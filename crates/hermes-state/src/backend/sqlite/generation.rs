//! What the generation check looks at within the files: whether main file and log are still what the connections of the
//! store have made of them. Somebody who writes over a file in place, or cuts it, leaves its inode as it was.
//!
//! In a store with a log the main file only changes while the log is merged into it, which the shared memory announces
//! before and concludes afterwards; and the last frame of the log carries a checksum over all before it, which stands in
//! the shared memory too. So a few reads of some bytes tell, and cost a few microseconds.

use std::cell::Cell;

use rusqlite::Connection;

use super::own_files::OwnFile;

/// The header of a database, up to where its tables begin.
const HEADER: usize = 100;
/// Where that begins which may change: its magic words and the size of its pages stand before.
const PAGE_SIZE_END: usize = 18;

/// What has been seen of a store's files, by one connection.
#[derive(Default)]
pub(super) struct Generation {
    main: Cell<Option<Main>>,
    /// The salts of the log and the number of its frames.
    log: Cell<Option<([u32; 2], u32)>>,
}

/// The main file as it was last seen.
#[derive(Clone, Copy)]
struct Main {
    header: [u8; HEADER],
    /// How far the log had been merged; `None` while that was going on, or without a log.
    merged: Option<Merged>,
    /// Whether all pages that the header counts were there.
    whole: bool,
}

/// How far a log has been merged: which log, and up to which frame.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Merged {
    salts: [u32; 2],
    frames: u32,
}

/// The shared memory of the connections, as far as it is of interest.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shared {
    page_size: u32,
    frames: u32,
    pages: u32,
    /// As they stand in the frame, one after the other.
    checksum: [u32; 2],
    /// In the order of the bytes in the file.
    salts: [u32; 2],
    merged: u32,
    merging: u32,
}

impl Shared {
    /// Reads it; `None` while somebody is writing it, or where it is to be made anew from the log.
    fn read(main: &OwnFile<'_>) -> Option<Self> {
        let words = main.shared::<33>()?;
        let (one, other) = (&words[..12], &words[12..24]);
        let [is_set, ..] = words[3].to_ne_bytes();
        if one != other || is_set == 0 {
            return None;
        }
        let [_, _, low, high] = words[3].to_ne_bytes();
        let size = u32::from(u16::from_ne_bytes([low, high]));
        Some(Self {
            page_size: if size == 1 { 65536 } else { size },
            frames: words[4],
            pages: words[5],
            checksum: [words[6], words[7]],
            salts: [words[8], words[9]],
            merged: words[24],
            merging: words[32],
        })
    }

    /// How far the log has been merged, unless that is just going on or was broken off.
    fn settled(&self) -> Option<Merged> {
        (self.merged == self.merging).then_some(Merged { salts: self.salts, frames: self.merged })
    }
}

/// How often a log is looked at again that others were writing meanwhile.
const TRIES: usize = 5;

impl Generation {
    /// What is wrong with the files, if anything is. `main_bytes` is the length of the main file; `log`, whether the store
    /// has one, with its shared memory in its full length.
    pub(super) fn find_fault(&self, connection: &Connection, main_bytes: u64, log: bool) -> Option<String> {
        let main = OwnFile::main(connection)?;
        let Some(header) = main.read::<HEADER>(0) else {
            return Some("it was cut, and not even its header is left".to_owned());
        };
        // Merging is announced before the first page of the main file is written: what was read above had not been
        // changed by it unless it is seen here.
        let shared = if log { Shared::read(&main) } else { None };
        if let Some(fault) = self.fault_of_main(&main, &header, shared, main_bytes) {
            return Some(fault);
        }
        self.fault_of_log(&main, &OwnFile::log(connection).filter(|_| log)?, shared?)
    }

    fn fault_of_main(
        &self,
        main: &OwnFile<'_>,
        header: &[u8; HEADER],
        shared: Option<Shared>,
        bytes: u64,
    ) -> Option<String> {
        let merged = shared.and_then(|shared| shared.settled());
        let whole = bytes >= counted(header);
        if let Some(seen) = self.main.get() {
            let is_undisturbed = merged.is_some() && merged == seen.merged;
            if *header != seen.header {
                if is_undisturbed {
                    return Some("it was written over by something else than the programs that share it".to_owned());
                }
                if header[..PAGE_SIZE_END] != seen.header[..PAGE_SIZE_END] {
                    return Some("something else than this database was written over it".to_owned());
                }
            } else if is_undisturbed {
                if seen.whole && !whole {
                    return Some(format!("it was cut to {bytes} bytes"));
                }
                return None;
            }
        }
        // To compare with it later it has to be known what belongs together.
        let again = main.read::<HEADER>(0)?;
        // Where there is no log the shared memory is not asked for, which would make it.
        let is_settled_as_before =
            shared.is_none_or(|shared| Shared::read(main).map(|again| again.settled()) == Some(shared.settled()));
        let steady = again == *header && is_settled_as_before;
        self.main.set(Some(Main { header: again, merged: merged.filter(|_| steady), whole }));
        None
    }

    fn fault_of_log(&self, main: &OwnFile<'_>, log: &OwnFile<'_>, mut shared: Shared) -> Option<String> {
        for _ in 0..TRIES {
            let Some(fault) = self.fault_as_shared(log, &shared) else {
                self.log.set(Some((shared.salts, shared.frames)));
                return None;
            };
            // Others may have begun the log anew between the two looks.
            let again = Shared::read(main)?;
            if (again.salts, again.frames) == (shared.salts, shared.frames) {
                return Some(fault);
            }
            shared = again;
        }
        None
    }

    fn fault_as_shared(&self, log: &OwnFile<'_>, shared: &Shared) -> Option<String> {
        if let Some((salts, frames)) = self.log.get()
            && salts == shared.salts
            && shared.frames < frames
        {
            return Some("its log was set back to an earlier state".to_owned());
        }
        let last = i64::from(shared.frames.checked_sub(1)?);
        let at = 32 + last * (24 + i64::from(shared.page_size));
        let (Some(begin), Some(frame)) = (log.read::<8>(16), log.read::<24>(at)) else {
            return Some("its log was cut".to_owned());
        };
        let salts = [shared.salts[0].to_ne_bytes(), shared.salts[1].to_ne_bytes()].concat();
        let checksum = [shared.checksum[0].to_be_bytes(), shared.checksum[1].to_be_bytes()].concat();
        let is_ours = begin[..] == salts[..]
            && frame[8..16] == salts[..]
            && frame[16..] == checksum[..]
            && frame[4..8] == shared.pages.to_be_bytes();
        (!is_ours).then(|| "its log was written over by something else than the programs that share it".to_owned())
    }
}

/// How long a file with this header must be at least.
fn counted(header: &[u8; HEADER]) -> u64 {
    let size = u64::from(u16::from_be_bytes([header[16], header[17]]));
    let pages = u64::from(number(header, 28));
    // Programs of long ago left the number of pages as it was.
    let is_valid = header[24..28] == header[92..96];
    if is_valid { pages * if size == 1 { 65536 } else { size } } else { 0 }
}

fn number(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests;
