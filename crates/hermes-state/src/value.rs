//! The values and rows that cross the border between operations and a backend: neutral of any database driver.

use std::fmt;
use std::sync::Arc;

/// One column value, in the five storage classes that every backend knows.
///
/// ```
/// use hermes_state::Value;
/// assert_eq!(Value::from("text"), Value::Text("text".into()));
/// assert_eq!(Value::from(None::<i64>), Value::Null);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// SQL NULL.
    #[default]
    Null,
    /// A signed 64-bit integer.
    Integer(i64),
    /// A double.
    Real(f64),
    /// Text, which may hold NUL characters.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl Value {
    /// The text, if this is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if this is one.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The number as a double, if this is an integer or a real.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Real(number) => Some(*number),
            _ => None,
        }
    }

    /// How many bytes of content it holds.
    pub(crate) fn size(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            _ => 8,
        }
    }

    /// Whether this is NULL.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Whether the contract counts this as falsy: NULL, zero, empty text, empty bytes.
    #[must_use]
    pub fn is_falsy(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Integer(number) => *number == 0,
            Value::Real(number) => *number == 0.0,
            Value::Text(text) => text.is_empty(),
            Value::Blob(bytes) => bytes.is_empty(),
        }
    }
}

impl Value {
    /// Adds the value in bytes, so that different values differ.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        let mut long = |tag: u8, content: &[u8]| {
            bytes.push(tag);
            bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
            bytes.extend_from_slice(content);
        };
        match self {
            Value::Null => bytes.push(0),
            Value::Integer(number) => {
                bytes.push(1);
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            // A file stores whole reals as integers and so has no negative zero.
            Value::Real(number) => {
                bytes.push(2);
                bytes.extend_from_slice(&(number + 0.0).to_bits().to_le_bytes());
            }
            Value::Text(text) => long(3, text.as_bytes()),
            Value::Blob(blob) => long(4, blob),
        }
    }
}

/// Values as something that can be compared and looked up.
pub(crate) fn identity(values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| value.put(&mut bytes));
    bytes
}

macro_rules! value_from {
    ($($from:ty => |$v:ident| $to:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($v: $from) -> Self { $to }
        }
    )*};
}
value_from! {
    &str => |v| Value::Text(v.to_owned());
    String => |v| Value::Text(v);
    &String => |v| Value::Text(v.clone());
    i64 => |v| Value::Integer(v);
    i32 => |v| Value::Integer(v.into());
    u32 => |v| Value::Integer(v.into());
    bool => |v| Value::Integer(v.into());
    f64 => |v| Value::Real(v);
    Vec<u8> => |v| Value::Blob(v);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Builder methods that each take over one column's value.
macro_rules! value_setters {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, value: impl Into<Value>) -> Self {
            self.$name = value.into();
            self
        }
    )*};
}
pub(crate) use value_setters;

/// The column names of a result, shared by all its rows.
pub type Columns = Arc<[Box<str>]>;

/// A row with its column names, in the order in which the live table has them.
///
/// Tables of files from older releases have their columns in another order, and may have extra ones; a record carries
/// whatever the table has, and is read by name.
#[derive(Clone, PartialEq)]
pub struct Record {
    columns: Columns,
    values: Vec<Value>,
}

impl Record {
    /// A record of these columns; both sides must have the same length.
    #[must_use]
    pub fn new(columns: Columns, values: Vec<Value>) -> Self {
        debug_assert_eq!(columns.len(), values.len());
        Self { columns, values }
    }

    /// The rows of one result without this column, and what they have in it: NULL where there is no such column.
    pub(crate) fn split_off(column: &str, rows: Vec<Self>) -> (Vec<Self>, Vec<Value>) {
        let columns = rows.first().map_or_else(|| Vec::new().into(), |row| row.columns.clone());
        let Some(place) = columns.iter().position(|name| &**name == column) else {
            let nothing = vec![Value::Null; rows.len()];
            return (rows, nothing);
        };
        let left: Columns = columns.iter().filter(|name| &***name != column).cloned().collect();
        rows.into_iter()
            .map(|mut row| {
                let value = row.values.remove(place);
                (Self { columns: left.clone(), values: row.values }, value)
            })
            .unzip()
    }

    /// The record with one of its columns set, or added at the end.
    pub(crate) fn with(mut self, column: &str, value: Value) -> Self {
        if let Some(place) = self.columns.iter().position(|name| &**name == column) {
            self.values[place] = value;
        } else {
            self.columns = self.columns.iter().cloned().chain([column.into()]).collect();
            self.values.push(value);
        }
        self
    }

    /// The value of a column; `None` if the record has no such column.
    #[must_use]
    pub fn get(&self, column: &str) -> Option<&Value> {
        let index = self.columns.iter().position(|name| &**name == column)?;
        self.values.get(index)
    }

    /// The text of a column, `None` if it is absent, NULL or no text.
    #[must_use]
    pub fn text(&self, column: &str) -> Option<&str> {
        self.get(column)?.as_str()
    }

    /// The integer of a column, `None` if it is absent, NULL or no integer.
    #[must_use]
    pub fn integer(&self, column: &str) -> Option<i64> {
        self.get(column)?.as_i64()
    }

    /// The number of a column as a double, `None` if it is absent, NULL or no number.
    #[must_use]
    pub fn real(&self, column: &str) -> Option<f64> {
        self.get(column)?.as_f64()
    }

    /// The column names, in order.
    #[must_use]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The values, in the order of the columns.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Names and values in column order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.columns.iter().map(|name| &**name).zip(&self.values)
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
