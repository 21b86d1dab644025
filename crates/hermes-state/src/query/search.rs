//! Searching messages: which index or scan answers a query, and what comes after the first that found nothing.

use super::search_context;
use crate::blank::trim;
use crate::columns::MessageColumns;
use crate::error::Result;
use crate::search::cjk::{self, Routes};
use crate::search::expression::Expression;
use crate::search::hit::{SearchHit, SearchOptions, SearchResults};
use crate::search::index::{Found, Index, Indexes, Search};
use crate::search::rows::{Page, Rows, Scan, is_short};
use crate::search::text::{Condition, has_token, is_operator, literal_pieces, sanitize_fts5_query, unquoted, words};
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

/// Searches the messages.
pub(crate) fn search(
    transaction: &mut dyn Transaction,
    query: &str,
    options: &SearchOptions,
    indexes: Indexes,
) -> Result<SearchResults> {
    if trim(query).is_empty() || options.limit == 0 {
        return Ok(SearchResults::default());
    }
    let rows = Rows { options, columns: MessageColumns::read(transaction)? };
    let indexes =
        Indexes { pairs: indexes.pairs && transaction.text_index().pairs_are_complete(transaction)?, ..indexes };
    let page = Page { limit: options.limit, offset: options.offset.max(0) };
    let mut searching = Searching { transaction, rows, indexes, page, degraded: false };
    let mut hits = searching.hits(query)?;
    search_context::add(searching.transaction, &searching.rows, &mut hits);
    Ok(SearchResults { hits, degraded: searching.degraded, partial: false })
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
    Scan { ids, ..Scan::new(condition) }.page(transaction, &rows, Page { limit: options.limit, offset: 0 })
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
    degraded: bool,
}

impl Searching<'_> {
    fn hits(&mut self, query: &str) -> Result<Vec<SearchHit>> {
        let cleaned = sanitize_fts5_query(query);
        let answer = if cjk::contains_cjk(&cleaned) {
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
        if matches!(answer.source, Source::Index(_))
            && let Some(ids) = self.transaction.text_index().unindexed(self.transaction)?
        {
            found |= self.supplement(&mut hits, seen, Scan { ids: Some(ids), ..Scan::new(answer.meaning) })?;
        }
        if !found {
            for source in answer.otherwise {
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
        let more = scan.page(self.transaction, &self.rows, page)?;
        let any = !more.is_empty() || (page.offset > 0 && scan.count(self.transaction, &self.rows)? > 0);
        hits.extend(more);
        Ok(any)
    }

    /// The main route: the index of words, by its own query language. A query that the language cannot express is
    /// looked for as it stands.
    fn words(&mut self, query: &str, cleaned: &str) -> Result<Answer> {
        let meaning = Condition::of_query(cleaned);
        let Ok(expression) = Expression::parse(cleaned) else { return self.literal(query, Some(meaning)) };
        if !self.indexes.words {
            return self.instead_of_index(meaning);
        }
        let search = Search { index: Index::Words, expression, holding: Vec::new() };
        match self.ask(&search)? {
            Found::Hits(hits) => {
                let otherwise = self.after_words(cleaned);
                Ok(Answer { source: Source::Index(search), hits, meaning, otherwise })
            }
            Found::Unable => self.literal(query, Some(meaning)),
            Found::Damaged => self.instead_of_index(meaning),
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
                Source::Index(Search { index, expression: expression.clone(), holding: Vec::new() })
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
        let meaning = Condition::all(pieces.clone());
        let as_expression = as_expression.filter(|condition| !condition.alternatives.is_empty());
        if !pieces.iter().any(|piece| has_token(piece)) {
            return self.scan(meaning);
        }
        if !self.indexes.words {
            return self.instead_of_index(as_expression.unwrap_or(meaning));
        }
        let expression = Expression::all_phrases(&pieces);
        let search = Search { index: Index::Words, expression: expression.clone(), holding: pieces.clone() };
        let hits = match self.ask(&search)? {
            Found::Hits(hits) => hits,
            // Phrases are always well-formed, so the index itself is not there.
            Found::Unable => return self.instead_of_index(as_expression.unwrap_or(meaning)),
            Found::Damaged => return self.instead_of_index(meaning),
        };
        let by_trigrams =
            self.indexes.trigrams && !self.wants_tool_rows() && !pieces.iter().all(|piece| is_short(piece));
        let otherwise = if by_trigrams {
            Source::Index(Search { index: Index::Trigrams, expression, holding: pieces })
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
            let search = Search { index, expression, holding: Vec::new() };
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
        let hits = scan.page(self.transaction, &self.rows, self.page)?;
        Ok(Answer { source: Source::Scan(scan), hits, meaning, otherwise: Vec::new() })
    }

    fn instead_of_index(&mut self, meaning: Condition) -> Result<Answer> {
        self.degraded = true;
        self.scan(meaning)
    }

    fn ask(&mut self, search: &Search) -> Result<Found> {
        self.transaction.text_index().find(self.transaction, search, &self.rows, self.page)
    }

    /// As a source that is only tried: one that cannot answer has no hits.
    fn ask_leniently(&mut self, source: &Source) -> Result<Vec<SearchHit>> {
        match source {
            Source::Scan(scan) => scan.page(self.transaction, &self.rows, self.page),
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
        match source {
            Source::Index(search) => self.transaction.text_index().count(self.transaction, search, &self.rows),
            Source::Scan(scan) => scan.count(self.transaction, &self.rows),
        }
    }

    fn wants_tool_rows(&self) -> bool {
        self.rows.options.role_filter.iter().any(|role| role == "tool")
    }
}

fn count_of(hits: &[SearchHit]) -> i64 {
    i64::try_from(hits.len()).unwrap_or(i64::MAX)
}
