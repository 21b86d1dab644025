//! Turns the parameters of a statement from `?1` into PostgreSQL's `$1`.

use std::borrow::Cow;

/// The statement with `$1` for `?1`, outside of quotes and comments. A `?` without a number is left: it is an operator.
pub(crate) fn translate(sql: &str) -> Cow<'_, str> {
    let bytes = sql.as_bytes();
    if !bytes.contains(&b'?') {
        return Cow::Borrowed(sql);
    }
    let mut translated = String::with_capacity(sql.len());
    let mut kept = 0;
    let mut at = 0;
    while at < bytes.len() {
        at = match bytes[at] {
            b'?' if bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {
                translated.push_str(&sql[kept..at]);
                translated.push('$');
                kept = at + 1;
                at + 1
            }
            // A doubled quote ends one quotation and begins the next, which comes to the same.
            quote @ (b'\'' | b'"') => behind(sql, at + 1, if quote == b'"' { "\"" } else { "'" }),
            b'-' if bytes.get(at + 1) == Some(&b'-') => behind(sql, at + 2, "\n"),
            b'/' if bytes.get(at + 1) == Some(&b'*') => behind(sql, at + 2, "*/"),
            b'$' => match dollar_tag(&sql[at..]) {
                Some(tag) => behind(sql, at + tag.len(), tag),
                None => at + 1,
            },
            _ => at + 1,
        };
    }
    translated.push_str(&sql[kept..]);
    Cow::Owned(translated)
}

/// The place behind the next `end`, or the end of the statement.
fn behind(sql: &str, from: usize, end: &str) -> usize {
    sql[from..].find(end).map_or(sql.len(), |found| from + found + end.len())
}

/// `$$` or `$tag$` at the beginning of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let inside = text[1..].find('$')?;
    let tag = &text[1..=inside];
    let plain = tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (plain && !tag.bytes().next().is_some_and(|byte| byte.is_ascii_digit())).then(|| &text[..inside + 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_translated_and_nothing_else() {
        for (ours, theirs) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT ?1, ?12", "SELECT $1, $12"),
            ("?1", "$1"),
            ("a = ?1 AND b = '?2' AND \"?3\" = ?4", "a = $1 AND b = '?2' AND \"?3\" = $4"),
            ("'it''s ?1' || ?2", "'it''s ?1' || $2"),
            ("j ? 'k' AND j ?| ?1", "j ? 'k' AND j ?| $1"),
            ("-- ?1\n?2 /* ?3 */ ?4", "-- ?1\n$2 /* ?3 */ $4"),
            ("$$ ?1 $$ ?2", "$$ ?1 $$ $2"),
            ("$f$ ?1 $$ ' $f$ ?2", "$f$ ?1 $$ ' $f$ $2"),
            ("$1 + ?2 + $3", "$1 + $2 + $3"),
            ("'ä?1' || ?2 || 'é", "'ä?1' || $2 || 'é"),
            ("?", "?"),
        ] {
            assert_eq!(translate(ours), theirs);
        }
        assert!(matches!(translate("SELECT 1"), Cow::Borrowed(_)));
    }
}
