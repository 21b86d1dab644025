//! Which sessions were delegated by which: what goes along with a session that is deleted.

use std::collections::{HashMap, HashSet, VecDeque};

use super::lineage;
use crate::error::Result;
use crate::raw_json::RawJson;
use crate::transaction::Transaction;

/// All delegates of a store, by the sessions that they hang on. A session hangs on its parent, and on the one that its
/// marker names, which may be another.
#[derive(Default)]
pub(crate) struct Delegates(HashMap<String, Vec<String>>);

impl Delegates {
    /// Looks through all sessions once: no index knows the markers.
    pub(crate) fn read(transaction: &mut dyn Transaction) -> Result<Self> {
        let mut of: HashMap<String, Vec<String>> = HashMap::new();
        // What holds neither the name nor an escape, in which the name may be written, need not be parsed.
        let sql = format!(
            "SELECT s.id, s.parent_session_id, s.model_config FROM sessions s \
             WHERE (instr(s.model_config, '_delegate_from') > 0 OR instr(s.model_config, '\\u') > 0) AND {}",
            lineage::is_delegate("s")
        );
        for row in transaction.records(&sql, &[])? {
            let id = row.text("id").unwrap_or_default();
            let config = row.text("model_config").and_then(RawJson::parse);
            let named = config.and_then(|config| config.first_member("_delegate_from")?.string());
            let parent = row.text("parent_session_id").map(str::to_owned);
            for session in [parent, named].into_iter().flatten() {
                of.entry(session).or_default().push(id.to_owned());
            }
        }
        Ok(Self(of))
    }

    /// Adds each session's delegates, and theirs, in front of it: the last to be made come first, so that those that are
    /// left can still be reached from the session. Each comes once, and none of the sessions counts as a delegate.
    pub(crate) fn before(&self, sessions: Vec<String>) -> Vec<Doomed> {
        let mut seen: HashSet<String> = sessions.iter().cloned().collect();
        let mut doomed = Vec::with_capacity(sessions.len());
        for session in sessions {
            let mut found = Vec::new();
            let mut queue = VecDeque::from([session.clone()]);
            while let Some(current) = queue.pop_front() {
                for delegate in self.0.get(&current).into_iter().flatten() {
                    if seen.insert(delegate.clone()) {
                        queue.push_back(delegate.clone());
                        found.push(delegate.clone());
                    }
                }
            }
            doomed.extend(found.into_iter().rev().map(|id| Doomed { id, with: session.clone() }));
            doomed.push(Doomed { id: session.clone(), with: session });
        }
        doomed
    }
}

/// A session that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doomed {
    pub(crate) id: String,
    /// The session that it goes along with: itself, or the one that delegated it.
    pub(crate) with: String,
}

impl Doomed {
    /// Whether it goes on its own account.
    pub(crate) fn is_chosen(&self) -> bool {
        self.id == self.with
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(delegations: &[(&str, &str)], chosen: &[&str]) -> Vec<String> {
        let mut delegates = Delegates::default();
        for (of, delegate) in delegations {
            delegates.0.entry((*of).to_owned()).or_default().push((*delegate).to_owned());
        }
        let chosen = chosen.iter().map(|id| (*id).to_owned()).collect();
        delegates.before(chosen).into_iter().map(|doomed| format!("{}<{}", doomed.id, doomed.with)).collect()
    }

    #[test]
    fn delegates_go_before_the_session_and_the_last_of_a_chain_first() {
        assert_eq!(order(&[("a", "b"), ("b", "c"), ("a", "d")], &["a"]), ["c<a", "d<a", "b<a", "a<a"]);
        assert_eq!(order(&[("x", "y")], &["a"]), ["a<a"]);
    }

    #[test]
    fn each_goes_once_and_the_chosen_on_their_own_account() {
        assert_eq!(order(&[("a", "b"), ("b", "a"), ("b", "c"), ("a", "c")], &["a"]), ["c<a", "b<a", "a<a"]);
        assert_eq!(order(&[("a", "b"), ("b", "c")], &["a", "b"]), ["a<a", "c<b", "b<b"]);
    }
}
