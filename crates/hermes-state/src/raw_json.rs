//! Looks into JSON text without building values from it.
//!
//! What older releases store may hold what Rust's JSON types cannot: `NaN` and the infinities, integers of any size,
//! escapes of lone surrogates, any depth. Here it stays the text it is; only what is asked for is decoded.

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::blank::trim;

/// Text that is one JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawJson<'a>(&'a str);

impl<'a> RawJson<'a> {
    /// The text without the white space around it; `None` if it is not JSON.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim_matches(is_white);
        let end = value_end(text.as_bytes(), 0)?;
        (end == text.len()).then_some(Self(text))
    }

    /// The text.
    pub(crate) fn as_str(self) -> &'a str {
        self.0
    }

    fn kind(self) -> u8 {
        self.0.as_bytes()[0]
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub(crate) fn is_list(self) -> bool {
        self.kind() == b'['
    }

    pub(crate) fn is_object(self) -> bool {
        self.kind() == b'{'
    }

    pub(crate) fn is_string(self) -> bool {
        self.kind() == b'"'
    }

    /// Whether this is a number, `NaN` and the infinities among them.
    pub(crate) fn is_number(self) -> bool {
        matches!(self.kind(), b'-' | b'0'..=b'9' | b'N' | b'I')
    }

    /// What the text is made of, in order, white space left out.
    pub(crate) fn tokens(self) -> impl Iterator<Item = Token<'a>> {
        let (text, mut at) = (self.0, 0);
        std::iter::from_fn(move || {
            let bytes = text.as_bytes();
            at = skip_white(bytes, at);
            let start = at;
            let first = *bytes.get(start)?;
            // The text was checked as a whole, so each token has its end.
            at = match first {
                b'"' => string_end(bytes, start)?,
                b'-' | b'0'..=b'9' => number_end(bytes, start)?,
                b'[' | b']' | b'{' | b'}' | b',' | b':' => start + 1,
                _ => word_end(bytes, start)?,
            };
            Some(match first {
                b'"' => Token::String(&text[start + 1..at - 1]),
                b'-' | b'0'..=b'9' => Token::Number(&text[start..at]),
                _ => Token::Other(&text[start..at]),
            })
        })
    }

    /// Whether the contract counts the value as falsy: null, false, zero, empty text, list or object.
    pub(crate) fn is_falsy(self) -> bool {
        match self.kind() {
            b'[' | b'{' => self.0[1..self.0.len() - 1].trim_matches(is_white).is_empty(),
            b'"' => self.0.len() == 2,
            b'n' | b'f' => true,
            b'-' | b'0'..=b'9' => self.0.parse::<f64>().is_ok_and(|number| number == 0.0),
            _ => false,
        }
    }

    /// The elements of a list; none if this is not one.
    pub(crate) fn elements(self) -> Vec<RawJson<'a>> {
        if !self.is_list() { Vec::new() } else { self.items() }
    }

    /// The values of a list, or names and values in turn of an object.
    fn items(self) -> Vec<RawJson<'a>> {
        let bytes = self.0.as_bytes();
        let mut items = Vec::new();
        let mut at = skip_white(bytes, 1);
        while at < bytes.len() - 1 {
            let Some(end) = value_end(bytes, at) else { break };
            items.push(RawJson(&self.0[at..end]));
            at = skip_white(bytes, end);
            if matches!(bytes[at], b',' | b':') {
                at = skip_white(bytes, at + 1);
            }
        }
        items
    }

    /// A member of an object, the last of those with this name.
    pub(crate) fn member(self, name: &str) -> Option<RawJson<'a>> {
        if self.kind() != b'{' {
            return None;
        }
        let items = self.items();
        items.chunks_exact(2).rev().find(|pair| pair[0].string().is_some_and(|key| key == name)).map(|pair| pair[1])
    }

    /// Names and values of an object in order; none if this is not one.
    pub(crate) fn members(self) -> Members<'a> {
        if !self.is_object() {
            return Members(Vec::new());
        }
        let items = self.items();
        Members(items.chunks_exact(2).map(|pair| (pair[0].string().unwrap_or_default(), pair[1])).collect())
    }

    /// A member of an object, the first of those with this name: the one that the engines see.
    pub(crate) fn first_member(self, name: &str) -> Option<RawJson<'a>> {
        if self.kind() != b'{' {
            return None;
        }
        let items = self.items();
        items.chunks_exact(2).find(|pair| pair[0].string().is_some_and(|key| key == name)).map(|pair| pair[1])
    }

    /// The text of a string, U+FFFD for each lone surrogate; `None` if this is not one.
    pub(crate) fn string(self) -> Option<String> {
        if self.kind() != b'"' {
            return None;
        }
        let body = &self.0[1..self.0.len() - 1];
        Some(unescape(body).into_owned())
    }

    /// The texts of the parts of type `text` of a list, joined by spaces and trimmed; `None` if this is not a list.
    pub(crate) fn parts_text(self) -> Option<String> {
        if !self.is_list() {
            return None;
        }
        let is_text = |part: &RawJson<'_>| part.member("type").and_then(RawJson::string).as_deref() == Some("text");
        let elements = self.elements();
        let texts = elements.iter().filter(|part| is_text(part)).filter_map(|part| part.member("text")?.string());
        let joined = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        Some(trim(&joined).to_owned())
    }

    /// The value in Rust's type. `NaN` and the infinities become null, lone surrogates U+FFFD, and what lies deeper
    /// than Rust's JSON goes stays text.
    pub(crate) fn to_value(self) -> Json {
        self.value(0)
    }

    fn value(self, depth: usize) -> Json {
        if let Ok(value) = serde_json::from_str(self.0) {
            return value;
        }
        match self.kind() {
            b'[' | b'{' if depth >= DEEPEST => Json::String(self.0.to_owned()),
            b'[' => Json::Array(self.elements().into_iter().map(|item| item.value(depth + 1)).collect()),
            b'{' => {
                let items = self.items();
                let members = items.chunks_exact(2);
                Json::Object(
                    members.map(|pair| (pair[0].string().unwrap_or_default(), pair[1].value(depth + 1))).collect(),
                )
            }
            b'"' => Json::String(self.string().unwrap_or_default()),
            _ => Json::Null,
        }
    }
}

