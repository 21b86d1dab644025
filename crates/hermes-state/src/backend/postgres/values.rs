//! Values on their way to the server and back: types as SQLite's column affinity takes them, and text that the server
//! cannot hold.
//!
//! A column of the server has one type and cannot hold anything else, where SQLite's have an affinity: so a value is
//! converted to the type that the statement has for its parameter, in the way in which SQLite converts on storing. What
//! SQLite would store unconverted in a numeric column is refused as [`Unfit`].
//!
//! # Text
//!
//! The server's text is UTF-8 without NUL, and a column of text holds no bytes. Three noncharacters, which by
//! definition stand in no text that is exchanged, make room. With `N` = U+10FFFE, `E` = U+10FFFF, `F` = U+FFFFF:
//!
//! | value | in the column |
//! |---|---|
//! | NUL | `N` |
//! | `N`, `E`, `F` themselves | `EEEF`, `EEFF`, `EFFF` |
//! | bytes in a column of text | `Eb` and the bytes in small hexadecimal digits |
//! | every other character | itself |
//!
//! So a text without these four characters is stored as it is, and each value comes back as it was. Texts keep their
//! length in characters, the noncharacters aside. And a text is found in another if and only if its stored form is
//! found in the other's: the three groups of four are a comma-free code (none occurs across the border of two others),
//! and their characters stand for nothing else. Bytes are found by their digits only. Comparing for order differs from
//! SQLite in one point: NUL comes last, not first.

use std::borrow::Cow;
use std::error::Error as StdError;

use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::numbers::{numeric, parse_number, real_text};
use crate::value::Value;

type Boxed = Box<dyn StdError + Sync + Send>;

pub(in crate::backend::postgres) const NUL: char = '\u{10FFFE}';
const ESCAPE: char = '\u{10FFFF}';
const FILL: char = '\u{FFFFF}';
/// What stands for the noncharacters themselves; see the module's text before touching it.
const CODE: [(char, [char; 4]); 3] =
    [(NUL, [ESCAPE, ESCAPE, ESCAPE, FILL]), (ESCAPE, [ESCAPE, ESCAPE, FILL, FILL]), (FILL, [ESCAPE, FILL, FILL, FILL])];
/// UTF-8 of the three noncharacters begins with bytes from this one on; little else does.
const LEAD: u8 = 0xF3;
/// SQLite's default limit; the server's own is a little higher, and exceeding it costs the connection.
const LONGEST: usize = 1_000_000_000;

/// Why a value cannot be what the statement has it as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// A parameter cannot be converted.
    #[error("datatype mismatch: {0}")]
    Parameter(String),
    /// A parameter is longer than the server takes.
    #[error("string or blob too big")]
    TooBig,
    /// A column has a type that has no counterpart here.
    #[error("a column of type {0} cannot be read")]
    Column(String),
}

/// Text as a column of text holds it.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == 0 || byte >= LEAD) {
        return Cow::Borrowed(text);
    }
    let mut encoded = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match CODE.iter().find(|(plain, _)| *plain == char) {
            Some((_, group)) => encoded.extend(group),
            None if char == '\0' => encoded.push(NUL),
            None => encoded.push(char),
        }
    }
    Cow::Owned(encoded)
}

/// Bytes as a column of text holds them.
fn encode_bytes(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut encoded = String::with_capacity(5 + 2 * bytes.len());
    encoded.push(ESCAPE);
    encoded.push('b');
    for byte in bytes {
        encoded.push(char::from(DIGITS[usize::from(byte >> 4)]));
        encoded.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    encoded
}

fn decode_bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(ESCAPE)?.strip_prefix('b')?.as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    digits.chunks(2).map(|pair| Some(value(pair[0])? << 4 | value(*pair.get(1)?)?)).collect()
}

