//! Patterns for `column LIKE … ESCAPE '\'` that find just a text.

use crate::error::{Error, Result};

/// The longest pattern in bytes: SQLite's default limit, which holds for both engines.
const LONGEST_PATTERN: usize = 50_000;

/// A pattern that matches what begins with this text, case ignored for ASCII where the column is in lower case.
pub(crate) fn beginning_with(text: &str) -> Result<String> {
    bounded(format!("{}%", like_literal(&text.to_ascii_lowercase())))
}

/// The pattern, if it is not too long.
pub(crate) fn bounded(pattern: String) -> Result<String> {
    if pattern.len() > LONGEST_PATTERN {
        let length = pattern.len();
        let message =
            format!("LIKE pattern too complex ({length} bytes, max {LONGEST_PATTERN}); look for a shorter text");
        return Err(Error::Engine { message, code: 1 });
    }
    Ok(pattern)
}

/// A text as a LIKE pattern that matches just it.
pub(crate) fn like_literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}