/// A part of JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// What stands between the quotation marks of a string.
    String(&'a str),
    /// A number, or an infinity below zero.
    Number(&'a str),
    /// A bracket, a separator, or a word.
    Other(&'a str),
}

/// The names and values of an object.
#[derive(Debug, Clone)]
pub(crate) struct Members<'a>(Vec<(String, RawJson<'a>)>);

impl<'a> Members<'a> {
    /// The value under a name, the last of those that have it.
    pub(crate) fn get(&self, name: &str) -> Option<RawJson<'a>> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// How deep a value is built, as deep as `serde_json` goes by itself.
const DEEPEST: usize = 127;

/// JSON's white space, which is not that of the rest of the store.
fn is_white(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r')
}

fn skip_white(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| is_white(char::from(*byte))) {
        at += 1;
    }
    at
}

/// Where the value that starts at `at` ends; `None` if there is none. Takes any depth without recursion.
fn value_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut open: Vec<u8> = Vec::new();
    loop {
        at = skip_white(bytes, at);
        let start = *bytes.get(at)?;
        at = match start {
            b'[' | b'{' => {
                let inner = skip_white(bytes, at + 1);
                let closing = if start == b'[' { b']' } else { b'}' };
                if *bytes.get(inner)? == closing {
                    inner + 1
                } else {
                    open.push(closing);
                    at = if start == b'{' { name_end(bytes, inner)? } else { inner };
                    continue;
                }
            }
            b'"' => string_end(bytes, at)?,
            b'-' | b'0'..=b'9' => number_end(bytes, at)?,
            _ => word_end(bytes, at)?,
        };
        // A value is complete; it may complete the ones around it.
        loop {
            let Some(closing) = open.last() else { return Some(at) };
            at = skip_white(bytes, at);
            match *bytes.get(at)? {
                b',' => {
                    at = skip_white(bytes, at + 1);
                    if *closing == b'}' {
                        at = name_end(bytes, at)?;
                    }
                    break;
                }
                byte if byte == *closing => {
                    open.pop();
                    at += 1;
                }
                _ => return None,
            }
        }
    }
}

/// Where the value of a member begins, at the latest: behind its name and the colon.
fn name_end(bytes: &[u8], at: usize) -> Option<usize> {
    let colon = skip_white(bytes, string_end(bytes, at)?);
    (*bytes.get(colon)? == b':').then_some(colon + 1)
}

fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    if *bytes.get(at)? != b'"' {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))?;
        match bytes[at] {
            b'"' => return Some(at + 1),
            b'\\' => match *bytes.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                b'u' if bytes.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => at += 6,
                _ => return None,
            },
            _ => return None,
        }
    }
}

fn number_end(bytes: &[u8], start: usize) -> Option<usize> {
    let digits = |mut at: usize| {
        let first = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at > first).then_some(at)
    };
    let mut at = if bytes[start] == b'-' { start + 1 } else { start };
    if bytes.get(at) == Some(&b'I') {
        return word_end(bytes, at).filter(|_| bytes[at..].starts_with(b"Infinity"));
    }
    at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits(at)? };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        at = digits(at + 1 + sign)?;
    }
    Some(at)
}

