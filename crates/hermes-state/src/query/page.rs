//! Pages of a listing that are turned by a cursor: what is created meanwhile neither repeats nor hides a session.

use std::fmt;
use std::str::FromStr;

use super::lineage::Conversation;
use super::listing::{Chosen, SessionQuery, Terms, admission, choose, rows_of, shown, text_conditions};
use crate::clock;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Record;

/// Which sessions are paged through, all filters applied before pages are cut.
///
/// ```
/// use hermes_state::{PageQuery, SessionQuery};
/// let titled = PageQuery {
///     titled: Some(true),
///     sessions: SessionQuery { limit: 10, ..SessionQuery::default() },
///     ..PageQuery::default()
/// };
/// assert_eq!(titled.cursor, None);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PageQuery {
    /// Where the page begins: behind the one that gave this cursor.
    pub cursor: Option<Cursor>,
    /// Only conversations one of whose sessions has a title, or only those of which none has.
    pub titled: Option<bool>,
    /// Only conversations in which something was said, or that went on, at this time or later.
    pub active_since: Option<f64>,
    /// All the rest: `limit` is the size of the page (negative: everything), `offset` must be zero. `id_query` and
    /// `search_query` count in either order.
    pub sessions: SessionQuery,
}

/// One page.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPage {
    /// Its rows, as a listing has them.
    pub sessions: Vec<Session>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Cursor>,
}

/// A place in a listing. As text it survives the process; the filters are to be given again.
#[derive(Debug, Clone, PartialEq)]
pub struct Cursor(Place);

#[derive(Debug, Clone, PartialEq)]
enum Place {
    /// Behind the session that started then.
    Start { started_at: f64, id: String },
    /// Behind the conversation last active then, as things were at `until`: a conversation that goes on between two
    /// pages keeps its place.
    Activity { latest: f64, started_at: f64, until: f64, id: String },
}

/// Doubles are written by their bits: the place is that of one row, to the last digit.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Start { started_at, id } => write!(f, "s.{:016x}.{id}", started_at.to_bits()),
            Place::Activity { latest, started_at, until, id } => {
                write!(f, "a.{:016x}.{:016x}.{:016x}.{id}", latest.to_bits(), started_at.to_bits(), until.to_bits())
            }
        }
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let double = |hex: &str| {
            let bits = Some(hex).filter(|hex| hex.len() == 16).and_then(|hex| u64::from_str_radix(hex, 16).ok());
            bits.map(f64::from_bits).filter(|double| !double.is_nan())
        };
        let parse = || {
            let (kind, rest) = text.split_once('.')?;
            match kind {
                "s" => {
                    let (started_at, id) = rest.split_once('.')?;
                    Some(Place::Start { started_at: double(started_at)?, id: id.to_owned() })
                }
                "a" => {
                    let mut parts = rest.splitn(4, '.');
                    let mut next = || parts.next();
                    let (latest, started_at, until) = (double(next()?)?, double(next()?)?, double(next()?)?);
                    Some(Place::Activity { latest, started_at, until, id: next()?.to_owned() })
                }
                _ => None,
            }
        };
        parse()
            .map(Self)
            .ok_or_else(|| Error::Invalid(format!("{text:?} is no cursor that a page gave; begin without")))
    }
}

/// Refuses what no page can be made of.
pub(crate) fn check(query: &PageQuery) -> Result<()> {
    let invalid = |text: &str| Err(Error::Invalid(text.to_owned()));
    if query.sessions.limit == 0 {
        return invalid("a page has at least one row; a negative limit asks for all");
    }
    if query.sessions.offset != 0 {
        return invalid("pages are turned by a cursor, not by an offset");
    }
    if query.active_since.is_some_and(f64::is_nan) {
        return invalid("active_since is not a time");
    }
    match &query.cursor {
        Some(Cursor(Place::Start { .. })) if query.sessions.order_by_last_active => {
            invalid("the cursor is of a listing by start, not by activity")
        }
        Some(Cursor(Place::Activity { .. })) if !query.sessions.order_by_last_active => {
            invalid("the cursor is of a listing by activity, not by start")
        }
        _ => Ok(()),
    }
}

