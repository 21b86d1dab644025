//! What is fed: each target has seeds, words that mean something to it, and what it must keep.

mod content;
mod import;
mod query;

use hermes_state::SessionDb;

/// Looks at an input: whether it got far, or in what way the store did not keep its word.
pub(crate) type Check = dyn FnMut(&str) -> Result<bool, String>;

/// One thing that is fed.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) seeds: &'static [&'static str],
    pub(crate) words: &'static [&'static str],
    /// Makes what the inputs are fed to.
    pub(crate) begin: fn() -> Box<Check>,
}

/// All that is fed.
pub(crate) const TARGETS: [Target; 3] = [content::TARGET, import::TARGET, query::TARGET];

/// Words of JSON, in the dialect of older releases and beyond.
const JSON_WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\\\"",
    "\\u0000",
    "\\ud83d",
    "\\ude00",
    "\\ud83d\\ude00",
    "\\uFFFD",
    "\\/",
    "null",
    "true",
    "false",
    "NaN",
    "Infinity",
    "-Infinity",
    "0",
    "-0",
    "1.50",
    "1e400",
    "-1E-400",
    "9223372036854775808",
    "123456789012345678901234567890",
    "\"id\": ",
    "\"messages\": ",
    "\"role\": \"assistant\"",
    "\"content\": ",
    "\"tool_calls\": ",
    "\"timestamp\": ",
    "\"model_config\": ",
    "\"parent_session_id\": ",
    "\"title\": ",
    "\"reasoning_details\": ",
    "\"token_count\": ",
    "\0json:",
    "{}",
    "[]",
    "\"\"",
];

/// What two exports of a session have in common: everything but the ids of its messages.
fn without_ids(export: &str) -> String {
    let mut parts = export.split("{\"id\": ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str("{\"id\": ");
        kept.push_str(part.trim_start_matches(|character: char| character.is_ascii_digit()));
    }
    kept
}

/// What a target does with an input in two stores, under an id of its own: whether it went far, or what is wrong.
type BetweenTwo = fn(&SessionDb, &SessionDb, &str, &str) -> hermes_state::Result<Result<bool, String>>;

fn between_two_stores(check: BetweenTwo) -> Box<Check> {
    let open = || SessionDb::open(":memory:").expect("opens a store in memory");
    let (db, other) = (open(), open());
    let mut round = 0;
    Box::new(move |input| {
        round += 1;
        check(&db, &other, &format!("s{round}"), input).map_err(|error| error.to_string())?
    })
}

/// The export of a session, empty if there is none.
fn exported(db: &SessionDb, id: &str) -> hermes_state::Result<String> {
    db.export_session(id)?.map_or(Ok(String::new()), |export| export.into_json().collect())
}