fn word_end(bytes: &[u8], at: usize) -> Option<usize> {
    let words: [&[u8]; 5] = [b"null", b"true", b"false", b"NaN", b"Infinity"];
    words.into_iter().find(|word| bytes[at..].starts_with(word)).map(|word| at + word.len())
}

/// The text that the inside of a string stands for, U+FFFD for each lone surrogate.
pub(crate) fn unescape(body: &str) -> Cow<'_, str> {
    if !body.contains('\\') {
        return Cow::Borrowed(body);
    }
    let mut text = String::with_capacity(body.len());
    let mut rest = body;
    let unit = |rest: &str| u16::from_str_radix(rest.strip_prefix("\\u")?.get(..4)?, 16).ok();
    while let Some(escape) = rest.find('\\') {
        text.push_str(&rest[..escape]);
        rest = &rest[escape..];
        if let Some(first) = unit(rest) {
            rest = &rest[6..];
            let pair = unit(rest).and_then(|second| char::decode_utf16([first, second]).next()?.ok());
            match pair {
                Some(character) if character.len_utf16() == 2 => {
                    rest = &rest[6..];
                    text.push(character);
                }
                _ => text.push(char::from_u32(first.into()).unwrap_or('\u{fffd}')),
            }
            continue;
        }
        text.push(match rest.as_bytes()[1] {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            other => char::from(other),
        });
        rest = &rest[2..];
    }
    text.push_str(rest);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_older_releases_write_is_json_and_nothing_else_is() {
        for text in [
            "null",
            " [1, -0.5e+10, NaN, -Infinity, Infinity] ",
            r#"{"a": {"b": []}, "c": "\ud800\n"}"#,
            "{}",
            "[ ]",
            "\"\"",
            "123456789012345678901234567890",
        ] {
            assert_eq!(RawJson::parse(text).map(RawJson::as_str), Some(text.trim()), "{text}");
        }
        for text in [
            "",
            " ",
            "[",
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{a: 1}",
            "{\"a\": 1,}",
            "01",
            "1.",
            "-",
            "nul",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "[] []",
            "]",
            "[}",
            "\u{a0}1",
            "-NaN",
            "+1",
            "'a'",
        ] {
            assert_eq!(RawJson::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn any_depth_is_taken() {
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        let json = RawJson::parse(&deep).unwrap();
        assert!(!json.is_falsy());
        let _ = json.to_value();
    }

    #[test]
    fn parts_are_found_and_decoded() {
        let json = RawJson::parse(r#"{"a" : [1, {"b": 2}, "x\u00e9\ud83d\ude00\ud800y\udc00\/"] , "\u0061": "last"}"#)
            .unwrap();
        assert_eq!(json.member("a").and_then(RawJson::string).as_deref(), Some("last"));
        let list = RawJson::parse(r#"[1, {"b": 2}, "x\u00e9\ud83d\ude00\ud800\u0041\udc00\/"]"#).unwrap();
        let elements = list.elements();
        assert_eq!(elements.iter().map(|item| item.as_str()).take(2).collect::<Vec<_>>(), ["1", "{\"b\": 2}"]);
        assert_eq!(elements[2].string().unwrap(), "xé😀\u{fffd}A\u{fffd}/");
    }

    #[test]
    fn falsy_values_are_those_of_the_contract() {
        for (text, falsy) in [
            ("null", true),
            ("false", true),
            ("0", true),
            ("-0.0", true),
            ("\"\"", true),
            ("[ ]", true),
            ("{}", true),
            ("true", false),
            ("NaN", false),
            ("\"0\"", false),
            ("[0]", false),
            ("1e-9", false),
        ] {
            assert_eq!(RawJson::parse(text).unwrap().is_falsy(), falsy, "{text}");
        }
    }

    #[test]
    fn values_are_as_near_as_rust_gets() {
        let json = RawJson::parse(r#"{"a": [NaN, 1.5, "\ud800"], "b": {"c": true}}"#).unwrap();
        assert_eq!(json.to_value(), json!({"a": [null, 1.5, "\u{fffd}"], "b": {"c": true}}));
    }

    proptest::proptest! {
        #[test]
        fn text_is_json_where_others_say_so(text in r#"([\[\]{}:, "]|\\[ntu]|d8[0-9]{2}|-?[0-9.eE]{1,3}|true|null|é){0,12}"#) {
            let others: Result<Json, _> = serde_json::from_str(&text);
            let ours = RawJson::parse(&text);
            let value = ours.map(RawJson::to_value);
            if let Ok(others) = others {
                proptest::prop_assert_eq!(Some(others), value);
            }
        }
    }
}
