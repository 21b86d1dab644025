//! Writes of usage: the totals of a session, and their split by model, route and task.

use super::session::CreateSession;
use super::{Promise, Write};
use crate::clock;
use crate::error::Result;
use crate::session::NewSession;
use crate::transaction::Transaction;
use crate::usage::{COUNTERS, Usage};
use crate::value::{Record, Value};

/// Accounts what the main loop of a session has used.
pub(crate) struct RecordUsage {
    pub(crate) session_id: Value,
    pub(crate) usage: Usage,
    /// Whether these are the totals of the session rather than what is new.
    pub(crate) total: bool,
}

/// Accounts what a task beside the main loop has used.
pub(crate) struct RecordAuxiliaryUsage {
    pub(crate) session_id: Value,
    pub(crate) task: Value,
    pub(crate) usage: Usage,
}

/// Notes by which route a session is billed from now on.
pub(crate) struct UpdateBillingRoute {
    pub(crate) session_id: Value,
    pub(crate) provider: Value,
    pub(crate) base_url: Value,
    pub(crate) mode: Value,
}

/// The route of a session, as the row stands in this transaction.
fn route(transaction: &mut dyn Transaction, session_id: &Value) -> Result<Option<Record>> {
    transaction.first(
        "SELECT model, billing_provider, billing_base_url, billing_mode, api_call_count FROM sessions WHERE id = ?1",
        std::slice::from_ref(session_id),
    )
}

/// The row that usage is accounted on, made if it is missing.
fn ensure(transaction: &mut dyn Transaction, session_id: &Value, model: &Value) -> Result<()> {
    let session = NewSession::new(session_id.clone(), "unknown").model(model.clone());
    CreateSession(session).apply(transaction)?.fulfil(transaction)
}

impl Write for RecordUsage {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        let Self { session_id, usage, total } = self;
        ensure(transaction, session_id, &usage.model)?;
        let Some(stored) = route(transaction, session_id)? else { return Ok(Promise::Kept(())) };
        if self.is_first_of_another_route(&stored) {
            transaction.execute(
                "UPDATE sessions SET model = ?2, billing_provider = ?3, billing_base_url = ?4, billing_mode = ?5 \
                 WHERE id = ?1",
                &[
                    session_id.clone(),
                    usage.model.clone(),
                    usage.billing_provider.clone(),
                    usage.billing_base_url.clone(),
                    usage.billing_mode.clone(),
                ],
            )?;
        }
        self.update_session(transaction)?;
        if !total && usage.is_accounted() {
            let Some(stored) = route(transaction, session_id)? else { return Ok(Promise::Kept(())) };
            let key = Key::of_the_main_loop(usage, &stored);
            add(transaction, session_id, &key, usage)?;
        }
        Ok(Promise::Kept(()))
    }
}

impl RecordUsage {
    /// Whether the session's row still names a route that nothing was accounted on: that of its creation, which the
    /// first call corrects.
    fn is_first_of_another_route(&self, stored: &Record) -> bool {
        let Usage { model, billing_provider, .. } = &self.usage;
        let is_other = |column: &str, given: &Value| stored.get(column) != Some(given);
        stored.get("api_call_count").is_none_or(Value::is_falsy)
            && self.usage.is_accounted()
            && !model.is_falsy()
            && !billing_provider.is_falsy()
            && (is_other("model", model) || is_other("billing_provider", billing_provider))
    }

    fn update_session(&self, transaction: &mut dyn Transaction) -> Result<()> {
        let usage = &self.usage;
        let mut parameters = vec![self.session_id.clone()];
        let mut changes = Vec::new();
        let mut bind = |value: &Value| {
            parameters.push(value.clone());
            parameters.len()
        };
        for (column, given) in COUNTERS.into_iter().zip(usage.counters()) {
            if !given.is_null() {
                let number = bind(given);
                let stored = if self.total { String::new() } else { format!("COALESCE({column}, 0) + ") };
                changes.push(format!("{column} = {stored}?{number}"));
            }
        }
        let costs = [("estimated_cost_usd", &usage.estimated_cost_usd), ("actual_cost_usd", &usage.actual_cost_usd)];
        for (column, given) in costs {
            match (given.is_null(), self.total) {
                (false, true) => changes.push(format!("{column} = ?{}", bind(given))),
                (false, false) => changes.push(format!("{column} = COALESCE({column}, 0) + ?{}", bind(given))),
                // An estimate of nothing is one; only what was paid may be unknown.
                (true, false) if column == "estimated_cost_usd" => {
                    changes.push(format!("{column} = COALESCE({column}, 0)"));
                }
                (true, _) => {}
            }
        }
        let labels = [
            ("cost_status", &usage.cost_status),
            ("cost_source", &usage.cost_source),
            ("pricing_version", &usage.pricing_version),
        ];
        for (column, given) in labels {
            if !given.is_null() {
                changes.push(format!("{column} = ?{}", bind(given)));
            }
        }
        if usage.is_accounted() {
            let route = [
                ("billing_provider", &usage.billing_provider),
                ("billing_base_url", &usage.billing_base_url),
                ("billing_mode", &usage.billing_mode),
            ];
            for (column, given) in route {
                if !given.is_null() {
                    changes.push(format!("{column} = COALESCE({column}, ?{})", bind(given)));
                }
            }
        }
        if !changes.is_empty() {
            transaction.execute(&format!("UPDATE sessions SET {} WHERE id = ?1", changes.join(", ")), &parameters)?;
        }
        Ok(())
    }
}

