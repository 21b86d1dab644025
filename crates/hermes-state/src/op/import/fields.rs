//! What the fields of an imported entry say, whatever type of JSON they come in.

use crate::blank::trim;
use crate::content::Content;
use crate::json::normal_form;
use crate::message::ToolCalls;
use crate::raw_json::RawJson;
use crate::value::Value;

/// A number that a column cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

/// A value as text: numbers and flags as Python writes them.
pub(super) fn text_of(json: RawJson<'_>) -> String {
    if let Some(text) = json.string() {
        return text;
    }
    match json.as_str() {
        "true" => "True".to_owned(),
        "false" => "False".to_owned(),
        "null" => "None".to_owned(),
        _ => normal_form(json),
    }
}

/// Text or NULL as it goes into a column; the caller has seen to it that it is one of them.
pub(super) fn text_or_null(json: Option<RawJson<'_>>) -> Value {
    json.and_then(RawJson::string).into()
}

/// A flag, by what the value says.
pub(super) fn is_truthy(json: Option<RawJson<'_>>) -> bool {
    json.is_some_and(|json| !json.is_falsy())
}

/// A number as a double: numbers, flags, and text that is a number; `None` for everything else.
pub(super) fn double(json: RawJson<'_>) -> Result<Option<f64>, TooLarge> {
    match json.as_str() {
        "true" => return Ok(Some(1.0)),
        "false" => return Ok(Some(0.0)),
        _ => {}
    }
    if let Some(text) = json.string() {
        return Ok(trim(&text).parse().ok());
    }
    if !json.is_number() {
        return Ok(None);
    }
    match json.as_str().parse::<f64>() {
        // Only digits that are an integer: what is written as a double may be infinite.
        Ok(double) if double.is_infinite() && is_integer(json) => Err(TooLarge),
        double => Ok(double.ok()),
    }
}

/// A number as an integer: integers, doubles cut to one, flags, and text that is an integer; `None` for the rest.
pub(super) fn integer(json: RawJson<'_>) -> Result<Option<i64>, TooLarge> {
    let digits = |text: &str| match text.parse::<i64>() {
        Ok(integer) => Ok(Some(integer)),
        Err(error) => match error.kind() {
            std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => Err(TooLarge),
            _ => Ok(None),
        },
    };
    match json.as_str() {
        "true" => return Ok(Some(1)),
        "false" => return Ok(Some(0)),
        _ => {}
    }
    if let Some(text) = json.string() {
        return digits(trim(&text));
    }
    if !json.is_number() {
        return Ok(None);
    }
    if is_integer(json) {
        return digits(json.as_str());
    }
    match json.as_str().parse::<f64>() {
        Ok(double) if double.is_nan() => Ok(None),
        // The smallest double beyond all integers.
        Ok(double) if double.abs() < 9_223_372_036_854_775_808.0 => Ok(Some(double as i64)),
        Ok(_) => Err(TooLarge),
        Err(_) => Ok(None),
    }
}

fn is_integer(json: RawJson<'_>) -> bool {
    json.as_str().bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// The body of a message.
pub(super) fn content(json: Option<RawJson<'_>>) -> Content {
    let Some(json) = json else { return Content::None };
    if let Some(text) = json.string() {
        return Content::Text(text);
    }
    match json.as_str() {
        "null" => Content::None,
        "true" => Content::Number(Value::Integer(1)),
        "false" => Content::Number(Value::Integer(0)),
        text if !json.is_number() => {
            debug_assert!(text.starts_with(['[', '{']));
            Content::Json(normal_form(json))
        }
        text => match (text.parse(), text.parse()) {
            (Ok(integer), _) => Content::Number(Value::Integer(integer)),
            (_, Ok(double)) if !is_integer(json) => Content::Number(Value::Real(double)),
            // No column holds such an integer as a number; its digits are what would be read back.
            _ => Content::Text(text.to_owned()),
        },
    }
}

/// The calls a message makes. Text is parsed first, so that what already is JSON is not encoded twice.
pub(super) fn tool_calls(json: Option<RawJson<'_>>) -> ToolCalls {
    let Some(json) = json else { return ToolCalls::default() };
    match json.string() {
        Some(text) => RawJson::parse(&text).map(calls).unwrap_or_default(),
        None => calls(json),
    }
}

fn calls(json: RawJson<'_>) -> ToolCalls {
    if json.is_falsy() {
        return ToolCalls::default();
    }
    let count = if json.is_list() { json.elements().len() } else { 1 };
    ToolCalls::from_text(Some(normal_form(json)), i64::try_from(count).unwrap_or(i64::MAX))
}

/// Opaque items as the JSON text that is kept of them. An export has them as text, which is parsed first; text that is no
/// JSON stays text.
pub(super) fn items(json: Option<RawJson<'_>>) -> Value {
    let Some(json) = json else { return Value::Null };
    let inner = json.string();
    let json = inner.as_deref().and_then(RawJson::parse).unwrap_or(json);
    if json.is_falsy() { Value::Null } else { normal_form(json).into() }
}
