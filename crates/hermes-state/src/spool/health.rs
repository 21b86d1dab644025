//! What is to be said of a spool, and what to do about it.

use super::{Spool, SpoolStatus};
use crate::error::Result;
use crate::repair::{Part, PartHealth, PartState};

const WAIT: &str = "Nothing: the next program that can write to the store stores them.";
const REFUSED: &str = "See `hermes-state spool list`; then `hermes-state spool replay --refused` tries them again, or `hermes-state spool discard` drops them.";
const DAMAGED: &str = "Keep a copy of the folder if they matter: `hermes-state spool discard --all` drops what cannot be read, with all that waits.";

/// One thing to be said.
pub(crate) struct Told {
    pub(crate) state: PartState,
    pub(crate) finding: String,
    pub(crate) next_step: &'static str,
}

/// What there is to say, the worst first; nothing of a spool that holds nothing.
pub(crate) fn told(status: &Result<SpoolStatus>) -> Vec<Told> {
    let status = match status {
        Ok(status) => status,
        Err(error) => return vec![Told { state: PartState::Damaged, finding: error.to_string(), next_step: DAMAGED }],
    };
    let (waiting, bytes, refused, damaged) = (status.writes, status.bytes, status.refused, status.damaged);
    let all = [
        (damaged, PartState::Damaged, format!("{damaged} records cannot be read"), DAMAGED),
        (refused, PartState::Noted, format!("{refused} writes were refused by the store and are kept aside"), REFUSED),
        (waiting, PartState::Noted, format!("{waiting} writes with {bytes} bytes wait to be stored"), WAIT),
    ];
    let there = all.into_iter().filter(|(count, ..)| *count > 0);
    there.map(|(_, state, finding, next_step)| Told { state, finding, next_step }).collect()
}

impl Spool {
    /// How it is, as a [part](Part::Spool) of its store. One that cannot be looked at is told as damaged.
    #[must_use]
    pub fn health(&self) -> PartHealth {
        let told = told(&self.status());
        PartHealth {
            part: Part::Spool,
            state: told.first().map_or(PartState::Well, |worst| worst.state),
            next_step: told.first().map(|worst| worst.next_step.to_owned()),
            findings: told.into_iter().map(|told| told.finding).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn status(writes: u64, refused: u64, damaged: u64) -> Result<SpoolStatus> {
        Ok(SpoolStatus { folder: "/s".into(), writes, bytes: 7, oldest: None, refused, damaged })
    }

    fn said(status: &Result<SpoolStatus>) -> Vec<(PartState, &'static str)> {
        told(status).iter().map(|told| (told.state, told.next_step)).collect()
    }

    #[test]
    fn the_worst_comes_first_and_each_has_its_next_step() {
        let (damaged, refused, waiting) =
            ((PartState::Damaged, DAMAGED), (PartState::Noted, REFUSED), (PartState::Noted, WAIT));
        assert_eq!(said(&status(2, 1, 3)), [damaged, refused, waiting]);
        assert_eq!(said(&status(2, 0, 0)), [waiting]);
        assert_eq!(said(&status(0, 0, 0)), []);
        let closed = Error::Spool { folder: "/s".into(), message: "no".into(), errno: None, cause: None };
        assert_eq!(said(&Err(closed)), [damaged]);
    }
}
