//! Text of others made fit for a terminal.

use std::borrow::Cow;

/// The text without control characters: a transcript may hold anything, and must not steer the reader's terminal.
/// Line ends and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let is_unsafe = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    if text.contains(is_unsafe) {
        Cow::Owned(text.chars().map(|character| if is_unsafe(character) { '\u{fffd}' } else { character }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The beginning of the text on one line, of at most `length` characters.
pub(crate) fn one_line(text: &str, length: usize) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let flat = visible(&flat);
    if flat.chars().count() <= length {
        return flat.into_owned();
    }
    flat.chars().take(length.saturating_sub(1)).chain(['…']).collect()
}

/// The text with every line moved to the right.
pub(crate) fn indented(text: &str) -> String {
    visible(text).lines().map(|line| format!("    {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// A number of bytes in a unit that people read.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let (mut amount, mut unit) = (count as f64 / 1000.0, 0);
    while amount >= 999.95 && unit + 1 < UNITS.len() {
        (amount, unit) = (amount / 1000.0, unit + 1);
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// A number with its thousands set apart.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(visible("a\u{1b}[31mb\r\u{7}\n\tc"), "a\u{fffd}[31mb\u{fffd}\u{fffd}\n\tc");
        assert_eq!(one_line("a\u{1b}\nb  c", 10), "a\u{fffd} b c");
    }

    #[test]
    fn long_text_is_cut_by_characters() {
        assert_eq!(one_line("西湖边的灵隐寺", 4), "西湖边…");
        assert_eq!(one_line("西湖边的", 4), "西湖边的");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [thousands(0), thousands(999), thousands(1000), thousands(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [bytes(999), bytes(1000), bytes(999_960), bytes(2_500_000)],
            ["999 B", "1.0 KB", "1.0 MB", "2.5 MB"]
        );
    }
}
