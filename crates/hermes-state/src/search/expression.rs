//! What a cleaned query means, for every engine: phrases, and the operators between them, as FTS5 reads them.

use super::text::{has_token, words};
use super::tokens::Tokenizer;

/// One term of a query: the words of a text next to each other, of which the last may be the beginning of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Phrase {
    pub(crate) text: String,
    pub(crate) prefix: bool,
}

/// The tokens of a phrase; there is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) tokens: Vec<String>,
    pub(crate) prefix: bool,
}

/// What is looked for: all groups of any of the alternatives.
///
/// The language has no parentheses once it is cleaned, so every query has this shape: OR binds least, then AND, then
/// NOT, and phrases side by side belong together most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expression<P = Phrase> {
    pub(crate) alternatives: Vec<Vec<Group<P>>>,
}

/// Phrases that must all be there, and lists of phrases of which none may be there as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group<P> {
    pub(crate) required: Vec<P>,
    pub(crate) excluded: Vec<Vec<P>>,
}

/// The text is no expression: FTS5 would call it a syntax error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotAnExpression;

/// FTS5 refuses expressions that are more deeply nested.
const MAX_DEPTH: usize = 256;

enum Lexeme {
    Text(String),
    Star,
    And,
    Or,
    Not,
}

impl Expression {
    /// Reads what [`sanitize_fts5_query`](super::text::sanitize_fts5_query) leaves of a query. Accepts what FTS5 accepts,
    /// but for a text that begins with `*`: to FTS5 that is not a search but a question about itself.
    pub(crate) fn parse(cleaned: &str) -> Result<Self, NotAnExpression> {
        Self::of(lexemes(cleaned)?)
    }

    /// The words of a text, each as a phrase, with the operators between them as they stand. Quotation marks and `*`
    /// are ordinary characters.
    pub(crate) fn of_words(text: &str) -> Result<Self, NotAnExpression> {
        Self::of(words(text).map(|word| match word {
            "AND" => Lexeme::And,
            "OR" => Lexeme::Or,
            "NOT" => Lexeme::Not,
            word => Lexeme::Text(without_nul(word)),
        }))
    }

    /// Every one of the texts as a phrase. None at all match nothing.
    pub(crate) fn all_phrases<T: AsRef<str>>(texts: &[T]) -> Self {
        let phrase = |text: &T| Phrase { text: without_nul(text.as_ref()), prefix: false };
        let required: Vec<Phrase> = texts.iter().map(phrase).collect();
        let group = Group { required, excluded: Vec::new() };
        Self { alternatives: if group.required.is_empty() { Vec::new() } else { vec![vec![group]] } }
    }

    fn of(lexemes: impl IntoIterator<Item = Lexeme>) -> Result<Self, NotAnExpression> {
        let empty = || Group { required: Vec::new(), excluded: Vec::new() };
        let (mut alternatives, mut groups, mut group) = (Vec::new(), Vec::new(), empty());
        // Whether a star may follow, which it may a text only.
        let mut after_text = false;
        for lexeme in lexemes {
            let list = group.excluded.last_mut().unwrap_or(&mut group.required);
            match lexeme {
                Lexeme::Text(text) => {
                    list.push(Phrase { text, prefix: false });
                    after_text = true;
                    continue;
                }
                Lexeme::Star => match list.last_mut() {
                    Some(phrase) if after_text => phrase.prefix = true,
                    _ => return Err(NotAnExpression),
                },
                _ if list.is_empty() => return Err(NotAnExpression),
                Lexeme::Not => group.excluded.push(Vec::new()),
                Lexeme::And => groups.push(std::mem::replace(&mut group, empty())),
                Lexeme::Or => {
                    groups.push(std::mem::replace(&mut group, empty()));
                    alternatives.push(std::mem::take(&mut groups));
                }
            }
            after_text = false;
        }
        if group.excluded.last().unwrap_or(&group.required).is_empty() {
            return Err(NotAnExpression);
        }
        groups.push(group);
        alternatives.push(groups);
        let expression = Self { alternatives };
        if expression.depth() > MAX_DEPTH { Err(NotAnExpression) } else { Ok(expression) }
    }

    /// How deeply FTS5 nests it: it joins ANDs, and ORs, of any number, but nests NOT by NOT.
    fn depth(&self) -> usize {
        let is_joined = |list: &[Phrase]| list.iter().filter(|phrase| has_token(&phrase.text)).count() > 1;
        let of_group = |group: &Group<Phrase>| {
            let excluded = group.excluded.iter().enumerate();
            let deepest = excluded.map(|(before, list)| usize::from(is_joined(list)).saturating_sub(before)).max();
            match deepest {
                Some(deepest) => group.excluded.len() + deepest.max(usize::from(is_joined(&group.required))),
                // A list that is joined to others by AND is no deeper for it.
                None => 0,
            }
        };
        let of_all = |groups: &Vec<Group<Phrase>>| match &groups[..] {
            [group] if group.excluded.is_empty() => usize::from(is_joined(&group.required)),
            [group] => of_group(group),
            groups => 1 + groups.iter().map(of_group).max().unwrap_or_default(),
        };
        let deepest = self.alternatives.iter().map(of_all).max().unwrap_or_default();
        deepest + usize::from(self.alternatives.len() > 1)
    }

    /// The same in FTS5's language.
    pub(crate) fn to_fts5(&self) -> String {
        let list = |phrases: &Vec<Phrase>| joined(phrases.iter().map(Phrase::to_fts5), " ");
        let group = |group: &Group<Phrase>| {
            let lists = std::iter::once(&group.required).chain(&group.excluded);
            joined(lists.map(list), " NOT ")
        };
        joined(self.alternatives.iter().map(|groups| joined(groups.iter().map(group), " AND ")), " OR ")
    }

