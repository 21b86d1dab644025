//! Rows and conditions: by what PostgreSQL's documentation says of its types, and on a server where one is installed.

mod server;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::compile::{Ids, ids, narrow, stretches, windows};
use super::index::{LIMITS, Limits, WHOLE_PHRASE, lexeme, pieces_within};
use crate::search::expression::tests::{Document, documents, matches, query, sound_query};
use crate::search::expression::{Expression, Group, Phrase, Terms};
use crate::search::snippet::Texts;
use crate::search::text::{Condition, sanitize_fts5_query};
use crate::search::tokens::Tokenizer;
use crate::statement::Statement;
use crate::value::Value;

/// Limits that short texts reach.
const NARROW: Limits = Limits { positions: 12, repeats: 5, bytes: 300, overlap: 4 };

fn with_tokenizer<T>(run: impl FnOnce(&mut Tokenizer) -> T) -> T {
    thread_local!(static TOKENIZER: RefCell<Tokenizer> = RefCell::new(Tokenizer::unicode61().unwrap()));
    TOKENIZER.with(|tokenizer| run(&mut tokenizer.borrow_mut()))
}

fn texts(document: &Document) -> Texts<'_> {
    let [content, tool_name, tool_calls] = document.each_ref().map(|text| Some(text.as_str()));
    Texts { content, tool_name, tool_calls }
}

fn of_content(content: &str) -> Document {
    [content.to_owned(), String::new(), String::new()]
}

fn rows(limits: Limits, document: &Document) -> Vec<String> {
    let rows = with_tokenizer(|tokenizer| pieces_within(limits, tokenizer, &texts(document)));
    rows.iter().map(|row| literal(row)).collect()
}

/// A value in text form.
fn literal(vector: &[u8]) -> String {
    let (count, mut rest) = vector.split_at(4);
    let mut lexemes = Vec::new();
    let number = |rest: &mut &[u8]| {
        let (number, after) = rest.split_first_chunk::<2>().unwrap();
        *rest = after;
        u16::from_be_bytes(*number)
    };
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        let lexeme = std::str::from_utf8(&rest[..end]).unwrap();
        rest = &rest[end + 1..];
        let places: Vec<String> = (0..number(&mut rest)).map(|_| number(&mut rest).to_string()).collect();
        lexemes.push(format!("'{lexeme}':{}", places.join(",")));
    }
    assert!(rest.is_empty());
    assert_eq!(u32::from_be_bytes(count.try_into().unwrap()) as usize, lexemes.len());
    lexemes.join(" ")
}

/// A value as PostgreSQL would have it.
type Vector = HashMap<String, Vec<usize>>;

fn vector(literal: &str) -> Vector {
    let mut vector = Vector::new();
    let mut rest = literal;
    while let Some(quoted) = rest.trim_start().strip_prefix('\'') {
        let (lexeme, after) = quoted.split_once("':").unwrap();
        let (positions, after) = after.split_once(' ').unwrap_or((after, ""));
        let positions: Vec<usize> = positions.split(',').map(|position| position.parse().unwrap()).collect();
        assert!(positions.is_sorted() && !lexeme.is_empty() && lexeme.len() < 2047 && !lexeme.contains(['\'', '\\']));
        assert!(vector.insert(lexeme.to_owned(), positions).is_none());
        rest = after;
    }
    assert_eq!(rest, "");
    vector
}

/// What `<->` and `:*` mean, for words of ordinary length.
fn holds(vector: &Vector, terms: &Terms) -> bool {
    let last = terms.tokens.len() - 1;
    let at = |index: usize, token: &String| -> HashSet<usize> {
        let prefix = terms.prefix && index == last;
        let named: Vec<&Vec<usize>> = match prefix {
            true => vector.iter().filter(|(name, _)| name.starts_with(token)).map(|(_, positions)| positions).collect(),
            false => vector.get(token).into_iter().collect(),
        };
        named.into_iter().flatten().map(|position| position + last - index).collect()
    };
    let all = terms.tokens.iter().enumerate().map(|(index, token)| at(index, token));
    all.reduce(|left, right| &left & &right).is_some_and(|ends| !ends.is_empty())
}

