//! The slots of a sidecar: claiming one, what stands in it, and the line that their tickets form.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::byte_lock::{ByteLock, is_held};
use super::mapping::{Layout, Mapping, PROGRAM_BYTES, SLOTS, Slot};
use super::{Operation, Sibling, futex, identity};
use crate::backend::sqlite::lock::holder;

/// A claimed slot.
pub(super) struct Seat {
    pub(super) number: usize,
    pub(super) mapping: Mapping,
    lock: ByteLock,
}

/// The first of those that stand in line before somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) ticket: u64,
    /// How many stand before that somebody, this one included.
    pub(super) ahead: u32,
    slot: usize,
    beat: u32,
}

impl Front {
    /// Whether another is first by now, or the same one has shown that it is awake.
    pub(super) fn has_moved_since(&self, earlier: &Front) -> bool {
        (self.ticket, self.beat) != (earlier.ticket, earlier.beat)
    }
}

impl Seat {
    /// Claims the first free slot, creating the sidecar if need be.
    pub(super) fn claim(sidecar: &Path) -> Option<Self> {
        let open = || open(OpenOptions::new().read(true).write(true).create(true).mode(0o600), sidecar);
        let mapped = open().ok()?;
        let mapping = Mapping::join(&mapped)?;
        let (lock, number) = ByteLock::claim(open, (0..SLOTS).map(Layout::lock_of))?;
        // Between the two opens the sidecar may have been replaced; a byte of one file claims no slot of another.
        if !lock.is_on(&mapped) {
            return None;
        }
        let seat = Self { number, mapping, lock };
        seat.introduce();
        Some(seat)
    }

    fn introduce(&self) {
        let slot = self.slot();
        slot.clear();
        let pid = std::process::id();
        slot.started.store(identity::start_of(pid).unwrap_or(0), Relaxed);
        slot.namespace.store(identity::namespace(), Relaxed);
        let claimed_at = futex::now();
        slot.claimed_at.store(claimed_at, Relaxed);
        slot.claimed_wall.store(wall_stamp(SystemTime::now(), claimed_at), Relaxed);
        slot.set_program(&holder::program(pid.cast_signed()).unwrap_or_default());
        slot.pid.store(pid, Release);
        self.mapping.counters.used.fetch_max(self.number as u32 + 1, SeqCst);
    }

    pub(super) fn slot(&self) -> &Slot {
        self.mapping.slot(self.number)
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        self.lock.is_of_this_process()
    }

    pub(super) fn list(&self) -> Vec<Sibling> {
        self.mapping
            .slots()
            .iter()
            .enumerate()
            .filter(|(number, _)| self.is_live(*number))
            .filter_map(|(_, slot)| slot.describe())
            .collect()
    }

    fn is_live(&self, number: usize) -> bool {
        number == self.number || self.lock.file().is_some_and(|file| is_held(file, Layout::lock_of(number)))
    }

    /// Takes the next ticket.
    ///
    /// Before it is drawn the slot already shows a lower bound of it, so that nobody who draws a later one can look at
    /// the line in between and find it without this one (the "choosing" of Lamport's bakery).
    pub(super) fn take_ticket(&self, operation: Operation) -> u64 {
        let slot = self.slot();
        slot.operation.store(operation as u32, Relaxed);
        let counter = &self.mapping.counters.last_ticket;
        slot.waiting_since.store(futex::now(), Relaxed);
        let bound = counter.load(SeqCst).wrapping_add(1).max(1);
        slot.ticket.store(bound, SeqCst);
        let ticket = counter.fetch_add(1, SeqCst).wrapping_add(1).max(1);
        if ticket != bound {
            slot.ticket.store(ticket, SeqCst);
            // Somebody with a ticket between the two may have gone to sleep behind the bound, and nobody else will
            // wake it.
            self.wake_first();
        }
        ticket
    }

    /// Whether this one still stands in line with that ticket: others may have passed over it.
    pub(super) fn has_ticket(&self, ticket: u64) -> bool {
        self.slot().ticket.load(SeqCst) == ticket
    }

    /// The first living one that stands in line before the holder of `ticket`. Strikes out the dead it meets.
    pub(super) fn front_before(&self, ticket: u64) -> Option<Front> {
        loop {
            let mut front: Option<Front> = None;
            for (number, slot) in self.mapping.slots().iter().enumerate() {
                let other = slot.ticket.load(SeqCst);
                if other == 0 || other >= ticket || number == self.number {
                    continue;
                }
                let ahead = front.map_or(0, |front| front.ahead) + 1;
                front = match front {
                    Some(front) if front.ticket < other => Some(Front { ahead, ..front }),
                    _ => Some(Front { ticket: other, ahead, slot: number, beat: slot.beat.load(Relaxed) }),
                };
            }
            let front = front?;
            if self.is_live(front.slot) {
                return Some(front);
            }
            self.strike(front);
        }
    }

    /// Takes somebody out of the line, unless it has left its place meanwhile.
    pub(super) fn strike(&self, front: Front) {
        let _ = self.mapping.slot(front.slot).ticket.compare_exchange(front.ticket, 0, SeqCst, SeqCst);
    }

