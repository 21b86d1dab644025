//! Searching with `tsquery`: which rows match, in which order, and what is shown of them.

use super::super::values::NUL;
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

const NEWEST_FIRST: &str = "m.id DESC";

/// The index of words in `message_words`.
pub(in crate::backend::postgres) struct TsQuery;

impl TextIndex for TsQuery {
    fn find(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>, page: Page) -> Result<Found> {
        let Some(matched) = Matched::of(search)? else { return Ok(Found::Unable) };
        let found = planned_anew(transaction, |transaction| match rows.order_by_time() {
            Some(order) => matched.page(transaction, rows, &format!("m.timestamp {order}, m.id"), page),
            None if search.newest => matched.page(transaction, rows, NEWEST_FIRST, page),
            None => matched.best(transaction, rows, page),
        })?;
        let hits = found.into_iter().map(|row| matched.hit(row)).collect::<Result<_>>()?;
        Ok(Found::Hits(hits))
    }

    fn count(&self, transaction: &mut dyn Transaction, search: &Search, rows: &Rows<'_>) -> Result<i64> {
        let Some(matched) = Matched::of(search)? else { return Ok(0) };
        let mut statement = Statement::default();
        statement.push("SELECT COUNT(*)");
        let sources = matched.sources(&mut statement)?;
        matched.push_hits(&mut statement, rows, &sources, "", None);
        planned_anew(transaction, |transaction| {
            Ok(transaction.scalar(&statement.sql, &statement.parameters)?.as_i64().unwrap_or_default())
        })
    }

    /// The index is kept with every message, and never rebuilt behind its back.
    fn unindexed(&self, _: &mut dyn Transaction) -> Result<Option<(i64, i64)>> {
        Ok(None)
    }

    fn narrow(&self, condition: &Condition, statement: &mut Statement) -> Result<Vec<String>> {
        let narrowed = with_tokenizer(|tokenizer| narrow(condition, tokenizer, statement))?;
        Ok(narrowed.map_or_else(|| vec![EVERYWHERE.to_owned()], sources))
    }
}

