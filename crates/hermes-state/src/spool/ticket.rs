//! Tickets: the names of spooled writes, which ascend in the order in which they were spooled.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uuid::{Builder, NoContext, Timestamp, Uuid};

use crate::backend::sqlite::lock::PerProcess;
use crate::error::Error;

/// The name of a spooled write. Of two, the one that was spooled later is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(Uuid);

/// The time of this process's newest ticket, in ticks.
static NEWEST: PerProcess<Mutex<u64>> = PerProcess::new(|| Mutex::new(0));

/// How many ticks a millisecond has: as many as the twelve bits behind the milliseconds of such an id tell apart.
const TICKS: u64 = 1 << 12;

impl Ticket {
    /// One that comes after all others of this process, and after `floor`, whatever the clock says.
    pub(super) fn next(floor: Option<Self>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let fraction = u64::from(since.subsec_nanos() % 1_000_000) * TICKS / 1_000_000;
        let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX / TICKS) * TICKS + fraction;
        let ticks = {
            let mut newest = NEWEST.get().lock().unwrap_or_else(PoisonError::into_inner);
            *newest = now.max(newest.max(floor.map_or(0, Self::ticks)) + 1);
            *newest
        };
        // Chance in the rest keeps those of other processes apart.
        let chance = Uuid::new_v7(Timestamp::now(NoContext));
        let mut rest = [0; 10];
        let [high, low] = u16::try_from(ticks % TICKS).unwrap_or_default().to_be_bytes();
        rest[..2].copy_from_slice(&[high, low]);
        rest[2..].copy_from_slice(&chance.as_bytes()[8..]);
        Self(Builder::from_unix_timestamp_millis(ticks / TICKS, &rest).into_uuid())
    }

    fn ticks(self) -> u64 {
        let bytes = self.0.as_bytes();
        let millis = bytes[..6].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        millis * TICKS + (u64::from(bytes[6] & 0x0f) << 8 | u64::from(bytes[7]))
    }

    /// When it was given, by the clock of then.
    #[must_use]
    pub fn time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.ticks() / TICKS)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = Uuid::from_str(text).ok().filter(|id| id.get_version_num() == 7);
        read.map(Self).ok_or_else(|| {
            Error::Invalid(format!("'{text}' is no ticket; `hermes-state spool list` shows those that there are"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_ascend_however_fast_they_are_given_and_whatever_the_clock_says() {
        let far = Ticket(Builder::from_unix_timestamp_millis(1 << 45, &[0xff; 10]).into_uuid());
        let first: Vec<_> = (0..10_000).map(|_| Ticket::next(None)).collect();
        assert!(first.is_sorted_by(|one, other| one < other));
        let after = Ticket::next(Some(far));
        assert!(after > far && Ticket::next(None) > after);
        assert_eq!(after.to_string().parse::<Ticket>().expect("reads"), after);
        assert!("7".parse::<Ticket>().is_err());
    }
}
