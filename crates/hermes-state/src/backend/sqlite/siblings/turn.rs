//! The line of those that want to write: first come, first served, and nobody waits on a ticket alone.

use std::time::{Duration, Instant};

use super::slots::Front;
use super::{Operation, Siblings};

/// How long the first in line may do nothing before those behind it try for SQLite's lock themselves. A working holder
/// is such a case too, but then SQLite refuses them.
const STILL: Duration = Duration::from_millis(100);
/// How much later one that stands further back does so: the line holds among them as well.
const STILL_PER_PLACE: Duration = Duration::from_millis(10);
/// How often one tries that is not first.
const COARSE: Duration = Duration::from_millis(20);
/// How long one sleeps at most before it looks whether the first in line has died.
const LOOK: Duration = Duration::from_millis(20);

/// What one in line may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// First in line: try for SQLite's lock, and if it is busy, again after at most a millisecond.
    First,
    /// Without a slot there is no line: try, and if it is busy, ever more seldom, since others may be doing the same.
    Unordered,
    /// Behind one that has not moved for long, stopped or stuck: try for SQLite's lock once.
    Overdue,
    /// Behind others, and the time to wait is over.
    Behind,
}

/// A place in line, and the turn to write once it is the first. To be given back by [`Place::leave`].
///
/// ```text
/// let mut place = Place::take(&siblings, Operation::Write);
/// loop {
///     match place.wait(&siblings, slice) {
///         Standing::Behind => {}
///         Standing::First | Standing::Overdue => if BEGIN IMMEDIATE succeeds { break },
///     }
///     // give up here when the deadline has passed or the gate closes; after First sleep for half a millisecond
/// }
/// place.holding(&siblings, Operation::Write);
/// // write and commit
/// place.leave(&siblings);
/// ```
#[must_use = "a place that is not left keeps the others waiting"]
pub(crate) struct Place {
    pub(super) ticket: u64,
    operation: Operation,
    /// The first in line as last seen, and since when it has not moved.
    watched: Option<(Front, Instant)>,
    /// When this one, behind it, last tried for SQLite's lock.
    tried: Option<Instant>,
}

impl Place {
    /// Takes the last place in the line of those that want to write. One store has one at a time.
    pub(crate) fn take(siblings: &Siblings, operation: Operation) -> Self {
        let ticket = siblings.seat().map_or(0, |seat| seat.take_ticket(operation));
        Self { ticket, operation, watched: None, tried: None }
    }

    /// Waits for something to do, at most so long.
    ///
    /// To be asked again before each further try for SQLite's lock, also by the first in line: it costs no system call
    /// and shows those behind that this one is awake. Without a slot there is nothing to wait for.
    pub(crate) fn wait(&mut self, siblings: &Siblings, at_most: Duration) -> Standing {
        let Some(seat) = siblings.seat() else { return Standing::Unordered };
        let mut until = None;
        loop {
            let word = seat.word();
            if !seat.has_ticket(self.ticket) {
                // Stopped for so long that somebody passed over it: back to the end of the line.
                self.ticket = seat.take_ticket(self.operation);
            }
            let Some(front) = seat.front_before(self.ticket) else {
                self.watched = None;
                seat.beat();
                return Standing::First;
            };
            let now = Instant::now();
            let until = *until.get_or_insert(now + at_most);
            let still_since = match self.watched {
                Some((earlier, since)) if !front.has_moved_since(&earlier) => since,
                _ => now,
            };
            self.watched = Some((front, still_since));
            let overdue = still_since + STILL + STILL_PER_PLACE * (front.ahead - 1);
            let overdue = self.tried.map_or(overdue, |tried| overdue.max(tried + COARSE));
            if now >= overdue {
                self.tried = Some(now);
                return Standing::Overdue;
            }
            if now >= until {
                return Standing::Behind;
            }
            seat.sleep(word, until.min(overdue).min(now + LOOK) - now);
        }
    }

    /// Says that SQLite's lock has been got and what for. Whoever stood still before this one is taken out of the line:
    /// it does not hold the lock, and the others need not wait for it as well. It lines up again when it wakes.
    pub(crate) fn holding(&mut self, siblings: &Siblings, operation: Operation) {
        let Some(seat) = siblings.seat() else { return };
        seat.mark_holding(operation);
        if let Some((front, _)) = self.watched.take() {
            seat.strike(front);
        }
    }

    /// Leaves the line, or hands the turn on to the next in it.
    pub(crate) fn leave(self, siblings: &Siblings) {
        if let Some(seat) = siblings.seat() {
            seat.leave_line();
        }
    }
}