/// What the statement means: one row is judged as a whole, of several each phrase is looked for by itself.
fn found(expression: &Expression<Terms>, limits: Limits, rows: &[Vector]) -> bool {
    match rows {
        [] => false,
        [row] => !expression.held(|terms| holds(row, terms)).is_empty(),
        rows => {
            let holding = |terms: &Terms| {
                windows(terms, limits.overlap + 1).iter().all(|terms| rows.iter().any(|row| holds(row, terms)))
            };
            !expression.held(holding).is_empty()
        }
    }
}

/// Both parts of a search as one query for ids.
fn ids_query(Ids { whole, several }: Ids) -> String {
    format!("SELECT message_id FROM message_words WHERE pieces = 1 AND words @@ {whole} UNION ALL ({several})")
}

#[test]
fn a_message_is_words_with_positions() {
    for (document, expected) in [
        (
            ["The harbour, the sea".into(), "run".into(), "{\"x\": 1}".into()],
            vec!["'the':1,3 'harbour':2 'sea':4 'run':6 'x':8 '1':9"],
        ),
        (of_content("é redis缓存了 b"), vec!["'e':1 'redis缓存了':2 'b':3 '\u{1}redis':5 '\u{1}缓存':6 '\u{1}存了':7"]),
        (of_content("茶, 龙井"), vec!["'茶':1 '龙井':2 '\u{1}茶':4 '\u{1}龙井':6"]),
        (of_content("' \\ …"), vec![]),
    ] {
        let rows = rows(LIMITS, &document);
        assert_eq!(rows, expected.into_iter().map(str::to_owned).collect::<Vec<_>>(), "{document:?}");
    }
}

#[test]
fn long_words_keep_their_beginning_and_differ_by_the_rest() {
    let long = "é".repeat(1500);
    let (one, other) = (format!("{long}a"), format!("{long}b"));
    assert!(lexeme(&one).starts_with(&"é".repeat(1000)) && lexeme(&one).len() == 2033);
    assert_ne!(lexeme(&one), lexeme(&other));
    assert_eq!(lexeme(&one), lexeme(&one.clone()));
    assert_eq!(lexeme("abc"), "abc");
    // The hash is part of the format.
    assert!(lexeme(&"a".repeat(3000)).ends_with("a\u{2}4f676773ffd836b981c206c2c3be7505"));
}

#[test]
fn rows_stay_within_the_limits_and_overlap() {
    for text in ["a ".repeat(3000), "a b c d e f g h ".repeat(9000), format!("{} ", "x".repeat(3000)).repeat(2000)] {
        let rows = rows(LIMITS, &of_content(&text));
        assert!(rows.len() > 1);
        for row in &rows {
            let vector = vector(row);
            assert!(vector.values().all(|positions| positions.len() <= 255 && positions.iter().all(|at| *at < 16_383)));
        }
    }
    let text: String = (0..2000).map(|number| format!("{}{number} ", "y".repeat(1000))).collect();
    let rows = rows(LIMITS, &of_content(&text));
    assert!(rows.len() > 3 && rows.iter().all(|row| row.len() < 900_000));
}

#[test]
fn a_phrase_across_rows_is_found_to_its_limit() {
    let text: String = (0..40_000).map(|number| format!("w{number} ")).collect();
    let rows: Vec<Vector> = rows(LIMITS, &of_content(&text)).iter().map(|row| vector(row)).collect();
    for start in (15_860..16_010).chain(31_790..31_940) {
        for length in [WHOLE_PHRASE, 200] {
            let tokens: Vec<String> = (start..start + length).map(|number| format!("w{number}")).collect();
            let terms = Terms { tokens, prefix: false };
            assert!(length > WHOLE_PHRASE || rows.iter().any(|row| holds(row, &terms)), "{start}");
            let group = Group { required: vec![terms], excluded: Vec::new() };
            assert!(found(&Expression { alternatives: vec![vec![group]] }, LIMITS, &rows));
        }
    }
}

