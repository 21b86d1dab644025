//! Telling a process from a later one with the same number.

pub(super) use crate::process::{namespace, start_of};
