//! Clients of a server killed at random moments: what was acknowledged is there once, and batches are whole or absent.
#![cfg(all(feature = "postgres", target_os = "linux"))]
#![expect(clippy::print_stdout, reason = "tests say what they saw")]

#[path = "support/ledger.rs"]
mod ledger;
mod support;
#[path = "support/world.rs"]
mod world;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use hermes_state::LockKind;
use ledger::{Writers, check, write_as_process};
use support::{play, role};
use world::World;

const KILLS: u32 = 50;
/// How many processes write at the same time.
const AT_ONCE: usize = 3;

#[test]
fn fifty_clients_killed_while_they_write_lose_and_double_nothing_acknowledged_and_leave_no_part_of_a_batch() {
    const NAME: &str =
        "fifty_clients_killed_while_they_write_lose_and_double_nothing_acknowledged_and_leave_no_part_of_a_batch";
    if let Some((name, url)) = role() {
        return write_as_process(&url, &name, 6);
    }
    let Some(world) = World::make() else { return };
    let (acknowledged, received) = channel();
    let start = |number: u32| {
        Writers::start(play(NAME, &number.to_string(), Path::new(&world.url), LockKind::Ordinary), &acknowledged)
    };
    let mut writers = VecDeque::new();
    let mut dice = u64::from(std::process::id()) | 1;
    for number in 0..KILLS {
        writers.push_back(start(number));
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        std::thread::sleep(Duration::from_millis(50 + dice % 250));
        if writers.len() > AT_ONCE
            && let Some(oldest) = writers.pop_front()
        {
            oldest.kill();
        }
    }
    let last = start(KILLS);
    writers.into_iter().for_each(Writers::kill);
    // Whoever lives is held up by nothing that the dead have left: it still acknowledges.
    std::thread::sleep(Duration::from_secs(1));
    last.stop();
    drop(acknowledged);
    let found = check(&world.url, received, &|sql| world.psql(sql));
    println!("{KILLS} kills, {} acknowledged, {} stored", found.acknowledged, found.stored);
    assert!(found.acknowledged > 300, "the storm was no storm: {}", found.acknowledged);
}