impl Write for RecordAuxiliaryUsage {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        ensure(transaction, &self.session_id, &Value::Null)?;
        add(transaction, &self.session_id, &Key::of_a_task(&self.usage, &self.task), &self.usage)?;
        Ok(Promise::Kept(()))
    }
}

impl Write for UpdateBillingRoute {
    type Answer = ();

    fn subject(&self) -> Option<&str> {
        self.session_id.as_str()
    }

    fn apply(&self, transaction: &mut dyn Transaction) -> Result<Promise<()>> {
        transaction.execute(
            "UPDATE sessions SET billing_provider = ?2, billing_base_url = ?3, billing_mode = COALESCE(?4, billing_mode), \
                 system_prompt = NULL WHERE id = ?1",
            &[self.session_id.clone(), self.provider.clone(), self.base_url.clone(), self.mode.clone()],
        )?;
        Ok(Promise::Kept(()))
    }
}

/// What usage is split by, none of it absent.
struct Key {
    model: Value,
    billing_provider: Value,
    billing_base_url: Value,
    billing_mode: Value,
    task: Value,
}

/// The first of these that says something.
fn first_of<const N: usize>(values: [&Value; N], otherwise: &str) -> Value {
    values.into_iter().find(|value| !value.is_falsy()).cloned().unwrap_or_else(|| otherwise.into())
}

impl Key {
    /// What the call leaves open is that of the session. An address and a mode belong to a provider, and are not lent to
    /// another.
    fn of_the_main_loop(usage: &Usage, session: &Record) -> Self {
        let stored = |column: &str| session.get(column).cloned().unwrap_or_default();
        let provider = first_of([&usage.billing_provider, &stored("billing_provider")], "");
        let is_lent = provider == first_of([&stored("billing_provider")], "");
        let lent = |column: &str| if is_lent { stored(column) } else { Value::Null };
        Self {
            model: first_of([&usage.model, &stored("model")], "unknown"),
            billing_base_url: first_of([&usage.billing_base_url, &lent("billing_base_url")], ""),
            billing_mode: first_of([&usage.billing_mode, &lent("billing_mode")], ""),
            billing_provider: provider,
            task: "".into(),
        }
    }

    /// A task's model need not be the session's, so nothing is taken from there.
    fn of_a_task(usage: &Usage, task: &Value) -> Self {
        Self {
            model: first_of([&usage.model], "unknown"),
            billing_provider: first_of([&usage.billing_provider], ""),
            billing_base_url: first_of([&usage.billing_base_url], ""),
            billing_mode: first_of([&usage.billing_mode], ""),
            task: task.clone(),
        }
    }
}

/// Adds to the row of this key.
fn add(transaction: &mut dyn Transaction, session_id: &Value, key: &Key, usage: &Usage) -> Result<()> {
    let or_zero = |value: &Value| if value.is_null() { Value::Integer(0) } else { value.clone() };
    let mut parameters = vec![
        session_id.clone(),
        key.model.clone(),
        key.billing_provider.clone(),
        key.billing_base_url.clone(),
        key.billing_mode.clone(),
        key.task.clone(),
    ];
    parameters.extend(usage.counters().map(or_zero));
    parameters.extend([or_zero(&usage.estimated_cost_usd), or_zero(&usage.actual_cost_usd)]);
    parameters.extend([usage.cost_status.clone(), usage.cost_source.clone()]);
    let now: Value = clock::now().into();
    parameters.extend([now.clone(), now]);
    let placeholders: Vec<_> = (1..=parameters.len()).map(|number| format!("?{number}")).collect();
    let sums: Vec<_> = COUNTERS
        .into_iter()
        .chain(["estimated_cost_usd", "actual_cost_usd"])
        .map(|column| format!("{column} = session_model_usage.{column} + excluded.{column}"))
        .collect();
    transaction.execute(
        &format!(
            "INSERT INTO session_model_usage (session_id, model, billing_provider, billing_base_url, billing_mode, task, \
                 {}, estimated_cost_usd, actual_cost_usd, cost_status, cost_source, first_seen, last_seen) \
             VALUES ({}) \
             ON CONFLICT (session_id, model, billing_provider, billing_base_url, billing_mode, task) DO UPDATE SET {}, \
                 cost_status = COALESCE(excluded.cost_status, session_model_usage.cost_status), \
                 cost_source = COALESCE(excluded.cost_source, session_model_usage.cost_source), \
                 last_seen = excluded.last_seen",
            COUNTERS.join(", "),
            placeholders.join(", "),
            sums.join(", ")
        ),
        &parameters,
    )?;
    Ok(())
}
