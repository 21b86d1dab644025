//! One connection through the proxy, from the client's arrival to its end or its cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Orders, TICK, Told};
use crate::random::Random;
use crate::system_calls::{Interest, reset_on_close, wait_ready};

/// How much may be on its way in one direction.
const CAPACITY: usize = 64 * 1024;

/// A client with its server.
pub(super) struct Connection {
    /// From the client to the server, and back.
    directions: [Direction; 2],
    sides: [TcpStream; 2],
    fate: Option<Fate>,
}

/// What is on its way in one direction.
#[derive(Default)]
struct Direction {
    waiting: Vec<u8>,
    /// Forwarded since the fate was drawn.
    forwarded: u64,
    source_ended: bool,
    end_forwarded: bool,
}

/// When a connection is to be cut, and during which spell of cutting that was drawn.
struct Fate {
    spell: u64,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    After { direction: usize, bytes: u64 },
    At(Instant),
}

/// What became of a step.
enum Step {
    Goes,
    /// Both sides have said all they had to say.
    Over,
    /// One side is lost; the other is to see it lost.
    Lost,
    Cut,
}

impl Connection {
    pub(super) fn run(client: TcpStream, number: u64, cut_all: u64, told: &Told) {
        // Also while it is to stall: a black hole takes the connection and does no more.
        if told.orders().ended {
            return abandon(&[client]);
        }
        let Ok(server) = TcpStream::connect(&told.target) else { return abandon(&[client]) };
        let sides = [client, server];
        for side in &sides {
            if side.set_nonblocking(true).is_err() || side.set_nodelay(true).is_err() {
                return abandon(&sides);
            }
        }
        let mut connection = Self { directions: Default::default(), sides, fate: None };
        loop {
            connection.wait();
            let orders = told.orders();
            if orders.ended {
                return abandon(&connection.sides);
            }
            connection.draw_fate(&orders, told.seed, number);
            let step = if orders.cut_all == cut_all { connection.pass() } else { Step::Cut };
            drop(orders);
            match step {
                Step::Goes => {}
                Step::Over => return,
                Step::Lost => return abandon(&connection.sides),
                Step::Cut => {
                    // Counted first, so that who has seen the cut finds it in the count.
                    told.cuts.fetch_add(1, Ordering::SeqCst);
                    return abandon(&connection.sides);
                }
            }
        }
    }

    fn draw_fate(&mut self, orders: &Orders, seed: u64, number: u64) {
        if self.fate.as_ref().map(|fate| fate.spell) == orders.cutting {
            return;
        }
        self.fate = orders.cutting.map(|spell| {
            let end = End::draw(&mut Random::of(&[seed, number, spell]), Instant::now());
            Fate { spell, end }
        });
        for direction in &mut self.directions {
            direction.forwarded = 0;
        }
    }

    /// Waits a little for something to do.
    fn wait(&self) {
        let left = match self.fate {
            Some(Fate { end: End::At(time), .. }) => time.saturating_duration_since(Instant::now()),
            _ => TICK,
        };
        let interest = |side: usize| Interest {
            read: self.directions[side].may_read(),
            write: !self.directions[1 - side].waiting.is_empty(),
        };
        wait_ready([(self.sides[0].as_fd(), interest(0)), (self.sides[1].as_fd(), interest(1))], TICK.min(left));
    }

    /// Does what can be done without waiting.
    fn pass(&mut self) -> Step {
        if self.fate.as_ref().is_some_and(|fate| matches!(fate.end, End::At(time) if time <= Instant::now())) {
            return Step::Cut;
        }
        for (number, direction) in self.directions.iter_mut().enumerate() {
            let left = match self.fate {
                Some(Fate { end: End::After { direction, bytes }, .. }) if direction == number => Some(bytes),
                _ => None,
            };
            match direction.pass(&self.sides[number], &self.sides[1 - number], left) {
                Step::Goes => {}
                other => return other,
            }
        }
        if self.directions.iter().all(|direction| direction.end_forwarded) { Step::Over } else { Step::Goes }
    }
}

impl Direction {
    fn may_read(&self) -> bool {
        !self.source_ended && self.waiting.len() < CAPACITY
    }

    /// Reads and writes what is possible without waiting; a cut when `limit` bytes have been forwarded.
    fn pass(&mut self, mut source: &TcpStream, mut sink: &TcpStream, limit: Option<u64>) -> Step {
        if self.may_read() {
            let mut buffer = [0; CAPACITY];
            match source.read(&mut buffer[..CAPACITY - self.waiting.len()]) {
                Ok(0) => self.source_ended = true,
                Ok(count) => self.waiting.extend_from_slice(&buffer[..count]),
                Err(error) if is_passing(&error) => {}
                Err(_) => return Step::Lost,
            }
        }
        while !self.waiting.is_empty() {
            let left = limit.map_or(u64::MAX, |limit| limit.saturating_sub(self.forwarded));
            let count = self.waiting.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if count == 0 {
                return Step::Cut;
            }
            match sink.write(&self.waiting[..count]) {
                Ok(written) => {
                    self.waiting.drain(..written);
                    self.forwarded += u64::try_from(written).expect("a length");
                }
                Err(error) if is_passing(&error) => break,
                Err(_) => return Step::Lost,
            }
        }
        // At the last byte, not at the next one: that may never come, and its receiver would wait in vain.
        if limit.is_some_and(|limit| self.forwarded >= limit) {
            return Step::Cut;
        }
        if self.source_ended && self.waiting.is_empty() && !self.end_forwarded {
            self.end_forwarded = true;
            if sink.shutdown(Shutdown::Write).is_err() {
                return Step::Lost;
            }
        }
        Step::Goes
    }
}

impl End {
    fn draw(random: &mut Random, now: Instant) -> Self {
        match random.below(4) {
            0 => Self::At(now + Duration::from_millis(1 + random.below(400))),
            1 => Self::after(0, random),
            // Answers twice as often: what was done and not confirmed is the harder case.
            _ => Self::after(1, random),
        }
    }

    fn after(direction: usize, random: &mut Random) -> Self {
        let magnitude = 1 << random.below(18);
        Self::After { direction, bytes: magnitude + random.below(magnitude) }
    }
}

fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Has the sides reset when they are closed. One that is lost already cannot be, and need not.
fn abandon(sides: &[TcpStream]) {
    for side in sides {
        let _ = reset_on_close(side);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_ends_of_all_kinds() {
        let now = Instant::now();
        let draw =
            |seed| -> Vec<End> { (0..500).map(|number| End::draw(&mut Random::of(&[seed, number, 1]), now)).collect() };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let ends = draw(7);
        let time = |end: &&End| matches!(end, End::At(_));
        assert!((75..200).contains(&ends.iter().filter(time).count()));
        for end in &ends {
            match end {
                End::At(time) => assert!((1..=400).contains(&(*time - now).as_millis())),
                End::After { bytes, .. } => assert!((1..=262_144).contains(bytes)),
            }
        }
        for wanted in 0..2 {
            let small =
                |end: &&End| matches!(end, End::After { direction, bytes } if *direction == wanted && *bytes < 16);
            assert!(ends.iter().find(small).is_some(), "no early cut in direction {wanted}");
        }
    }
}
