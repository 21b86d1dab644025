//! What processes tell their parent, a line each, and what it has heard.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::resources::Resources;

/// One acknowledged append: so many messages of a writer to a session under one number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) spooled: bool,
    pub(crate) session: String,
    pub(crate) writer: String,
    pub(crate) number: u64,
    pub(crate) parts: usize,
}

impl Acknowledged {
    /// The first words of its messages, which no others have.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        (0..self.parts).map(|part| word(&self.writer, self.number, part, self.parts))
    }
}

pub(crate) fn word(writer: &str, number: u64, part: usize, parts: usize) -> String {
    format!("{writer}n{number}p{part}of{parts}")
}

/// The writer, number, part and count in a word of ours.
pub(crate) fn read_word(word: &str) -> Option<(&str, u64, usize, usize)> {
    let (rest, parts) = word.rsplit_once("of")?;
    let (rest, part) = rest.rsplit_once('p')?;
    let (writer, number) = rest.rsplit_once('n')?;
    Some((writer, number.parse().ok()?, part.parse().ok()?, parts.parse().ok()?))
}

/// What a process says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    /// It has begun.
    Begun,
    Acknowledged(Acknowledged),
    /// A piece of work came to an end of this kind.
    Did(String, String),
    /// What the process had open and in memory.
    Holds(Resources),
    /// Something that must not be.
    Fault(String),
}

impl Told {
    /// A line with an end, so that one that a kill cut short says nothing.
    pub(crate) fn line(&self) -> String {
        let mut line = match self {
            Told::Begun => "begun".to_owned(),
            Told::Acknowledged(one) => {
                let how = if one.spooled { "spooled" } else { "stored" };
                format!("{how} {} {} {} {}", one.session, one.writer, one.number, one.parts)
            }
            Told::Did(work, outcome) => format!("did {work} {outcome}"),
            Told::Holds(held) => format!("holds {} {}", held.descriptors, held.kibibytes),
            Told::Fault(what) => format!("fault {}", what.replace('\n', " ")),
        };
        let _ = write!(line, ";");
        line
    }

    pub(crate) fn read(line: &str) -> Option<Self> {
        let line = line.strip_suffix(';')?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut fields = rest.split(' ');
        Some(match word {
            "begun" => Told::Begun,
            "stored" | "spooled" => Told::Acknowledged(Acknowledged {
                spooled: word == "spooled",
                session: fields.next()?.to_owned(),
                writer: fields.next()?.to_owned(),
                number: fields.next()?.parse().ok()?,
                parts: fields.next()?.parse().ok()?,
            }),
            "did" => Told::Did(fields.next()?.to_owned(), fields.next()?.to_owned()),
            "holds" => Told::Holds(Resources {
                descriptors: fields.next()?.parse().ok()?,
                kibibytes: fields.next()?.parse().ok()?,
            }),
            "fault" => Told::Fault(rest.to_owned()),
            _ => return None,
        })
    }
}

/// What was heard from all of them.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) acknowledged: Vec<Acknowledged>,
    pub(crate) did: BTreeMap<(String, String), usize>,
    pub(crate) held: Vec<Resources>,
    pub(crate) faults: Vec<String>,
}

impl Heard {
    pub(crate) fn hear(&mut self, from: &str, told: Told) {
        match told {
            Told::Begun => {}
            Told::Acknowledged(one) => self.acknowledged.push(one),
            Told::Did(work, outcome) => *self.did.entry((work, outcome)).or_default() += 1,
            Told::Holds(held) => self.held.push(held),
            Told::Fault(what) => self.faults.push(format!("{from}: {what}")),
        }
    }

    /// What was wrong already while they were at it.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut violations = self.faults.clone();
        if self.acknowledged.is_empty() {
            violations.push("nothing was acknowledged, so nothing is shown".into());
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_told_and_one_that_was_cut_short_says_nothing() {
        let one = Acknowledged { spooled: true, session: "own-1".into(), writer: "w1g12".into(), number: 34, parts: 3 };
        for told in [
            Told::Begun,
            Told::Acknowledged(one),
            Told::Did("prune".into(), "done".into()),
            Told::Holds(Resources { descriptors: 9, kibibytes: 8000 }),
            Told::Fault("two words".into()),
        ] {
            let line = told.line();
            assert_eq!(Told::read(&line), Some(told));
            for end in 0..line.len() {
                assert_eq!(Told::read(&line[..end]), None, "{line}");
            }
        }
        assert_eq!(read_word("w1g12n34p2of3"), Some(("w1g12", 34, 2, 3)));
    }
}
