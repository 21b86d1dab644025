//! Which sessions a clean-up takes: filters of a prune, and what counts as empty, as a ghost, as open without an owner.

use super::lineage;
use super::needle::{Needle, in_folder};
use super::retention::Retention;
use crate::clock;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

const DAY: f64 = 86_400.0;

/// Which sessions are pruned or archived: those that have ended and meet all that is given.
///
/// ```
/// use hermes_state::PruneFilter;
/// let cron = PruneFilter { source: Some("cron".into()), ..PruneFilter::older_than_days(30.0) };
/// assert_eq!(cron.archived, None);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PruneFilter {
    /// Started earlier.
    pub started_before: Option<f64>,
    /// Started then or later.
    pub started_after: Option<f64>,
    /// From this source. Empty texts, here and below, filter nothing.
    pub source: Option<String>,
    /// Ended for this reason.
    pub end_reason: Option<String>,
    /// Of this person.
    pub user_id: Option<String>,
    /// In this chat.
    pub chat_id: Option<String>,
    /// In a chat of this kind.
    pub chat_type: Option<String>,
    /// Billed by this provider, case ignored.
    pub provider: Option<String>,
    /// With this text in the title, case ignored; so are the next two.
    pub title_like: Option<String>,
    /// With this text in the model's name.
    pub model_like: Option<String>,
    /// With this text in the name of the branch.
    pub branch_like: Option<String>,
    /// In this folder or within it.
    pub cwd_prefix: Option<String>,
    /// With at least so many active messages.
    pub min_messages: Option<i64>,
    /// With at most so many active messages.
    pub max_messages: Option<i64>,
    /// With at least so many tokens in and out.
    pub min_tokens: Option<i64>,
    /// With at most so many tokens in and out.
    pub max_tokens: Option<i64>,
    /// That cost at least so much, in dollars: what was charged, or else what was estimated.
    pub min_cost: Option<f64>,
    /// That cost at most so much.
    pub max_cost: Option<f64>,
    /// With at least so many calls of tools.
    pub min_tool_calls: Option<i64>,
    /// With at most so many calls of tools.
    pub max_tool_calls: Option<i64>,
    /// Only archived sessions, or only others.
    pub archived: Option<bool>,
    /// Also sessions that never ended and whose owner is gone: started before `started_before`, and silent since then and
    /// since before any process began that has the store open now; see
    /// [`SessionState::OwnerGone`](crate::SessionState::OwnerGone). Without `started_before` there are none.
    pub abandoned: bool,
}

/// What a prune would do.
#[derive(Debug, Clone, PartialEq)]
pub struct PrunePlan {
    /// The sessions that it would delete, oldest first; their delegates would go along. Rows have the columns `id`,
    /// `source`, `title`, `model`, `started_at`, `ended_at`, `message_count` and `archived`.
    pub ended: Vec<Session>,
    /// Sessions that meet the filters but are open, their owner gone: see [`PruneFilter::abandoned`], which asks for
    /// them.
    pub abandoned: Vec<Session>,
}

impl PruneFilter {
    /// Started so many days ago, or more. Negative days reach into the future.
    #[must_use]
    pub fn older_than_days(days: f64) -> Self {
        Self { started_before: Some(clock::now() - days * DAY), ..Self::default() }
    }

    /// Refuses numbers that are none: engines disagree on what is less than they are.
    pub(crate) fn check(&self) -> Result<()> {
        let doubles = [self.started_before, self.started_after, self.min_cost, self.max_cost];
        if doubles.into_iter().flatten().any(f64::is_nan) {
            return Err(Error::Invalid("a filter of a prune is NaN, which is before or after nothing".into()));
        }
        Ok(())
    }

    /// What is said of ended sessions, of a table whose columns are named with `prefix`.
    pub(crate) fn conditions(&self, statement: &mut Statement, prefix: &str) -> Result<String> {
        let column = |name: &str| format!("{prefix}{name}");
        let ended = format!("{} IS NOT NULL", column("ended_at"));
        let others = self.others(statement, prefix)?;
        Ok(others.into_iter().fold(ended, |all, one| format!("{all} AND {one}")))
    }

    /// The conditions as a part of a statement on `sessions`, for callers with a connection of their own, and its
    /// parameters, a `?` for each in their order.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that is none.
    pub fn where_clause(&self) -> Result<(String, Vec<Value>)> {
        self.check()?;
        let mut statement = Statement::default();
        let conditions = self.conditions(&mut statement, "")?;
        let mut pieces = conditions.split('?');
        let mut clause = pieces.next().unwrap_or_default().to_owned();
        let mut parameters = Vec::new();
        for piece in pieces {
            // A parameter that is used twice, or out of turn, is given again.
            let digits = piece.find(|character: char| !character.is_ascii_digit()).unwrap_or(piece.len());
            let number: usize = piece[..digits].parse().unwrap_or_default();
            parameters.extend(number.checked_sub(1).and_then(|index| statement.parameters.get(index)).cloned());
            clause.push('?');
            clause.push_str(&piece[digits..]);
        }
        Ok((clause, parameters))
    }

