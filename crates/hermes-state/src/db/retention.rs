//! Policies of retention: what they would take, taking it, and taking it from time to time.

use std::path::Path;

use super::SessionDb;
use super::maintenance::{AutoPruneOptions, AutoPruneReport};
use super::steps::unwatched;
use crate::clock;
use crate::error::Result;
use crate::process;
use crate::query::prune::Reason;
use crate::query::retention::{self, Retention};
use crate::retention::{RetentionPlan, RetentionPolicy, RetentionReport};

impl SessionDb {
    /// What [`apply_retention`](SessionDb::apply_retention) would delete, to the session; and which open sessions of that
    /// age it would leave.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a policy that can take nothing.
    pub fn plan_retention(&self, policy: &RetentionPolicy) -> Result<RetentionPlan> {
        let retention = self.as_of_now(policy)?;
        self.read_at_length(move |transaction| retention::plan(transaction, &retention))
    }

    /// Deletes the sessions that the policy does not keep, with their messages and all that they delegated, in steps
    /// between which others write; other children stay, without a parent. Files go as with
    /// [`delete_session`](SessionDb::delete_session).
    ///
    /// ```
    /// use std::time::Duration;
    /// use hermes_state::{NewSession, RetentionPolicy, RetentionRule, SessionDb};
    /// let folder = tempfile::tempdir().unwrap();
    /// let db = SessionDb::open(folder.path().join("state.db"))?;
    /// db.create_session(NewSession::new("done", "cron"))?;
    /// db.end_session("done", "cron_complete")?;
    /// let month = RetentionPolicy::of(RetentionRule::older_than(Duration::from_secs(30 * 86_400)));
    /// assert_eq!(db.apply_retention(&month, None)?.deleted, 0);
    /// let all = RetentionPolicy::from_json(r#"{"rules": [{"older_than": "0d", "sources": ["cron"]}]}"#)?;
    /// assert_eq!(db.plan_retention(&all)?.sessions[0].id, "done");
    /// assert_eq!(db.apply_retention(&all, None)?.deleted, 1);
    /// # Ok::<(), hermes_state::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of every write, and as [`plan_retention`](SessionDb::plan_retention).
    pub fn apply_retention(&self, policy: &RetentionPolicy, files: Option<&Path>) -> Result<RetentionReport> {
        let retention = self.as_of_now(policy)?;
        let asked = retention.clone();
        let plan = self.read_at_length(move |transaction| retention::plan(transaction, &asked))?;
        let deleted = self.delete_all(Reason::Retention(Box::new(retention)), files, &mut unwatched)?;
        Ok(RetentionReport { plan, deleted })
    }

    /// [`apply_retention`](SessionDb::apply_retention) if it was not done for a while, by this process or another: see
    /// [`maybe_auto_prune_and_vacuum`](SessionDb::maybe_auto_prune_and_vacuum).
    ///
    /// # Errors
    /// As both.
    pub fn maybe_apply_retention(
        &self,
        options: &AutoPruneOptions,
        policy: &RetentionPolicy,
        files: Option<&Path>,
    ) -> Result<AutoPruneReport> {
        policy.check()?;
        self.maybe_auto_prune_and_vacuum(options, |db| Ok(db.apply_retention(policy, files)?.deleted))
    }

    fn as_of_now(&self, policy: &RetentionPolicy) -> Result<Retention> {
        policy.check()?;
        Ok(Retention { policy: policy.clone(), now: clock::now(), owners_since: self.owners_since()? })
    }

    /// Since when, in seconds since the epoch, a process has been there that has the store open now, this one included:
    /// a session that was silent before is of none of them. Of one that does not tell, it is as if it had always been.
    pub(super) fn owners_since(&self) -> Result<f64> {
        let store = self.open_store()?;
        let local = !crate::backend::location::is_url(&self.path);
        let own = process::age_of(std::process::id());
        let ages = store.users()?.into_iter().map(|user| {
            let open_for = user.open_for.map(|age| age.as_secs_f64());
            // It may have opened the store before, and closed it again.
            let age = u32::try_from(user.pid).ok().filter(|_| local).and_then(process::age_of);
            open_for.into_iter().chain(age).reduce(f64::max)
        });
        let oldest = ages.chain([own]).map(|age| age.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
        Ok(clock::now() - oldest)
    }
}
