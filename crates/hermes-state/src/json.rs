//! JSON text in the one form the store keeps: ASCII only, `", "` and `": "` between items, as older releases write it.
//!
//! Structured values travel through this crate as such text, untouched: it may hold what Rust's JSON types cannot
//! (`NaN`, integers of any size, lone surrogates), and what was stored is what is given back.

use std::fmt::Write as _;

use serde_json::Value as Json;

use crate::raw_json::{RawJson, Token, unescape};

/// The store's text for a JSON value.
///
/// ```
/// use hermes_state::json_text;
/// assert_eq!(json_text(&serde_json::json!({"a": [1, 2.0], "é": "€"})), r#"{"a": [1, 2.0], "\u00e9": "\u20ac"}"#);
/// ```
#[must_use]
pub fn json_text(value: &Json) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(text: &mut String, value: &Json) {
    match value {
        Json::Null => text.push_str("null"),
        Json::Bool(true) => text.push_str("true"),
        Json::Bool(false) => text.push_str("false"),
        Json::Number(number) => match number.as_f64() {
            Some(double) if number.is_f64() => write_double(text, double),
            _ => drop(write!(text, "{number}")),
        },
        Json::String(string) => write_string(text, string),
        Json::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write_value(text, item);
            }
            text.push(']');
        }
        Json::Object(members) => {
            text.push('{');
            for (index, (key, member)) in members.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write_string(text, key);
                text.push_str(": ");
                write_value(text, member);
            }
            text.push('}');
        }
    }
}

/// JSON text in the store's form. What Rust's types cannot hold stays as it is: integers of any size, any depth, and
/// lone surrogates, which stay escapes.
pub(crate) fn normal_form(json: RawJson<'_>) -> String {
    let mut text = String::with_capacity(json.as_str().len() + 16);
    for token in json.tokens() {
        match token {
            Token::String(body) => write_body(&mut text, body),
            Token::Number(number) => write_number(&mut text, number),
            Token::Other(",") => text.push_str(", "),
            Token::Other(":") => text.push_str(": "),
            Token::Other(other) => text.push_str(other),
        }
    }
    text
}

/// How many bytes of UTF-8 the value takes without white space, with nothing escaped that need not be.
pub(crate) fn compact_length(json: RawJson<'_>) -> usize {
    let length = |token: Token<'_>| match token {
        Token::String(body) => 2 + unescape(body).chars().map(compact_character).sum::<usize>(),
        Token::Number(number) => {
            let mut text = String::new();
            write_number(&mut text, number);
            text.len()
        }
        Token::Other(other) => other.len(),
    };
    json.tokens().map(length).sum()
}

fn compact_character(character: char) -> usize {
    match character {
        '"' | '\\' | '\u{8}' | '\u{c}' | '\n' | '\r' | '\t' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

/// The inside of a string, escaped anew; escapes of lone surrogates are kept.
fn write_body(text: &mut String, body: &str) {
    text.push('"');
    let mut rest = body;
    while let Some((at, unit)) = lone_surrogate(rest) {
        write_characters(text, &unescape(&rest[..at]));
        let _ = write!(text, "\\u{unit:04x}");
        rest = &rest[at + 6..];
    }
    write_characters(text, &unescape(rest));
    text.push('"');
}

/// Where the first escape of a lone surrogate stands, and which one it is.
fn lone_surrogate(body: &str) -> Option<(usize, u16)> {
    let unit = |at: usize| u16::from_str_radix(body.get(at..at + 6)?.strip_prefix("\\u")?, 16).ok();
    let mut at = 0;
    while let Some(found) = body[at..].find('\\') {
        at += found;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(lone @ 0xd800..=0xdfff), _) => return Some((at, lone)),
            (Some(_), _) => 6,
            // A backslash and the one character that it escapes.
            (None, _) => 2,
        };
    }
    None
}

/// A number as Python gives it back: integers of any size as they are, the rest as the nearest double.
fn write_number(text: &mut String, number: &str) {
    match number {
        "-0" => text.push('0'),
        "-Infinity" => text.push_str(number),
        _ if number.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => {
            write_double(text, number.parse().unwrap_or(f64::NAN));
        }
        _ => text.push_str(number),
    }
}

/// Shortest digits that read back the same; an exponent below 1e-4 and from 1e16 up, of two digits at least.
pub(crate) fn write_double(text: &mut String, double: f64) {
    if !double.is_finite() {
        return text.push_str(match () {
            () if double.is_nan() => "NaN",
            () if double > 0.0 => "Infinity",
            () => "-Infinity",
        });
    }
    let magnitude = double.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let scientific = format!("{double:e}");
        let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        let _ = write!(text, "{digits}e{sign}{exponent:0>2}");
    } else {
        let _ = write!(text, "{double:?}");
    }
}

pub(crate) fn write_string(text: &mut String, string: &str) {
    text.push('"');
    write_characters(text, string);
    text.push('"');
}

fn write_characters(text: &mut String, string: &str) {
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            ' '..='~' => text.push(character),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_ascii_with_the_separators_of_older_releases() {
        let value = json!({"k": ["a\u{7f}\u{1f600}", null, true, -3], "z": {}});
        assert_eq!(json_text(&value), "{\"k\": [\"a\\u007f\\ud83d\\ude00\", null, true, -3], \"z\": {}}");
    }

    #[test]
    fn other_json_text_is_brought_into_the_form() {
        for (given, text, length) in [
            ("{ \"a\":[1,2.50,\n-0,1E5,1e400] }", "{\"a\": [1, 2.5, 0, 100000.0, Infinity]}", 33),
            ("\"é\\u00E9\\/\\n\u{7f}\"", "\"\\u00e9\\u00e9/\\n\\u007f\"", 10),
            ("[\"\\ud83d\\ude00\\ud83d\\\\ude00\\uDC00\"]", "[\"\\ud83d\\ude00\\ud83d\\\\ude00\\udc00\"]", 21),
            ("123456789012345678901234567890", "123456789012345678901234567890", 30),
            ("[NaN,-Infinity,true,null,{},[]]", "[NaN, -Infinity, true, null, {}, []]", 31),
        ] {
            let json = RawJson::parse(given).unwrap();
            assert_eq!(normal_form(json), text);
            assert_eq!(compact_length(json), length, "{given}");
        }
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert_eq!(normal_form(RawJson::parse(&deep).unwrap()), deep);
    }

    proptest::proptest! {
        #[test]
        fn the_form_is_that_of_values(text in r#"([\[\]{}:, "]|\\[ntu/]|d8[0-9]{2}|-?[0-9.eE]{1,3}|true|null|é){0,12}"#) {
            if let (Some(raw), Ok(value)) = (RawJson::parse(&text), serde_json::from_str::<Json>(&text))
                && raw.as_str() == serde_json::to_string(&value).unwrap()
            {
                proptest::prop_assert_eq!(normal_form(raw), json_text(&value));
                proptest::prop_assert_eq!(compact_length(raw), raw.as_str().len());
            }
        }
    }

    #[test]
    fn doubles_have_the_shortest_form_with_a_point_or_an_exponent() {
        for (double, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (123_456_789.123, "123456789.123"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
        ] {
            assert_eq!(json_text(&json!(double)), text);
        }
    }
}
