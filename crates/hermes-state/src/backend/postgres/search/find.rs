//! Searching with `tsquery`: which rows match, in which order, and what is shown of them.

use super::compile::{Ids, matching, narrow, ranking};
use crate::error::Result;
use crate::search::expression::{Expression, Phrase};
use crate::search::hit::SearchHit;
use crate::search::index::{Found, Index, Search, TextIndex};
use crate::search::rows::{BEFORE, EVERYWHERE, EXCERPT, Page, Rows, TEXT, is_short};
use crate::search::snippet::{Texts, snippet};
use crate::search::text::{Alternative, Condition};
use crate::search::tokens::with_tokenizer;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// How many of the newest hits are put in order by how well they match; older ones follow by age. To rank them all, a
/// server would have to read them all.
const RANKED: i64 = 200;

/// The index of words in `message_words`.
pub(in crate::backend::postgres) struct TsQuery;

impl TextIndex for TsQuery {
    fn find(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>, page: Page) -> Result<Found> {
        let Some(matched) = Matched::of(search)? else { return Ok(Found::Unable) };
        // What a plan costs depends on how common the words are, which a plan for any words cannot know.
        transaction.send("SET LOCAL plan_cache_mode = force_custom_plan", &[])?;
        let found = if let Some(order) = rows.order_by_time() {
            matched.page(transaction, rows, &format!("m.timestamp {order}, m.id"), page)?
        } else {
            matched.best(transaction, rows, page)?
        };
        let hits = found.into_iter().map(|row| matched.hit(row)).collect::<Result<_>>()?;
        Ok(Found::Hits(hits))
    }

    fn count(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>) -> Result<i64> {
        let Some(matched) = Matched::of(search)? else { return Ok(0) };
        let mut statement = Statement::default();
        statement.push("SELECT COUNT(*)");
        matched.push_hits(&mut statement, rows, "", None)?;
        Ok(transaction.scalar(&statement.sql, &statement.parameters)?.as_i64().unwrap_or_default())
    }

    /// The index is kept with every message, and never rebuilt behind its back.
    fn unindexed(&self, _: &mut dyn Transaction) -> Result<Option<(i64, i64)>> {
        Ok(None)
    }

    fn pairs_are_complete(&self, _: &mut dyn Transaction) -> Result<bool> {
        Ok(true)
    }

    fn narrow(&self, condition: &Condition, statement: &mut Statement) -> Result<Vec<String>> {
        let narrowed = with_tokenizer(|tokenizer| narrow(condition, tokenizer, statement))?;
        Ok(narrowed.map_or_else(|| vec![EVERYWHERE.to_owned()], sources))
    }
}

/// Messages of one row in the index, and those of several.
fn sources(Ids { whole, several }: Ids) -> Vec<String> {
    vec![
        format!(
            " FROM message_words w JOIN messages m ON m.id = w.message_id JOIN sessions s ON s.id = m.session_id \
             WHERE w.pieces = 1 AND w.words @@ {whole}"
        ),
        format!("{EVERYWHERE} AND m.id IN ({several})"),
    ]
}

/// What rows have to be.
struct Matched<'a> {
    search: &'a Search,
    by: By,
}

enum By {
    /// The index of words says so.
    Words,
    /// They hold these texts as they stand, in rows that are not of tools.
    Parts(Condition),
}

impl<'a> Matched<'a> {
    /// `None` if there is no such index.
    fn of(search: &'a Search) -> Result<Option<Self>> {
        let by = match search.index {
            Index::Words => By::Words,
            Index::Trigrams => By::Parts(parts(&search.expression)),
            Index::Pairs => return Ok(None),
        };
        Ok(Some(Self { search, by }))
    }

    /// The best of the newest hits first, then the older ones.
    fn best(&self, transaction: &mut dyn Transaction, rows: &Rows<'_>, page: Page) -> Result<Vec<Vec<Value>>> {
        let all = page.limit < 0;
        let end = page.offset.saturating_add(page.limit);
        let mut found = Vec::new();
        if page.offset < RANKED {
            let limit = if all { RANKED } else { page.limit };
            found = self.ranked(transaction, rows, Page { limit: limit.min(RANKED - page.offset), ..page })?;
        }
        if all || end > RANKED {
            let offset = page.offset.max(RANKED);
            let limit = if all { page.limit } else { end - offset };
            found.extend(self.page(transaction, rows, "m.id DESC", Page { limit, offset })?);
        }
        Ok(found)
    }

