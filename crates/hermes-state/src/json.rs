//! JSON text in the one form the store keeps: ASCII only, `", "` and `": "` between items, as older releases write it.
//!
//! Structured values travel through this crate as such text, untouched: it may hold what Rust's JSON types cannot
//! (`NaN`, integers of any size, lone surrogates), and what was stored is what is given back.

use std::fmt::Write as _;

use serde_json::Value as Json;

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

/// Shortest digits that read back the same; an exponent below 1e-4 and from 1e16 up, of two digits at least.
fn write_double(text: &mut String, double: f64) {
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

fn write_string(text: &mut String, string: &str) {
    text.push('"');
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
    text.push('"');
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
