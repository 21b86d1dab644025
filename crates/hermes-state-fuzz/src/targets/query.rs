//! Queries: whatever is typed, the search answers, or says that it does not understand.

use hermes_state::{Error, NewMessage, NewSession, SearchOptions, SessionDb, sanitize_fts5_query};

use super::{Check, Target};

pub(super) const TARGET: Target = Target {
    name: "query",
    seeds: &[
        "harbour",
        "\"old harbour\" AND NOT lighthouse",
        "harb* OR light*",
        "src/main.rs:12",
        "x-ray v1.0 a_b",
        "西湖 杭州",
        "NEAR(a b, 5)",
        "content : harbour",
        "^first {a b} + c",
        "50% (off)",
        "",
    ],
    words: &[
        "harbour",
        "lighthouse",
        "AND",
        "OR",
        "NOT",
        "NEAR",
        "NEAR(",
        ")",
        "(",
        "\"",
        "\"\"",
        "*",
        "^",
        ":",
        "-",
        "+",
        "{",
        "}",
        ",",
        " ",
        ".",
        "_",
        "西湖",
        "カタカナ",
        "한국",
        "content:",
        "rowid:",
        "a*b",
        "''",
        ";--",
        "\\",
        "%",
        "_",
        "/",
    ],
    begin,
};

fn begin() -> Box<Check> {
    let db = SessionDb::open(":memory:").expect("opens a store in memory");
    let texts = [
        "The old harbour by the lighthouse",
        "x-ray v1.0 in src/main.rs:12",
        "下周去杭州西湖拍照",
        "50% off, a_b ünïcödé",
        "",
    ];
    db.create_session(NewSession::new("s", "fuzz")).expect("creates");
    let messages = texts.map(|text| NewMessage::new("user", text));
    db.append_messages("s", messages.into()).expect("appends");
    Box::new(move |query| {
        let cleaned = sanitize_fts5_query(query);
        for text in [query, &cleaned] {
            match db.search_messages(text, &SearchOptions::default()) {
                Ok(found) if text == query && !found.is_empty() => return Ok(true),
                // That a query cannot be understood is an answer; that the engine could not make sense of it is none.
                Ok(_) | Err(Error::Invalid(_)) => {}
                Err(error) => return Err(format!("{text:?} fails with {error:?}")),
            }
            db.describe_search_path(text).map_err(|error| error.to_string())?;
        }
        Ok(false)
    })
}
