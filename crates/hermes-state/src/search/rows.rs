//! The rows that a search may show, whatever finds them: filters, order, pages, and finding by reading every row.

use std::time::Instant;

use super::cjk;
use super::expression::{Expression, Terms};
use super::hit::{SearchHit, SearchOptions, SearchSort};
use super::text::Condition;
use super::tokens::with_tokenizer;
use crate::columns::MessageColumns;
use crate::error::Result;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// All rows, as a source of hits.
pub(crate) const EVERYWHERE: &str = " FROM messages m JOIN sessions s ON s.id = m.session_id WHERE 1 = 1";

/// A part of the hits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    /// At most so many; negative: all.
    pub(crate) limit: i64,
    pub(crate) offset: i64,
}

impl Page {
    pub(crate) fn push(self, statement: &mut Statement) {
        statement.push_page(self.limit, self.offset);
    }
}

/// Where [`Rows::columns`] has the id and the text of a row.
pub(crate) const ID: usize = 0;
pub(crate) const TEXT: usize = 3;

/// What is looked through of a column of `m`, as an expression.
pub(crate) type Part<'a> = &'a dyn Fn(&str) -> String;

fn whole(column: &str) -> String {
    format!("COALESCE(m.{column}, '')")
}

/// Messages `m` of sessions `s` as a search's options admit them.
pub(crate) struct Rows<'a> {
    pub(crate) options: &'a SearchOptions,
    pub(crate) columns: MessageColumns,
}

impl Rows<'_> {
    /// What is read of a hit, with this text of it; [`SearchHit::read`] takes it in this order.
    pub(crate) fn columns(&self, text: &str) -> String {
        format!(
            "m.id, m.session_id, m.role, {text}, m.timestamp, m.tool_name, s.source, s.model, s.started_at AS session_started"
        )
    }

    /// The order asked for, if it is one by time.
    pub(crate) fn order_by_time(&self) -> Option<&'static str> {
        match self.options.sort? {
            SearchSort::Newest => Some("DESC"),
            SearchSort::Oldest => Some("ASC"),
        }
    }

    /// Adds `FROM` and `WHERE` for the messages `m` of sessions `s` that are hits: those of any of the sources, each a
    /// `FROM` with the beginning of its `WHERE`, that meet the conditions and the filters. No row is in two sources.
    ///
    /// Of several sources each is ordered and cut by itself, so that one whose rows come in order is read no further than
    /// the page goes; `most` says how far that is in this order.
    pub(crate) fn push_hits(
        &self,
        statement: &mut Statement,
        sources: &[String],
        conditions: &mut dyn FnMut(&mut Statement),
        order: &str,
        most: Option<i64>,
    ) {
        if let [source] = sources {
            statement.push(source);
            conditions(statement);
            return self.push_filters(statement);
        }
        let cut = most.map_or_else(String::new, |most| format!(" ORDER BY {order} LIMIT {most}"));
        for (index, source) in sources.iter().enumerate() {
            statement.push(if index == 0 { " FROM (" } else { " UNION ALL " });
            statement.push(&format!("(SELECT m.id AS id{source}"));
            conditions(statement);
            self.push_filters(statement);
            statement.push(&format!("{cut})"));
        }
        statement.push(") h JOIN messages m ON m.id = h.id JOIN sessions s ON s.id = m.session_id");
    }

    /// The conditions of the filters, each with AND before it.
    pub(crate) fn push_filters(&self, statement: &mut Statement) {
        let options = self.options;
        if !options.include_inactive {
            statement.push(&format!(" AND {}", self.columns.is_visible()));
        }
        let among = |statement: &mut Statement, column: &str, operator: &str, values: &[String]| {
            let list = statement.bind_all(values);
            statement.push(&format!(" AND {column} {operator} ({list})"));
        };
        match options.source_filter.as_deref() {
            None => {}
            Some([]) => statement.push(" AND 1 = 0"),
            Some(sources) => among(statement, "s.source", "IN", sources),
        }
        if !options.exclude_sources.is_empty() {
            among(statement, "s.source", "NOT IN", &options.exclude_sources);
        }
        if !options.role_filter.is_empty() {
            among(statement, "m.role", "IN", &options.role_filter);
        }
    }

    /// The condition that one of the searched columns holds this text, case ignored for ASCII. Unlike LIKE this reads
    /// on behind a NUL.
    pub(crate) fn holds(&self, statement: &mut Statement, text: &str) -> String {
        self.held(statement, text, &whole)
    }

    fn held(&self, statement: &mut Statement, text: &str, part: Part<'_>) -> String {
        let needle = statement.bind(text.to_ascii_lowercase());
        let has_case = text.contains(|character: char| character.is_ascii_alphabetic());
        let (open, close) = if has_case { ("LOWER(", ")") } else { ("", "") };
        let held = |column: &str| format!("INSTR({open}{}{close}, {needle}) > 0", part(column));
        format!("({} OR {} OR {})", held("content"), held("tool_name"), held("tool_calls"))
    }

    /// The condition that the searched columns of `m` hold the texts of `condition`.
    pub(crate) fn hold(&self, condition: &Condition, statement: &mut Statement) -> String {
        self.hold_in(condition, statement, &whole)
    }

    /// The same of a part of each column.
    pub(crate) fn hold_in(&self, condition: &Condition, statement: &mut Statement, part: Part<'_>) -> String {
        let alternatives = condition.alternatives.iter().map(|alternative| {
            let mut parts: Vec<String> = Vec::new();
            for term in &alternative.required {
                parts.push(self.held(statement, term, part));
            }
            for group in &alternative.excluded {
                let held = group.iter().map(|term| self.held(statement, term, part)).collect::<Vec<_>>();
                parts.push(format!("NOT {}", joined(&held, " AND ")));
            }
            joined(&parts, " AND ")
        });
        joined(&alternatives.collect::<Vec<_>>(), " OR ")
    }
}

