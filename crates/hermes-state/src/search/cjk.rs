//! Text in Chinese, Japanese and Korean, which has no blanks between words: finding it, and choosing who can search it.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use super::text::{is_operator, words};
use super::tokens::Token;

/// What makes a query a matter of these scripts; their punctuation counts.
fn is_cjk(character: char) -> bool {
    matches!(character,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}'
        | '\u{3000}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}')
}

/// Whether a text has a character of these scripts.
#[must_use]
pub fn contains_cjk(text: &str) -> bool {
    text.chars().any(is_cjk)
}

/// How many characters of these scripts a text has.
#[must_use]
pub fn count_cjk(text: &str) -> usize {
    text.chars().filter(|character| is_cjk(*character)).count()
}

/// Whether a character of these scripts stands alone somewhere in the text, which an index of pairs cannot find.
///
/// ```
/// use hermes_state::has_lone_cjk_run;
/// assert!(has_lone_cjk_run("茶 杭州") && !has_lone_cjk_run("杭州"));
/// ```
#[must_use]
pub fn has_lone_cjk_run(text: &str) -> bool {
    text.split(|character| !is_cjk(character)).any(|run| run.chars().count() == 1)
}

/// Which indexes can answer a query, judged by its text without quotation marks around it.
pub(crate) struct Routes {
    /// The index of character pairs.
    pub(crate) pairs: bool,
    /// The index of three characters each.
    pub(crate) trigrams: bool,
}

impl Routes {
    /// Neither index has tool rows, so a search that asks for them takes a scan.
    pub(crate) fn of(text: &str, tool_rows: bool) -> Self {
        let short = words(text)
            .filter(|word| !is_operator(word))
            .map(count_cjk)
            .any(|characters| characters > 0 && characters < 3);
        Self { pairs: !tool_rows && !has_lone_cjk_run(text), trigrams: !tool_rows && !short && count_cjk(text) >= 3 }
    }
}

/// What the tokenizer `cjk_unicode61` cuts apart from its neighbours.
pub(crate) fn is_cut(character: char) -> bool {
    matches!(character,
        '\u{ac00}'..='\u{d7a3}' | '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{a960}'..='\u{a97f}'
        | '\u{d7b0}'..='\u{d7ff}' | '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2fa1f}' | '\u{3040}'..='\u{309f}' | '\u{30a0}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}')
}

/// Cuts a word of `text` as the tokenizer `cjk_unicode61` does: neighbours of these scripts in pairs that overlap, a
/// lone character and stretches of other scripts as they are.
pub(crate) fn cut_cjk(word: Token<'_>, text: &str, sink: &mut dyn FnMut(Token<'_>)) {
    if word.text.is_ascii() || !word.text.chars().any(is_cut) {
        return sink(word);
    }
    // Folding keeps the number of characters but not their lengths, so where a part stands is told by counting.
    let stretch = text.get(word.start..word.end).unwrap_or_default();
    let folded = word.text.char_indices().map(|(at, _)| at).skip(1).chain([word.text.len()]);
    let kept = stretch.char_indices().filter(|(_, character)| !is_dropped(*character)).map(|(at, _)| at);
    let ends = folded.zip(kept.skip(1).chain(std::iter::repeat(stretch.len())));
    let mut part = |from: (usize, usize), to: (usize, usize)| {
        sink(Token { text: &word.text[from.0..to.0], start: word.start + from.1, end: word.start + to.1 });
    };
    let (mut at, mut other, mut last, mut paired) = ((0, 0), None, None, false);
    for (character, end) in word.text.chars().zip(ends) {
        if is_cut(character) {
            if let Some(start) = other.take() {
                part(start, at);
            }
            let neighbour = last.replace(at);
            paired = neighbour.is_some();
            if let Some(first) = neighbour {
                part(first, end);
            }
        } else {
            if let Some(lone) = last.take().filter(|_| !paired) {
                part(lone, at);
            }
            other.get_or_insert(at);
        }
        at = end;
    }
    if let Some(start) = other.or(last.filter(|_| !paired)) {
        part(start, at);
    }
}

/// The marks that the tokenizer lets go on with a word and drops; it folds every other character to one character.
pub(crate) fn is_dropped(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{331}') && {
        const MARKS: u64 = 0x0003_61f8_0802_9fdf;
        MARKS >> (u32::from(character) - 0x300) & 1 == 1
    }
}

/// Whether a short word of another script stands in the text by itself: with blanks, punctuation or these scripts
/// around it, but not within a longer word. Case does not matter. A word of signs only may stand anywhere.
pub(crate) fn stands_alone(text: &str, word: &str) -> bool {
    let separates = |character: char| {
        is_cut(character)
            || !matches!(
                character.general_category_group(),
                GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number | GeneralCategoryGroup::Mark
            )
    };
    let core = word.trim_matches(separates);
    if core.is_empty() {
        return text.contains(word);
    }
    let core = core.to_lowercase();
    text.split(separates).any(|token| token.to_lowercase() == core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_counted_and_lone_ones_seen() {
        assert_eq!(count_cjk("redis缓存、ab"), 3);
        assert!(contains_cjk("\u{3000}") && contains_cjk("한") && !contains_cjk("é\u{1100}"));
        for (text, lone) in [("茶", true), ("龙井 茶", true), ("龙井茶", false), ("redis", false), ("a茶b", true)]
        {
            assert_eq!(has_lone_cjk_run(text), lone, "{text}");
        }
    }

    #[test]
    fn short_terms_and_tool_rows_bar_the_indexes() {
        for (text, tool, pairs, trigrams) in [
            ("杭州西湖", false, true, true),
            ("杭州西湖", true, false, false),
            ("西湖", false, true, false),
            ("西湖 杭州西湖", false, true, false),
            ("杭州西湖 redis", false, true, true),
            ("茶", false, false, false),
            ("下a周b去", false, false, true),
        ] {
            let routes = Routes::of(text, tool);
            assert_eq!((routes.pairs, routes.trigrams), (pairs, trigrams), "{text} {tool}");
        }
    }

    #[test]
    fn a_short_word_stands_alone_beside_other_scripts_only() {
        assert!(stands_alone("오류코드q7확인 부탁", "Q7") && stands_alone("(q7)", "q7"));
        assert!(!stands_alone("q78", "q7") && !stands_alone("aq7", "q7"));
        assert!(stands_alone("a🙂b", "🙂"));
    }
}