    fn ranked(&self, transaction: &mut dyn Transaction, rows: &Rows<'_>, page: Page) -> Result<Vec<Vec<Value>>> {
        let By::Words = self.by else {
            return self.page(transaction, rows, "m.id DESC", page);
        };
        let mut statement = Statement::default();
        statement.push("WITH newest AS MATERIALIZED (SELECT m.id AS id");
        self.push_hits(&mut statement, rows, "m.id DESC", Some(RANKED))?;
        statement.push(&format!(" ORDER BY m.id DESC LIMIT {RANKED})"));
        let query = with_tokenizer(|tokenizer| ranking(&self.search.expression, tokenizer, &mut statement))?;
        statement.push(&format!(
            " SELECT {}, m.tool_calls FROM newest n JOIN messages m ON m.id = n.id JOIN sessions s ON s.id = m.session_id \
             JOIN message_words w ON w.message_id = n.id AND w.piece = 0 ORDER BY ts_rank(w.words, {query}, 1) DESC, m.id",
            rows.columns("m.content")
        ));
        page.push(&mut statement);
        all_rows(transaction, &statement)
    }

    fn page(
        &self,
        transaction: &mut dyn Transaction,
        rows: &Rows<'_>,
        order: &str,
        page: Page,
    ) -> Result<Vec<Vec<Value>>> {
        let mut statement = Statement::default();
        statement.push(&format!("SELECT {}, m.tool_calls", rows.columns("m.content")));
        let most = (page.limit >= 0).then(|| page.offset.saturating_add(page.limit));
        self.push_hits(&mut statement, rows, order, most)?;
        statement.push(&format!(" ORDER BY {order}"));
        page.push(&mut statement);
        all_rows(transaction, &statement)
    }

    fn push_hits(&self, statement: &mut Statement, rows: &Rows<'_>, order: &str, most: Option<i64>) -> Result<()> {
        let (sources, mut conditions) = match &self.by {
            By::Words => {
                let ids = with_tokenizer(|tokenizer| matching(&self.search.expression, tokenizer, statement))?;
                (sources(ids), String::new())
            }
            By::Parts(condition) => {
                let sources = TsQuery.narrow(condition, statement)?;
                (sources, format!(" AND m.role <> 'tool' AND {}", rows.hold(condition, statement)))
            }
        };
        for text in &self.search.holding {
            conditions.push_str(&format!(" AND {}", rows.holds(statement, text)));
        }
        rows.push_hits(statement, &sources, &mut |statement| statement.push(&conditions), order, most);
        Ok(())
    }

    fn hit(&self, row: Vec<Value>) -> Result<SearchHit> {
        let text = |column: usize| row.get(column).and_then(Value::as_str);
        let texts = Texts { content: text(TEXT), tool_name: text(5), tool_calls: text(9) };
        let shown = match &self.by {
            By::Words => with_tokenizer(|tokenizer| snippet(tokenizer, &self.search.expression, &texts))?,
            By::Parts(condition) => around(condition, &texts),
        };
        Ok(SearchHit::read(row, |_| shown))
    }
}

fn all_rows(transaction: &mut dyn Transaction, statement: &Statement) -> Result<Vec<Vec<Value>>> {
    let mut rows = Vec::new();
    transaction.query(&statement.sql, &statement.parameters, &mut |row| {
        rows.push(row);
        Ok(())
    })?;
    Ok(rows)
}

/// What the parts of words mean that FTS5's trigrams find: those of less than three characters are not looked for, and
/// where nothing else is, nothing is found.
fn parts(expression: &Expression) -> Condition {
    let long = |texts: &[Phrase]| -> Vec<String> {
        texts.iter().map(|phrase| phrase.text.clone()).filter(|text| !is_short(text)).collect()
    };
    let alternatives = expression.alternatives.iter().filter_map(|groups| {
        let mut alternative = Alternative::default();
        for group in groups {
            let required = long(&group.required);
            if required.is_empty() {
                return None;
            }
            alternative.required.extend(required);
            alternative.excluded.extend(group.excluded.iter().map(|list| long(list)).filter(|list| !list.is_empty()));
        }
        Some(alternative)
    });
    Condition { alternatives: alternatives.collect() }
}

/// The text around the first part that is found, with marks around it.
fn around(condition: &Condition, texts: &Texts<'_>) -> Option<String> {
    let parts = condition.alternatives.iter().flat_map(|alternative| &alternative.required);
    let found = parts.flat_map(|part| texts.columns().into_iter().flatten().map(move |text| (part, text))).find_map(
        |(part, text)| {
            let at = text.to_ascii_lowercase().find(&part.to_ascii_lowercase())?;
            Some((text, at, at + part.len()))
        },
    );
    let Some((text, start, end)) = found else {
        return texts.content.map(|content| content.chars().take(EXCERPT).collect());
    };
    let (before, part, after) = (&text[..start], &text[start..end], &text[end..]);
    let skipped = before.chars().count().saturating_sub(BEFORE);
    let before: String = before.chars().skip(skipped).collect();
    let room = EXCERPT.saturating_sub(before.chars().count() + part.chars().count());
    let shown: String = after.chars().take(room).collect();
    let (left, right) = (if skipped > 0 { "..." } else { "" }, if shown.len() < after.len() { "..." } else { "" });
    Some(format!("{left}{before}>>>{part}<<<{shown}{right}"))
}
