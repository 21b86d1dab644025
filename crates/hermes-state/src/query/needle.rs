//! Text that people look for, as conditions on columns: found wherever it stands, case ignored in every script.
//!
//! What an engine's own LIKE, LOWER and collations make of case differs. LOWER is used for ASCII only, where all agree;
//! beyond it just those letters are replaced in the column that the text at hand could meet.

use std::sync::OnceLock;

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use super::pattern::{bounded, like_literal};
use crate::blank;
use crate::error::Result;
use crate::statement::Statement;

/// A text in the form in which it is compared.
pub(crate) struct Needle {
    folded: String,
    /// Placeholders of the letters that stand for one of the text's in other case: what is replaced, and by what.
    replaced: Vec<(String, String)>,
}

impl Needle {
    /// The text without blanks at its ends; `None` if nothing is left.
    pub(crate) fn of_query(statement: &mut Statement, text: Option<&str>) -> Option<Self> {
        text.map(blank::trim).filter(|text| !text.is_empty()).map(|text| Self::new(statement, text))
    }

    /// The text as it is.
    pub(crate) fn new(statement: &mut Statement, text: &str) -> Self {
        let folded: String = text.chars().flat_map(fold).collect();
        let meets = |other: &&(char, String)| other.1.chars().any(|character| folded.contains(character));
        let replaced = cased()
            .iter()
            .filter(meets)
            .map(|(from, to)| (statement.bind(from.to_string()), statement.bind(to)))
            .collect();
        Self { folded, replaced }
    }

    /// The column in the form in which it is compared.
    fn column(&self, column: &str) -> String {
        let lowered = format!("LOWER({column})");
        self.replaced.iter().fold(lowered, |inner, (from, to)| format!("REPLACE({inner}, {from}, {to})"))
    }

    /// The column is the text.
    pub(crate) fn equals(&self, statement: &mut Statement, column: &str) -> String {
        format!("{} = {}", self.column(column), statement.bind(&self.folded))
    }

    /// The column begins with the text.
    pub(crate) fn begins(&self, statement: &mut Statement, column: &str) -> Result<String> {
        like(statement, &self.column(column), format!("{}%", like_literal(&self.folded)))
    }

    /// The text stands in the column.
    pub(crate) fn within(&self, statement: &mut Statement, column: &str) -> Result<String> {
        like(statement, &self.column(column), format!("%{}%", like_literal(&self.folded)))
    }

    /// The letters and digits of the text stand in the column, whatever joins its words; `None` if there are none.
    pub(crate) fn within_squeezed(&self, statement: &mut Statement, column: &str) -> Result<Option<String>> {
        let says_something = |character: &char| {
            let group = character.general_category_group();
            matches!(group, GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number)
        };
        let squeezed: String = self.folded.chars().filter(says_something).collect();
        if squeezed.is_empty() {
            return Ok(None);
        }
        let joints = ["-", "_", ".", " "];
        let column = joints.iter().fold(self.column(column), |inner, joint| format!("REPLACE({inner}, '{joint}', '')"));
        like(statement, &column, format!("%{}%", like_literal(&squeezed))).map(Some)
    }
}

/// The condition that a text matches a LIKE pattern.
fn like(statement: &mut Statement, text: &str, pattern: String) -> Result<String> {
    Ok(format!("{text} LIKE {} ESCAPE '\\'", statement.bind(bounded(pattern)?)))
}

/// The working folder is the given one, or one within it; `/` holds all absolute paths. Case counts for the folder
/// itself and is ignored, for ASCII, below it.
pub(crate) fn in_folder(statement: &mut Statement, column: &str, prefix: &str) -> Result<String> {
    let trimmed = prefix.trim_end_matches(['/', '\\']);
    let folder = if trimmed.is_empty() { prefix } else { trimmed };
    let exact = statement.bind(folder);
    let below = |statement: &mut Statement, separator: &str| {
        let separator = if trimmed.is_empty() { "" } else { separator };
        let pattern = format!("{}%", like_literal(&format!("{folder}{separator}")));
        like(statement, &format!("LOWER({column})"), pattern.to_ascii_lowercase())
    };
    let (unix, windows) = (below(statement, "/")?, below(statement, "\\")?);
    Ok(format!("({column} = {exact} OR {unix} OR {windows})"))
}

/// A character in lower case. Which of two sigmas a word ends with makes no difference.
fn fold(character: char) -> impl Iterator<Item = char> {
    character.to_lowercase().map(|lower| if lower == 'ς' { 'σ' } else { lower })
}

/// The characters beyond ASCII that are not compared as they are, and what they are compared as.
fn cased() -> &'static [(char, String)] {
    static CASED: OnceLock<Vec<(char, String)>> = OnceLock::new();
    CASED.get_or_init(|| {
        ('\u{80}'..=char::MAX)
            .map(|character| (character, fold(character).collect::<String>()))
            .filter(|(character, folded)| !folded.chars().eq([*character]))
            .collect()
    })
}
