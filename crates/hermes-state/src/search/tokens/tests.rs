//! Words against FTS5's own index, pairs against the rules and against a plainer cutting.

use proptest::prelude::*;
use rusqlite::Connection;

use super::*;
use crate::search::cjk::{cut_cjk, is_cut};

type Owned = (String, usize, usize);

/// Which of the two ways of cutting text a test is about.
#[derive(Clone, Copy)]
enum Cut {
    Words,
    Pairs,
}

impl Cut {
    fn cut(self, tokenizer: &mut Tokenizer, text: &str, sink: &mut dyn FnMut(Token<'_>)) {
        match self {
            Cut::Words => tokenizer.words(text, sink),
            Cut::Pairs => {
                tokenizer.whole_words(text, &mut |token| cut_cjk(token, text, &mut |part| sink(shortened(part))));
            }
        }
    }
}

fn tokens(tokenizer: &mut Tokenizer, cut: Cut, text: &str) -> Vec<Owned> {
    let mut tokens = Vec::new();
    cut.cut(tokenizer, text, &mut |token| tokens.push((token.text.to_owned(), token.start, token.end)));
    tokens
}

fn texts(tokenizer: &mut Tokenizer, cut: Cut, text: &str) -> Vec<String> {
    tokens(tokenizer, cut, text).into_iter().map(|(text, ..)| text).collect()
}

/// The words of a text as FTS5 indexes them.
struct Index(Connection);

impl Index {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE VIRTUAL TABLE documents USING fts5(text);
                 CREATE VIRTUAL TABLE words USING fts5vocab(documents, instance)",
            )
            .unwrap();
        Self(connection)
    }

    fn words(&self, text: &str) -> Vec<String> {
        self.0.execute("DELETE FROM documents", []).unwrap();
        self.0.execute("INSERT INTO documents (text) VALUES (?1)", [text]).unwrap();
        let mut statement = self.0.prepare_cached("SELECT CAST(term AS BLOB) FROM words ORDER BY offset").unwrap();
        let words = statement.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
        words.map(|word| String::from_utf8_lossy(&word.unwrap()).into_owned()).collect()
    }
}

#[test]
fn words_are_those_of_the_index_for_every_character() {
    let (index, mut tokenizer) = (Index::new(), Tokenizer::unicode61().unwrap());
    let all: Vec<char> = ('\0'..=char::MAX).collect();
    for characters in all.chunks(20_000) {
        // Alone, within a word, and before one, so that also what only goes on with a word is seen.
        let text: String = characters.iter().map(|c| format!("{c} a{c}b {c}x ")).collect();
        let words = texts(&mut tokenizer, Cut::Words, &text);
        assert!(words.iter().all(|word| !word.is_empty() && !word.contains('\0')));
        assert!(words == index.words(&text), "from {:x}", u32::from(characters[0]));
    }
}

#[test]
fn every_folded_character_stands_for_one_of_the_text() {
    let mut tokenizer = Tokenizer::unicode61().unwrap();
    for character in '\u{80}'..=char::MAX {
        let text = format!("a{character}b");
        let words = tokens(&mut tokenizer, Cut::Words, &text);
        if let [(word, 0, end)] = &words[..] {
            assert_eq!(*end, text.len());
            let kept = text.chars().filter(|c| !crate::search::cjk::is_dropped(*c)).count();
            assert_eq!(word.chars().count(), kept, "{:x}", u32::from(character));
        }
    }
}

#[test]
fn pairs_follow_the_table() {
    let mut tokenizer = Tokenizer::unicode61().unwrap();
    for (text, expected) in [
        ("東京都", &["東京", "京都"][..]),
        ("東 京", &["東", "京"]),
        ("Ab東京cD9", &["ab", "東京", "cd9"]),
        ("東京_大阪", &["東京", "大阪"]),
        ("東京。大阪", &["東京", "大阪"]),
        ("人々", &["人", "々"]),
        ("カタカナ・テスト", &["カタ", "タカ", "カナ", "テス", "スト"]),
        ("é東京É", &["e", "東京", "e"]),
        ("plain words", &["plain", "words"]),
        ("한국어a日", &["한국", "국어", "a", "日"]),
        ("", &[]),
    ] {
        assert_eq!(texts(&mut tokenizer, Cut::Pairs, text), expected, "{text}");
    }
}

