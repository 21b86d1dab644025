//! Numbers as SQLite writes and reads them in text, and the server's decimal numbers.

use crate::value::Value;

/// Digits after which SQLite writes a real with an exponent.
const MOST_DIGITS: i32 = 17;

/// A real as text, as SQLite casts it: the shortest digits that read as the same number, with a point in any case.
pub(super) fn real_text(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "Inf".to_owned() } else { "-Inf".to_owned() };
    }
    if number == 0.0 {
        return "0.0".to_owned();
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..MOST_DIGITS).contains(&power) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let point = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{point}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}

/// The number that text reads as under SQLite's numeric affinity, which takes the whole text or nothing.
pub(super) fn parse_number(text: &str) -> Option<Value> {
    let text = text.trim_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let well_formed = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    // Excludes what Rust reads beyond this, such as `inf`, and an exponent without a number before it.
    if !well_formed || !text.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match text.parse::<i64>() {
        Ok(number) => Some(Value::Integer(number)),
        Err(_) => text.parse::<f64>().ok().map(Value::Real),
    }
}

/// The server's `numeric` in its binary form: digits to the base 10000. Whole numbers without decimals that fit are
/// integers, as sums of integers are; everything else is a real, as averages are in SQLite.
pub(super) fn numeric(raw: &[u8]) -> Option<Value> {
    let mut words = raw.chunks(2).map(|pair| Some(u16::from_be_bytes(pair.try_into().ok()?)));
    let mut word = || words.next().flatten();
    let (count, weight, sign, scale) = (word()?, word()?, word()?, word()?);
    match sign {
        0xC000 => return Some(Value::Null),
        0xD000 => return Some(Value::Real(f64::INFINITY)),
        0xF000 => return Some(Value::Real(f64::NEG_INFINITY)),
        _ => {}
    }
    // Written out as digits and a power of ten, which parsing rounds once and correctly.
    let mut text = String::from(if sign == 0x4000 { "-" } else { "" });
    for _ in 0..count {
        text.push_str(&format!("{:04}", word()?));
    }
    let power = 4 * (i32::from(weight.cast_signed()) + 1 - i32::from(count));
    if count == 0 {
        text.push('0');
    }
    if scale == 0 && (0..=20).contains(&power) {
        let whole = format!("{text}{}", "0".repeat(power as usize));
        if let Ok(number) = whole.parse::<i64>() {
            return Some(Value::Integer(number));
        }
    }
    if scale == 0 && count == 0 {
        return Some(Value::Integer(0));
    }
    format!("{text}e{power}").parse().ok().map(Value::Real)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What SQLite itself makes of a value.
    fn sqlite(sql: &str, value: &dyn rusqlite::ToSql) -> rusqlite::types::Value {
        rusqlite::Connection::open_in_memory().unwrap().query_row(sql, [value], |row| row.get(0)).unwrap()
    }

    #[test]
    fn reals_read_as_sqlite_writes_them() {
        let reals = [
            5.0,
            0.0,
            -0.0,
            0.1,
            0.30000000000000004,
            -2.5,
            1e15,
            1e16,
            1e17,
            1e100,
            1.5e300,
            1e-4,
            1e-5,
            1.25e-7,
            1700000000.1234567,
            123456789012345678.0,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ];
        for real in reals {
            let theirs = sqlite("SELECT CAST(?1 AS TEXT)", &real);
            assert_eq!(rusqlite::types::Value::Text(real_text(real)), theirs, "{real:?}");
        }
    }

    #[test]
    fn text_reads_as_the_number_that_sqlite_would_store() {
        for text in [
            "5",
            " 5 ",
            "5.0",
            "5.5",
            "-7",
            "+7",
            "1e3",
            "1E-2",
            ".5",
            "5.",
            "0x10",
            "abc",
            "",
            " ",
            "5a",
            "inf",
            "nan",
            "9223372036854775807",
            "1_000",
            "--5",
            "1e",
            "e5",
            ".",
            "+",
            "\t5\n",
            "5\u{a0}",
            "٣",
        ] {
            let theirs = rusqlite::Connection::open_in_memory()
                .and_then(|connection| {
                    connection.execute_batch("CREATE TABLE t (n NUMERIC)")?;
                    connection.execute("INSERT INTO t VALUES (?1)", [text])?;
                    connection.query_row("SELECT n FROM t", [], |row| row.get::<_, rusqlite::types::Value>(0))
                })
                .unwrap();
            // SQLite makes whole reals integers here; what kind of number it is, the column decides on the server.
            let ours = parse_number(text).and_then(|number| number.as_f64());
            match theirs {
                rusqlite::types::Value::Integer(number) => assert_eq!(ours, Some(number as f64), "{text:?}"),
                rusqlite::types::Value::Real(number) => assert_eq!(ours, Some(number), "{text:?}"),
                _ => assert_eq!(ours, None, "{text:?}"),
            }
        }
    }
}
