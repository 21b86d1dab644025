//! Numbers at the end of titles: of any length, in the digits of any script.

use std::cmp::Ordering;
use std::fmt;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// A whole number, as its decimal digits in ASCII without zeros in front; zero has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Number(String);

impl Number {
    pub(crate) fn one() -> Self {
        Self("1".into())
    }

    /// The number that these digits write; `None` if there are none, or anything else among them.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let digits = text.chars().map(digit).collect::<Option<String>>().filter(|digits| !digits.is_empty())?;
        Some(Self(digits.trim_start_matches('0').to_owned()))
    }

    /// This number and one.
    #[must_use]
    pub(crate) fn next(&self) -> Self {
        let kept = self.0.trim_end_matches('9');
        let carried = "0".repeat(self.0.len() - kept.len());
        match kept.chars().next_back().and_then(|last| last.to_digit(10)) {
            Some(last) => Self(format!("{}{}{carried}", &kept[..kept.len() - 1], last + 1)),
            None => Self(format!("1{carried}")),
        }
    }

    /// How many digits it has.
    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "0" } else { &self.0 })
    }
}

fn is_digit(character: char) -> bool {
    character.general_category() == GeneralCategory::DecimalNumber
}

/// The ASCII digit of the same value. Unicode promises that the digits of a script stand in a row from zero to nine, so
/// the place within an unbroken run of digits tells the value.
fn digit(character: char) -> Option<char> {
    if !is_digit(character) {
        return None;
    }
    let before = (0..u32::from(character)).rev().take_while(|code| char::from_u32(*code).is_some_and(is_digit));
    char::from_digit(u32::try_from(before.count() % 10).ok()?, 10)
}

/// A title that ends in a space, `#` and digits, as what stands before them and their number. One line feed at the very
/// end is overlooked; with any other the title has no number.
pub(crate) fn split(title: &str) -> Option<(&str, Number)> {
    let line = title.strip_suffix('\n').unwrap_or(title);
    let rest = line.trim_end_matches(is_digit);
    let base = rest.strip_suffix(" #").filter(|base| !base.contains('\n'))?;
    Some((base, Number::read(&line[rest.len()..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        Number::read(text).expect("digits")
    }

    #[test]
    fn numbers_are_read_in_any_script_and_counted_on() {
        for (text, next) in [
            ("0", "1"),
            ("007", "8"),
            ("9", "10"),
            ("1999", "2000"),
            ("१२", "13"),
            ("٩", "10"),
            ("𝟗𝟡", "100"),
            ("２３", "24"),
            (&"9".repeat(90), &format!("1{}", "0".repeat(90))),
        ] {
            assert_eq!(number(text).next().to_string(), next, "{text}");
        }
        for text in ["", "1a", "²", "Ⅻ", "-1", " 1", "一"] {
            assert_eq!(Number::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn longer_numbers_are_greater() {
        assert!(number("10") > number("9"));
        assert!(number("0010") < number("11"));
        assert_eq!(number("000"), number("0"));
        assert_eq!(number("000").to_string(), "0");
    }

    #[test]
    fn a_title_is_split_at_its_last_number_only() {
        for (title, split_at) in [
            ("Plan #2", Some(("Plan", "2"))),
            ("Plan #2 #03", Some(("Plan #2", "3"))),
            ("Plan #2\n", Some(("Plan", "2"))),
            (" #5", Some(("", "5"))),
            ("Plan # 2", None),
            ("Plan#2", None),
            ("Plan #", None),
            ("Plan #2x", None),
            ("Plan #2\n\n", None),
            ("two\nlines #2", None),
        ] {
            let found = split(title);
            assert_eq!(
                found.as_ref().map(|(base, number)| (*base, number.to_string())),
                split_at.map(|(base, number)| (base, number.to_owned())),
                "{title:?}"
            );
        }
    }
}