#[test]
fn parts_know_where_they_stand() {
    let mut tokenizer = Tokenizer::unicode61().unwrap();
    let text = "é東京É e\u{301}東京都";
    let parts = tokens(&mut tokenizer, Cut::Pairs, text);
    let stretches: Vec<_> = parts.iter().map(|(_, start, end)| &text[*start..*end]).collect();
    assert_eq!(stretches, ["é", "東京", "É", "e\u{301}", "東京", "京都"]);
}

#[test]
fn a_word_counts_to_its_limit_only() {
    let (index, mut tokenizer) = (Index::new(), Tokenizer::unicode61().unwrap());
    let text = "x".repeat(40_000);
    assert_eq!(texts(&mut tokenizer, Cut::Words, &text), index.words(&text));
    // Pairs are cut from the whole.
    let text = "東".repeat(20_000);
    assert_eq!(texts(&mut tokenizer, Cut::Pairs, &text).len(), 19_999);
}

#[test]
fn a_panic_of_the_sink_comes_back_and_the_tokenizer_goes_on() {
    let mut tokenizer = Tokenizer::unicode61().unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        tokenizer.words("one two", &mut |token| assert!(token.text != "two", "seen"));
    }));
    assert!(panic.is_err());
    assert_eq!(texts(&mut tokenizer, Cut::Words, "Three"), ["three"]);
}

#[test]
fn a_tokenizer_moves_between_threads() {
    let mut tokenizer = Tokenizer::unicode61().unwrap();
    let there = std::thread::spawn(move || texts(&mut tokenizer, Cut::Words, "Ça va")).join().unwrap();
    assert_eq!(there, ["ca", "va"]);
}

/// The rules once more, without regard to speed or places.
fn plain_pairs(words: &[String]) -> Vec<String> {
    let mut parts = Vec::new();
    for word in words {
        let characters: Vec<char> = word.chars().collect();
        for run in characters.chunk_by(|left, right| is_cut(*left) == is_cut(*right)) {
            match run {
                [_, _, ..] if is_cut(run[0]) => parts.extend(run.windows(2).map(String::from_iter)),
                run => parts.push(run.iter().collect()),
            }
        }
    }
    parts
}

/// Text in which letters, marks, numbers and separators of many scripts meet.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::sample::select("abAB  .-_'\"*\n\0\u{301}\u{308}éÉßİ東京都々カ・한ᄀ㄰々Ⓐ½٣\u{a0}🙂\u{e000}\u{2f800}".chars().collect::<Vec<_>>()),
        1 => any::<char>(),
    ];
    prop::collection::vec(character, 0..60).prop_map(String::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn words_are_those_of_the_index(text in text()) {
        thread_local!(static BOTH: (Index, std::cell::RefCell<Tokenizer>) =
            (Index::new(), std::cell::RefCell::new(Tokenizer::unicode61().unwrap())));
        BOTH.with(|(index, tokenizer)| {
            let words = tokens(&mut tokenizer.borrow_mut(), Cut::Words, &text);
            let folded: Vec<_> = words.iter().map(|(word, ..)| word.clone()).collect();
            prop_assert_eq!(&folded, &index.words(&text));
            let pairs = tokens(&mut tokenizer.borrow_mut(), Cut::Pairs, &text);
            for (_, start, end) in words.iter().chain(&pairs) {
                prop_assert!(start < end && text.get(*start..*end).is_some());
            }
            let parts: Vec<_> = pairs.into_iter().map(|(part, ..)| part).collect();
            prop_assert_eq!(parts, plain_pairs(&folded));
            Ok(())
        })?;
    }
}
