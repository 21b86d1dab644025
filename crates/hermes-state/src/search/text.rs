//! What people type into a search: cleaning it for the index's query language, and what the cleaned text asks for.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

use crate::blank::{is_blank, trim};

/// Longer queries are cut to so many characters.
pub const MAX_FTS5_QUERY_CHARS: usize = 2048;

/// A letter of any script, a digit or other number, or `_`. Combining marks and circled letters are none.
pub(crate) fn is_word(character: char) -> bool {
    character == '_' || is_token(character)
}

/// What the standard tokenizer of the index makes words of.
fn is_token(character: char) -> bool {
    match character.general_category_group() {
        GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number => true,
        _ => character.general_category() == GeneralCategory::PrivateUse,
    }
}

/// Whether the standard tokenizer finds any word in the text.
pub(crate) fn has_token(text: &str) -> bool {
    text.chars().any(is_token)
}

/// The query a person typed, cleaned for FTS5: what has a meaning there that nobody intended is removed, and words
/// joined by `.`, `-` or `_` are quoted. Text in quotation marks is left alone. Takes time linear in the length.
///
/// ```
/// use hermes_state::sanitize_fts5_query;
/// assert_eq!(sanitize_fts5_query("x-ray AND (v1.0"), "\"x-ray\" AND  \"v1.0\"");
/// assert_eq!(sanitize_fts5_query("or lamp and"), "lamp");
/// ```
#[must_use]
pub fn sanitize_fts5_query(query: &str) -> String {
    let mut units = without_syntax(cut(query));
    strip_blanks(&mut units);
    strip_leading_operator(&mut units);
    strip_blanks(&mut units);
    strip_trailing_operator(&mut units);
    trim(&with_joined_words_quoted(&units)).to_owned()
}

/// The part of the text that is looked at.
fn cut(text: &str) -> &str {
    match text.char_indices().nth(MAX_FTS5_QUERY_CHARS) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// A character of a query, or a stretch in quotation marks, which behaves like one that is neither word nor blank.
#[derive(Clone, Copy, PartialEq)]
enum Unit<'a> {
    Char(char),
    Quoted(&'a str),
}

impl Unit<'_> {
    fn is(self, class: impl Fn(char) -> bool) -> bool {
        matches!(self, Unit::Char(character) if class(character))
    }
}

/// The units of a query without characters that are syntax, and without `*` where it is no prefix mark.
fn without_syntax(query: &str) -> Vec<Unit<'_>> {
    let mut units: Vec<Unit<'_>> = Vec::with_capacity(query.len());
    let mut rest = query;
    while let Some(character) = rest.chars().next() {
        let length = character.len_utf8();
        if character == '"'
            && let Some(end) = rest[1..].find('"')
        {
            units.push(Unit::Quoted(&rest[..end + 2]));
            rest = &rest[end + 2..];
            continue;
        }
        match character {
            '"' | '+' | '{' | '}' | '(' | ')' | ':' | '^' => units.push(Unit::Char(' ')),
            '*' if units.last().is_none_or(|last| last.is(|before| before == '*' || is_blank(before))) => {}
            other => units.push(Unit::Char(other)),
        }
        rest = &rest[length..];
    }
    units
}

fn strip_blanks(units: &mut Vec<Unit<'_>>) {
    while units.last().is_some_and(|unit| unit.is(is_blank)) {
        units.pop();
    }
    let blanks = units.iter().take_while(|unit| unit.is(is_blank)).count();
    units.drain(..blanks);
}

