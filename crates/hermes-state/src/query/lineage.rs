//! How sessions descend from each other, as conditions and walks: branch, delegate, continuation.

use std::collections::HashSet;

use crate::error::Result;
use crate::transaction::Transaction;
use crate::value::Value;

/// The condition that a marker stands in a session's configuration: a member that is not JSON null. Text that is no
/// JSON holds no marker.
fn marked(session: &str, marker: &str) -> String {
    format!(
        "COALESCE(json_type(CASE WHEN json_valid({session}.model_config) THEN {session}.model_config END, \
         '$.{marker}'), 'null') <> 'null'"
    )
}

/// The session was delegated by another; it is never listed.
pub(crate) fn is_delegate(session: &str) -> String {
    marked(session, "_delegate_from")
}

/// The session says that it branched off another.
pub(crate) fn says_branch(session: &str) -> String {
    marked(session, "_branched_from")
}

/// The session branched off its parent: it says so, or began after the parent ended for that reason.
pub(crate) fn is_branch(session: &str) -> String {
    format!(
        "({} OR EXISTS (SELECT 1 FROM sessions branched WHERE branched.id = {session}.parent_session_id \
         AND branched.end_reason = 'branched' AND {session}.started_at >= branched.ended_at))",
        says_branch(session)
    )
}

/// The session stands in listings by itself.
pub(crate) fn is_listable(session: &str) -> String {
    format!("({session}.parent_session_id IS NULL OR {}) AND NOT ({})", is_branch(session), is_delegate(session))
}

/// The session says of itself that it branched off or was delegated, and so belongs to no conversation of its parent's.
pub(crate) fn is_marked(session: &str) -> String {
    format!("({} OR {})", says_branch(session), is_delegate(session))
}

/// Given that its parent ended by compression, the session goes on with the parent's conversation.
pub(crate) fn is_continuation(session: &str) -> String {
    format!("{session}.source <> 'tool' AND NOT {}", is_marked(session))
}

/// When a session was last active: its newest message, or its start.
pub(crate) fn last_active(session: &str) -> String {
    last_active_until(session, None)
}

/// The same as of a time (a placeholder): messages after it do not count.
fn last_active_until(session: &str, until: Option<&str>) -> String {
    let said = until.map(|until| format!(" AND m.timestamp <= {until}")).unwrap_or_default();
    format!(
        "COALESCE((SELECT MAX(m.timestamp) FROM messages m WHERE m.session_id = {session}.id{said}), \
         {session}.started_at)"
    )
}

/// A conversation as a whole: a session and everything reachable from it along continuations, on every branch of them.
pub(crate) struct Conversation<'a> {
    root: &'a str,
    until: Option<&'a str>,
}

impl<'a> Conversation<'a> {
    /// That of the session with this name in the statement.
    pub(crate) fn of(root: &'a str) -> Self {
        Self { root, until: None }
    }

    /// As of a time (a placeholder): what was said and continued later does not count.
    pub(crate) fn until(self, until: Option<&'a str>) -> Self {
        Self { until, ..self }
    }

    /// Its members as a table `conversation`. `UNION` drops what was reached before, which is what ends a circle.
    fn members(&self) -> String {
        let begun = self.until.map(|until| format!(" AND c.started_at <= {until}")).unwrap_or_default();
        format!(
            "WITH RECURSIVE conversation (member) AS ( \
                 SELECT {}.id \
                 UNION \
                 SELECT c.id FROM conversation v JOIN sessions p ON p.id = v.member AND p.end_reason = 'compression' \
                     JOIN sessions c ON c.parent_session_id = p.id WHERE {}{begun})",
            self.root,
            is_continuation("c")
        )
    }

    /// Two tables: `recent`, the sessions that were active last (at `from` at the latest, if that is given; `count` of them;
    /// both are placeholders) and when; and `roots`, all sessions in whose conversations they are.
    pub(crate) fn of_recent(&self, from: Option<&str>, count: &str) -> String {
        let from = from.map(|from| format!("WHERE latest <= {from} ")).unwrap_or_default();
        format!(
            "WITH RECURSIVE recent AS MATERIALIZED ( \
                 SELECT id, latest FROM (SELECT x.id, {latest} AS latest FROM sessions x) active {from}\
                 ORDER BY latest DESC LIMIT {count}), \
             roots (root) AS ( \
                 SELECT id FROM recent \
                 UNION \
                 SELECT p.id FROM roots r JOIN sessions c ON c.id = r.root JOIN sessions p ON p.id = c.parent_session_id \
                     WHERE p.end_reason = 'compression' AND {continues})",
            latest = last_active_until("x", self.until),
            continues = is_continuation("c"),
        )
    }

    /// When it was last active. Few conversations have a second member, and the others need no table.
    pub(crate) fn activity(&self) -> String {
        format!(
            "CASE WHEN {root}.end_reason = 'compression' THEN ({members} SELECT MAX({latest}) FROM conversation v \
             JOIN sessions x ON x.id = v.member) ELSE {own} END",
            root = self.root,
            members = self.members(),
            latest = last_active_until("x", self.until),
            own = last_active_until(self.root, self.until),
        )
    }

    /// The condition that one of its members meets a condition on a session `x`.
    pub(crate) fn has(&self, condition: &str) -> String {
        format!(
            "(EXISTS (SELECT 1 FROM sessions x WHERE x.id = {root}.id AND {condition}) \
             OR ({root}.end_reason = 'compression' AND EXISTS ({members} \
             SELECT 1 FROM conversation v JOIN sessions x ON x.id = v.member WHERE {condition})))",
            root = self.root,
            members = self.members()
        )
    }
}

