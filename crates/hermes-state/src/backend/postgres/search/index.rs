//! What the index of words holds of a message: values of the type `tsvector`, in text form.
//!
//! A value has two classes of lexemes. Words are those of `unicode61`. Words that hold Chinese, Japanese or Korean are
//! there a second time, cut as by `cjk_unicode61`, each part marked with [`PART`]: a substring that holds two of these
//! characters holds their pair, so that parts narrow what has to be read for it. No word holds that mark, nor the one of
//! [`lexeme`], as neither is a letter. A position is left free between columns, between the classes, and around the
//! parts of a word, so that no phrase goes across.
//!
//! PostgreSQL forgets what is beyond the limits of a value: the 255th position of a lexeme, and positions from 16,383 on.
//! So a long message has several rows, each within the limits. They overlap, so that a phrase of up to
//! [`WHOLE_PHRASE`] words is in one of them as a whole.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::search::cjk::{cut_cjk, is_cut};
use crate::search::snippet::Texts;
use crate::search::tokens::{Token, Tokenizer, beginning, shortened};

/// What the parts of words begin with.
pub(super) const PART: char = '\u{1}';

/// How many words a phrase may have to be found, in a message of several rows, exactly as it stands. A longer one is
/// found by its stretches of this length, which may in theory be elsewhere in the message than next to each other.
pub(super) const WHOLE_PHRASE: usize = LIMITS.overlap + 1;

/// What one row may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) positions: usize,
    pub(super) repeats: usize,
    pub(super) bytes: usize,
    /// How many words the next row repeats. It must be less than the other limits admit, or no row would get further.
    pub(super) overlap: usize,
}

/// `tsvector` stops at position 16,383, at 256 positions of a lexeme, and at a megabyte; the last position is where it
/// puts all that lie beyond. Half a megabyte keeps rows handy. The overlap costs little where a row ends for its
/// length, and a quarter of the rows in the worst case, a text that says one word over and over; few people search for
/// more than 64 words in their order.
pub(super) const LIMITS: Limits = Limits { positions: 16_000, repeats: 255, bytes: 512 * 1024, overlap: 63 };

/// The rows of a message: one for all but very long ones, none if it has no words.
pub(crate) fn pieces(tokenizer: &mut Tokenizer, texts: &Texts<'_>) -> Vec<String> {
    pieces_within(LIMITS, tokenizer, texts)
}

pub(super) fn pieces_within(limits: Limits, tokenizer: &mut Tokenizer, texts: &Texts<'_>) -> Vec<String> {
    let mut lexemes = Lexemes::default();
    let (mut words, mut parts) = (Vec::new(), Vec::new());
    for text in texts.columns().into_iter().flatten() {
        tokenizer.whole_words(text, &mut |token| {
            words.push(Some(lexemes.number(&lexeme(shortened(token).text))));
            if !token.text.is_ascii() && token.text.chars().any(is_cut) {
                cut_cjk(token, text, &mut |part| parts.push(Some(lexemes.number(&part_lexeme(part)))));
                parts.push(None);
            }
        });
        if words.last().is_some_and(Option::is_some) {
            words.push(None);
        }
    }
    words.append(&mut parts);
    while words.last() == Some(&None) {
        words.pop();
    }
    lexemes.pieces(limits, &words)
}

fn part_lexeme(part: Token<'_>) -> String {
    lexeme(&format!("{PART}{}", shortened(part).text)).into_owned()
}

/// A lexeme has at most 2,046 bytes.
const LONGEST: usize = 2_040;

/// How much of a longer word is kept.
const KEPT: usize = 2_000;

/// What a word is called in the index. Of a very long one the beginning is kept, so that prefixes find it, and a hash
/// of the whole, so that nothing else is taken for it.
pub(super) fn lexeme(word: &str) -> Cow<'_, str> {
    if word.len() <= LONGEST {
        return word.into();
    }
    format!("{}\u{2}{:032x}", kept(word), fnv1a(word.as_bytes())).into()
}

/// As much of a word as every word that begins with it has in its lexeme.
pub(super) fn kept(word: &str) -> &str {
    beginning(word, KEPT)
}

/// FNV-1a of 128 bits: the index outlives this program, so its hash must be one that never changes.
fn fnv1a(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// The different lexemes of a message, by number.
#[derive(Default)]
struct Lexemes {
    numbers: HashMap<String, usize>,
}

impl Lexemes {
    fn number(&mut self, lexeme: &str) -> usize {
        if let Some(number) = self.numbers.get(lexeme) {
            return *number;
        }
        let number = self.numbers.len();
        self.numbers.insert(lexeme.to_owned(), number);
        number
    }

    /// Cuts what stands at the positions into rows.
    fn pieces(&self, limits: Limits, positions: &[Option<usize>]) -> Vec<String> {
        let mut names = vec![""; self.numbers.len()];
        for (name, number) in &self.numbers {
            names[*number] = name;
        }
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); names.len()];
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < positions.len() {
            let (mut seen, mut bytes) = (Vec::new(), 0);
            let mut end = start;
            while let Some(at) = positions.get(end)
                && end - start < limits.positions
            {
                end += 1;
                let Some(number) = *at else { continue };
                let places = &mut places[number];
                // A lexeme's entry and the alignment before its positions, and two bytes for each of them.
                let more = if places.is_empty() { names[number].len() + 8 } else { 2 };
                if places.len() == limits.repeats || bytes + more > limits.bytes {
                    end -= 1;
                    break;
                }
                if places.is_empty() {
                    seen.push(number);
                }
                places.push(end - start);
                bytes += more;
            }
            pieces.push(literal(seen.into_iter().map(|number| (names[number], std::mem::take(&mut places[number])))));
            if end == positions.len() {
                break;
            }
            start = (start + 1).max(end.saturating_sub(limits.overlap));
        }
        pieces
    }
}

fn literal<'a>(lexemes: impl Iterator<Item = (&'a str, Vec<usize>)>) -> String {
    let mut text = String::with_capacity(1024);
    for (name, places) in lexemes {
        if !text.is_empty() {
            text.push(' ');
        }
        push_quoted(&mut text, name);
        for (index, place) in places.iter().enumerate() {
            text.push(if index == 0 { ':' } else { ',' });
            push_number(&mut text, *place);
        }
    }
    text
}

fn push_number(text: &mut String, number: usize) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

fn push_quoted(text: &mut String, lexeme: &str) {
    text.push('\'');
    for character in lexeme.chars() {
        if matches!(character, '\'' | '\\') {
            text.push(character);
        }
        text.push(character);
    }
    text.push('\'');
}

/// A lexeme as `tsvector` and `tsquery` read it.
pub(super) fn quoted(lexeme: &str) -> String {
    let mut text = String::with_capacity(lexeme.len() + 2);
    push_quoted(&mut text, lexeme);
    text
}
