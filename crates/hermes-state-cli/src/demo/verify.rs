//! Looks for every acknowledged message in the finished store, and compares it with what was handed over.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use hermes_state::SessionDb;
use serde_json::Value as Json;

use super::{Seen, older, sample};
use crate::error::CommandError;
use crate::view;

/// What became of the messages.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Acknowledged and stored as it was handed over.
    pub(super) found: u64,
    /// Acknowledged, but absent or different.
    pub(super) lost: u64,
    /// Stored although nobody was promised it, or stored twice.
    pub(super) surplus: u64,
    /// Sessions whose counter differs from their rows.
    pub(super) miscounted: u64,
}

pub(super) fn verify(path: &Path, seen: &Seen) -> Result<Verdict, CommandError> {
    let db = SessionDb::open_read_only(path)?;
    let conversations = sample::conversations();
    let mut promised: HashMap<&str, Vec<(i64, Json)>> = HashMap::new();
    for told in &seen.acknowledged {
        let message = conversations.get(told.conversation).and_then(|known| known.messages.get(told.message));
        let content = message.and_then(|fields| fields.get("content")).cloned().unwrap_or_default();
        promised.entry(&told.session).or_default().push((told.id, content));
    }
    for wrote in &seen.older {
        promised.entry(older::SESSION).or_default().push((wrote.id, wrote.text.clone().into()));
    }

    let mut verdict = Verdict::default();
    let mut ids = HashSet::new();
    for (session, promises) in promised {
        let rows = db.messages(session, &Default::default())?;
        let counter = db.session(session)?.map(|session| session.message_count());
        if counter.and_then(|counter| usize::try_from(counter).ok()) != Some(rows.len()) {
            verdict.miscounted += 1;
        }
        let stored: HashMap<i64, Json> =
            rows.iter().map(|message| (message.id(), view::content(&message.content()))).collect();
        for (id, content) in promises {
            // An id that was promised twice is one message where there should be two.
            if stored.get(&id) == Some(&content) && ids.insert(id) {
                verdict.found += 1;
            } else {
                verdict.lost += 1;
            }
        }
    }
    let rows = u64::try_from(db.message_count(None)?).unwrap_or_default();
    verdict.surplus = rows.saturating_sub(verdict.found);
    Ok(verdict)
}
