//! One line of recorded input: a JSON object with the fields of a message.

use hermes_state::{Content, NewMessage, Value, json_text};
use serde_json::{Map, Value as Json};

use crate::times;

/// The fields a line may have.
pub(crate) const FIELDS: [&str; 18] = [
    "role",
    "content",
    "tool_name",
    "tool_calls",
    "tool_call_id",
    "token_count",
    "finish_reason",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
    "platform_message_id",
    "observed",
    "effect_disposition",
    "timestamp",
    "api_content",
    "client_key",
];

/// The message on a line, or why there is none.
pub(crate) fn parse(line: &[u8]) -> Result<NewMessage, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    // Most lines hold no lone surrogate, so the text is searched for them only when it does not parse.
    let value = serde_json::from_str(text)
        .or_else(|error| serde_json::from_str(&without_lone_surrogates(text)).map_err(|_| error))
        .map_err(|error| format!("not JSON: {error}"))?;
    match value {
        Json::Object(fields) => message(fields),
        _ => Err("not a JSON object".to_owned()),
    }
}

/// The message with these fields.
pub(crate) fn message(fields: Map<String, Json>) -> Result<NewMessage, String> {
    let mut message = match fields.get("role") {
        Some(Json::String(role)) => NewMessage::new(role.as_str(), Content::None),
        Some(Json::Null) | None => return Err("it has no \"role\"".to_owned()),
        Some(_) => return Err("\"role\" is not text".to_owned()),
    };
    if let Some(content) = fields.get("content") {
        message = NewMessage::new(fields["role"].as_str().unwrap_or_default(), content.clone());
    }
    for (name, value) in fields {
        message = match name.as_str() {
            "role" | "content" => message,
            "tool_name" => message.tool_name(scalar(&name, value)?),
            "tool_calls" => message.tool_calls(value),
            "tool_call_id" => message.tool_call_id(scalar(&name, value)?),
            "token_count" => message.token_count(scalar(&name, value)?),
            "finish_reason" => message.finish_reason(scalar(&name, value)?),
            "reasoning" => message.reasoning(scalar(&name, value)?),
            "reasoning_content" => message.reasoning_content(scalar(&name, value)?),
            "reasoning_details" => message.reasoning_details(structured(value)),
            "codex_reasoning_items" => message.codex_reasoning_items(structured(value)),
            "codex_message_items" => message.codex_message_items(structured(value)),
            "platform_message_id" => message.platform_message_id(scalar(&name, value)?),
            "observed" => message.observed(flag(&name, &value)?),
            "effect_disposition" => message.effect_disposition(scalar(&name, value)?),
            "timestamp" => message.timestamp(timestamp(&value)?),
            "api_content" => message.api_content(scalar(&name, value)?),
            "client_key" => message.client_key(scalar(&name, value)?),
            unknown => return Err(format!("unknown field {unknown:?}")),
        };
    }
    Ok(message)
}

fn scalar(name: &str, value: Json) -> Result<Value, String> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(flag) => flag.into(),
        Json::String(text) => text.into(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => integer.into(),
            (None, double) => double.into(),
        },
        Json::Array(_) | Json::Object(_) => return Err(format!("{name:?} is a list or an object")),
    })
}

/// JSON text for the fields that keep it: text is taken to be that already.
fn structured(value: Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::String(text) => text.into(),
        value => json_text(&value).into(),
    }
}

fn flag(name: &str, value: &Json) -> Result<bool, String> {
    match value {
        Json::Null => Ok(false),
        Json::Bool(flag) => Ok(*flag),
        Json::Number(number) => Ok(number.as_f64() != Some(0.0)),
        _ => Err(format!("{name:?} is not true or false")),
    }
}

fn timestamp(value: &Json) -> Result<Option<f64>, String> {
    let seconds = match value {
        Json::Null => return Ok(None),
        Json::Number(number) => number.as_f64(),
        Json::String(text) => times::parse(text),
        _ => None,
    };
    seconds.map(Some).ok_or_else(|| "\"timestamp\" is neither seconds since 1970 nor an RFC 3339 time".to_owned())
}

/// The JSON text with `\ufffd` for every lone surrogate: some languages write them, Rust's text cannot hold them, and
/// the store would keep the replacement character for them anyway.
fn without_lone_surrogates(text: &str) -> String {
    let unit = |at: usize| {
        let escape = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(escape, 16).ok()
    };
    let mut mended = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        mended.push_str(&text[at..at + found]);
        at += found;
        let length = match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                mended.push_str("\\ufffd");
                at += 6;
                continue;
            }
            // A backslash and what it escapes, of whatever width; the rest of a longer escape is ordinary text.
            _ => 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        };
        mended.push_str(&text[at..at + length]);
        at += length;
    }
    mended.push_str(&text[at..]);
    mended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_known() {
        for field in FIELDS {
            let line = serde_json::json!({"role": "user", field: null, "observed": true}).to_string();
            let line = if field == "role" { line.replace("null", "\"user\"") } else { line };
            assert!(parse(line.as_bytes()).is_ok(), "{field}");
        }
    }

    #[test]
    fn a_bad_line_says_what_is_wrong() {
        for (line, reason) in [
            (&b"{"[..], "not JSON: EOF"),
            (b"\xff{}", "not UTF-8"),
            (b"[1]", "not a JSON object"),
            (b"{\"content\":\"x\"}", "it has no \"role\""),
            (b"{\"role\":null}", "it has no \"role\""),
            (b"{\"role\":3}", "\"role\" is not text"),
            (b"{\"role\":\"user\",\"contents\":\"x\"}", "unknown field \"contents\""),
            (b"{\"role\":\"user\",\"tool_name\":[1]}", "\"tool_name\" is a list"),
            (b"{\"role\":\"user\",\"timestamp\":\"soon\"}", "\"timestamp\" is neither"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn lone_surrogates_become_the_replacement_character() {
        assert_eq!(
            without_lone_surrogates(r"a\ud83d\ude00b\ud800c\\ud800\udc00"),
            r"a\ud83d\ude00b\ufffdc\\ud800\ufffd"
        );
        assert_eq!(parse(br#"{"role":"user","content":"\ud800!"}"#).unwrap(), NewMessage::new("user", "\u{fffd}!"));
    }

    #[test]
    fn a_time_may_be_a_number_or_rfc_3339() {
        let expected = NewMessage::new("user", Content::None).timestamp(1_783_160_100.5);
        assert_eq!(parse(br#"{"role":"user","timestamp":1783160100.5}"#).unwrap(), expected);
        assert_eq!(parse(br#"{"role":"user","timestamp":"2026-07-04T10:15:00.5Z"}"#).unwrap(), expected);
    }
}
