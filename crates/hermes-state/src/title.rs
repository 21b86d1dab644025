//! Titles: how they are cleaned.

pub(crate) mod number;

use crate::blank;
use crate::error::{Error, Result};

/// The longest title, in code points.
pub const MAX_TITLE_LENGTH: usize = 100;

/// The title as it is stored: without control and invisible characters, blanks collapsed; `None` if nothing is left.
///
/// # Errors
/// [`Error::TitleTooLong`] beyond [`MAX_TITLE_LENGTH`] code points.
///
/// ```
/// use hermes_state::sanitize_title;
/// assert_eq!(sanitize_title("  Harbour\u{200b}\tplan ")?, Some("Harbour plan".to_owned()));
/// assert_eq!(sanitize_title(" \u{feff} ")?, None);
/// # Ok::<(), hermes_state::Error>(())
/// ```
pub fn sanitize_title(title: &str) -> Result<Option<String>> {
    let visible: String = title.chars().filter(|character| !is_removed(*character)).collect();
    let cleaned = blank::collapse(&visible);
    let length = cleaned.chars().count();
    if length > MAX_TITLE_LENGTH {
        return Err(Error::TitleTooLong { length, max: MAX_TITLE_LENGTH });
    }
    Ok((length > 0).then_some(cleaned))
}

/// Controls except tab, line feed and carriage return; zero-width, directional and other invisible characters.
fn is_removed(character: char) -> bool {
    matches!(character,
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffc}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_joins_neighbours_of_removed_characters_and_collapses_blanks() {
        for (given, cleaned) in [
            ("a\u{0}b", Some("ab")),
            ("a\u{1c}b", Some("ab")),
            ("a \t\r\n b", Some("a b")),
            ("\u{2028}x\u{85}y\u{3000}", Some("x y")),
            ("soft\u{ad}hyphen\u{80}", Some("soft\u{ad}hyphen\u{80}")),
            ("", None),
            ("\u{fffc}\u{2066}", None),
        ] {
            assert_eq!(sanitize_title(given).expect("short"), cleaned.map(str::to_owned), "{given:?}");
        }
    }

    #[test]
    fn a_title_of_a_hundred_code_points_is_the_longest() {
        assert_eq!(sanitize_title(&"é".repeat(100)).expect("fits"), Some("é".repeat(100)));
        let error = sanitize_title(&"é".repeat(101)).expect_err("too long");
        assert_eq!(error.to_string(), "Title too long (101 characters, max 100)");
    }
}