/// What a plan costs depends on how common the words are, which a plan for any words cannot know. For other statements
/// planning anew would be most of what they cost.
fn planned_anew<T>(
    transaction: &mut dyn Transaction,
    ask: impl FnOnce(&mut dyn Transaction) -> Result<T>,
) -> Result<T> {
    transaction.send("SET LOCAL plan_cache_mode = force_custom_plan", &[])?;
    let answer = ask(transaction)?;
    transaction.send("SET LOCAL plan_cache_mode TO DEFAULT", &[])?;
    Ok(answer)
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
            found.extend(self.page(transaction, rows, NEWEST_FIRST, Page { limit, offset })?);
        }
        Ok(found)
    }

    /// A page of the [`RANKED`] newest hits, the best first. It is cut before anything is read of its messages.
    fn ranked(&self, transaction: &mut dyn Transaction, rows: &Rows<'_>, page: Page) -> Result<Vec<Vec<Value>>> {
        let mut statement = Statement::default();
        statement.push(&format!("SELECT {}, m.tool_calls", rows.columns("m.content")));
        if let By::Words = self.by {
            let newest = self.newest(transaction, rows, RANKED)?;
            let query = with_tokenizer(|tokenizer| ranking(&self.search.expression, tokenizer, &mut statement))?;
            let ids = array(&newest, &mut statement);
            statement.push(&format!(
                " FROM (SELECT message_id AS id, ts_rank(words, {query}, 1) AS rank FROM message_words \
                 WHERE message_id = ANY ({ids}) AND piece = 0 ORDER BY rank DESC, id"
            ));
            page.push(&mut statement);
            statement.push(") h JOIN messages m ON m.id = h.id JOIN sessions s ON s.id = m.session_id");
            statement.push(" ORDER BY h.rank DESC, m.id");
        } else {
            // What only holds parts is as good as anything else that does.
            let mut shown = self.newest(transaction, rows, page.offset + page.limit)?;
            shown.truncate(usize::try_from(page.offset + page.limit).unwrap_or(usize::MAX));
            shown.drain(..shown.len().min(usize::try_from(page.offset).unwrap_or_default()));
            let source = among(&shown, &mut statement);
            statement.push(&format!("{source} ORDER BY {NEWEST_FIRST}"));
        }
        all_rows(transaction, &statement)
    }

    /// The ids of the newest hits, at least `wanted` of them if there are so many.
    ///
    /// Mostly the newest messages with the words are hits, or there are few with them at all. Then this is all that has
    /// to be known of others, and a server that takes the words to be rarer than they are, as it does with phrases, does
    /// not look at every message that has them.
    fn newest(&self, transaction: &mut dyn Transaction, rows: &Rows<'_>, wanted: i64) -> Result<Vec<i64>> {
        let mut statement = Statement::default();
        let words = match &self.by {
            By::Words => {
                Some(with_tokenizer(|tokenizer| matching(&self.search.expression, tokenizer, &mut statement))?)
            }
            By::Parts(condition) => with_tokenizer(|tokenizer| narrow(condition, tokenizer, &mut statement))?,
        };
        if let Some(Ids { whole, several }) = words {
            let order = format!("ORDER BY id DESC LIMIT {RANKED}");
            statement.push(&format!(
                "(SELECT message_id AS id FROM message_words WHERE pieces = 1 AND words @@ {whole} {order}) UNION ALL \
                 (SELECT DISTINCT message_id AS id FROM ({several}) AS several {order}) {order}"
            ));
            let told = all_ids(transaction, &statement)?;
            if told.is_empty() {
                return Ok(told);
            }
            let mut statement = Statement::default();
            let source = among(&told, &mut statement);
            let hits = self.ids(transaction, rows, statement, &[source], RANKED)?;
            if count_of(&told) < RANKED || count_of(&hits) >= wanted {
                return Ok(hits);
            }
        }
        let mut statement = Statement::default();
        let sources = self.sources(&mut statement)?;
        self.ids(transaction, rows, statement, &sources, wanted)
    }

    /// The ids of the newest hits from these sources.
    fn ids(
        &self,
        transaction: &mut dyn Transaction,
        rows: &Rows<'_>,
        mut statement: Statement,
        sources: &[String],
        most: i64,
    ) -> Result<Vec<i64>> {
        statement.push("SELECT m.id");
        self.push_hits(&mut statement, rows, sources, NEWEST_FIRST, Some(most));
        statement.push(&format!(" ORDER BY {NEWEST_FIRST} LIMIT {most}"));
        all_ids(transaction, &statement)
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
        let sources = self.sources(&mut statement)?;
        self.push_hits(&mut statement, rows, &sources, order, most);
        statement.push(&format!(" ORDER BY {order}"));
        page.push(&mut statement);
        all_rows(transaction, &statement)
    }

    /// Where all hits are.
    fn sources(&self, statement: &mut Statement) -> Result<Vec<String>> {
        match &self.by {
            By::Words => {
                let ids = with_tokenizer(|tokenizer| matching(&self.search.expression, tokenizer, statement))?;
                Ok(sources(ids))
            }
            By::Parts(condition) => TsQuery.narrow(condition, statement),
        }
    }

    /// Adds the rows of these sources that are hits as far as more than the words decides it.
    fn push_hits(
        &self,
        statement: &mut Statement,
        rows: &Rows<'_>,
        sources: &[String],
        order: &str,
        most: Option<i64>,
    ) {
        let mut conditions = match &self.by {
            By::Words => String::new(),
            By::Parts(condition) => {
                // A file's index of trigrams ends a text at its first NUL.
                let nul = u32::from(NUL);
                let part = |column: &str| format!("SPLIT_PART(COALESCE(m.{column}, ''), CHR({nul}), 1)");
                format!(" AND m.role <> 'tool' AND {}", rows.hold_in(condition, statement, &part))
            }
        };
        for text in &self.search.holding {
            conditions.push_str(&format!(" AND {}", rows.holds(statement, text)));
        }
        rows.push_hits(statement, sources, &mut |statement| statement.push(&conditions), order, most);
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

/// These messages, as a source of hits.
fn among(ids: &[i64], statement: &mut Statement) -> String {
    format!("{EVERYWHERE} AND m.id = ANY ({})", array(ids, statement))
}

fn array(ids: &[i64], statement: &mut Statement) -> String {
    let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    format!("CAST(CAST({} AS text) AS bigint[])", statement.bind(format!("{{{list}}}")))
}

fn all_ids(transaction: &mut dyn Transaction, statement: &Statement) -> Result<Vec<i64>> {
    let rows = all_rows(transaction, statement)?;
    Ok(rows.iter().filter_map(|row| row.first().and_then(Value::as_i64)).collect())
}

fn count_of(ids: &[i64]) -> i64 {
    i64::try_from(ids.len()).unwrap_or(i64::MAX)
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