    /// The expression in tokens. Phrases without any do not count beside others; a list of nothing else is never held,
    /// so that what requires it goes, and excluding it excludes nothing.
    pub(crate) fn terms(&self, tokenizer: &mut Tokenizer) -> Expression<Terms> {
        let mut list = |phrases: &Vec<Phrase>| -> Vec<Terms> {
            phrases.iter().filter_map(|phrase| phrase.terms(tokenizer)).collect()
        };
        let mut group = |group: &Group<Phrase>| {
            let required = list(&group.required);
            let excluded = group.excluded.iter().map(&mut list).filter(|list| !list.is_empty()).collect();
            (!required.is_empty()).then_some(Group { required, excluded })
        };
        let alternatives = self.alternatives.iter();
        Expression { alternatives: alternatives.filter_map(|groups| groups.iter().map(&mut group).collect()).collect() }
    }

    /// All phrases in the order they were written.
    pub(crate) fn phrases(&self) -> impl Iterator<Item = &Phrase> {
        let groups = self.alternatives.iter().flatten();
        groups.flat_map(|group| group.required.iter().chain(group.excluded.iter().flatten()))
    }
}

impl Expression<Terms> {
    /// Whether the index would find a message with these texts, one for each of its columns.
    pub(crate) fn are_met_by(&self, tokenizer: &mut Tokenizer, texts: &[&str]) -> bool {
        let words = texts.iter().map(|text| {
            let mut words = Vec::new();
            tokenizer.words(text, &mut |token| words.push(token.text.to_owned()));
            words
        });
        let columns: Vec<Vec<String>> = words.collect();
        let begins = |terms: &Terms, words: &[String], at| terms.begin(words[at..].iter().map(String::as_str));
        let is_in = |terms: &Terms, words: &[String]| (0..words.len()).any(|at| begins(terms, words, at));
        !self.held(|terms| columns.iter().any(|words| is_in(terms, words))).is_empty()
    }

    /// The alternatives that hold, given which phrases do.
    pub(crate) fn held(&self, mut holds: impl FnMut(&Terms) -> bool) -> Vec<&[Group<Terms>]> {
        let mut all = |list: &Vec<Terms>| list.iter().all(&mut holds);
        let mut group = |group: &Group<Terms>| all(&group.required) && !group.excluded.iter().any(&mut all);
        self.alternatives.iter().map(Vec::as_slice).filter(|groups| groups.iter().all(&mut group)).collect()
    }
}

impl Phrase {
    fn to_fts5(&self) -> String {
        format!("\"{}\"{}", self.text.replace('"', "\"\""), if self.prefix { "*" } else { "" })
    }

    fn terms(&self, tokenizer: &mut Tokenizer) -> Option<Terms> {
        let mut tokens = Vec::new();
        tokenizer.words(&self.text, &mut |token| tokens.push(token.text.to_owned()));
        (!tokens.is_empty()).then_some(Terms { tokens, prefix: self.prefix })
    }
}

impl Terms {
    /// Whether a document's tokens from some place on are those of the phrase.
    pub(crate) fn begin<'a>(&self, mut document: impl Iterator<Item = &'a str>) -> bool {
        let last = self.tokens.len() - 1;
        self.tokens.iter().enumerate().all(|(index, token)| {
            document.next().is_some_and(|word| match self.prefix && index == last {
                true => word.starts_with(token.as_str()),
                false => word == token,
            })
        })
    }
}

/// A NUL would end the query for FTS5; as a blank it separates words all the same.
fn without_nul(text: &str) -> String {
    text.replace('\0', " ")
}

fn joined(parts: impl Iterator<Item = String>, operator: &str) -> String {
    parts.collect::<Vec<_>>().join(operator)
}

fn lexemes(text: &str) -> Result<Vec<Lexeme>, NotAnExpression> {
    let mut lexemes = Vec::new();
    // A NUL ends the text.
    let mut rest = text.split('\0').next().unwrap_or_default();
    if rest.starts_with('*') {
        return Err(NotAnExpression);
    }
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(first) = rest.chars().next() else { return Ok(lexemes) };
        let length = match first {
            '*' => {
                lexemes.push(Lexeme::Star);
                1
            }
            '"' => {
                let (length, text) = quoted(rest).ok_or(NotAnExpression)?;
                lexemes.push(Lexeme::Text(text));
                length
            }
            first if is_bare(first) => {
                let length = rest.find(|character| !is_bare(character)).unwrap_or(rest.len());
                lexemes.push(match &rest[..length] {
                    "AND" => Lexeme::And,
                    "OR" => Lexeme::Or,
                    "NOT" => Lexeme::Not,
                    word => Lexeme::Text(word.to_owned()),
                });
                length
            }
            // Columns, groups and anchors, which cleaning removes outside of quotation marks, or no syntax at all.
            _ => return Err(NotAnExpression),
        };
        rest = &rest[length..];
    }
}

/// What may stand in a query without quotation marks.
fn is_bare(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '\u{1a}') || !character.is_ascii()
}

/// The length and the content of the string in quotation marks that the text begins with; doubled marks stand for one.
fn quoted(text: &str) -> Option<(usize, String)> {
    let mut content = String::new();
    let mut at = 1;
    loop {
        let length = text[at..].find('"')?;
        content.push_str(&text[at..at + length]);
        at += length + 1;
        if !text[at..].starts_with('"') {
            return Some((at, content));
        }
        content.push('"');
        at += 1;
    }
}

#[cfg(test)]
pub(crate) mod tests;
