//! Expressions against FTS5 itself: the same texts are accepted, and the same documents found.

use std::cell::RefCell;

use proptest::prelude::*;
use rusqlite::Connection;

use super::*;
use crate::search::text::sanitize_fts5_query;

/// Documents in an FTS5 index, and a tokenizer for the other side.
struct Both {
    connection: Connection,
    tokenizer: Tokenizer,
}

pub(crate) type Document = [String; 3];

impl Both {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE VIRTUAL TABLE documents USING fts5(content, tool_name, tool_calls)").unwrap();
        Self { connection, tokenizer: Tokenizer::unicode61().unwrap() }
    }

    fn with<T>(run: impl FnOnce(&mut Both) -> T) -> T {
        thread_local!(static BOTH: RefCell<Both> = RefCell::new(Both::new()));
        BOTH.with(|both| run(&mut both.borrow_mut()))
    }

    fn fill(&self, documents: &[Document]) {
        self.connection.execute_batch("DELETE FROM documents").unwrap();
        let sql = "INSERT INTO documents (rowid, content, tool_name, tool_calls) VALUES (?1, ?2, ?3, ?4)";
        for (id, [content, name, calls]) in (0i64..).zip(documents) {
            self.connection.prepare_cached(sql).unwrap().execute((id, content, name, calls)).unwrap();
        }
    }

    /// What FTS5 finds; `None` if it calls the expression an error.
    fn found(&self, expression: &str) -> Option<Vec<usize>> {
        let sql = "SELECT rowid FROM documents WHERE documents MATCH ?1 ORDER BY rowid";
        let mut statement = self.connection.prepare_cached(sql).unwrap();
        let ids = statement.query_map([expression], |row| row.get::<_, i64>(0)).ok()?;
        ids.map(|id| id.ok().and_then(|id| usize::try_from(id).ok())).collect()
    }

    fn matching(&mut self, expression: &Expression, documents: &[Document]) -> Vec<usize> {
        let terms = expression.terms(&mut self.tokenizer);
        let mut holds = |document: &Document| matches(&terms, &mut self.tokenizer, document);
        documents.iter().enumerate().filter(|(_, document)| holds(document)).map(|(id, _)| id).collect()
    }
}

/// The reference: whether a document holds what an expression asks for.
pub(crate) fn matches(terms: &Expression<Terms>, tokenizer: &mut Tokenizer, document: &Document) -> bool {
    let columns = document.each_ref().map(|text| {
        let mut tokens = Vec::new();
        tokenizer.words(text, &mut |token| tokens.push(token.text.to_owned()));
        tokens
    });
    let holds = |terms: &Terms| {
        let mut places = columns.iter().flat_map(|tokens| (0..tokens.len()).map(move |from| &tokens[from..]));
        places.any(|tokens| terms.begin(tokens.iter().map(String::as_str)))
    };
    !terms.held(holds).is_empty()
}

#[track_caller]
fn parse(text: &str) -> Expression {
    Expression::parse(text).unwrap()
}