/// The value that a column of text holds. What was never encoded, or cut in the middle of a group, stays as it is.
pub(crate) fn decode(text: &str) -> Value {
    if !text.bytes().any(|byte| byte >= LEAD) {
        return Value::Text(text.to_owned());
    }
    if let Some(bytes) = decode_bytes(text) {
        return Value::Blob(bytes);
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.clone().next() {
        let group = CODE.iter().find(|(_, group)| rest.clone().take(4).eq(group.iter().copied()));
        let taken = match (group, char) {
            (Some((plain, group)), _) => {
                decoded.push(*plain);
                group.len()
            }
            (None, NUL) => {
                decoded.push('\0');
                1
            }
            (None, char) => {
                decoded.push(char);
                1
            }
        };
        rest.nth(taken - 1);
    }
    Value::Text(decoded)
}

/// A value as the parameter of a statement.
#[derive(Debug)]
pub(crate) struct Bound<'a>(pub(crate) &'a Value);

/// The kinds of type that parameters are told apart by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Real,
    Bool,
    Bytes,
    Uuid,
    /// Everything else goes as text, which the server reads as it reads a literal.
    Literal,
}

fn kind(ty: &Type) -> Kind {
    match *ty {
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => Kind::Text,
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID => Kind::Integer,
        Type::FLOAT4 | Type::FLOAT8 => Kind::Real,
        Type::BOOL => Kind::Bool,
        // The words of a message come in the server's own form.
        Type::BYTEA | Type::TS_VECTOR => Kind::Bytes,
        Type::UUID => Kind::Uuid,
        _ => Kind::Literal,
    }
}

fn unfit(value: &Value, ty: &Type) -> Boxed {
    let what = match value {
        Value::Null => "NULL",
        Value::Integer(_) => "an integer",
        Value::Real(_) => "a real",
        Value::Text(_) => "text",
        Value::Blob(_) => "a blob",
    };
    Box::new(Unfit::Parameter(format!("{what} of this value cannot be stored as {}", ty.name())))
}

/// The number that SQLite's numeric affinity makes of a value.
fn number(value: &Value) -> Option<Value> {
    match value {
        Value::Integer(_) | Value::Real(_) => Some(value.clone()),
        Value::Text(text) => parse_number(text),
        Value::Null | Value::Blob(_) => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match number(value)? {
        Value::Integer(number) => Some(number),
        // Both bounds are exact as doubles: -2^63 is the least integer, 2^63 the first that is none.
        Value::Real(number) if number.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(63)).contains(&number) => {
            Some(number as i64)
        }
        _ => None,
    }
}

fn put_text(out: &mut BytesMut, text: &str) -> Result<IsNull, Boxed> {
    if text.len() > LONGEST {
        return Err(Box::new(Unfit::TooBig));
    }
    out.extend_from_slice(text.as_bytes());
    Ok(IsNull::No)
}