    /// The same of open sessions `s` whose owner is gone; `None` if there is no telling.
    fn conditions_of_abandoned(&self, statement: &mut Statement, owners_since: f64) -> Result<Option<String>> {
        let Some(limit) = self.started_before.map(|limit| limit.min(owners_since)) else { return Ok(None) };
        let silent = format!("s.ended_at IS NULL AND {} < {}", lineage::last_active("s"), statement.bind(limit));
        let others = self.others(statement, "s.")?;
        Ok(Some(others.into_iter().fold(silent, |all, one| format!("{all} AND {one}"))))
    }

    /// What is said of a session `s` that is taken.
    fn condition(&self, statement: &mut Statement, owners_since: f64) -> Result<String> {
        let ended = self.conditions(statement, "s.")?;
        let abandoned = match self.abandoned {
            true => self.conditions_of_abandoned(statement, owners_since)?,
            false => None,
        };
        Ok(match abandoned {
            Some(abandoned) => format!("(({ended}) OR ({abandoned}))"),
            None => ended,
        })
    }

    /// Whether it asks for a number of messages, or of what is counted in them.
    fn needs_messages(&self) -> bool {
        self.min_messages.is_some() || self.min_tool_calls.is_some()
    }

    fn others(&self, statement: &mut Statement, prefix: &str) -> Result<Vec<String>> {
        let column = |name: &str| format!("{prefix}{name}");
        let mut conditions = Vec::new();
        for (limit, comparison) in [(self.started_before, "<"), (self.started_after, ">=")] {
            if let Some(limit) = limit {
                conditions.push(format!("{} {comparison} {}", column("started_at"), statement.bind(limit)));
            }
        }
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        for (name, value) in [
            ("source", &self.source),
            ("end_reason", &self.end_reason),
            ("user_id", &self.user_id),
            ("chat_id", &self.chat_id),
            ("chat_type", &self.chat_type),
        ] {
            if let Some(value) = given(value) {
                conditions.push(format!("{} = {}", column(name), statement.bind(value)));
            }
        }
        if let Some(provider) = given(&self.provider) {
            let needle = Needle::new(statement, &provider);
            conditions.push(needle.equals(statement, &column("billing_provider")));
        }
        for (name, text) in
            [("title", &self.title_like), ("model", &self.model_like), ("git_branch", &self.branch_like)]
        {
            if let Some(text) = given(text) {
                let needle = Needle::new(statement, &text);
                conditions.push(needle.within(statement, &column(name))?);
            }
        }
        if let Some(prefix) = given(&self.cwd_prefix) {
            conditions.push(in_folder(statement, &column("cwd"), &prefix)?);
        }
        let tokens = format!("(COALESCE({}, 0) + COALESCE({}, 0))", column("input_tokens"), column("output_tokens"));
        let calls = format!("COALESCE({}, 0)", column("tool_call_count"));
        for (counted, least, most) in [
            (column("message_count"), self.min_messages, self.max_messages),
            (tokens, self.min_tokens, self.max_tokens),
            (calls, self.min_tool_calls, self.max_tool_calls),
        ] {
            for (limit, comparison) in [(least, ">="), (most, "<=")] {
                if let Some(limit) = limit {
                    conditions.push(format!("{counted} {comparison} {}", statement.bind(limit)));
                }
            }
        }
        let cost = format!("COALESCE({}, {}, 0)", column("actual_cost_usd"), column("estimated_cost_usd"));
        for (limit, comparison) in [(self.min_cost, ">="), (self.max_cost, "<=")] {
            if let Some(limit) = limit {
                conditions.push(format!("{cost} {comparison} {}", statement.bind(limit)));
            }
        }
        if let Some(archived) = self.archived {
            conditions.push(format!("{} = {}", column("archived"), i64::from(archived)));
        }
        Ok(conditions)
    }
}

const SILENT: &str = "s.title IS NULL AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)";

/// A session `s` that ended and was not archived, untitled and without a message in any state.
pub(super) const EMPTY: &str = "s.message_count = 0 AND s.ended_at IS NOT NULL AND s.archived = 0 AND s.title IS NULL \
     AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)";

/// Why a session `s` goes. It is asked again in the transaction that deletes it: meanwhile others may have changed it.
#[derive(Debug, Clone)]
pub(crate) enum Reason {
    /// It was named.
    Named,
    /// It has nothing that anybody would miss: no title, no message in any state, no child.
    Untouched,
    /// It ended and was not archived, untitled and without a message in any state.
    Empty,
    /// A terminal was opened before this time and closed again, and nothing was said or named.
    Ghost { before: f64 },
    /// A prune asks for it.
    Pruned {
        filter: Box<PruneFilter>,
        /// Since when a process has been there that may own a session.
        owners_since: f64,
    },
    /// A policy does not keep it.
    Retention(Box<Retention>),
}

