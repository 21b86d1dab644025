//! Copying stores into others: each direction, awkward content, interruptions, writers at work, and merging.
#![cfg(feature = "postgres")]
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "tests say what they saw, and processes report")]

mod copying;
mod killed;
mod merging;
mod refusing;
#[path = "../support/mod.rs"]
mod support;
mod world;