impl Bound<'_> {
    fn put_integer(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        let refused = || unfit(self.0, ty);
        let number = integer(self.0).ok_or_else(refused)?;
        match *ty {
            Type::INT2 => out.extend_from_slice(&i16::try_from(number).map_err(|_| refused())?.to_be_bytes()),
            Type::INT4 => out.extend_from_slice(&i32::try_from(number).map_err(|_| refused())?.to_be_bytes()),
            Type::OID => out.extend_from_slice(&u32::try_from(number).map_err(|_| refused())?.to_be_bytes()),
            _ => out.extend_from_slice(&number.to_be_bytes()),
        }
        Ok(IsNull::No)
    }

    fn put_real(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        let number = number(self.0).and_then(|number| number.as_f64()).ok_or_else(|| unfit(self.0, ty))?;
        match *ty {
            Type::FLOAT4 => out.extend_from_slice(&(number as f32).to_be_bytes()),
            _ => out.extend_from_slice(&number.to_be_bytes()),
        }
        Ok(IsNull::No)
    }

    fn put_as_text(&self, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Integer(number) => put_text(out, &number.to_string()),
            Value::Real(number) => put_text(out, &real_text(*number)),
            Value::Text(text) => put_text(out, &encode(text)),
            Value::Blob(bytes) if bytes.len() > LONGEST / 2 - 8 => Err(Box::new(Unfit::TooBig)),
            Value::Blob(bytes) => put_text(out, &encode_bytes(bytes)),
        }
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Boxed> {
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            // SQLite has no NaN: it stores NULL.
            Value::Real(number) if number.is_nan() => return Ok(IsNull::Yes),
            _ => {}
        }
        match kind(ty) {
            Kind::Text => self.put_as_text(out),
            Kind::Integer => self.put_integer(ty, out),
            Kind::Real => self.put_real(ty, out),
            Kind::Bool => {
                let number = number(self.0).and_then(|number| number.as_f64()).ok_or_else(|| unfit(self.0, ty))?;
                out.extend_from_slice(&[u8::from(number != 0.0)]);
                Ok(IsNull::No)
            }
            Kind::Bytes => {
                let bytes = match self.0 {
                    Value::Blob(bytes) => bytes.as_slice(),
                    Value::Text(text) => text.as_bytes(),
                    _ => return Err(unfit(self.0, ty)),
                };
                if bytes.len() > LONGEST {
                    return Err(Box::new(Unfit::TooBig));
                }
                out.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            Kind::Uuid => {
                let id = match self.0 {
                    Value::Text(text) => uuid::Uuid::parse_str(text).ok(),
                    Value::Blob(bytes) => uuid::Uuid::from_slice(bytes).ok(),
                    _ => None,
                };
                out.extend_from_slice(id.ok_or_else(|| unfit(self.0, ty))?.as_bytes());
                Ok(IsNull::No)
            }
            Kind::Literal if matches!(self.0, Value::Blob(_)) => Err(unfit(self.0, ty)),
            Kind::Literal => self.put_as_text(out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, ty: &Type) -> Format {
        if kind(ty) == Kind::Literal { Format::Text } else { Format::Binary }
    }

    to_sql_checked!();
}

/// A column of a result.
struct Column(Value);

fn fixed<const N: usize>(raw: &[u8], ty: &Type) -> Result<[u8; N], Boxed> {
    raw.try_into().map_err(|_| -> Boxed { Box::new(Unfit::Column(ty.name().to_owned())) })
}

impl<'a> FromSql<'a> for Column {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Boxed> {
        Ok(Self(match *ty {
            Type::INT2 => Value::Integer(i16::from_be_bytes(fixed(raw, ty)?).into()),
            Type::INT4 => Value::Integer(i32::from_be_bytes(fixed(raw, ty)?).into()),
            Type::INT8 => Value::Integer(i64::from_be_bytes(fixed(raw, ty)?)),
            Type::OID => Value::Integer(u32::from_be_bytes(fixed(raw, ty)?).into()),
            Type::FLOAT4 => Value::Real(f32::from_be_bytes(fixed(raw, ty)?).into()),
            Type::FLOAT8 => Value::Real(f64::from_be_bytes(fixed(raw, ty)?)),
            Type::BOOL => Value::Integer(i64::from(fixed::<1>(raw, ty)?[0] != 0)),
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::JSON | Type::UNKNOWN => {
                decode(std::str::from_utf8(raw)?)
            }
            Type::BYTEA => Value::Blob(raw.to_owned()),
            Type::NUMERIC => numeric(raw).ok_or_else(|| Box::new(Unfit::Column(ty.name().to_owned())))?,
            Type::UUID => Value::Text(uuid::Uuid::from_bytes(fixed(raw, ty)?).to_string()),
            Type::VOID => Value::Null,
            _ => return Err(Box::new(Unfit::Column(ty.name().to_owned()))),
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Boxed> {
        Ok(Self(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The values of a row, in the order of its columns.
pub(crate) fn row_values(row: &Row) -> Result<Vec<Value>, tokio_postgres::Error> {
    (0..row.len()).map(|index| row.try_get::<_, Column>(index).map(|column| column.0)).collect()
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
