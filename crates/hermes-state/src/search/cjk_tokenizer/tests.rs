//! Tokens as an FTS5 table has them, against the rules and against the cutting that other engines use.

use proptest::prelude::*;
use rusqlite::Connection;

use super::{each_part, register};
use crate::search::cjk::cut_cjk;
use crate::search::tokens::{shortened, with_tokenizer};

struct Table(Connection);

impl Table {
    fn new() -> Self {
        Self::with("cjk_unicode61")
    }

    fn with(tokenizer: &str) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        register(&connection).unwrap();
        connection
            .execute_batch(&format!(
                "CREATE VIRTUAL TABLE documents USING fts5(text, tokenize='{tokenizer}');
                 CREATE VIRTUAL TABLE parts USING fts5vocab(documents, instance)"
            ))
            .unwrap();
        Self(connection)
    }

    /// The tokens of a text, which may be any bytes, in their order.
    fn tokens(&self, text: &[u8]) -> Vec<Vec<u8>> {
        self.0.execute("DELETE FROM documents", []).unwrap();
        self.0.execute("INSERT INTO documents (text) VALUES (CAST(?1 AS TEXT))", [text]).unwrap();
        let mut parts = self.0.prepare_cached("SELECT CAST(term AS BLOB) FROM parts ORDER BY offset").unwrap();
        parts.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    fn texts(&self, text: &str) -> Vec<String> {
        self.tokens(text.as_bytes()).into_iter().map(|token| String::from_utf8(token).unwrap()).collect()
    }

    fn marked(&self, text: &str, query: &str) -> Option<String> {
        self.0.execute("DELETE FROM documents", []).unwrap();
        self.0.execute("INSERT INTO documents (text) VALUES (?1)", [text]).unwrap();
        let sql = "SELECT highlight(documents, 0, '[', ']') FROM documents WHERE documents MATCH ?1";
        self.0.query_row(sql, [query], |row| row.get(0)).ok()
    }
}

#[test]
fn neighbours_come_in_pairs_and_the_rest_as_it_is() {
    let table = Table::new();
    for (text, tokens) in [
        ("東京都", &["東京", "京都"][..]),
        ("東 京", &["東", "京"]),
        ("Ab東京cD9", &["ab", "東京", "cd9"]),
        ("東京_大阪", &["東京", "大阪"]),
        ("東京。大阪", &["東京", "大阪"]),
        ("人々", &["人", "々"]),
        ("カタカナ・テスト", &["カタ", "タカ", "カナ", "テス", "スト"]),
        ("é東京É", &["e", "東京", "e"]),
        ("오류코드q7확인", &["오류", "류코", "코드", "q7", "확인"]),
        ("ㄅ東ﾊ", &["ㄅ", "東", "ﾊ"]),
        ("\u{20000}\u{2fa1f}x", &["\u{20000}\u{2fa1f}", "x"]),
        ("plain ASCII_text", &["plain", "ascii", "text"]),
        ("", &[]),
    ] {
        assert_eq!(table.texts(text), tokens, "{text}");
    }
}

#[test]
fn a_quoted_text_is_found_anywhere_from_two_characters_on() {
    let table = Table::new();
    for (text, query, marked) in [
        ("下周去杭州西湖拍照", "\"杭州西湖\"", Some("下周去[杭州西湖]拍照")),
        ("下周去杭州西湖拍照", "\"西湖\"", Some("下周去杭州[西湖]拍照")),
        ("下周去杭州西湖拍照", "\"州湖\"", None),
        // Separators do not break positions.
        ("東京 京都", "\"東京都\"", Some("[東京 京都]")),
        ("Éa東京 und e\u{301}東京", "東京", Some("Éa[東京] und e\u{301}[東京]")),
    ] {
        assert_eq!(table.marked(text, query).as_deref(), marked, "{text} {query}");
    }
}

#[test]
fn arguments_are_those_of_unicode61() {
    assert_eq!(Table::with("cjk_unicode61 remove_diacritics 0").texts("É東京"), ["é", "東京"]);
    assert_eq!(Table::with("cjk_unicode61 tokenchars _").texts("a_b東京"), ["a_b", "東京"]);
    let refused = std::panic::catch_unwind(|| Table::with("cjk_unicode61 no_such_argument 1"));
    assert!(refused.is_err(), "FTS5 refuses the table");
}

/// What a file's index of another program holds must be removable: an index is checked against its own text.
#[test]
fn what_is_added_can_be_removed() {
    let table = Table::new();
    table
        .0
        .execute_batch(
            "CREATE TABLE source (id INTEGER PRIMARY KEY, text);
             CREATE VIRTUAL TABLE linked USING fts5(text, content='source', content_rowid='id', tokenize='cjk_unicode61');
             INSERT INTO source VALUES (1, '東京都 ab'), (2, 'é東京É');
             INSERT INTO linked (linked) VALUES ('rebuild');
             INSERT INTO linked (linked, rowid, text) VALUES ('delete', 1, '東京都 ab');
             DELETE FROM source WHERE id = 1;
             INSERT INTO linked (linked, rank) VALUES ('integrity-check', 1);",
        )
        .unwrap();
}

#[test]
fn an_instance_goes_with_its_table() {
    let table = Table::new();
    table.0.execute_batch("DROP TABLE parts; DROP TABLE documents").unwrap();
    assert!(table.0.close().is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn tokens_are_those_that_other_engines_cut(text in "[a-cÉe\u{301}東京都西湖カ코ᄀﾊ々_ 。ǅİſ𠀀🙂]{0,24}") {
        let mut cut = Vec::new();
        with_tokenizer(|tokenizer| tokenizer.whole_words(&text, &mut |word| {
            cut_cjk(word, &text, &mut |part| cut.push(shortened(part).text.to_owned()));
        })).unwrap();
        prop_assert_eq!(Table::new().texts(&text), cut);
    }

    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0xe0_u8..=0xff, 0x80_u8..=0xbf], 0..40)) {
        let (pairs, words) = (Table::new().tokens(&bytes), Table::with("unicode61").tokens(&bytes));
        prop_assert!(words.is_empty() == pairs.is_empty(), "{bytes:?}");
        for word in words.iter().filter(|word| word.is_ascii()) {
            prop_assert!(pairs.contains(word), "{bytes:?}");
        }
    }

    /// Both ways of cutting agree wherever both can cut.
    #[test]
    fn words_are_cut_the_same_where_nothing_can_be_counted(text in "[a-cé東京都西カ코ᄀﾊ𠀀]{1,12}") {
        let parts = |original: &[u8]| {
            let mut parts = Vec::new();
            each_part(text.as_bytes(), original, &mut |part, from, to| parts.push((part.to_owned(), from, to)));
            parts
        };
        prop_assert_eq!(parts(text.as_bytes()), parts(&[0xff]));
    }
}

#[test]
fn characters_beyond_unicode_are_words_of_no_script() {
    let table = Table::new();
    let beyond = [0xf4, 0x90, 0x80, 0x80];
    let text = [&beyond[..], "東京都".as_bytes(), &beyond, "西".as_bytes()].concat();
    let tokens = [&beyond[..], "東京".as_bytes(), "京都".as_bytes(), &beyond, "西".as_bytes()];
    assert_eq!(table.tokens(&text), tokens);
}
