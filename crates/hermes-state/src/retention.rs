//! Policies of retention: which sessions are kept how long, by source and state.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};
use crate::session::Session;

/// How a session stands, as far as keeping it is concerned. A session may stand in several of these ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// It has ended, and is not archived.
    Ended,
    /// It has ended, and is archived.
    Archived,
    /// It has not ended. Whoever works on it loses it: name this state for sessions only of which you know that nobody
    /// does.
    Open,
    /// It has not ended, and whoever worked on it is gone: it has been silent since before any process began that has
    /// the store open now. A process that has it open for longer than the session is silent may well be its owner; of one
    /// that has not got it open, only silence for the age of the rule speaks.
    OwnerGone,
    /// It has ended, is not archived, and has neither a title nor a message in any state.
    Empty,
}

impl SessionState {
    /// All of them.
    pub const ALL: [SessionState; 5] =
        [SessionState::Ended, SessionState::Archived, SessionState::Open, SessionState::OwnerGone, SessionState::Empty];

    /// Its name in policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SessionState::Ended => "ended",
            SessionState::Archived => "archived",
            SessionState::Open => "open",
            SessionState::OwnerGone => "owner-gone",
            SessionState::Empty => "empty",
        }
    }

    /// The state with this [`name`](SessionState::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Sessions that go: those of an age that are in one of some states, and of some sources.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionRule {
    /// They began longer ago than this; open ones have been silent for so long, too.
    #[serde(deserialize_with = "age")]
    pub older_than: Duration,
    /// Their states: any of these. Ended and archived, if nothing is said.
    #[serde(default = "closed")]
    pub states: Vec<SessionState>,
    /// Their sources: any of these; all, if there are none.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Sources of which none goes by this rule.
    #[serde(default)]
    pub except_sources: Vec<String>,
}

impl RetentionRule {
    /// Sessions that have ended, archived or not, and began longer ago than this.
    #[must_use]
    pub fn older_than(age: Duration) -> Self {
        Self { older_than: age, states: closed(), sources: Vec::new(), except_sources: Vec::new() }
    }
}

fn closed() -> Vec<SessionState> {
    vec![SessionState::Ended, SessionState::Archived]
}

/// Which sessions are not kept: those that any of the rules names.
///
/// ```
/// use hermes_state::{RetentionPolicy, RetentionRule, SessionState};
/// let policy = RetentionPolicy::from_json(
///     r#"{"rules": [
///         {"older_than": "7d", "sources": ["cron"]},
///         {"older_than": "90d", "except_sources": ["telegram"]},
///         {"older_than": "1d", "states": ["empty", "owner-gone"]}
///     ]}"#,
/// )?;
/// assert_eq!(policy.rules[1].states, [SessionState::Ended, SessionState::Archived]);
/// assert!(RetentionPolicy::from_json(r#"{"rules": [{"older_then": "7d"}]}"#).is_err());
/// # Ok::<(), hermes_state::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionPolicy {
    /// The rules.
    pub rules: Vec<RetentionRule>,
}

impl RetentionPolicy {
    /// The policy of one rule.
    #[must_use]
    pub fn of(rule: RetentionRule) -> Self {
        Self { rules: vec![rule] }
    }

    /// A policy out of JSON: an object with `rules`, each an object with `older_than` (see [`age_from_text`]) and, if
    /// wanted, `states` ([`SessionState::name`]), `sources` and `except_sources`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no policy, or takes nothing; it says where.
    pub fn from_json(text: &str) -> Result<Self> {
        let policy: Self = serde_json::from_str(text)
            .map_err(|error| Error::Invalid(format!("this is no policy of retention: {error}")))?;
        policy.check()?;
        Ok(policy)
    }

    /// Refuses rules that can take nothing: whoever wrote them meant something else.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |what: &str| Err(Error::Invalid(format!("this policy of retention {what}; nothing was changed")));
        if self.rules.is_empty() {
            return refused("has no rules");
        }
        for (number, rule) in (1..).zip(&self.rules) {
            if rule.states.is_empty() {
                return refused(&format!("names no states in rule {number}"));
            }
            if rule.sources.iter().chain(&rule.except_sources).any(String::is_empty) {
                return refused(&format!("names a source without a name in rule {number}"));
            }
            if !rule.sources.is_empty() && rule.sources.iter().all(|source| rule.except_sources.contains(source)) {
                return refused(&format!("excepts every source that rule {number} names"));
            }
        }
        Ok(())
    }
}

