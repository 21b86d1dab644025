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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::writer::Acknowledged;
    use hermes_state::{NewMessage, NewSession};
    use serde_json::json;

    fn promise(message: usize, id: i64) -> Acknowledged {
        let told = json!({"session": "s", "conversation": 0, "message": message, "id": id, "waited_us": 5});
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn each_kind_of_loss_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let db = SessionDb::open(&path).unwrap();
        db.create_session(NewSession::new("s", "cli")).unwrap();
        let messages = &sample::conversations()[0].messages;
        let stored: Vec<i64> = messages[..3]
            .iter()
            .map(|fields| db.append_message("s", crate::line::message(fields.clone()).unwrap()).unwrap().id().unwrap())
            .collect();
        let judge = |acknowledged| {
            let verdict = verify(&path, &Seen { acknowledged, ..Seen::default() }).unwrap();
            (verdict.found, verdict.lost, verdict.surplus, verdict.miscounted)
        };
        let all = || stored.iter().enumerate().map(|(index, id)| promise(index, *id)).collect::<Vec<_>>();

        assert_eq!(judge(all()), (3, 0, 0, 0));
        let absent = all().into_iter().chain([promise(3, 99)]).collect();
        assert_eq!(judge(absent), (3, 1, 0, 0), "a message that is not there");
        let different = vec![promise(1, stored[0]), promise(1, stored[1]), promise(2, stored[2])];
        assert_eq!(judge(different), (2, 1, 1, 0), "a message with another content");
        let twice = all().into_iter().chain([promise(0, stored[0])]).collect();
        assert_eq!(judge(twice), (3, 1, 0, 0), "one message for two promises");
        db.append_message("s", NewMessage::new("user", "nobody was promised this")).unwrap().id().unwrap();
        assert_eq!(judge(all()), (3, 0, 1, 0), "a message too many");
    }
}