/// One page of a query that was checked.
pub(crate) fn page(transaction: &mut dyn Transaction, query: &PageQuery) -> Result<SessionPage> {
    let now = clock::now();
    let mut wanted = query.sessions.clone();
    // One row more tells whether there is a next page.
    wanted.limit = wanted.limit.saturating_add(i64::from(wanted.limit > 0));
    let mut chosen = if wanted.order_by_last_active {
        choose(transaction, &wanted, &|statement| terms(statement, query))?
    } else {
        choose_by_start(transaction, &wanted, query)?
    };
    // Nothing that this listing shows is later, so from here on it is a listing as of then.
    let until = match &query.cursor {
        Some(Cursor(Place::Activity { until, .. })) => *until,
        _ => chosen.first().map_or(now, |first| now.max(first.latest)),
    };
    let size = usize::try_from(query.sessions.limit).unwrap_or(usize::MAX);
    let more = chosen.len() > size;
    chosen.truncate(size);
    let roots: Vec<String> = chosen.iter().map(|chosen| chosen.root.clone()).collect();
    let rows = rows_of(transaction, &roots, query.sessions.compact_rows)?;
    let next = chosen.last().zip(rows.last()).filter(|_| more).map(|(last, row)| {
        let (started_at, id) = (row.real("started_at").unwrap_or_default(), last.root.clone());
        Cursor(if wanted.order_by_last_active {
            Place::Activity { latest: last.latest, started_at, until, id }
        } else {
            Place::Start { started_at, id }
        })
    });
    Ok(SessionPage { sessions: shown(transaction, rows, &query.sessions)?, next })
}

/// Along the index over starts, as far as the page goes.
fn choose_by_start(transaction: &mut dyn Transaction, wanted: &SessionQuery, query: &PageQuery) -> Result<Vec<Chosen>> {
    let mut statement = Statement::default();
    let conditions = terms(&mut statement, query)?.conditions.join(" AND ");
    statement.push(&format!(
        "SELECT s.id, s.started_at FROM sessions s WHERE {conditions} ORDER BY s.started_at DESC, s.id DESC"
    ));
    statement.push_page(wanted.limit, 0);
    let rows = transaction.records(&statement.sql, &statement.parameters)?;
    let chosen = |row: &Record| Chosen {
        root: row.text("id").unwrap_or_default().to_owned(),
        latest: row.real("started_at").unwrap_or_default(),
    };
    Ok(rows.iter().map(chosen).collect())
}

/// Which conversations are on the page and behind it.
fn terms(statement: &mut Statement, query: &PageQuery) -> Result<Terms> {
    let (until, from) = match &query.cursor {
        Some(Cursor(Place::Activity { until, latest, .. })) => {
            (Some(statement.bind(*until)), Some(statement.bind(*latest)))
        }
        _ => (None, None),
    };
    let conversation = Conversation::of("s").until(until.as_deref());
    let mut conditions = vec![admission(statement, &query.sessions)?];
    for condition in text_conditions(statement, &query.sessions)? {
        conditions.push(conversation.has(&condition));
    }
    if let Some(titled) = query.titled {
        let has_title = conversation.has("x.title <> ''");
        conditions.push(if titled { has_title } else { format!("NOT {has_title}") });
    }
    if let Some(since) = query.active_since {
        conditions.push(format!("{} >= {}", conversation.activity(), statement.bind(since)));
    }
    match &query.cursor {
        Some(Cursor(Place::Start { started_at, id })) => {
            let (started_at, id) = (statement.bind(*started_at), statement.bind(id));
            conditions.push(format!("s.started_at <= {started_at} AND (s.started_at < {started_at} OR s.id < {id})"));
        }
        Some(Cursor(Place::Activity { started_at, id, .. })) => {
            let (started_at, id) = (statement.bind(*started_at), statement.bind(id));
            let latest = from.as_deref().unwrap_or_default();
            conditions
                .push(format!("({}, s.started_at, s.id) < ({latest}, {started_at}, {id})", conversation.activity()));
        }
        None => {}
    }
    Ok(Terms { conditions, until, from })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_as_text() {
        for place in [
            Place::Start { started_at: 1_700_000_000.123_456_7, id: "a.b.c".into() },
            Place::Start { started_at: -0.0, id: String::new() },
            Place::Activity { latest: f64::INFINITY, started_at: 0.1, until: 1e300, id: "é.s.\n".into() },
        ] {
            let cursor = Cursor(place);
            assert_eq!(cursor.to_string().parse::<Cursor>().expect("is one"), cursor);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let nan = format!("s.{:016x}.x", f64::NAN.to_bits());
        for text in ["", "s", "s.1.x", "a.0.0.0.x", "b.0000000000000000.x", "s.zzzzzzzzzzzzzzzz.x", &nan] {
            assert!(matches!(text.parse::<Cursor>(), Err(Error::Invalid(_))), "{text:?}");
        }
    }
}
