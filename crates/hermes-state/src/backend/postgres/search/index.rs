//! What the index of words holds of a message: values of the type `tsvector`, in the binary form that the server takes
//! in a third of the time that it takes to read them as text.
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
use std::ops::Range;

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
pub(crate) fn pieces(tokenizer: &mut Tokenizer, texts: &Texts<'_>) -> Vec<Vec<u8>> {
    pieces_within(LIMITS, tokenizer, texts)
}

pub(super) fn pieces_within(limits: Limits, tokenizer: &mut Tokenizer, texts: &Texts<'_>) -> Vec<Vec<u8>> {
    // All lexemes one after the other, and where each position has its own.
    let mut lexemes = String::new();
    let (mut words, mut parts) = (Vec::new(), Vec::new());
    let mut add = |positions: &mut Vec<Option<Range<usize>>>, lexeme: &str| {
        let start = lexemes.len();
        lexemes.push_str(lexeme);
        positions.push(Some(start..lexemes.len()));
    };
    for text in texts.columns().into_iter().flatten() {
        tokenizer.whole_words(text, &mut |token| {
            add(&mut words, &lexeme(shortened(token).text));
            if !token.text.is_ascii() && token.text.chars().any(is_cut) {
                cut_cjk(token, text, &mut |part| add(&mut parts, &part_lexeme(part)));
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
    let mut numbers = HashMap::with_capacity(words.len());
    let mut names = Vec::new();
    let mut number = |name| {
        *numbers.entry(name).or_insert_with(|| {
            names.push(name);
            names.len() - 1
        })
    };
    let positions: Vec<Option<usize>> =
        words.into_iter().map(|place| place.map(|place| number(&lexemes[place]))).collect();
    cut(limits, &names, &positions)
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

/// Cuts what stands at the positions, by the number of its name, into rows.
fn cut(limits: Limits, names: &[&str], positions: &[Option<usize>]) -> Vec<Vec<u8>> {
    let mut counts = vec![0; names.len()];
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < positions.len() {
        let (mut inside, mut bytes) = (Vec::with_capacity(limits.positions.min(positions.len() - start)), 0);
        let mut end = start;
        while let Some(at) = positions.get(end)
            && end - start < limits.positions
        {
            end += 1;
            let Some(number) = *at else { continue };
            // A lexeme's entry and the alignment before its positions, and two bytes for each of them.
            let more = if counts[number] == 0 { names[number].len() + 8 } else { 2 };
            if counts[number] == limits.repeats || bytes + more > limits.bytes {
                end -= 1;
                break;
            }
            counts[number] += 1;
            inside.push((number, end - start));
            bytes += more;
        }
        inside.iter().for_each(|(number, _)| counts[*number] = 0);
        pieces.push(vector(names, inside, bytes));
        if end == positions.len() {
            break;
        }
        start = (start + 1).max(end.saturating_sub(limits.overlap));
    }
    pieces
}

/// The binary form: how many lexemes, and each with its end, how many positions it has, and these. The server brings them
/// into its order.
fn vector(names: &[&str], mut inside: Vec<(usize, usize)>, bytes: usize) -> Vec<u8> {
    inside.sort_unstable();
    let mut vector = Vec::with_capacity(bytes + 4);
    let lexemes = inside.chunk_by(|one, other| one.0 == other.0);
    vector.extend_from_slice(&(lexemes.clone().count() as u32).to_be_bytes());
    for places in lexemes {
        vector.extend_from_slice(names[places[0].0].as_bytes());
        vector.push(0);
        vector.extend_from_slice(&(places.len() as u16).to_be_bytes());
        places.iter().for_each(|(_, place)| vector.extend_from_slice(&(*place as u16).to_be_bytes()));
    }
    vector
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
