//! Rows as cells, for CSV.

use super::form::Form;
use super::name::{Scalar, Type};
use super::{decode, encode};
use serde_json::Value as Json;

/// The text of a cell; `None` is the null of an option.
pub(crate) type Cell = Option<String>;

/// The columns of a table. A key or a value is one cell, and a tuple one for each part.
#[derive(Debug)]
pub(crate) struct Columns {
    key: Side,
    value: Side,
    form: Form,
}

/// The key or the value.
#[derive(Debug)]
struct Side {
    of: Type,
    is_key: bool,
}

impl Columns {
    /// Returns the columns of a table, if its types are ones with a form as cells: options of options have none, nor
    /// tuples within others, nor types of applications.
    pub(crate) fn of(key_type: &str, value_type: &str, form: Form) -> Option<Self> {
        let side = |name, is_key| Type::of(name).filter(has_cells).map(|of| Side { of, is_key });
        Some(Self { key: side(key_type, true)?, value: side(value_type, false)?, form })
    }

    /// Returns the names of the columns.
    pub(crate) fn names(&self) -> Vec<String> {
        let part = |name: &str, count: Option<usize>| match count {
            None => vec![name.to_owned()],
            Some(count) => (0..count).map(|at| format!("{name}.{at}")).collect(),
        };
        [part("key", self.key.parts()), part("value", self.value.parts())].concat()
    }

    /// Returns the cells of a row. `None` if it does not decode.
    pub(crate) fn show(&self, key: &[u8], value: &[u8]) -> Option<Vec<Cell>> {
        Some([self.key.show(key, self.form)?, self.value.show(value, self.form)?].concat())
    }

    /// Encodes cells as key and value.
    pub(crate) fn read(&self, mut cells: Vec<Cell>) -> Result<(Vec<u8>, Vec<u8>), String> {
        let (key, value) = (self.key.width(), self.value.width());
        if cells.len() != key + value {
            return Err(format!("expected {} cells, not {}", key + value, cells.len()));
        }
        let value = cells.split_off(key);
        Ok((self.key.read(cells, self.form)?, self.value.read(value, self.form)?))
    }
}

impl Side {
    /// Returns the number of parts, if it has several cells, or none.
    fn parts(&self) -> Option<usize> {
        match &self.of {
            Type::Tuple(parts) => Some(parts.len()),
            Type::Scalar(Scalar::Unit) => Some(0),
            _ => None,
        }
    }

    fn width(&self) -> usize {
        self.parts().unwrap_or(1)
    }

    fn show(&self, bytes: &[u8], form: Form) -> Option<Vec<Cell>> {
        let cell = |json: Json| match json {
            Json::Null => None,
            Json::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        Some(match decode::decode(&self.of, bytes, self.is_key, form)? {
            Json::Array(parts) => parts.into_iter().map(cell).collect(),
            json => vec![cell(json)],
        })
    }

    fn read(&self, cells: Vec<Cell>, form: Form) -> Result<Vec<u8>, String> {
        let part = |of: &Type, cell: Cell| match cell {
            Some(text) => Json::String(text),
            // Other programs do not quote empty text.
            None if !of.may_be_null() => Json::String(String::new()),
            None => Json::Null,
        };
        let json = match &self.of {
            Type::Tuple(parts) => parts.iter().zip(cells).map(|(of, cell)| part(of, cell)).collect(),
            Type::Scalar(Scalar::Unit) => Json::Array(Vec::new()),
            of => part(of, cells.into_iter().next().flatten()),
        };
        encode::whole(&self.of, &json, self.is_key, form)
    }
}

/// Whether a type is one cell, or a tuple of such types.
fn has_cells(of: &Type) -> bool {
    match of {
        Type::Tuple(parts) => parts.iter().all(is_cell),
        Type::Scalar(Scalar::Unit) => true,
        of => is_cell(of),
    }
}

fn is_cell(of: &Type) -> bool {
    match of {
        Type::Scalar(of) => *of != Scalar::Unit,
        Type::Str | Type::Bytes | Type::Array(_) => true,
        Type::Option(inner) => !inner.may_be_null() && is_cell(inner),
        Type::Reverse(inner) => is_cell(inner),
        Type::Tuple(_) => false,
    }
}
