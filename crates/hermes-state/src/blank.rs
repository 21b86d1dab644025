//! What counts as white space in titles, previews and queries: Unicode's set and the four separators U+001C to U+001F.

/// Whether a character is blank. Differs from [`char::is_whitespace`] by the four separators.
pub(crate) fn is_blank(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// The text without blanks at both ends.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// The text with every run of blanks made one space, and none at the ends.
pub(crate) fn collapse(text: &str) -> String {
    text.split(is_blank).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
