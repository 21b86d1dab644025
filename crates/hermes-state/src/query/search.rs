//! Searching messages: which index or scan answers a query, and what comes after the first that found nothing.

use std::time::Instant;

use super::search_context;
use crate::blank::trim;
use crate::columns::MessageColumns;
use crate::error::{Error, Result};
use crate::search::cjk::{self, Routes};
use crate::search::expression::Expression;
use crate::search::hit::{SearchHit, SearchOptions, SearchResults};
use crate::search::index::{Found, Index, Indexes, Search};
use crate::search::rows::{AsIndex, Page, Rows, Scan, is_short};
use crate::search::text::{
    Condition, MAX_FTS5_QUERY_CHARS, has_token, is_operator, literal_pieces, sanitize_fts5_query, unquoted, words,
};
use crate::transaction::Transaction;

/// Who answers a query: the name that diagnostics give it. Filters and failures are not considered.
pub(crate) fn describe_path(query: &str, indexes: Indexes) -> &'static str {
    let cleaned = sanitize_fts5_query(query);
    if cleaned.is_empty() {
        return "empty";
    }
    if !cjk::contains_cjk(&cleaned) {
        return "fts5";
    }
    let routes = Routes::of(unquoted(&cleaned), false);
    match (routes.pairs && indexes.pairs, routes.trigrams && indexes.trigrams) {
        (true, _) => "fts_cjk",
        (_, true) => "trigram",
        _ => "like_scan",
    }
}

/// Searches the messages, at most until `deadline`.
pub(crate) fn search(
    transaction: &mut dyn Transaction,
    query: &str,
    options: &SearchOptions,
    deadline: Option<Instant>,
) -> Result<SearchResults> {
    if trim(query).is_empty() || options.limit == 0 {
        return Ok(SearchResults::default());
    }
    let rows = Rows { options, columns: MessageColumns::read(transaction)? };
    let indexes = transaction.indexes()?;
    let page = Page { limit: options.limit, offset: options.offset.max(0) };
    let mut searching = Searching { transaction, rows, indexes, page, deadline, degraded: false, partial: false };
    let mut hits = match searching.hits(query) {
        // Of an index, as it turns out if all goes well without any.
        Err(damage @ Error::Corrupt { .. }) => {
            searching.indexes = Indexes::NONE;
            (searching.degraded, searching.partial) = (true, false);
            searching.hits(query).map_err(|_| damage)?
        }
        hits => hits?,
    };
    search_context::add(searching.transaction, &searching.rows, &mut hits);
    Ok(SearchResults { hits, degraded: searching.degraded, partial: searching.partial })
}

/// The hits among rows that a running rebuild of the indexes has not reached yet.
pub(crate) fn search_gap(
    transaction: &mut dyn Transaction,
    cleaned: &str,
    options: &SearchOptions,
) -> Result<Vec<SearchHit>> {
    let condition = Condition::of_query(cleaned);
    let ids = transaction.text_index().unindexed(transaction)?;
    if ids.is_none() || options.limit <= 0 || condition.alternatives.is_empty() {
        return Ok(Vec::new());
    }
    let rows = Rows { options, columns: MessageColumns::read(transaction)? };
    Scan { ids, ..Scan::new(condition) }
        .page(transaction, &rows, Page { limit: options.limit, offset: 0 }, None)
        .map(|scanned| scanned.hits)
}

/// Where hits come from.
enum Source {
    Index(Search),
    Scan(Scan),
}

/// What answers a query first, and what is asked if it finds nothing at all.
struct Answer {
    source: Source,
    hits: Vec<SearchHit>,
    /// The query as a scan reads it, for rows that are not in the index yet.
    meaning: Condition,
    otherwise: Vec<Source>,
}

struct Searching<'a> {
    transaction: &'a mut dyn Transaction,
    rows: Rows<'a>,
    indexes: Indexes,
    page: Page,
    deadline: Option<Instant>,
    degraded: bool,
    partial: bool,
}

