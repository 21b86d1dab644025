//! Which sessions a policy of retention takes, and what goes with them.

use std::collections::{HashMap, HashSet};

use super::delegates::Delegates;
use super::lineage;
use super::prune::{self, Reason};
use crate::error::Result;
use crate::retention::{PlannedSession, RetentionPlan, RetentionPolicy, RetentionRule, SessionState};
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Record;

/// How many sessions are looked at by one statement.
const AT_ONCE: usize = 500;

/// The texts of a message.
const TEXTS: [&str; 10] = [
    "content",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "api_content",
];

/// A policy as of a moment.
#[derive(Debug, Clone)]
pub(crate) struct Retention {
    pub(crate) policy: RetentionPolicy,
    pub(crate) now: f64,
    /// Since when a process has been there that may own a session.
    pub(crate) owners_since: f64,
}

impl Retention {
    /// The sessions `s` that go.
    pub(crate) fn condition(&self, statement: &mut Statement) -> String {
        self.any(statement, |rule| rule.states.clone())
    }

    /// The sessions `s` that meet any rule, with these states in the place of the rule's.
    fn any(&self, statement: &mut Statement, states: impl Fn(&RetentionRule) -> Vec<SessionState>) -> String {
        let rules: Vec<String> =
            self.policy.rules.iter().map(|rule| self.rule(statement, rule, &states(rule))).collect();
        format!("({})", rules.join(" OR "))
    }

    fn rule(&self, statement: &mut Statement, rule: &RetentionRule, states: &[SessionState]) -> String {
        let limit = self.now - rule.older_than.as_secs_f64();
        let mut condition = format!("s.started_at < {}", statement.bind(limit));
        if !rule.sources.is_empty() {
            condition.push_str(&format!(" AND s.source IN ({})", statement.bind_all(rule.sources.iter().cloned())));
        }
        if !rule.except_sources.is_empty() {
            let listed = statement.bind_all(rule.except_sources.iter().cloned());
            condition.push_str(&format!(" AND s.source NOT IN ({listed})"));
        }
        let states: Vec<String> = states.iter().map(|state| self.state(statement, *state, limit)).collect();
        format!("({condition} AND ({}))", states.join(" OR "))
    }

    fn state(&self, statement: &mut Statement, state: SessionState, limit: f64) -> String {
        let mut silent_since =
            |limit: f64| format!("(s.ended_at IS NULL AND {} < {})", lineage::last_active("s"), statement.bind(limit));
        match state {
            SessionState::Ended => "(s.ended_at IS NOT NULL AND s.archived = 0)".to_owned(),
            SessionState::Archived => "(s.ended_at IS NOT NULL AND s.archived <> 0)".to_owned(),
            SessionState::Open => silent_since(limit),
            SessionState::OwnerGone => silent_since(limit.min(self.owners_since)),
            SessionState::Empty => format!("({})", prune::EMPTY),
        }
    }
}

/// What the policy takes now.
pub(crate) fn plan(transaction: &mut dyn Transaction, retention: &Retention) -> Result<RetentionPlan> {
    let chosen = prune::ids(transaction, &Reason::Retention(Box::new(retention.clone())))?;
    let list = match chosen.is_empty() {
        true => Vec::new(),
        false => Delegates::read(transaction)?.before(chosen),
    };
    let mut sessions = Vec::with_capacity(list.len());
    for some in list.chunks(AT_ONCE) {
        let mut facts: HashMap<String, Record> = HashMap::new();
        let mut statement = Statement::default();
        let listed = statement.bind_all(some.iter().map(|doomed| doomed.id.as_str()));
        let bytes = TEXTS.map(|column| format!("COALESCE(octet_length(m.{column}), 0)")).join(" + ");
        statement.push(&format!(
            "SELECT s.id, s.source, s.title, s.started_at, s.ended_at, s.archived, \
                 (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id) AS messages, \
                 (SELECT CAST(COALESCE(SUM(CAST({bytes} AS BIGINT)), 0) AS BIGINT) FROM messages m \
                  WHERE m.session_id = s.id) AS bytes \
             FROM sessions s WHERE s.id IN ({listed})"
        ));
        for row in transaction.records(&statement.sql, &statement.parameters)? {
            facts.insert(row.text("id").unwrap_or_default().to_owned(), row);
        }
        for doomed in some {
            if let Some(row) = facts.get(&doomed.id) {
                let delegated_by = (!doomed.is_chosen()).then(|| doomed.with.clone());
                sessions.push(planned(&doomed.id, row, delegated_by));
            }
        }
    }
    let going: HashSet<&str> = sessions.iter().map(|session| session.id.as_str()).collect();
    let mut left = |state: SessionState| {
        let mut statement = Statement::default();
        let condition = retention.any(&mut statement, |_| vec![state]);
        prune::candidates(transaction, &statement, &condition)
    };
    let (mut owner_gone, mut open) = (left(SessionState::OwnerGone)?, left(SessionState::Open)?);
    let gone: HashSet<String> = owner_gone.iter().map(|session| session.id().to_owned()).collect();
    owner_gone.retain(|session| !going.contains(session.id()));
    open.retain(|session| !going.contains(session.id()) && !gone.contains(session.id()));
    Ok(RetentionPlan { sessions, owner_gone, open })
}

fn planned(id: &str, row: &Record, delegated_by: Option<String>) -> PlannedSession {
    let number = |column: &str| row.get(column).and_then(crate::value::Value::as_f64);
    PlannedSession {
        id: id.to_owned(),
        source: row.text("source").map(str::to_owned),
        title: row.text("title").map(str::to_owned),
        started_at: number("started_at"),
        ended_at: number("ended_at"),
        archived: row.integer("archived").unwrap_or_default() != 0,
        messages: row.integer("messages").unwrap_or_default(),
        bytes: row.integer("bytes").unwrap_or_default(),
        delegated_by,
    }
}