#[test]
fn statements_are_as_shown() {
    let statement_of = |text: &str| {
        let mut statement = Statement::default();
        statement.bind(7);
        let expression = Expression::parse(text).unwrap();
        let sql =
            ids_query(with_tokenizer(|tokenizer| ids(&expression.terms(tokenizer), WHOLE_PHRASE, &mut statement)));
        let parameters = statement.parameters.into_iter().skip(1);
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        (sql.replace("message_id FROM message_words WHERE ", ""), parameters.map(text).collect::<Vec<_>>())
    };
    let read = |number| format!("CAST(CAST(?{number} AS text) AS tsquery)");
    let (sql, parameters) = statement_of("a \"b c\"* NOT d OR e AND f a a");
    assert_eq!(parameters[0], "((('a' & ('b' <-> 'c':*)) & !'d') | ('e' & ('f' & 'a' & 'a')))");
    assert_eq!(parameters[1..], ["'a'", "('b' <-> 'c':*)", "'d'", "'e'", "'f'", "'a'"]);
    let several = |number| format!("(SELECT pieces > 1 AND words @@ {})", read(number));
    assert_eq!(
        sql,
        format!(
            "SELECT pieces = 1 AND words @@ {} UNION ALL (((({} INTERSECT {}) EXCEPT {}) UNION ({} INTERSECT ({} INTERSECT {}))))",
            read(2),
            several(3),
            several(4),
            several(5),
            several(6),
            several(7),
            several(8)
        )
    );
    let nothing = format!("SELECT pieces = 1 AND words @@ {} UNION ALL (SELECT 1 = 0)", read(2));
    assert_eq!(statement_of("… NOT a"), (nothing, vec![String::new()]));
}

#[test]
fn what_narrows_and_what_does_not() {
    for (text, expected) in [
        ("杭州西湖", Some("('\u{1}杭州' <-> '\u{1}州西' <-> '\u{1}西湖')")),
        ("a西湖b,灵隐寺x", Some("('\u{1}灵隐' <-> '\u{1}隐寺')")),
        ("西湖 茶 NOT 灵隐", Some("'\u{1}西湖'")),
        ("西湖 OR 灵隐", Some("('\u{1}西湖' | '\u{1}灵隐')")),
        ("西湖 OR 茶", None),
        ("茶 a", None),
        ("龍。井", None),
    ] {
        let mut statement = Statement::default();
        let sql =
            with_tokenizer(|tokenizer| narrow(&Condition::of_words(text), tokenizer, &mut statement)).map(ids_query);
        assert_eq!(sql.is_some(), expected.is_some());
        assert_eq!(statement.parameters.first().and_then(Value::as_str), expected, "{text}");
    }
}

/// The messages that hold the terms of a condition as substrings.
fn holds_substrings(condition: &Condition, document: &Document) -> bool {
    condition.holds(|term| {
        let term = term.to_ascii_lowercase();
        document.iter().any(|text| text.to_ascii_lowercase().contains(&term))
    })
}

/// Documents and terms in which scripts, marks and signs meet.
fn mixed(length: usize) -> impl Strategy<Value = String> {
    let characters = "東京都西湖カ・ンー한국ᄀㄱa B-.,。 \u{301}é\u{3099}々𠀀\u{9fff}🙂0_'\\";
    prop::collection::vec(prop::sample::select(characters.chars().collect::<Vec<_>>()), 1..length)
        .prop_map(String::from_iter)
}

fn condition() -> impl Strategy<Value = Condition> {
    let operator = prop::sample::select(vec![" ", " OR ", " NOT ", " AND "]);
    prop::collection::vec((mixed(7), operator), 1..4).prop_map(|terms| {
        Condition::of_words(
            &terms.into_iter().flat_map(|(term, operator)| [term, operator.to_owned()]).collect::<String>(),
        )
    })
}