impl Searching<'_> {
    fn hits(&mut self, query: &str) -> Result<Vec<SearchHit>> {
        let cleaned = sanitize_fts5_query(query);
        let mut answer = if cjk::contains_cjk(&cleaned) {
            self.cjk(&cleaned)?
        } else if cleaned.is_empty() {
            self.literal(query, None)?
        } else {
            self.words(query, &cleaned)?
        };
        let mut hits = answer.hits;
        let seen = match (hits.is_empty(), self.page.offset) {
            (true, 0) => 0,
            (true, _) => self.count(&answer.source)?,
            (false, offset) => offset.saturating_add(count_of(&hits)),
        };
        let mut found = seen > 0;
        // The index of pairs is filled by itself, and does not answer before it is.
        if matches!(&answer.source, Source::Index(search) if search.index != Index::Pairs)
            && let Some(ids) = self.transaction.text_index().unindexed(self.transaction)?
        {
            self.degraded = true;
            let as_index = as_index(&answer.source);
            if as_index.is_some() && !self.wants_tool_rows() {
                // Parts of words, which the index of them does not have of these rows either.
                answer.otherwise.push(Source::Scan(Scan { ids: Some(ids), ..Scan::new(answer.meaning.clone()) }));
            }
            let scan = Scan { ids: Some(ids), as_index, ..Scan::new(answer.meaning) };
            found |= self.supplement(&mut hits, seen, scan)?;
        }
        if !found {
            for source in answer.otherwise {
                if self.partial {
                    break;
                }
                hits = self.ask_leniently(&source)?;
                // A later page may be empty although there are hits.
                if !hits.is_empty() || (self.page.offset > 0 && self.count(&source)? > 0) {
                    break;
                }
            }
        }
        Ok(hits)
    }

    /// Fills the page with rows that the index does not have yet, which come after those it has. Returns whether there
    /// are any.
    fn supplement(&mut self, hits: &mut Vec<SearchHit>, seen: i64, scan: Scan) -> Result<bool> {
        let missing = if self.page.limit < 0 { -1 } else { self.page.limit - count_of(hits) };
        if missing == 0 || scan.condition.alternatives.is_empty() {
            return Ok(false);
        }
        let page = Page { limit: missing, offset: (self.page.offset - seen).max(0) };
        let more = self.scanned(&scan, page)?;
        let any = !more.is_empty() || (page.offset > 0 && self.count(&Source::Scan(scan))? > 0);
        hits.extend(more);
        Ok(any)
    }

    /// The main route: the index of words, by its own query language. A query that the language cannot express is
    /// looked for as it stands.
    fn words(&mut self, query: &str, cleaned: &str) -> Result<Answer> {
        let meaning = Condition::of_query(cleaned);
        let Ok(expression) = Expression::parse(cleaned) else { return self.literal(query, Some(meaning)) };
        let search = Search { index: Index::Words, expression, holding: Vec::new(), newest: false };
        if !self.indexes.words {
            return self.instead_of(search, meaning);
        }
        match self.ask(&search)? {
            Found::Hits(hits) => {
                let otherwise = self.after_words(cleaned);
                Ok(Answer { source: Source::Index(search), hits, meaning, otherwise })
            }
            Found::Unable => self.literal(query, Some(meaning)),
            Found::Damaged => self.instead_of(search, meaning),
        }
    }

    /// What can find words that stand within longer ones, or within text without blanks.
    fn after_words(&self, cleaned: &str) -> Vec<Source> {
        let mut sources = Vec::new();
        if self.wants_tool_rows() {
            return sources;
        }
        let text = unquoted(cleaned);
        let terms: Vec<&str> = words(text).filter(|word| !is_operator(word)).collect();
        let short = terms.iter().any(|term| is_short(term));
        let able = [
            (Index::Pairs, self.indexes.pairs),
            (Index::Trigrams, self.indexes.trigrams && !terms.is_empty() && !short),
        ];
        if let Ok(expression) = Expression::of_words(text) {
            let able = able.into_iter().filter(|(_, able)| *able);
            sources.extend(able.map(|(index, _)| {
                Source::Index(Search { index, expression: expression.clone(), holding: Vec::new(), newest: false })
            }));
        }
        if short {
            sources.push(Source::Scan(Scan { short_words: true, ..Scan::new(Condition::of_words(text)) }));
        }
        sources
    }

    /// Every piece of the query as it stands. If the index turns out not to be there, nobody knows that the query was
    /// no expression, and it is scanned for by its meaning as one, if it has any.
    fn literal(&mut self, query: &str, as_expression: Option<Condition>) -> Result<Answer> {
        let pieces = literal_pieces(query);
        if pieces.is_empty() {
            return Err(Error::InvalidQuery {
                reason: format!("its first {MAX_FTS5_QUERY_CHARS} characters are blank, and no more are looked at"),
            });
        }
        let meaning = Condition::all(pieces.clone());
        let as_expression = as_expression.filter(|condition| !condition.alternatives.is_empty());
        if !pieces.iter().any(|piece| has_token(piece)) {
            return self.scan(meaning);
        }
        if !self.indexes.words {
            return self.instead_of_index(as_expression.unwrap_or(meaning));
        }
        let expression = Expression::all_phrases(&pieces);
        let search =
            Search { index: Index::Words, expression: expression.clone(), holding: pieces.clone(), newest: false };
        let hits = match self.ask(&search)? {
            Found::Hits(hits) => hits,
            // Phrases are always well-formed, so the index itself is not there.
            Found::Unable => return self.instead_of_index(as_expression.unwrap_or(meaning)),
            Found::Damaged => return self.instead_of_index(meaning),
        };
        let by_trigrams =
            self.indexes.trigrams && !self.wants_tool_rows() && !pieces.iter().all(|piece| is_short(piece));
        let otherwise = if by_trigrams {
            Source::Index(Search { index: Index::Trigrams, expression, holding: pieces, newest: false })
        } else {
            Source::Scan(Scan::new(meaning.clone()))
        };
        Ok(Answer { source: Source::Index(search), hits, meaning, otherwise: vec![otherwise] })
    }

    /// Text without blanks between words: pairs, then trigrams, then a scan; the first that can answers.
    fn cjk(&mut self, cleaned: &str) -> Result<Answer> {
        let text = unquoted(cleaned);
        let routes = Routes::of(text, self.wants_tool_rows());
        let candidates = [
            (Index::Pairs, routes.pairs && self.indexes.pairs),
            (Index::Trigrams, routes.trigrams && self.indexes.trigrams),
        ];
        for (index, _) in candidates.into_iter().filter(|(_, able)| *able) {
            let Ok(expression) = Expression::of_words(text) else { break };
            let search = Search { index, expression, holding: Vec::new(), newest: false };
            match self.ask(&search)? {
                Found::Hits(hits) => {
                    let meaning = Condition::of_query(cleaned);
                    return Ok(Answer { source: Source::Index(search), hits, meaning, otherwise: Vec::new() });
                }
                Found::Unable => {}
                Found::Damaged => self.degraded = true,
            }
        }
        self.scan(Condition::of_words(text))
    }

    fn scan(&mut self, meaning: Condition) -> Result<Answer> {
        let scan = Scan::new(meaning.clone());
        let hits = self.scanned(&scan, self.page)?;
        Ok(Answer { source: Source::Scan(scan), hits, meaning, otherwise: Vec::new() })
    }

    /// Finds in the rows what the index would.
    fn instead_of(&mut self, search: Search, meaning: Condition) -> Result<Answer> {
        self.degraded = true;
        let source = Source::Index(search);
        let scan = Scan { as_index: as_index(&source), ..Scan::new(meaning.clone()) };
        let hits = self.scanned(&scan, self.page)?;
        let parts_of_words = Source::Scan(Scan::new(meaning.clone()));
        let otherwise = if self.wants_tool_rows() { Vec::new() } else { vec![parts_of_words] };
        Ok(Answer { source: Source::Scan(scan), hits, meaning, otherwise })
    }

    fn instead_of_index(&mut self, meaning: Condition) -> Result<Answer> {
        self.degraded = true;
        self.scan(meaning)
    }

    /// Where the time for putting hits in order is over before its end, a part of it is left to get the newest.
    fn ask(&mut self, search: &Search) -> Result<Found> {
        let Some(deadline) = self.deadline else { return self.find(search) };
        let now = Instant::now();
        if let Some(found) = self.find_until(now + deadline.saturating_duration_since(now).mul_f64(0.75), search)? {
            return Ok(found);
        }
        self.partial = true;
        let newest = Search { newest: true, ..search.clone() };
        Ok(self.find_until(deadline, &newest)?.unwrap_or(Found::Hits(Vec::new())))
    }

    fn find(&mut self, search: &Search) -> Result<Found> {
        self.transaction.text_index().find(self.transaction, search, &self.rows, self.page)
    }

    fn find_until(&mut self, deadline: Instant, search: &Search) -> Result<Option<Found>> {
        let (rows, page, mut found) = (&self.rows, self.page, None);
        let in_time = self.transaction.until(deadline, &mut |transaction| {
            found = Some(transaction.text_index().find(transaction, search, rows, page)?);
            Ok(())
        })?;
        Ok(found.filter(|_| in_time))
    }

    fn scanned(&mut self, scan: &Scan, page: Page) -> Result<Vec<SearchHit>> {
        let scanned = scan.page(self.transaction, &self.rows, page, self.deadline)?;
        self.partial |= scanned.partial;
        Ok(scanned.hits)
    }

    /// As a source that is only tried: one that cannot answer has no hits.
    fn ask_leniently(&mut self, source: &Source) -> Result<Vec<SearchHit>> {
        match source {
            Source::Scan(scan) => self.scanned(scan, self.page),
            Source::Index(search) => Ok(match self.ask(search)? {
                Found::Hits(hits) => hits,
                Found::Unable => Vec::new(),
                Found::Damaged => {
                    self.degraded = true;
                    Vec::new()
                }
            }),
        }
    }

    fn count(&mut self, source: &Source) -> Result<i64> {
        let (rows, mut counted) = (&self.rows, 0);
        let mut count = |transaction: &mut dyn Transaction| {
            counted = match source {
                Source::Index(search) => transaction.text_index().count(transaction, search, rows)?,
                Source::Scan(scan) => scan.count(transaction, rows)?,
            };
            Ok(())
        };
        match self.deadline {
            None => count(self.transaction)?,
            Some(deadline) => self.partial |= !self.transaction.until(deadline, &mut count)?,
        }
        Ok(counted)
    }

    fn wants_tool_rows(&self) -> bool {
        self.rows.options.role_filter.iter().any(|role| role == "tool")
    }
}

/// What the index of words would be asked, for rows that it does not have.
fn as_index(source: &Source) -> Option<AsIndex> {
    match source {
        Source::Index(Search { index: Index::Words, expression, holding, .. }) => {
            Some(AsIndex { expression: expression.clone(), and_held: !holding.is_empty() })
        }
        _ => None,
    }
}

fn count_of(hits: &[SearchHit]) -> i64 {
    i64::try_from(hits.len()).unwrap_or(i64::MAX)
}
