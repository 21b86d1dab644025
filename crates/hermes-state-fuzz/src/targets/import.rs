//! Entries of an import: each is taken or refused in a report, and what was taken comes back the same.

use hermes_state::{ImportOptions, SessionDb};

use super::{Check, JSON_WORDS, Target, between_two_stores, exported, without_ids};

pub(super) const TARGET: Target = Target {
    name: "import",
    seeds: &[
        r#"{"id": "s", "source": "cli", "started_at": 12.5, "title": null, "messages": []}"#,
        concat!(
            r#"{"id": "s", "model_config": {"a": [1.0]}, "ended_at": "5", "input_tokens": 7.9, "archived": 1, "messages": ["#,
            r#"{"role": "assistant", "content": [{"type": "text", "text": "\ud83d"}], "tool_calls": "[{\"id\": 1}]", "#,
            r#""token_count": "12", "reasoning_details": "[{\"a\": NaN}]", "timestamp": 1783160100.123456, "observed": 0}, "#,
            r#"{"role": "user", "content": 5, "timestamp": "1e3", "platform_message_id": "", "message_id": "m"}]}"#
        ),
        r#"{"id": 7, "parent_session_id": " p ", "messages": [{"role": "tool", "content": null, "api_content": "x"}]}"#,
        r#"{"id": "s", "messages": {"role": "user"}}"#,
        "[]",
        "no json",
    ],
    words: JSON_WORDS,
    begin,
};

fn begin() -> Box<Check> {
    between_two_stores(check)
}

fn check(db: &SessionDb, other: &SessionDb, id: &str, input: &str) -> hermes_state::Result<Result<bool, String>> {
    // As it is, without writing; then under an id that is new, since of two members the last one counts, and without a
    // title, which only one session can have.
    db.import_sessions([input], &ImportOptions { dry_run: true, ..ImportOptions::default() })?;
    let Some(open) = input.trim_end().strip_suffix('}') else { return Ok(Ok(false)) };
    let comma = if open.trim_end().ends_with('{') { "" } else { ", " };
    let entry = format!("{open}{comma}\"id\": \"{id}\", \"title\": null}}");
    let report = db.import_sessions([entry.as_str()], &ImportOptions::default())?;
    if !report.is_ok() {
        return Ok(Ok(false));
    }
    let first = exported(db, id)?;
    let report = other.import_sessions([first.as_str()], &ImportOptions::default())?;
    let second = exported(other, id)?;
    // A parent may be in one store and not in the other: each has the sessions of earlier inputs.
    let comparable = |text: &str| {
        let text = without_ids(text);
        let (start, rest) = text.split_once("\"parent_session_id\": ").unwrap_or((&text, ""));
        format!("{start}{}", rest.split_once(", \"started_at\"").unwrap_or(("", rest)).1)
    };
    if report.imported_ids != [id] || comparable(&first) != comparable(&second) {
        return Ok(Err(format!("an export does not come back: {report:?}\n{first}\n{second}")));
    }
    Ok(Ok(first.contains("\"role\"")))
}
