//! What a database of two tables holds.

use crate::input::Input;
use foreshore::{Error, ReadTransaction, Result, TableDef};
use std::collections::BTreeMap;
use std::fmt;

/// The names of the tables.
pub const TABLES: [&str; 2] = ["first", "second"];

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The rows of both tables. A table that is not there counts as empty.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Model(pub [Rows; 2]);

/// Each row by the first byte of the key and the lengths, and the first byte of the value.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rows, table) in self.0.iter().zip(TABLES) {
            write!(f, "{table}:")?;
            for (key, value) in rows {
                write!(f, " {}/{}={:?}/{}", key[0], key.len(), value.first(), value.len())?;
            }
            f.write_str("; ")?;
        }
        Ok(())
    }
}

/// The tables.
#[must_use]
pub const fn tables() -> [TableDef<'static, &'static [u8], &'static [u8]>; 2] {
    [TableDef::new(TABLES[0]), TableDef::new(TABLES[1])]
}

/// A reader of both tables.
#[derive(Debug)]
pub struct Opened<'r>(pub &'r ReadTransaction);

impl Opened<'_> {
    /// Reads all rows from both ends.
    ///
    /// # Errors
    /// What reading met, but for tables that are not there.
    ///
    /// # Panics
    /// If the rows differ by direction.
    pub fn model(&self) -> Result<Model> {
        let mut model = Model::default();
        for (rows, def) in model.0.iter_mut().zip(tables()) {
            let table = match self.0.open(def) {
                Err(Error::NoTable { .. }) => continue,
                table => table?,
            };
            let up = table.iter().collect::<Result<Vec<_>>>()?;
            let down = table.iter().rev().collect::<Result<Vec<_>>>()?;
            assert!(up.iter().eq(down.iter().rev()), "rows differ by direction");
            rows.extend(up);
        }
        Ok(model)
    }
}

/// Few keys, of very different lengths.
pub fn key(input: &mut Input<'_>) -> Vec<u8> {
    let byte = input.byte();
    let mut key = vec![byte & 0x3F];
    key.resize(1 + [0, 3, 300, 980][usize::from(byte >> 6)], byte);
    key
}

/// Values of very different lengths.
pub fn value(input: &mut Input<'_>) -> Vec<u8> {
    let byte = input.byte();
    vec![byte; [0, 9, 200, 2000][usize::from(byte >> 6)]]
}