    /// Shows those behind that this one is awake and tries for SQLite's lock.
    pub(super) fn beat(&self) {
        let beat = &self.slot().beat;
        beat.store(beat.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(super) fn mark_holding(&self, operation: Operation) {
        let slot = self.slot();
        slot.operation.store(operation as u32, Relaxed);
        slot.holding_since.store(futex::now(), Relaxed);
        slot.waiting_since.store(0, Relaxed);
    }

    /// Leaves the line and wakes whoever is the first in it now.
    pub(super) fn leave_line(&self) {
        let slot = self.slot();
        slot.holding_since.store(0, Relaxed);
        slot.waiting_since.store(0, Relaxed);
        slot.operation.store(0, Relaxed);
        slot.ticket.store(0, SeqCst);
        self.wake_first();
    }

    fn wake_first(&self) {
        if let Some(front) = self.front_before(u64::MAX) {
            let word = &self.mapping.slot(front.slot).word;
            word.fetch_add(1, SeqCst);
            futex::wake(word);
        }
    }

    /// To be read before looking at the line, and given to [`Seat::sleep`]: a wake in between is then not missed.
    pub(super) fn word(&self) -> u32 {
        self.slot().word.load(SeqCst)
    }

    pub(super) fn sleep(&self, word: u32, at_most: Duration) {
        futex::wait(&self.slot().word, word, at_most);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // In a child neither the slot nor the mapping is there. The lock goes last: others may claim the slot then.
        if self.is_of_this_process() {
            self.slot().clear();
        }
    }
}

impl Slot {
    fn clear(&self) {
        self.pid.store(0, SeqCst);
        self.ticket.store(0, SeqCst);
        self.waiting_since.store(0, Relaxed);
        self.holding_since.store(0, Relaxed);
        self.operation.store(0, Relaxed);
    }

    pub(super) fn set_program(&self, name: &str) {
        let mut bytes = [0; PROGRAM_BYTES];
        let length = (0..=name.len().min(PROGRAM_BYTES)).rfind(|end| name.is_char_boundary(*end)).unwrap_or(0);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        for (word, bytes) in self.program.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*bytes), Relaxed);
        }
    }

    pub(super) fn program(&self) -> String {
        let bytes: Vec<u8> = self.program.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// When it was claimed, in whole seconds: once and for all, since clocks that are read one after the other, and one
    /// of which may be set, give another answer every time. Nothing where the owner's release tells nothing.
    fn claimed_on_the_wall(&self) -> Option<SystemTime> {
        let (stamp, claimed_at) = (self.claimed_wall.load(Relaxed), self.claimed_at.load(Relaxed));
        let time = UNIX_EPOCH + Duration::from_secs(stamp >> CLAIM_BITS);
        (stamp == wall_stamp(time, claimed_at)).then_some(time)
    }

    /// What stands in a slot whose byte is locked; nothing if that lock is only an heirloom of a child whose fork ran no
    /// handlers, which the number and start of the process show where they mean anything.
    fn describe(&self) -> Option<Sibling> {
        let pid = self.pid.load(SeqCst);
        let here = self.namespace.load(Relaxed) == identity::namespace();
        if pid == 0 || here && identity::start_of(pid) != Some(self.started.load(Relaxed)) {
            return None;
        }
        // Its number means another process here, or none.
        let elsewhere = if here { "" } else { " in another container" };
        let now = futex::now();
        let age = |since: u64| (since != 0).then(|| Duration::from_nanos(now.saturating_sub(since)));
        Some(Sibling {
            pid,
            program: self.program() + elsewhere,
            open_for: age(self.claimed_at.load(Relaxed)).unwrap_or_default(),
            open_since: self.claimed_on_the_wall(),
            operation: Operation::name_of(self.operation.load(Relaxed)),
            waiting_for: age(self.waiting_since.load(Relaxed)),
            holding_for: age(self.holding_since.load(Relaxed)),
        })
    }
}

/// How much of the monotonic time of its claim a slot's time on the wall carries: what an earlier owner left is then
/// told from what this one has written.
const CLAIM_BITS: u32 = 20;

fn wall_stamp(time: SystemTime, claimed_at: u64) -> u64 {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    seconds << CLAIM_BITS | claimed_at & ((1 << CLAIM_BITS) - 1)
}

/// The living, seen by somebody without a slot.
pub(super) fn look(sidecar: &Path) -> Vec<Sibling> {
    let Ok(file) = open(OpenOptions::new().read(true), sidecar) else { return Vec::new() };
    let Some(mapping) = Mapping::look(&file) else { return Vec::new() };
    mapping
        .slots()
        .iter()
        .enumerate()
        .filter(|(number, _)| is_held(&file, Layout::lock_of(*number)))
        .filter_map(|(_, slot)| slot.describe())
        .collect()
}

/// Opens a sidecar and nothing else: neither what a link leads to nor, waiting for its other end, a pipe.
#[expect(clippy::disallowed_methods, reason = "the sidecar is no store file: no lock of SQLite's is on it")]
fn open(options: &mut OpenOptions, sidecar: &Path) -> std::io::Result<File> {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(sidecar)
}