/// A search that reads every row.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) condition: Condition,
    /// Only rows with an id above the first and up to the second.
    pub(crate) ids: Option<(i64, i64)>,
    /// Whether terms of one or two characters must stand alone instead of anywhere.
    pub(crate) short_words: bool,
    /// What the index of words would be asked: its rows are found, and not what merely holds the texts.
    pub(crate) as_index: Option<AsIndex>,
}

/// A search in the index of words that a scan stands in for.
#[derive(Debug, Clone)]
pub(crate) struct AsIndex {
    pub(crate) expression: Expression,
    /// Whether the rows must hold the texts of the condition besides.
    pub(crate) and_held: bool,
}

/// What a scan gave.
pub(crate) struct Scanned {
    pub(crate) hits: Vec<SearchHit>,
    /// Not all rows were read.
    pub(crate) partial: bool,
}

/// How many ids are looked at between two looks at the clock, if there is a deadline.
const STRETCH: i64 = 1000;

impl Scan {
    /// Of all rows.
    pub(crate) fn new(condition: Condition) -> Self {
        Self { condition, ids: None, short_words: false, as_index: None }
    }

    /// Whether rows are judged one by one, because the statement cannot.
    fn is_judged(&self) -> bool {
        self.short_words || self.as_index.is_some()
    }

    /// The hits on a page, newest first. With a deadline the newest rows are read first, some at a time, and what they gave
    /// until then counts.
    pub(crate) fn page(
        &self,
        transaction: &mut dyn Transaction,
        rows: &Rows<'_>,
        page: Page,
        deadline: Option<Instant>,
    ) -> Result<Scanned> {
        let Some(deadline) = deadline else {
            return Ok(Scanned { hits: self.whole_page(transaction, rows, page)?, partial: false });
        };
        let all = transaction.first("SELECT MIN(id) AS least, MAX(id) AS greatest FROM messages", &[])?;
        let bound = |name: &str| all.as_ref().and_then(|row| row.get(name)?.as_i64()).unwrap_or_default();
        let (low, mut high) = self.ids.unwrap_or((bound("least").saturating_sub(1), bound("greatest")));
        let (mut hits, mut partial) = (Vec::new(), false);
        while high > low && !partial {
            let from = high.saturating_sub(STRETCH).max(low);
            let stretch = Self { ids: Some((from, high)), ..self.clone() };
            partial = !transaction.until(deadline, &mut |transaction| {
                hits.extend(stretch.whole_page(transaction, rows, Page { limit: -1, offset: 0 })?);
                Ok(())
            })?;
            high = from;
        }
        hits.sort_by(|one, other| other.timestamp.total_cmp(&one.timestamp).then(other.id.cmp(&one.id)));
        let size = |number: i64| usize::try_from(number);
        let shown = size(page.limit).unwrap_or(usize::MAX);
        let hits = hits.into_iter().skip(size(page.offset).unwrap_or_default()).take(shown).collect();
        Ok(Scanned { hits, partial })
    }

    fn whole_page(&self, transaction: &mut dyn Transaction, rows: &Rows<'_>, page: Page) -> Result<Vec<SearchHit>> {
        let mut statement = Statement::default();
        statement.push(&format!("SELECT {}, m.tool_calls", rows.columns("m.content")));
        let order = "m.timestamp DESC, m.id DESC";
        let most = (page.limit >= 0 && !self.is_judged()).then(|| page.offset.saturating_add(page.limit));
        self.push_hits(transaction, &mut statement, rows, order, most)?;
        statement.push(&format!(" ORDER BY {order}"));
        if !self.is_judged() {
            page.push(&mut statement);
        }
        let terms =
            self.as_index.as_ref().map(|search| with_tokenizer(|cut| search.expression.terms(cut))).transpose()?;
        let mut hits = Vec::new();
        let mut skip = if self.is_judged() { page.offset } else { 0 };
        transaction.query(&statement.sql, &statement.parameters, &mut |values| {
            if i64::try_from(hits.len()).is_ok_and(|found| found == page.limit)
                || !self.confirms(&values, terms.as_ref())?
            {
                return Ok(());
            }
            if skip > 0 {
                skip -= 1;
                return Ok(());
            }
            hits.push(SearchHit::read(values, |content| self.excerpt(content)));
            Ok(())
        })?;
        Ok(hits)
    }