/// The length of the operator word, in any case, that these units begin with.
fn operator_at(units: &[Unit<'_>]) -> Option<usize> {
    ["AND", "OR", "NOT"].into_iter().find_map(|operator| {
        let begins = operator.chars().enumerate().all(|(index, expected)| {
            units.get(index).is_some_and(|unit| unit.is(|character| character.eq_ignore_ascii_case(&expected)))
        });
        begins.then_some(operator.len())
    })
}

fn strip_leading_operator(units: &mut Vec<Unit<'_>>) {
    if let Some(length) = operator_at(units)
        && !units.get(length).is_some_and(|unit| unit.is(is_word))
    {
        units.drain(..length);
    }
}

fn strip_trailing_operator(units: &mut Vec<Unit<'_>>) {
    for length in [2, 3] {
        if let Some(start) = units.len().checked_sub(length)
            && start > 0
            && units[start - 1].is(is_blank)
            && operator_at(&units[start..]) == Some(length)
        {
            units.truncate(start);
            return strip_blanks(units);
        }
    }
}

/// FTS5 takes `a-b` and `a.b` for syntax, and `a_b` for one word though the tokenizer makes two of it: as phrases they
/// mean what was typed.
fn with_joined_words_quoted(units: &[Unit<'_>]) -> String {
    let word_end = |start: usize| start + units[start..].iter().take_while(|unit| unit.is(is_word)).count();
    let mut text = String::with_capacity(units.len() + 16);
    let mut at = 0;
    while at < units.len() {
        let mut end = word_end(at);
        if end == at {
            push(&mut text, units[at]);
            at += 1;
            continue;
        }
        let mut quoted = end - at > 2 && units[at + 1..end - 1].contains(&Unit::Char('_'));
        while units.get(end).is_some_and(|unit| unit.is(|joiner| matches!(joiner, '.' | '-'))) {
            let next = word_end(end + 1);
            if next == end + 1 {
                break;
            }
            end = next;
            quoted = true;
        }
        let mark = if quoted { "\"" } else { "" };
        text.push_str(mark);
        units[at..end].iter().for_each(|unit| push(&mut text, *unit));
        text.push_str(mark);
        at = end;
    }
    text
}

fn push(text: &mut String, unit: Unit<'_>) {
    match unit {
        Unit::Char(character) => text.push(character),
        Unit::Quoted(stretch) => text.push_str(stretch),
    }
}

/// The words of a text, as blanks separate them.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(is_blank).filter(|word| !word.is_empty())
}

/// The cleaned query without quotation marks around it.
pub(crate) fn unquoted(cleaned: &str) -> &str {
    trim(cleaned.trim_matches('"'))
}

/// Whether a word is an operator's name in any case. In lower case it is neither operator nor search term.
pub(crate) fn is_operator(word: &str) -> bool {
    ["AND", "OR", "NOT"].iter().any(|operator| operator.eq_ignore_ascii_case(word))
}

/// The pieces of a text that is searched literally: each is to be found as it stands. A piece that the cut of an
/// overlong text went through is left out, as no row need hold its half.
pub(crate) fn literal_pieces(text: &str) -> Vec<String> {
    let kept = cut(text);
    let mut pieces: Vec<String> = words(kept).map(str::to_owned).collect();
    let severed = !kept.ends_with(is_blank) && text[kept.len()..].chars().next().is_some_and(|next| !is_blank(next));
    if severed && pieces.len() > 1 {
        pieces.pop();
    }
    pieces
}

/// What a row must hold to match: any of the alternatives.
///
/// The query language has no parentheses (cleaning removes them), so every query is such a list: OR binds least, then
/// AND, then NOT, and words side by side belong together most.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Condition {
    pub(crate) alternatives: Vec<Alternative>,
}

/// All that is required, and none of the groups that are excluded; a group is held if all its terms are.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Alternative {
    pub(crate) required: Vec<String>,
    pub(crate) excluded: Vec<Vec<String>>,
}

