//! Where a message matches, with marks around each match, for engines that have no snippets of their own.
//!
//! The choice of the column and of the window, and where the marks go, follow `fts5SnippetFunction` and
//! `fts5HighlightCb` of SQLite's `fts5_aux.c` step by step, so that a hit looks the same on every engine. One difference:
//! in `a OR b NOT c`, where `a` is there and `b` is not, FTS5 may mark `c` too, as its iterators happen to stand.

use super::expression::{Expression, Terms};
use super::rows::{BEFORE, EXCERPT};
use super::text::words;
use super::tokens::Tokenizer;

const OPEN: &str = ">>>";
const CLOSE: &str = "<<<";
const ELLIPSIS: &str = "...";

/// The longest snippet, in tokens.
const WINDOW: usize = 40;

/// From how many bytes on a message is too long to be weighed: that takes time with the square of its matches.
const LONG: usize = 32 * 1024;

/// The texts of a message that are searched.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Texts<'a> {
    pub(crate) content: Option<&'a str>,
    pub(crate) tool_name: Option<&'a str>,
    pub(crate) tool_calls: Option<&'a str>,
}

impl<'a> Texts<'a> {
    /// In the order of the index's columns.
    pub(crate) fn columns(&self) -> [Option<&'a str>; 3] {
        [self.content, self.tool_name, self.tool_calls]
    }
}

/// The part of a message that matches best. Of a very long one the text around the first word of the search.
pub(crate) fn snippet(tokenizer: &mut Tokenizer, expression: &Expression, texts: &Texts<'_>) -> Option<String> {
    let length = |text: Option<&str>| text.map_or(0, str::len);
    if length(texts.content) + length(texts.tool_calls) > LONG {
        return texts.content.map(|content| excerpt(expression, content));
    }
    let terms = expression.terms(tokenizer);
    let columns = texts.columns().map(|text| Column::read(tokenizer, text.unwrap_or_default()));
    // A phrase counts where the alternative that requires it holds; what is excluded is nowhere.
    let held = terms.held(|terms| columns.iter().any(|column| column.places(terms).next().is_some()));
    let phrases: Vec<&Terms> = held.into_iter().flatten().flat_map(|group| &group.required).collect();
    let matches = columns.each_ref().map(|column| column.matches(&phrases));
    let (best, start) = best_window(&columns, &matches, phrases.len());
    texts.columns()[best].map(|_| marked(&columns[best], &matches[best], start))
}

/// The text from a little before the first word of the search.
fn excerpt(expression: &Expression, content: &str) -> String {
    let bare = |word: &str| word.trim_matches(|character: char| !character.is_alphanumeric()).to_ascii_lowercase();
    let all = expression.phrases().flat_map(|phrase| words(&phrase.text));
    let first = all.map(bare).find(|word| !word.is_empty()).unwrap_or_default();
    let before = content.to_ascii_lowercase().find(&first).map_or(0, |at| content[..at].chars().count());
    // SQLite counts characters up to a NUL only.
    visible(content).chars().skip(before.saturating_sub(BEFORE)).take(EXCERPT).collect()
}

/// What SQLite shows of a text: a NUL ends it.
fn visible(text: &str) -> &str {
    text.split('\0').next().unwrap_or_default()
}

/// A phrase found in a column: which one, and its first token.
#[derive(Debug, Clone, Copy)]
struct Match {
    phrase: usize,
    first: usize,
    /// How many tokens it has.
    size: usize,
}

struct Column<'a> {
    text: &'a str,
    words: String,
    tokens: Vec<Place>,
}

struct Place {
    /// Where the token ends in `words`; it begins where the one before ends.
    word_end: usize,
    start: usize,
    end: usize,
}

impl<'a> Column<'a> {
    fn read(tokenizer: &mut Tokenizer, text: &'a str) -> Self {
        let (mut words, mut tokens) = (String::new(), Vec::new());
        tokenizer.words(text, &mut |token| {
            words.push_str(token.text);
            tokens.push(Place { word_end: words.len(), start: token.start, end: token.end });
        });
        Self { text, words, tokens }
    }

    fn word(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.tokens[before].word_end);
        &self.words[start..self.tokens[index].word_end]
    }

    /// Where a phrase begins.
    fn places(&self, terms: &Terms) -> impl Iterator<Item = usize> {
        let count = self.tokens.len();
        (0..count).filter(move |from| terms.begin((*from..count).map(|index| self.word(index))))
    }

    /// All phrases found, as they follow each other.
    fn matches(&self, phrases: &[&Terms]) -> Vec<Match> {
        let of_phrase = |(phrase, terms): (usize, &&Terms)| {
            let size = terms.tokens.len();
            self.places(terms).map(move |first| Match { phrase, first, size }).collect::<Vec<_>>()
        };
        let mut matches: Vec<Match> = phrases.iter().enumerate().flat_map(of_phrase).collect();
        matches.sort_by_key(|found| (found.first, found.phrase));
        matches
    }

    /// The tokens that sentences begin with.
    fn sentences(&self) -> Vec<usize> {
        let blanks = [' ', '\t', '\n', '\r'];
        let begins = |index: &usize| {
            let before = &self.text[..self.tokens[*index].start];
            let trimmed = before.trim_end_matches(blanks);
            *index == 0 || trimmed.len() < before.len() && trimmed.ends_with(['.', ':'])
        };
        (0..self.tokens.len()).filter(begins).collect()
    }
}

