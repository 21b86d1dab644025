//! Titles: how they are cleaned, and which session may take one over from another.

use std::collections::HashSet;

use crate::blank;
use crate::error::{Error, Result};
use crate::query::lineage;
use crate::transaction::Transaction;
use crate::value::Value;

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

/// Whether stepping from `descendant` to parents that ended by compression leads to `ancestor`. A sub-agent or a branch
/// is no continuation of its parent's conversation.
pub(crate) fn is_compression_ancestor(
    transaction: &mut dyn Transaction,
    ancestor: &str,
    descendant: &Value,
) -> Result<bool> {
    let sql = format!(
        "SELECT parent.id FROM sessions child JOIN sessions parent ON parent.id = child.parent_session_id \
         WHERE child.id = ?1 AND parent.end_reason = 'compression' AND {}",
        lineage::is_continuation("child")
    );
    let mut seen = HashSet::new();
    let mut current = descendant.clone();
    while seen.insert(current.as_str().unwrap_or_default().to_owned()) {
        let parent = transaction.scalar(&sql, &[current])?;
        match parent.as_str() {
            None => return Ok(false),
            Some(found) if found == ancestor => return Ok(true),
            Some(_) => current = parent,
        }
    }
    Ok(false)
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