enum Item<'a> {
    Term(&'a str),
    Operator(&'a str),
}

impl Condition {
    /// Every one of these terms.
    pub(crate) fn all(terms: Vec<String>) -> Self {
        Self { alternatives: vec![Alternative { required: terms, excluded: Vec::new() }] }
    }

    /// The meaning of words separated by blanks, quotation marks and `*` being ordinary characters. If there is
    /// nothing but operators, they are what is searched for.
    pub(crate) fn of_words(text: &str) -> Self {
        let condition = Self::of(words(text).map(|word| match word {
            "AND" | "OR" | "NOT" => Item::Operator(word),
            word => Item::Term(word),
        }));
        if condition.alternatives.is_empty() { Self::all(vec![text.to_owned()]) } else { condition }
    }

    /// The meaning of a cleaned query on the standard index, in so far as a scan can tell: quoted stretches are single
    /// terms, prefixes and words are found anywhere.
    pub(crate) fn of_query(cleaned: &str) -> Self {
        let mut items = Vec::new();
        let mut rest = cleaned;
        while let Some(start) = rest.find(|character| !is_blank(character)) {
            rest = &rest[start..];
            if let Some(body) = rest.strip_prefix('"')
                && let Some(end) = body.find('"')
            {
                items.push(Item::Term(trim(body[..end].trim_matches('*'))));
                rest = &body[end + 1..];
                continue;
            }
            // A quotation mark begins a stretch also in the middle of a word.
            let ends = |(_, character): &(usize, char)| is_blank(*character) || *character == '"';
            let end = rest.char_indices().skip(1).find(ends).map_or(rest.len(), |(end, _)| end);
            let word = &rest[..end];
            items.push(match word {
                "AND" | "OR" | "NOT" => Item::Operator(word),
                word if word.eq_ignore_ascii_case("NEAR") => Item::Term(""),
                word => Item::Term(word.trim_matches('"').trim_matches('*')),
            });
            rest = &rest[end..];
        }
        Self::of(items.into_iter())
    }

    /// Of several operators in a row the last counts; at the ends they have nothing to join and count nothing.
    fn of<'a>(items: impl Iterator<Item = Item<'a>>) -> Self {
        let mut alternatives: Vec<Alternative> = Vec::new();
        let mut operator = None;
        let mut excluding = false;
        for item in items {
            let term = match item {
                Item::Operator(name) => {
                    operator = Some(name);
                    continue;
                }
                Item::Term(term) if term.is_empty() || is_operator(term) => continue,
                Item::Term(term) => term.to_owned(),
            };
            let joined_by = operator.take();
            let current = match (alternatives.last_mut(), joined_by) {
                (None, _) | (Some(_), Some("OR")) => {
                    excluding = false;
                    alternatives.push(Alternative::default());
                    alternatives.last_mut().expect("pushed")
                }
                (Some(current), Some("NOT")) => {
                    excluding = true;
                    current.excluded.push(Vec::new());
                    current
                }
                (Some(current), Some(_)) => {
                    excluding = false;
                    current
                }
                (Some(current), None) => current,
            };
            match current.excluded.last_mut() {
                Some(group) if excluding => group.push(term),
                _ => current.required.push(term),
            }
        }
        Self { alternatives }
    }

    /// Whether it holds, given which terms do.
    pub(crate) fn holds(&self, mut term: impl FnMut(&str) -> bool) -> bool {
        self.alternatives.iter().any(|alternative| {
            alternative.required.iter().all(|required| term(required))
                && !alternative.excluded.iter().any(|group| group.iter().all(|excluded| term(excluded)))
        })
    }

    /// The weaker condition that excludes nothing.
    pub(crate) fn without_exclusions(&self) -> Self {
        let alternatives = self.alternatives.iter();
        Self {
            alternatives: alternatives
                .map(|alternative| Alternative { required: alternative.required.clone(), excluded: Vec::new() })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_follows_the_table() {
        for (given, cleaned) in [
            ("x-ray unit", "\"x-ray\" unit"),
            ("v1.0 OR max_depth", "\"v1.0\" OR \"max_depth\""),
            ("_tmp", "_tmp"),
            ("tmp_", "tmp_"),
            ("__init__", "\"__init__\""),
            ("a.b..c", "\"a.b\"..c"),
            ("x-ray*", "\"x-ray\"*"),
            ("name:kim (2+3)^4", "name kim  2 3  4"),
            ("\"left right\" c-d", "\"left right\" \"c-d\""),
            ("\"a\"b-c", "\"a\"\"b-c\""),
            ("lamp **", "lamp"),
            ("*lamp", "lamp"),
            ("la**mp", "la*mp"),
            ("or lamp and", "lamp"),
            ("AND OR lamp", "OR lamp"),
            ("not-yet", "-yet"),
            ("NOT", ""),
            ("+()", ""),
            ("\"", ""),
            ("NEAR(a b)", "NEAR a b"),
            ("\"\"", "\"\""),
            ("android", "android"),
            ("lamp \u{1c}AND\u{3000}", "lamp"),
            ("e\u{301}-x", "e\u{301}-x"),
            ("a_b", "\"a_b\""),
            ("a-b.c_d", "\"a-b.c_d\""),
        ] {
            assert_eq!(sanitize_fts5_query(given), cleaned, "{given:?}");
        }
    }

    #[test]
    fn cleaning_cuts_and_stays_linear() {
        assert_eq!(sanitize_fts5_query(&"x".repeat(5000)).len(), MAX_FTS5_QUERY_CHARS);
        let started = std::time::Instant::now();
        for hostile in ["a-".repeat(100_000), "*".repeat(200_000), "\"a".repeat(100_000), " ".repeat(200_000)] {
            let _ = sanitize_fts5_query(&hostile);
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
    }

    fn alternative(required: &[&str], excluded: &[&[&str]]) -> Alternative {
        let owned = |terms: &[&str]| terms.iter().map(|term| (*term).to_owned()).collect::<Vec<_>>();
        Alternative { required: owned(required), excluded: excluded.iter().map(|group| owned(group)).collect() }
    }

    #[test]
    fn operators_bind_as_in_the_index() {
        for (query, alternatives) in [
            ("a b OR c", vec![alternative(&["a", "b"], &[]), alternative(&["c"], &[])]),
            ("a NOT b c", vec![alternative(&["a"], &[&["b", "c"]])]),
            ("a NOT b AND c", vec![alternative(&["a", "c"], &[&["b"]])]),
            ("a AND b NOT c OR d", vec![alternative(&["a", "b"], &[&["c"]]), alternative(&["d"], &[])]),
            ("a NOT b NOT c", vec![alternative(&["a"], &[&["b"], &["c"]])]),
            ("OR a AND NOT b OR", vec![alternative(&["a"], &[&["b"]])]),
            ("a and b", vec![alternative(&["a", "b"], &[])]),
            ("NOT", vec![alternative(&["NOT"], &[])]),
        ] {
            assert_eq!(Condition::of_words(query).alternatives, alternatives, "{query}");
        }
    }

    #[test]
    fn a_scan_reads_quotation_marks_and_prefixes_of_a_cleaned_query() {
        assert_eq!(
            Condition::of_query("\"left right\" la* OR \"x-ray\"* NEAR \"AND\"").alternatives,
            // A quoted operator is skipped like a bare one.
            vec![alternative(&["left right", "la"], &[]), alternative(&["x-ray"], &[])]
        );
        assert_eq!(Condition::of_query("西é\"湖 b\"").alternatives, vec![alternative(&["西é", "湖 b"], &[])]);
    }

    #[test]
    fn a_condition_is_judged_by_its_terms() {
        let condition = Condition::of_words("a b NOT c d OR e");
        let holds = |held: &str| condition.holds(|term| held.contains(term));
        assert!(holds("ab") && holds("abc") && holds("e"));
        assert!(!holds("abcd") && !holds("a"));
    }

    #[test]
    fn pieces_are_whole() {
        assert_eq!(literal_pieces(" rm\u{1d}-r "), ["rm", "-r"]);
        let long = format!("{} end", "x".repeat(2046));
        assert_eq!(literal_pieces(&long), ["x".repeat(2046)]);
        assert_eq!(literal_pieces(&"y".repeat(3000)), ["y".repeat(2048)]);
    }

    #[test]
    fn tokens_are_letters_and_numbers() {
        assert!(has_token("...é") && has_token("½") && !has_token("Ⓐ_\u{301}…🙂"));
    }
}
