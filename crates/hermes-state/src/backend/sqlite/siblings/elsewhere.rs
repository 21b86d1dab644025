//! Slots where they do not exist: outside Linux there are no locks on open file descriptions and no shared futex.
//!
//! Nobody ever has a seat, so every turn is granted at once and SQLite's lock alone decides who writes next.

use std::path::Path;
use std::time::Duration;

use super::{Operation, Sibling};

pub(super) enum Seat {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) ticket: u64,
    pub(super) ahead: u32,
}

impl Front {
    pub(super) fn has_moved_since(&self, _earlier: &Front) -> bool {
        true
    }
}

impl Seat {
    pub(super) fn claim(_sidecar: &Path) -> Option<Self> {
        None
    }

    pub(super) fn is_of_this_process(&self) -> bool {
        match *self {}
    }

    pub(super) fn list(&self) -> Vec<Sibling> {
        match *self {}
    }

    pub(super) fn take_ticket(&self, _operation: Operation) -> u64 {
        match *self {}
    }

    pub(super) fn has_ticket(&self, _ticket: u64) -> bool {
        match *self {}
    }

    pub(super) fn front_before(&self, _ticket: u64) -> Option<Front> {
        match *self {}
    }

    pub(super) fn beat(&self) {
        match *self {}
    }

    pub(super) fn strike(&self, _front: Front) {
        match *self {}
    }

    pub(super) fn mark_holding(&self, _operation: Operation) {
        match *self {}
    }

    pub(super) fn leave_line(&self) {
        match *self {}
    }

    pub(super) fn word(&self) -> u32 {
        match *self {}
    }

    pub(super) fn sleep(&self, _word: u32, _at_most: Duration) {
        match *self {}
    }
}

pub(super) fn look(_sidecar: &Path) -> Vec<Sibling> {
    Vec::new()
}