    /// How many hits there are in all.
    pub(crate) fn count(&self, transaction: &mut dyn Transaction, rows: &Rows<'_>) -> Result<i64> {
        if self.is_judged() {
            let hits = self.whole_page(transaction, rows, Page { limit: -1, offset: 0 })?;
            return Ok(i64::try_from(hits.len()).unwrap_or(i64::MAX));
        }
        let mut statement = Statement::default();
        statement.push("SELECT COUNT(*)");
        self.push_hits(transaction, &mut statement, rows, "", None)?;
        Ok(transaction.scalar(&statement.sql, &statement.parameters)?.as_i64().unwrap_or_default())
    }

    fn push_hits(
        &self,
        transaction: &dyn Transaction,
        statement: &mut Statement,
        rows: &Rows<'_>,
        order: &str,
        most: Option<i64>,
    ) -> Result<()> {
        let sources = transaction.text_index().narrow(&self.condition, statement)?;
        let condition = if self.short_words { &self.condition.without_exclusions() } else { &self.condition };
        let held = match &self.as_index {
            Some(AsIndex { and_held: false, .. }) => "1 = 1".to_owned(),
            _ => rows.hold(condition, statement),
        };
        let ids = self.ids.map(|(after, last)| (statement.bind(after), statement.bind(last)));
        let mut conditions = |statement: &mut Statement| {
            statement.push(&format!(" AND {held}"));
            if let Some((after, last)) = &ids {
                statement.push(&format!(" AND m.id > {after} AND m.id <= {last}"));
            }
        };
        rows.push_hits(statement, &sources, &mut conditions, order, most);
        Ok(())
    }

    /// What the statement could not decide.
    fn confirms(&self, row: &[Value], terms: Option<&Expression<Terms>>) -> Result<bool> {
        let searched = [TEXT, 5, 9].map(|column| row.get(column).and_then(Value::as_str).unwrap_or_default());
        if let Some(terms) = terms {
            return with_tokenizer(|tokenizer| terms.are_met_by(tokenizer, &searched));
        }
        if !self.short_words {
            return Ok(true);
        }
        Ok(self.condition.holds(|term| {
            let lowered = term.to_ascii_lowercase();
            searched.iter().any(|text| {
                if is_short(term) {
                    cjk::stands_alone(text, term)
                } else {
                    text.to_ascii_lowercase().contains(&lowered)
                }
            })
        }))
    }

    /// The text around the first term.
    fn excerpt(&self, content: Value) -> Option<String> {
        let content = match content {
            Value::Null => return None,
            Value::Blob(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            other => other.as_str().unwrap_or_default().to_owned(),
        };
        let first = self.condition.alternatives.first().and_then(|alternative| alternative.required.first());
        let found = first.and_then(|term| content.find(term.as_str()));
        let before = found.map_or(0, |at| content[..at].chars().count());
        Some(content.chars().skip(before.saturating_sub(BEFORE)).take(EXCERPT).collect())
    }
}

/// The length of an excerpt, and how much of it stands before the first term, in characters.
pub(crate) const EXCERPT: usize = 120;
pub(crate) const BEFORE: usize = 40;

/// Whether a word is too short for the index of three characters each.
pub(crate) fn is_short(word: &str) -> bool {
    word.chars().nth(2).is_none()
}

/// The parts in parentheses, halved again and again: a flat chain of a thousand would be too deep for SQLite.
fn joined(parts: &[String], operator: &str) -> String {
    match parts {
        [] => "(1 = 0)".to_owned(),
        [part] => part.clone(),
        parts => {
            let (left, right) = parts.split_at(parts.len() / 2);
            format!("({}{operator}{})", joined(left, operator), joined(right, operator))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_starts_a_little_before_the_first_term() {
        let scan = Scan::new(Condition::of_words("茶 b"));
        let content = format!("{}茶{}", "あ".repeat(100), "い".repeat(200));
        let excerpt = scan.excerpt(content.as_str().into()).unwrap();
        assert_eq!(excerpt, format!("{}茶{}", "あ".repeat(40), "い".repeat(79)));
        assert_eq!(scan.excerpt("no such".into()).unwrap(), "no such");
        assert_eq!(scan.excerpt(Value::Null), None);
    }
}