/// The most steps of a walk along continuations.
const LONGEST_WALK: usize = 100;

/// The session that goes on with the conversation of a compressed one: of several the one that was compressed in turn,
/// else a live one, else the one that was active last.
fn next_continuation(transaction: &mut dyn Transaction, id: &str) -> Result<Option<String>> {
    let sql = format!(
        "SELECT c.id FROM sessions p JOIN sessions c ON c.parent_session_id = p.id \
         WHERE p.id = ?1 AND p.end_reason = 'compression' AND {} \
         ORDER BY CASE WHEN c.end_reason = 'compression' THEN 0 WHEN c.ended_at IS NULL THEN 1 ELSE 2 END, \
             {} DESC, c.started_at DESC, c.id DESC LIMIT 1",
        is_continuation("c"),
        last_active("c"),
    );
    Ok(transaction.scalar(&sql, &[id.into()])?.as_str().map(str::to_owned))
}

/// Follows a conversation through its continuations to the last one.
pub(crate) fn compression_tip(transaction: &mut dyn Transaction, id: &str) -> Result<String> {
    let mut current = id.to_owned();
    let mut visited = HashSet::from([current.clone()]);
    for _ in 0..LONGEST_WALK {
        match next_continuation(transaction, &current)? {
            Some(next) if visited.insert(next.clone()) => current = next,
            _ => break,
        }
    }
    Ok(current)
}

/// Whether stepping from `descendant` to parents that ended by compression leads to `ancestor`, another session. A
/// session that is marked as something of its own does not step to its parent.
pub(crate) fn is_compression_ancestor(
    transaction: &mut dyn Transaction,
    ancestor: &str,
    descendant: &Value,
) -> Result<bool> {
    let sql = format!(
        "SELECT parent.id FROM sessions child JOIN sessions parent ON parent.id = child.parent_session_id \
         WHERE child.id = ?1 AND parent.end_reason = 'compression' AND NOT {}",
        is_marked("child")
    );
    let mut seen = HashSet::new();
    let mut current = descendant.clone();
    while seen.insert(current.as_str().unwrap_or_default().to_owned()) {
        let parent = transaction.scalar(&sql, &[current])?;
        match parent.as_str() {
            None => return Ok(false),
            Some(found) if found == ancestor => return Ok(true),
            Some(_) => current = parent,
        }
    }
    Ok(false)
}

/// All sessions of the compressed conversation that this one is part of, in order. A session that is not on the way
/// from its beginning to its tip stands alone; one that does not exist has none.
pub(crate) fn compression_lineage(transaction: &mut dyn Transaction, id: &str) -> Result<Vec<String>> {
    if transaction.scalar("SELECT 1 FROM sessions WHERE id = ?1", &[id.into()])?.is_null() {
        return Ok(Vec::new());
    }
    let alone = Ok(vec![id.to_owned()]);
    let parent_of = format!(
        "SELECT p.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id \
         WHERE c.id = ?1 AND p.end_reason = 'compression' AND NOT ({})",
        marked("c", "_branched_from")
    );
    let mut root = id.to_owned();
    let mut seen = HashSet::from([root.clone()]);
    while let Value::Text(parent) = transaction.scalar(&parent_of, &[(&root).into()])? {
        if !seen.insert(parent.clone()) {
            break;
        }
        root = parent;
    }
    let (mut line, mut seen) = (vec![root.clone()], HashSet::from([root.clone()]));
    while let Some(next) = next_continuation(transaction, &root)? {
        if !seen.insert(next.clone()) {
            break;
        }
        line.push(next.clone());
        root = next;
    }
    if seen.contains(id) { Ok(line) } else { alone }
}

/// How many sessions a resumed one is looked for among.
const LONGEST_RESUME: usize = 32;

/// Down from a session along its latest children, the deepest that has messages; `None` if none has.
pub(crate) fn deepest_with_messages(transaction: &mut dyn Transaction, id: &str) -> Result<Option<String>> {
    let child_of = format!(
        "SELECT c.id FROM sessions c WHERE c.parent_session_id = ?1 AND {} \
         ORDER BY c.started_at DESC, c.id DESC LIMIT 1",
        is_continuation("c"),
    );
    let (mut current, mut deepest) = (id.to_owned(), None);
    let mut visited = HashSet::from([current.clone()]);
    loop {
        let any = "SELECT 1 FROM messages WHERE session_id = ?1 LIMIT 1";
        if !transaction.scalar(any, &[(&current).into()])?.is_null() {
            deepest = Some(current.clone());
        }
        match transaction.scalar(&child_of, &[(&current).into()])? {
            Value::Text(child) if visited.len() < LONGEST_RESUME && visited.insert(child.clone()) => current = child,
            _ => return Ok(deepest),
        }
    }
}

/// The session and all it descends from by any kind of link, the root first; the nearest hundred at most.
pub(crate) fn root_to_tip(transaction: &mut dyn Transaction, id: &str) -> Result<Vec<String>> {
    let mut chain = vec![id.to_owned()];
    let mut seen = HashSet::from([id.to_owned()]);
    while chain.len() < LONGEST_WALK {
        let current = &chain[chain.len() - 1];
        let parent = transaction.scalar("SELECT parent_session_id FROM sessions WHERE id = ?1", &[current.into()])?;
        match parent {
            Value::Text(parent) if !parent.is_empty() && seen.insert(parent.clone()) => chain.push(parent),
            _ => break,
        }
    }
    chain.reverse();
    Ok(chain)
}
