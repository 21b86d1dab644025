//! Expressions as conditions on the index of words.
//!
//! A message of one row is judged by one `tsquery`. A message of several holds a phrase if one of its rows does, so
//! there the sets of messages that hold each phrase are joined, and what is excluded is taken away.
//!
//! All is exact but for three rarities, which find too much rather than too little (and exclude too much): a prefix of
//! more than 2,000 bytes counts by its first 2,000; in messages of several rows a phrase of more than 64 words counts by
//! its stretches of 64; words of more than 2,040 bytes count by a hash.

use super::index::{PART, WHOLE_PHRASE, kept, lexeme, quoted};
use crate::search::cjk::{cut_cjk, is_cut};
use crate::search::expression::{Expression, Group, Terms};
use crate::search::text::Condition;
use crate::search::tokens::{Token, Tokenizer};
use crate::statement::Statement;

/// A search of the index in its two parts.
pub(super) struct Ids {
    /// A `tsquery` for messages of one row.
    pub(super) whole: String,
    /// A query for the ids of messages of several rows.
    pub(super) several: String,
}

/// A `tsquery` by which to rank what matches.
pub(super) fn ranking(expression: &Expression, tokenizer: &mut Tokenizer, statement: &mut Statement) -> String {
    let terms = expression.terms(tokenizer);
    let query = if terms.alternatives.is_empty() { String::new() } else { query(&terms) };
    tsquery(statement, &query)
}

/// The messages that match.
pub(super) fn matching(expression: &Expression, tokenizer: &mut Tokenizer, statement: &mut Statement) -> Ids {
    ids(&expression.terms(tokenizer), WHOLE_PHRASE, statement)
}

/// Messages among which all are that hold the condition's terms as substrings; `None` if the index cannot tell. What it
/// goes by are the longest stretches of Chinese, Japanese and Korean characters, so each alternative needs one, of two at
/// least, in a term that it requires.
pub(super) fn narrow(condition: &Condition, tokenizer: &mut Tokenizer, statement: &mut Statement) -> Option<Ids> {
    Some(ids(&stretches(condition, tokenizer)?, WHOLE_PHRASE, statement))
}

pub(super) fn stretches(condition: &Condition, tokenizer: &mut Tokenizer) -> Option<Expression<Terms>> {
    let mut alternatives = Vec::new();
    for alternative in &condition.alternatives {
        let required: Vec<Terms> =
            alternative.required.iter().filter_map(|term| longest_stretch(term, tokenizer)).collect();
        if required.is_empty() {
            return None;
        }
        alternatives.push(vec![Group { required, excluded: Vec::new() }]);
    }
    (!alternatives.is_empty()).then_some(Expression { alternatives })
}

/// The pairs of the longest stretch of these characters. It is cut from the term as it would be from the text around
/// it: what a character folds to, and whether it belongs to a word, does not depend on its neighbours.
fn longest_stretch(term: &str, tokenizer: &mut Tokenizer) -> Option<Terms> {
    let mut longest = String::new();
    let mut characters = 1;
    tokenizer.whole_words(term, &mut |token| {
        for run in token.text.split(|character| !is_cut(character)) {
            let count = run.chars().count();
            if count > characters {
                characters = count;
                run.clone_into(&mut longest);
            }
        }
    });
    let mut tokens = Vec::new();
    let word = Token { text: &longest, start: 0, end: longest.len() };
    if characters > 1 {
        cut_cjk(word, &longest, &mut |pair| tokens.push(format!("{PART}{}", pair.text)));
    }
    (!tokens.is_empty()).then_some(Terms { tokens, prefix: false })
}

pub(super) fn ids(expression: &Expression<Terms>, whole_phrase: usize, statement: &mut Statement) -> Ids {
    if expression.alternatives.is_empty() {
        // No query at all matches nothing.
        let several = "SELECT message_id FROM message_words WHERE 1 = 0".to_owned();
        return Ids { whole: tsquery(statement, ""), several };
    }
    let whole = tsquery(statement, &query(expression));
    Ids { whole, several: Sets { statement, whole_phrase }.of(expression) }
}

/// A parameter that is text whatever the statement says of it, read as a query.
fn tsquery(statement: &mut Statement, query: &str) -> String {
    format!("CAST(CAST({} AS text) AS tsquery)", statement.bind(query))
}

fn query(expression: &Expression<Terms>) -> String {
    let list = |list: &Vec<Terms>| joined(list.iter().map(phrase), " & ");
    let group = |group: &Group<Terms>| {
        let excluded = group.excluded.iter().map(|excluded| format!("!{}", list(excluded)));
        joined(std::iter::once(list(&group.required)).chain(excluded), " & ")
    };
    let alternative = |groups: &Vec<Group<Terms>>| joined(groups.iter().map(group), " & ");
    joined(expression.alternatives.iter().map(alternative), " | ")
}

fn phrase(terms: &Terms) -> String {
    let last = terms.tokens.len() - 1;
    let word = |(index, token): (usize, &String)| match terms.prefix && index == last {
        true => format!("{}:*", quoted(kept(token))),
        false => quoted(&lexeme(token)),
    };
    joined(terms.tokens.iter().enumerate().map(word), " <-> ")
}

/// The parts with an operator between them, in parentheses if there are several.
fn joined(parts: impl Iterator<Item = String>, operator: &str) -> String {
    let parts: Vec<String> = parts.collect();
    match &parts[..] {
        [part] => part.clone(),
        parts => format!("({})", parts.join(operator)),
    }
}

/// The ids of messages of several rows.
struct Sets<'a> {
    statement: &'a mut Statement,
    whole_phrase: usize,
}

impl Sets<'_> {
    fn of(&mut self, expression: &Expression<Terms>) -> String {
        let mut alternatives = Vec::new();
        for groups in &expression.alternatives {
            let groups: Vec<String> = groups.iter().map(|group| self.of_group(group)).collect();
            alternatives.push(joined(groups.into_iter(), " INTERSECT "));
        }
        joined(alternatives.into_iter(), " UNION ")
    }

    fn of_group(&mut self, group: &Group<Terms>) -> String {
        let lists = std::iter::once(&group.required).chain(&group.excluded);
        let lists: Vec<String> = lists.map(|list| self.of_list(list)).collect();
        joined(lists.into_iter(), " EXCEPT ")
    }

    fn of_list(&mut self, list: &[Terms]) -> String {
        let mut queries: Vec<String> = Vec::new();
        for query in list.iter().flat_map(|terms| windows(terms, self.whole_phrase)).map(|terms| phrase(&terms)) {
            if !queries.contains(&query) {
                queries.push(query);
            }
        }
        let holding: Vec<String> = queries.iter().map(|query| self.holding(query)).collect();
        joined(holding.into_iter(), " INTERSECT ")
    }

    fn holding(&mut self, query: &str) -> String {
        let query = tsquery(self.statement, query);
        format!("(SELECT message_id FROM message_words WHERE pieces > 1 AND words @@ {query})")
    }
}

/// A phrase in stretches that a row holds as a whole: each begins half a stretch after the one before.
pub(super) fn windows(terms: &Terms, length: usize) -> Vec<Terms> {
    let count = terms.tokens.len();
    let mut windows = Vec::new();
    let mut start = 0;
    loop {
        let end = (start + length).min(count);
        let start_of_window = end.saturating_sub(length).min(start);
        windows
            .push(Terms { tokens: terms.tokens[start_of_window..end].to_vec(), prefix: terms.prefix && end == count });
        if end == count {
            return windows;
        }
        start += length.div_ceil(2);
    }
}
