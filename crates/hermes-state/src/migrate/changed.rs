//! Says whether a source has been written to since a pass read it.
//!
//! All tables but that of the messages are small and are compared as a whole. Messages are counted, and whoever adds some
//! moves on the ids; what is not seen is a message that another program has rewritten in its place, which no release does
//! without changing its session.

use super::copy::Passed;
use super::rows::{Checksum, Pages, digest};
use super::source::Loose;
use super::tables::{MESSAGES, tables};
use crate::db::SessionDb;
use crate::error::Result;

/// What has changed in the source.
pub(super) struct Changed {
    /// There are new messages.
    pub(super) grown: bool,
    /// Anything is otherwise.
    pub(super) at_all: bool,
}

impl Changed {
    pub(super) fn since(from: &SessionDb, passed: &Passed) -> Result<Self> {
        let then = passed.clone();
        from.read_at_length(move |transaction| {
            let grown = transaction.highest_message_id()? != then.highest;
            let count = transaction.scalar("SELECT COUNT(*) FROM messages", &[])?.as_i64();
            let mut at_all = grown || count != i64::try_from(then.source[MESSAGES].rows).ok();
            let loose = Loose::find(transaction)?;
            for (number, table) in tables()?.iter().enumerate().filter(|(number, _)| *number != MESSAGES) {
                let (mut now, mut pages) = (Checksum::default(), Pages::of(table));
                while !at_all {
                    let rows = pages.next(transaction)?;
                    if rows.is_empty() {
                        at_all = now != then.source[number];
                        break;
                    }
                    for row in rows {
                        if let Some(row) = loose.mend(number, row)? {
                            now.add(digest(&row, None));
                        }
                    }
                }
            }
            Ok(Self { grown, at_all })
        })
    }
}
