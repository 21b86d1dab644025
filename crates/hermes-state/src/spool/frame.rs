//! How records stand in a log: a line each, with its length, a checksum, its ticket and what it holds, so that a line that
//! was cut short or damaged is told from the others, and does not take them with it.

use std::io::{self, BufRead};

use sha2::{Digest as _, Sha256};

use super::ticket::Ticket;

/// The first line of a log.
pub(super) const HEAD: &[u8] = b"hermes-state spool 1\n";

const LENGTH_DIGITS: usize = 8;
const SUM_DIGITS: usize = 32;

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(SUM_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The line of a record. `body` is JSON, which has no line breaks.
pub(super) fn frame(ticket: Ticket, body: &str) -> Vec<u8> {
    let held = format!("{ticket} {body}");
    format!("{:08x} {} {held}\n", held.len(), sum(held.as_bytes())).into_bytes()
}

/// What a line of a log turns out to be.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Record {
        ticket: Ticket,
        body: String,
    },
    /// It has an end, and yet is not what was written.
    Damaged,
}

/// What a line without its end says.
pub(super) fn read(line: &[u8]) -> Option<Line> {
    let (length, rest) = line.split_at_checked(LENGTH_DIGITS)?;
    let (told, held) = rest.strip_prefix(b" ")?.split_at_checked(SUM_DIGITS)?;
    let held = held.strip_prefix(b" ")?;
    let length = usize::from_str_radix(std::str::from_utf8(length).ok()?, 16).ok()?;
    if length != held.len() || told != sum(held).as_bytes() {
        return None;
    }
    let (ticket, body) = std::str::from_utf8(held).ok()?.split_once(' ')?;
    Some(Line::Record { ticket: ticket.parse().ok()?, body: body.to_owned() })
}

/// The lines of a log behind its head, each with the place where it begins and its length.
pub(super) struct Lines<R> {
    input: R,
    at: u64,
    bytes: Vec<u8>,
}

/// What a log begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    Ours,
    /// Its writer ended before it had written anything.
    Unborn,
    /// Another release's, or something else altogether.
    Foreign,
}

impl<R: BufRead> Lines<R> {
    /// Reads the head, which says whether there is more to be understood.
    pub(super) fn begin(mut input: R) -> io::Result<(Head, Self)> {
        let mut bytes = Vec::new();
        io::Read::take(&mut input, HEAD.len() as u64).read_until(b'\n', &mut bytes)?;
        let head = if bytes == HEAD {
            Head::Ours
        } else if HEAD.starts_with(&bytes) {
            Head::Unborn
        } else {
            Head::Foreign
        };
        Ok((head, Self { input, at: HEAD.len() as u64, bytes }))
    }

    /// Goes on at a place where a line begins, or behind the head; `None` if there is no head of ours.
    pub(super) fn resume(mut input: R, from: u64) -> io::Result<Option<(u64, Self)>>
    where
        R: io::Seek,
    {
        let (head, lines) = Lines::begin(&mut input)?;
        let at = lines.at.max(from);
        if head != Head::Ours {
            return Ok(None);
        }
        input.seek(io::SeekFrom::Start(at))?;
        Ok(Some((at, Self { input, at, bytes: Vec::new() })))
    }

    /// The next line; `None` at the end, which is also where the last line has no end.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, u64, Line)>> {
        self.bytes.clear();
        let length = self.input.read_until(b'\n', &mut self.bytes)? as u64;
        let Some(line) = self.bytes.strip_suffix(b"\n") else { return Ok(None) };
        let at = self.at;
        self.at += length;
        Ok(Some((at, length, read(line).unwrap_or(Line::Damaged))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(log: &[u8]) -> (Head, Vec<Line>) {
        let (head, mut lines) = Lines::begin(log).expect("reads");
        let mut found = Vec::new();
        while let Some((at, length, line)) = lines.next().expect("reads") {
            let (at, length) = (usize::try_from(at).expect("small"), usize::try_from(length).expect("small"));
            assert_eq!(log.get(at + length - 1), Some(&b'\n'));
            found.push(line);
        }
        (head, found)
    }

    #[test]
    fn a_log_cut_off_at_any_byte_keeps_the_records_before() {
        let tickets = [Ticket::next(None), Ticket::next(None), Ticket::next(None)];
        let bodies = ["{\"a\":1}", "{\"b\":\"a longer one \\n ü\"}", "{}"];
        let mut log = HEAD.to_vec();
        let mut ends = Vec::new();
        for (ticket, body) in tickets.iter().zip(bodies) {
            log.extend(frame(*ticket, body));
            ends.push(log.len());
        }
        for cut in 0..=log.len() {
            let (head, found) = records(&log[..cut]);
            assert_eq!(head, if cut < HEAD.len() { Head::Unborn } else { Head::Ours });
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let expected: Vec<_> = tickets
                .iter()
                .zip(bodies)
                .take(whole)
                .map(|(ticket, body)| Line::Record { ticket: *ticket, body: body.to_owned() })
                .collect();
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_changed_byte_costs_one_record_and_never_gives_another() {
        let tickets = [Ticket::next(None), Ticket::next(None)];
        let mut log = HEAD.to_vec();
        log.extend(frame(tickets[0], "{\"a\":1}"));
        let first = HEAD.len()..log.len() - 1;
        log.extend(frame(tickets[1], "{\"b\":2}"));
        for at in first {
            let mut changed = log.clone();
            changed[at] ^= 0x01;
            let (_, found) = records(&changed);
            let last = Line::Record { ticket: tickets[1], body: "{\"b\":2}".into() };
            assert!(found.iter().rev().skip(1).all(|line| *line == Line::Damaged), "{found:?}");
            assert_eq!(found.last(), Some(&last));
        }
        assert_eq!(records(b"diary\nof Ada").0, Head::Foreign);
    }
}