#[test]
fn operators_bind_as_in_fts5() {
    for (text, rendered) in [
        ("a b OR c", r#""a" "b" OR "c""#),
        ("a NOT b c AND d", r#""a" NOT "b" "c" AND "d""#),
        ("\"x \"\"y\"* or la*mp", r#""x ""y"* "or" "la"* "mp""#),
        ("a\0(b", r#""a""#),
        ("NEAR a", r#""NEAR" "a""#),
    ] {
        assert_eq!(parse(text).to_fts5(), rendered);
    }
    for text in
        ["", "  ", "a AND", "OR a", "a AND OR b", "a * *", "NOT a", "-a", "a,b", "it's", "\"a", "*a", "a AND * b"]
    {
        assert_eq!(Expression::parse(text), Err(NotAnExpression), "{text}");
    }
}

#[test]
fn terms_without_tokens_count_only_beside_operators() {
    Both::with(|both| {
        both.fill(&[["a b".into(), "c".into(), String::new()]]);
        for (text, found) in [
            ("a 😀", true),
            ("😀 a", true),
            ("😀 😀 a 😀", true),
            ("😀", false),
            ("a AND 😀", false),
            ("a OR 😀", true),
            ("😀 OR a", true),
            ("a NOT 😀", true),
            ("😀 NOT x", false),
            ("a NOT 😀 b", false),
            ("a NOT 😀 x", true),
            ("\"b c\"", false),
            ("\"a\" c", true),
            ("\"…\"* a", true),
            ("a OR 😀 NOT a", true),
        ] {
            let expression = parse(text);
            assert_eq!(both.found(text), Some(if found { vec![0] } else { vec![] }), "{text}");
            let documents = [["a b".into(), "c".into(), String::new()]];
            assert_eq!(both.matching(&expression, &documents).len(), usize::from(found), "{text}");
        }
    });
}

#[test]
fn too_deep_is_refused_where_fts5_refuses() {
    Both::with(|both| {
        let mut refused = 0;
        for (before, after) in [
            ("a", ""),
            ("a b", ""),
            ("a 😀", ""),
            ("😀 b", ""),
            ("c OR a", ""),
            ("c AND a", ""),
            ("c AND a b", ""),
            ("d OR c AND a b", ""),
            ("a NOT b c", ""),
            ("a NOT b NOT b c", ""),
            ("a", " c"),
            ("a", " OR b"),
            ("a", " AND b c"),
            ("a b", " AND b c OR d"),
        ] {
            for count in 250..260 {
                let text = format!("{before}{}{after}", " NOT b".repeat(count));
                let accepted = both.found(&text).is_some();
                refused += usize::from(!accepted);
                assert_eq!(Expression::parse(&text).is_ok(), accepted, "{before:?} {count} {after:?}");
            }
        }
        assert!(refused > 20);
        for text in ["a ".repeat(1000), "a AND ".repeat(300) + "b", "a OR b AND ".repeat(300) + "c"] {
            assert_eq!(Expression::parse(&text).is_ok(), both.found(&text).is_some());
        }
    });
}

#[test]
fn constructors_mean_what_the_renderings_mean() {
    let texts = ["a\"b".to_owned(), "c\0d".to_owned(), "x*".to_owned()];
    assert_eq!(Expression::all_phrases(&texts).to_fts5(), "\"a\"\"b\" \"c d\" \"x*\"");
    assert_eq!(Expression::all_phrases::<&str>(&[]).to_fts5(), "");
    assert_eq!(Expression::of_words("缓存* or \"x OR y").unwrap().to_fts5(), r#""缓存*" "or" """x" OR "y""#);
}

/// The words of a text as phrases, with the operators between them as they stand: FTS5's language written by hand.
fn word_phrases(text: &str) -> String {
    let phrase_of = |word: &str| match word {
        "AND" | "OR" | "NOT" => word.to_owned(),
        word => format!("\"{}\"", word.replace('"', "\"\"").replace('\0', " ")),
    };
    super::words(text).map(phrase_of).collect::<Vec<_>>().join(" ")
}

/// A query out of pieces that have a meaning, or nearly, to the one reading or the other.
pub(crate) fn query() -> impl Strategy<Value = String> {
    let pieces = [
        "a", "b", "c", "x", "ab", "abc", "A", "É", "\"", "\"", "\"a b\"", "\"a", "*", "*", " * ", "-", ",", ".", "_",
        "a.b", "a_b", "'", "+", "(", ")", ":", "^", "{", "NEAR", "\0", "\u{1a}", "\u{1}", "\u{a0}", "…", "😀",
        "\u{301}", "東京", "\t", "\n", "\u{b}", " AND ", " OR ", " NOT ", " AND ", " OR ", " NOT ", "AND", "OR", "NOT",
        " and ", "not-", "[", "`", "\"\"", "\u{7f}",
    ];
    let piece = prop_oneof![2 => prop::sample::select(pieces.to_vec()).prop_map(str::to_owned), 2 => Just(" ".to_owned()),
        2 => prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned)];
    prop::collection::vec(piece, 1..16).prop_map(|pieces| pieces.concat())
}

/// Queries that are mostly well-formed.
pub(crate) fn sound_query() -> impl Strategy<Value = String> {
    let term = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "d",
        "ab",
        "a*",
        "\"a b\"",
        "\"a b\"*",
        "\"b a b\"",
        "😀",
        "a.b",
        "é",
        "\"c, d\"",
        "abc",
        "\"a a\"",
        "\"…\"",
        "東京*",
    ]);
    let operator = prop::sample::select(vec![" ", " ", " AND ", " OR ", " NOT ", " NOT "]);
    (term.clone(), prop::collection::vec((operator, term), 0..7)).prop_map(|(first, more)| {
        more.into_iter().fold(first.to_owned(), |text, (operator, term)| text + operator + term)
    })
}

pub(crate) fn documents() -> impl Strategy<Value = Vec<Document>> {
    let word = prop::sample::select(vec!["a", "b", "c", "d", "ab", "abc", "Á", "and", "東京都", "😀", "x"]);
    let text = prop::collection::vec(word, 0..7).prop_map(|words| words.join(" "));
    prop::collection::vec([text.clone(), text.clone(), text], 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn fts5_accepts_the_same_and_finds_the_same(query in prop_oneof![query(), sound_query()], documents in documents()) {
        let cleaned = sanitize_fts5_query(&query);
        prop_assume!(!cleaned.starts_with('*'));
        Both::with(|both| {
            both.fill(&documents);
            let expected = both.found(&cleaned);
            match Expression::parse(&cleaned) {
                Err(NotAnExpression) => prop_assert_eq!(expected, None, "{:?} is accepted", cleaned),
                Ok(expression) => {
                    prop_assert_eq!(Some(both.matching(&expression, &documents)), expected.clone(), "{:?}", cleaned);
                    let rendered = expression.to_fts5();
                    prop_assert_eq!(both.found(&rendered), expected);
                    prop_assert_eq!(Expression::parse(&rendered), Ok(expression));
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn any_text_is_accepted_or_refused_as_by_fts5(text in query()) {
        // What cleaning removes is refused even where FTS5 knows it.
        let text = text.replace(['(', ')', '{', '}', ':', '^', '+'], " ");
        let text = text.trim_start_matches('*');
        Both::with(|both| {
            prop_assert_eq!(Expression::parse(text).is_ok(), both.found(text).is_some(), "{:?}", text);
            Ok(())
        })?;
    }

    #[test]
    fn words_with_operators_are_read_as_fts5_reads_them(query in query(), documents in documents()) {
        Both::with(|both| {
            both.fill(&documents);
            let expected = both.found(&word_phrases(&query));
            match Expression::of_words(&query) {
                Err(NotAnExpression) => prop_assert_eq!(expected, None),
                Ok(expression) => {
                    prop_assert_eq!(Some(both.matching(&expression, &documents)), expected);
                    prop_assert_eq!(Expression::parse(&expression.to_fts5()), Ok(expression));
                }
            }
            Ok(())
        })?;
    }
}
