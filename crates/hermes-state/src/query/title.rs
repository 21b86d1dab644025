//! Reads of titles: who has one, and which comes next among those that are numbered.

use super::pattern;
use crate::blank;
use crate::columns::SessionColumns;
use crate::error::Result;
use crate::session::Session;
use crate::title::MAX_TITLE_LENGTH;
use crate::title::number::{self, Number};
use crate::transaction::Transaction;
use crate::value::Value;

/// Whether sessions of this file have titles; those of the oldest releases have none.
fn are_known(transaction: &mut dyn Transaction) -> Result<bool> {
    Ok(SessionColumns::read(transaction)?.has("title"))
}

/// The title of a session.
pub(crate) fn of(transaction: &mut dyn Transaction, id: &Value) -> Result<Option<String>> {
    if !are_known(transaction)? {
        return Ok(None);
    }
    let title = transaction.scalar("SELECT title FROM sessions WHERE id = ?1", std::slice::from_ref(id))?;
    Ok(title.as_str().map(str::to_owned))
}

/// The session with exactly this title.
pub(crate) fn holder(transaction: &mut dyn Transaction, title: &Value) -> Result<Option<Session>> {
    if !are_known(transaction)? {
        return Ok(None);
    }
    let found = transaction.first("SELECT * FROM sessions WHERE title = ?1", std::slice::from_ref(title))?;
    Ok(found.map(Session::new))
}

/// The id of the session that began last among those with this title, numbered or not.
pub(crate) fn resolve(transaction: &mut dyn Transaction, title: &str) -> Result<Option<String>> {
    if !are_known(transaction)? {
        return Ok(None);
    }
    // Between these two, by bytes, stands what begins with the first: `$` follows `#`.
    let (stem, behind) = (format!("{title} #"), format!("{title} $"));
    let rows = transaction.records(
        "SELECT id, title FROM sessions WHERE title = ?1 OR (title >= ?2 AND title < ?3) \
         ORDER BY started_at DESC, id DESC",
        &[title.into(), (&stem).into(), behind.into()],
    )?;
    let is_variant = |found: &str| found.strip_prefix(&stem).is_some_and(|digits| Number::read(digits).is_some());
    Ok(rows
        .iter()
        .find(|row| row.text("title").is_some_and(|found| found == title || is_variant(found)))
        .and_then(|row| row.text("id"))
        .map(str::to_owned))
}

/// The title without its number.
fn base(title: &str) -> &str {
    number::split(title).map_or(title, |(base, _)| base)
}

/// The greatest number of the titles with this base, as far as it has at most so many digits; the base by itself counts
/// as one, and so does anything else that begins like a numbered title. `None` if there is no such title.
fn greatest(transaction: &mut dyn Transaction, base: &str, longest: usize) -> Result<Option<Number>> {
    let pattern = pattern::beginning_with(&format!("{base} #"))?;
    let mut greatest = None;
    transaction.query(
        // Few titles have a number, and INSTR costs a fraction of folding and matching all.
        "SELECT title FROM sessions WHERE title IS NOT NULL \
             AND (title = ?1 OR (INSTR(title, ' #') > 0 AND LOWER(title) LIKE ?2 ESCAPE '\\'))",
        &[base.into(), pattern.into()],
        &mut |row| {
            let number = row.first().and_then(Value::as_str).and_then(number::split).map(|(_, number)| number);
            let counted = number.filter(|number| number.length() <= longest).unwrap_or_else(Number::one);
            greatest = greatest.take().max(Some(counted)).max(Some(Number::one()));
            Ok(())
        },
    )?;
    Ok(greatest)
}

fn numbered(base: &str, number: &Number) -> String {
    format!("{base} #{number}")
}

/// The title that follows those with the same base: the base itself if there is none, else with the next number.
pub(crate) fn next_in_lineage(transaction: &mut dyn Transaction, title: &str) -> Result<String> {
    let base = base(title);
    if !are_known(transaction)? {
        return Ok(base.to_owned());
    }
    let greatest = greatest(transaction, base, usize::MAX)?;
    Ok(greatest.map_or_else(|| base.to_owned(), |greatest| numbered(base, &greatest.next())))
}

/// The same for a title that is taken, in a form that can be stored: the base is cut where the number would not fit.
pub(crate) fn free_in_lineage(transaction: &mut dyn Transaction, title: &str) -> Result<String> {
    // A number that, counted on, leaves at least one character of the base.
    let longest = MAX_TITLE_LENGTH - " #".len() - 2;
    let base = base(title);
    let next = |transaction: &mut dyn Transaction, base: &str| -> Result<Number> {
        Ok(greatest(transaction, base, longest)?.map_or_else(Number::one, |greatest| greatest.next()))
    };
    let mut number = next(transaction, base)?;
    loop {
        let room = MAX_TITLE_LENGTH - " #".len() - number.length();
        let Some((end, _)) = base.char_indices().nth(room) else { return Ok(numbered(base, &number)) };
        let cut = blank::trim(&base[..end]);
        // What was cut to the same base before has used up numbers too.
        let free = next(transaction, cut)?;
        if free <= number {
            return Ok(numbered(cut, &number));
        }
        number = free;
    }
}