/// The column and the first token of the window that has most to show: each phrase counts a thousand once, further
/// matches one each, and the beginning of a sentence, more so of the text, a hundred.
fn best_window(columns: &[Column<'_>; 3], matches: &[Vec<Match>; 3], phrases: usize) -> (usize, usize) {
    let mut best = (0, 0, 0);
    for (number, (column, matches)) in columns.iter().zip(matches).enumerate() {
        let size = column.tokens.len();
        let sentences = if size > WINDOW { column.sentences() } else { Vec::new() };
        let mut offer = |score: usize, start: usize| {
            if score > best.0 {
                best = (score, number, start);
            }
        };
        for found in matches {
            let (score, first, last) = score(matches, found.first, phrases);
            // In the middle, unless that leaves room at an end.
            let spare = signed(WINDOW) - (signed(last) - signed(first));
            let start = (signed(first) - spare / 2).min(signed(size) - signed(WINDOW));
            offer(score, usize::try_from(start).unwrap_or_default());
            let sentence = sentences.partition_point(|start| *start <= found.first).checked_sub(1);
            if let Some(start) = sentence.map(|index| sentences[index])
                && start < found.first
            {
                let bonus = if start == 0 { 120 } else { 100 };
                offer(self::score(matches, start, phrases).0 + bonus, start);
            }
        }
    }
    (best.1, best.2)
}

fn signed(number: usize) -> isize {
    number.cast_signed()
}

/// What a window from this token on has to show, its first match, and the end of its last.
fn score(matches: &[Match], start: usize, phrases: usize) -> (usize, usize, usize) {
    let mut seen = vec![false; phrases];
    let within = &matches[matches.partition_point(|found| found.first < start)..];
    let within = &within[..within.partition_point(|found| found.first < start + WINDOW)];
    let mut score = 0;
    for found in within {
        score += if std::mem::replace(&mut seen[found.phrase], true) { 1 } else { 1000 };
    }
    let first = within.first().map_or(0, |found| found.first);
    (score, first, within.last().map_or(0, |found| found.first + found.size))
}

/// The first and last tokens of matches, those that share tokens being one.
fn coalesced(matches: &[Match]) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for found in matches {
        let end = found.first + found.size - 1;
        match spans.last_mut() {
            Some((_, last)) if found.first <= *last => *last = end.max(*last),
            _ => spans.push((found.first, end)),
        }
    }
    spans
}

/// The window of a column, with marks round its matches.
fn marked(column: &Column<'_>, matches: &[Match], start: usize) -> String {
    let mut spans = coalesced(matches).into_iter().skip_while(|(first, _)| *first < start).peekable();
    let last = start + WINDOW - 1;
    let mut out = String::new();
    // Up to where the text has been copied; whether a mark is open.
    let (mut done, mut open) = (0, false);
    let copy =
        |out: &mut String, from: usize, to: usize| out.push_str(visible(column.text.get(from..to).unwrap_or("")));
    if start > 0 {
        out.push_str(ELLIPSIS);
    }
    for (index, token) in column.tokens.iter().enumerate().take(last + 1).skip(start) {
        if start > 0 && index == start {
            done = token.start;
        }
        if open && spans.peek().is_none_or(|(first, _)| index <= *first) && token.start > done {
            out.push_str(CLOSE);
            open = false;
        }
        if !open && spans.peek().is_some_and(|(first, _)| index == *first) {
            copy(&mut out, done, token.start);
            out.push_str(OPEN);
            done = token.start;
            open = true;
        }
        if spans.peek().is_some_and(|(_, end)| index == *end) {
            copy(&mut out, done, token.end);
            done = token.end;
            spans.next();
        }
        if index == last {
            if open {
                if spans.peek().is_some_and(|(first, _)| index >= *first) {
                    copy(&mut out, done, token.end);
                    done = token.end;
                }
                out.push_str(CLOSE);
                open = false;
            }
            copy(&mut out, done, token.end);
            done = token.end;
        }
    }
    if open {
        out.push_str(CLOSE);
    }
    if last + 1 >= column.tokens.len() {
        copy(&mut out, done, column.text.len());
    } else {
        out.push_str(ELLIPSIS);
    }
    out
}

#[cfg(test)]
mod tests;