impl Reason {
    /// The reason as a condition.
    pub(crate) fn condition(&self, statement: &mut Statement) -> Result<String> {
        Ok(match self {
            Reason::Named => "1 = 1".to_owned(),
            Reason::Untouched => {
                format!("{SILENT} AND NOT EXISTS (SELECT 1 FROM sessions c WHERE c.parent_session_id = s.id)")
            }
            Reason::Empty => EMPTY.to_owned(),
            Reason::Ghost { before } => {
                let before = statement.bind(*before);
                format!("s.source = 'tui' AND s.ended_at IS NOT NULL AND s.started_at < {before} AND {SILENT}")
            }
            Reason::Retention(retention) => retention.condition(statement),
            Reason::Pruned { filter, owners_since } if filter.needs_messages() => {
                let meets = filter.condition(statement, *owners_since)?;
                let few = PruneFilter { min_messages: None, min_tool_calls: None, ..(**filter).clone() };
                format!("({meets} OR ({} AND {}))", few.condition(statement, *owners_since)?, begun())
            }
            Reason::Pruned { filter, owners_since } => filter.condition(statement, *owners_since)?,
        })
    }

    /// Whether a session of which a part is deleted may no longer be one that there is this reason for, so that it has to
    /// be noted that it was.
    pub(crate) fn needs_marks(&self) -> bool {
        matches!(self, Reason::Pruned { filter, .. } if filter.needs_messages())
    }

    /// Whether the sessions that it delegated go along.
    pub(crate) fn takes_delegates(&self) -> bool {
        matches!(self, Reason::Named | Reason::Empty | Reason::Pruned { .. } | Reason::Retention(_))
    }
}

/// The key under which it is noted that a prune has begun to delete the messages of a session, with the last id of them.
pub(crate) fn begun_key(id: &str) -> String {
    format!("{BEGUN}{id}")
}

const BEGUN: &str = "hermes_state_pruning:";

/// Notes that the messages of a session are being deleted, of which this is the last.
pub(crate) fn mark_begun(transaction: &mut dyn Transaction, id: &str, last: i64) -> Result<()> {
    let sql =
        "INSERT INTO state_meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    transaction.execute(sql, &[begun_key(id).into(), last.to_string().into()]).map(drop)
}

/// Whether a prune that did not come to its end has taken messages of a session `s` in which nothing was said since.
fn begun() -> String {
    format!(
        "EXISTS (SELECT 1 FROM state_meta b WHERE b.key = '{BEGUN}' || s.id AND CAST(b.value AS bigint) >= \
         COALESCE((SELECT MAX(m.id) FROM messages m WHERE m.session_id = s.id), 0))"
    )
}

/// How many sessions there is this reason for.
pub(crate) fn count(transaction: &mut dyn Transaction, reason: &Reason) -> Result<i64> {
    let mut statement = Statement::default();
    let condition = reason.condition(&mut statement)?;
    statement.push(&format!("SELECT COUNT(*) FROM sessions s WHERE {condition}"));
    Ok(transaction.scalar(&statement.sql, &statement.parameters)?.as_i64().unwrap_or_default())
}

/// The ids of those sessions, oldest first.
pub(crate) fn ids(transaction: &mut dyn Transaction, reason: &Reason) -> Result<Vec<String>> {
    let mut statement = Statement::default();
    let condition = reason.condition(&mut statement)?;
    statement.push(&format!("SELECT s.id FROM sessions s WHERE {condition} ORDER BY s.started_at, s.id"));
    let rows = transaction.records(&statement.sql, &statement.parameters)?;
    Ok(rows.iter().filter_map(|row| row.text("id").map(str::to_owned)).collect())
}

/// What a prune by this filter would do.
pub(crate) fn plan(transaction: &mut dyn Transaction, filter: &PruneFilter, owners_since: f64) -> Result<PrunePlan> {
    let mut statement = Statement::default();
    let ended = filter.conditions(&mut statement, "s.")?;
    let ended = candidates(transaction, &statement, &ended)?;
    let mut statement = Statement::default();
    let abandoned = match filter.conditions_of_abandoned(&mut statement, owners_since)? {
        Some(condition) => candidates(transaction, &statement, &condition)?,
        None => Vec::new(),
    };
    Ok(PrunePlan { ended, abandoned })
}

pub(super) fn candidates(
    transaction: &mut dyn Transaction,
    statement: &Statement,
    condition: &str,
) -> Result<Vec<Session>> {
    let sql = format!(
        "SELECT s.id, s.source, s.title, s.model, s.started_at, s.ended_at, s.message_count, s.archived \
         FROM sessions s WHERE {condition} ORDER BY s.started_at, s.id"
    );
    Ok(transaction.records(&sql, &statement.parameters)?.into_iter().map(Session::new).collect())
}

/// The sessions that there is this reason for, oldest first, as rows.
pub(crate) fn chosen(transaction: &mut dyn Transaction, reason: &Reason) -> Result<Vec<Session>> {
    let mut statement = Statement::default();
    let condition = reason.condition(&mut statement)?;
    candidates(transaction, &statement, &condition)
}