/// Documents, and a condition of which some terms are taken from them.
fn searched() -> impl Strategy<Value = (Vec<Document>, Condition)> {
    let documents = prop::collection::vec([mixed(40), mixed(4), mixed(20)], 1..5);
    (documents, condition(), any::<[prop::sample::Index; 3]>(), 1..9usize).prop_map(
        |(documents, mut condition, [which, column, from], length)| {
            let text = &which.get(&documents)[column.index(3)];
            let start = from.index(text.chars().count());
            let taken: String = text.chars().skip(start).take(length).collect();
            if let Some(alternative) = condition.alternatives.first_mut() {
                alternative.required = vec![taken];
            }
            (documents, condition)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn rows_hold_what_messages_hold(query in prop_oneof![sound_query(), query()], documents in documents()) {
        let Ok(expression) = Expression::parse(&sanitize_fts5_query(&query)) else { return Ok(()) };
        for document in &documents {
            let (terms, expected) = with_tokenizer(|tokenizer| {
                let terms = expression.terms(tokenizer);
                let expected = matches(&terms, tokenizer, document);
                (terms, expected)
            });
            for limits in [LIMITS, NARROW] {
                let vectors: Vec<Vector> = rows(limits, document).iter().map(|row| vector(row)).collect();
                prop_assert_eq!(found(&terms, limits, &vectors), expected, "{} in {:?}", query, document);
            }
        }
    }

    #[test]
    fn what_is_narrowed_holds_every_substring((documents, condition) in searched()) {
        let Some(terms) = with_tokenizer(|tokenizer| stretches(&condition, tokenizer)) else { return Ok(()) };
        for document in &documents {
            for limits in [LIMITS, NARROW] {
                let vectors: Vec<Vector> = rows(limits, document).iter().map(|row| vector(row)).collect();
                prop_assert!(!holds_substrings(&condition, document) || found(&terms, limits, &vectors), "{:?}", document);
            }
        }
    }
}

/// The statement with its parameters written into it.
fn written_out(sql: &str, statement: &Statement) -> String {
    let mut sql = sql.to_owned();
    for (index, value) in statement.parameters.iter().enumerate().rev() {
        let text = value.as_str().unwrap_or_default().replace('\'', "''");
        sql = sql.replace(&format!("?{} ", index + 1), &format!("'{text}' "));
    }
    sql
}

const TABLE: &str = "SET client_min_messages = warning; DROP TABLE IF EXISTS message_words;
    CREATE TABLE message_words (message_id bigint, piece int, pieces int, words tsvector, PRIMARY KEY (message_id, piece));
    CREATE INDEX ON message_words USING gin (words);\n";

fn insert(limits: Limits, documents: &[Document]) -> String {
    let mut script = TABLE.to_owned();
    for (id, document) in documents.iter().enumerate() {
        let rows = rows(limits, document);
        for (piece, row) in rows.iter().enumerate() {
            let row = row.replace('\'', "''");
            script += &format!("INSERT INTO message_words VALUES ({id}, {piece}, {}, '{row}');\n", rows.len());
        }
    }
    script + "ANALYZE message_words;\n"
}

fn ask(sql: &str, statement: &Statement) -> String {
    let sql = written_out(sql, statement);
    format!(
        "SELECT coalesce(string_agg(id::text, ' ' ORDER BY id), '') FROM (SELECT DISTINCT message_id AS id FROM ({sql}) AS found) AS ids;\n"
    )
}

fn numbers(line: &str) -> HashSet<usize> {
    line.split(' ').filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn a_server_finds_the_same() {
    let Some(server) = server::Server::start() else { return };
    let mut runner = TestRunner::deterministic();
    let mut sample = |count: usize| -> Vec<Document> {
        let one = |runner: &mut TestRunner| documents().new_tree(runner).unwrap().current();
        (0..count).flat_map(|_| one(&mut runner)).collect()
    };
    let documents = sample(60);
    let mut runner = TestRunner::deterministic();
    let queries: Vec<Expression> = (0..600)
        .map(|_| prop_oneof![3 => sound_query(), 1 => query()].new_tree(&mut runner).unwrap().current())
        .filter_map(|text| Expression::parse(&sanitize_fts5_query(&text)).ok())
        .collect();
    for (limits, scan) in [(LIMITS, "on"), (NARROW, "on"), (NARROW, "off")] {
        let mut script = insert(limits, &documents) + &format!("SET enable_seqscan = {scan};\n");
        for expression in &queries {
            let mut statement = Statement::default();
            let terms = with_tokenizer(|tokenizer| expression.terms(tokenizer));
            let sql = ids_query(ids(&terms, limits.overlap + 1, &mut statement));
            script += &ask(&sql, &statement);
        }
        let answers = server.run(&script);
        assert_eq!(answers.len(), queries.len());
        let mut hits = 0;
        for (expression, answer) in queries.iter().zip(&answers) {
            let expected: HashSet<usize> = with_tokenizer(|tokenizer| {
                let terms = expression.terms(tokenizer);
                let found = documents.iter().enumerate().filter(|(_, document)| matches(&terms, tokenizer, document));
                found.map(|(id, _)| id).collect::<Vec<_>>().into_iter().collect()
            });
            assert_eq!(numbers(answer), expected, "{}", expression.to_fts5());
            hits += expected.len();
        }
        assert!(hits > 1000, "{hits}");
    }
}

#[test]
fn a_server_takes_and_finds_what_is_long_or_odd() {
    let Some(server) = server::Server::start() else { return };
    let long = "x".repeat(3000);
    let distinct: String = (0..40_000).map(|number| format!("w{number} ")).collect();
    let documents = [
        of_content(&format!("a {long}y b")),
        of_content(&format!("{}end {}", "a ".repeat(20_000), "b ".repeat(300))),
        of_content(&distinct),
        of_content(&(0..1500).map(|number| format!("{}{number} ", "é".repeat(900))).collect::<String>()),
        ["it's \\ 'q'".into(), "東京都".into(), format!("{}西湖", "東".repeat(30_000))],
        of_content(&"a b ".repeat(100_000)),
    ];
    let phrase = |from: usize, to: usize| (from..to).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
    let terms: String = (0..1000).map(|number| format!("w{number} ")).collect();
    let nots = format!("w5{}", " NOT b".repeat(250));
    let one = |text: String| Expression {
        alternatives: vec![vec![Group { required: vec![Phrase { text, prefix: false }], excluded: vec![] }]],
    };
    let queries = [
        (one(format!("{long}y b")), vec![0]),
        (one(format!("{long}z")), vec![]),
        (Expression::parse(&format!("{}*", &long[..2500])).unwrap(), vec![0]),
        (one("a end b".into()), vec![1]),
        (one("b a".into()), vec![5]),
        (Expression::parse("a b").unwrap(), vec![0, 1, 5]),
        (Expression::parse("a NOT end").unwrap(), vec![0, 5]),
        (Expression::parse("a NOT b OR w7").unwrap(), vec![2]),
        (one(phrase(15_950, 16_014)), vec![2]),
        (one(phrase(15_000, 15_900)), vec![2]),
        (one(phrase(15_000, 15_063) + " w1"), vec![]),
        (Expression::parse(&terms).unwrap(), vec![2]),
        (Expression::parse(&nots).unwrap(), vec![2]),
        (one(format!("{}77", "é".repeat(900))), vec![3]),
        (one("it's".into()), vec![4]),
    ];
    let mut script = insert(LIMITS, &documents);
    for (expression, _) in &queries {
        let mut statement = Statement::default();
        let sql =
            ids_query(with_tokenizer(|tokenizer| ids(&expression.terms(tokenizer), WHOLE_PHRASE, &mut statement)));
        script += &ask(&sql, &statement);
    }
    let conditions = [("京都", vec![4]), ("東西湖", vec![4]), ("西東", vec![])];
    for (term, _) in &conditions {
        let mut statement = Statement::default();
        let sql = ids_query(
            with_tokenizer(|tokenizer| narrow(&Condition::of_words(term), tokenizer, &mut statement)).unwrap(),
        );
        script += &ask(&sql, &statement);
    }
    let answers = server.run(&script);
    let expected = queries.into_iter().map(|(_, ids)| ids).chain(conditions.into_iter().map(|(_, ids)| ids));
    for (index, (answer, expected)) in answers.iter().zip(expected).enumerate() {
        assert_eq!(numbers(answer), expected.into_iter().collect(), "query {index}");
    }
}