/// An age as people write it: a number and `s`, `m` (minutes), `h`, `d` or `w`, such as `30d`.
///
/// # Errors
/// [`Error::Invalid`] for anything else.
pub fn age_from_text(text: &str) -> Result<Duration> {
    let refused = || Error::Invalid(format!("'{text}' is no age; write a number and s, m, h, d or w, such as 30d"));
    let trimmed = text.trim();
    let unit = trimmed.chars().next_back().ok_or_else(refused)?;
    let seconds = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        'd' => 86_400.0,
        'w' => 604_800.0,
        _ => return Err(refused()),
    };
    let number = &trimmed[..trimmed.len() - 1];
    if !number.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(refused());
    }
    let number: f64 = number.parse().map_err(|_| refused())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| refused())
}

fn age<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    age_from_text(&text).map_err(serde::de::Error::custom)
}

/// What a policy takes, and what it leaves open.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RetentionPlan {
    /// The sessions that go, each behind those that it delegated.
    pub sessions: Vec<PlannedSession>,
    /// Sessions of the age and the sources of a rule that are open with their owner gone, and stay because no rule asks
    /// for them: see [`SessionState::OwnerGone`]. Rows have the columns `id`, `source`, `title`, `model`, `started_at`,
    /// `ended_at`, `message_count` and `archived`; so have the next.
    pub owner_gone: Vec<Session>,
    /// The like, but of which the owner may be there.
    pub open: Vec<Session>,
}

impl RetentionPlan {
    /// How many messages go, in whatever state.
    #[must_use]
    pub fn messages(&self) -> i64 {
        self.sessions.iter().map(|session| session.messages).sum()
    }

    /// How many bytes of text go.
    #[must_use]
    pub fn bytes(&self) -> i64 {
        self.sessions.iter().map(|session| session.bytes).sum()
    }

    /// How many sessions go on their own account.
    #[must_use]
    pub fn chosen(&self) -> usize {
        self.sessions.iter().filter(|session| session.delegated_by.is_none()).count()
    }
}

/// A session that goes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PlannedSession {
    /// Its id.
    pub id: String,
    /// Where it comes from.
    pub source: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// When it began, in seconds since the epoch.
    pub started_at: Option<f64>,
    /// When it ended.
    pub ended_at: Option<f64>,
    /// Whether it is archived.
    pub archived: bool,
    /// Its messages, in whatever state.
    pub messages: i64,
    /// The bytes of their texts. What the store takes for them, indexes included, is some times as much.
    pub bytes: i64,
    /// The session with which it goes, because that one delegated it.
    pub delegated_by: Option<String>,
}

/// What applying a policy has done.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RetentionReport {
    /// What was to go when it began.
    pub plan: RetentionPlan,
    /// How many sessions went on their own account. What others changed meanwhile so that no rule took it any more is
    /// not among them.
    pub deleted: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_number_and_a_unit() {
        for (text, seconds) in
            [("90s", 90), ("2m", 120), ("1h", 3600), (" 30d ", 2_592_000), ("1.5w", 907_200), ("0d", 0)]
        {
            assert_eq!(age_from_text(text).expect(text), Duration::from_secs(seconds));
        }
        for text in ["", "d", "30", "-1d", "+1d", "1e400d", "infd", "nand", "1 d", "30 days", "30x", "30日", ".5d"] {
            assert!(age_from_text(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn states_have_the_names_of_policies() {
        for state in SessionState::ALL {
            assert_eq!(SessionState::from_name(state.name()), Some(state));
            let json = format!(r#"{{"rules": [{{"older_than": "1d", "states": ["{}"]}}]}}"#, state.name());
            assert_eq!(RetentionPolicy::from_json(&json).expect("reads").rules[0].states, [state]);
        }
    }

    #[test]
    fn what_is_no_policy_is_refused_with_a_reason() {
        for (json, reason) in [
            ("", "EOF"),
            ("[]", "no policy"),
            ("{}", "rules"),
            (r#"{"rules": []}"#, "has no rules"),
            (r#"{"rules": [{}]}"#, "older_than"),
            (r#"{"rules": [{"older_than": 30}]}"#, "string"),
            (r#"{"rules": [{"older_than": "soon"}]}"#, "'soon' is no age"),
            (r#"{"rules": [{"older_than": "1d", "state": "ended"}]}"#, "unknown field `state`"),
            (r#"{"rules": [{"older_than": "1d", "states": ["dead"]}]}"#, "unknown variant `dead`"),
            (r#"{"rules": [{"older_than": "1d", "states": []}]}"#, "no states in rule 1"),
            (r#"{"rules": [{"older_than": "1d", "sources": [""]}]}"#, "without a name"),
            (r#"{"rules": [{"older_than": "1d", "sources": ["a"], "except_sources": ["a"]}]}"#, "excepts every source"),
            (r#"{"rules": [{"older_than": "1d"}], "keep": 3}"#, "unknown field `keep`"),
        ] {
            let error = RetentionPolicy::from_json(json).expect_err(json).to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
