//! Rows of a damaged table for a load, and a list of what is missing between them.

use crate::exit::Failure;
use crate::types::{Form, RowTypes};
use foreshore::{Error, ListedTable, PageId, Salvage, Salvaged};
use serde_json::{Value as Json, json};

/// The readable rows of a table.
pub(super) struct Rows<'tx> {
    salvage: Salvage<'tx>,
    types: RowTypes,
    is_over: bool,
    /// The error that ended the iteration.
    error: Option<Error>,
    /// The key of the last row.
    last: Option<Vec<u8>>,
    missing: Vec<Missing>,
    /// Those at the end of `missing` behind which no row has been found.
    open: usize,
}

/// Rows that cannot be read.
struct Missing {
    page: PageId,
    why: &'static str,
    keys: Keys,
}

enum Keys {
    /// The row of this key.
    One(Vec<u8>),
    /// All rows between two that were read. `None` stands for the ends of the table.
    Between(Option<Vec<u8>>, Option<Vec<u8>>),
}

impl<'tx> Rows<'tx> {
    pub(super) fn new(salvage: Salvage<'tx>, table: &ListedTable) -> Self {
        let types = RowTypes::new(&table.key_type, &table.value_type, Form::Hex);
        Self { salvage, types, is_over: false, error: None, last: None, missing: Vec::new(), open: 0 }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns rows of up to `bytes` bytes beside the last one.
    pub(super) fn next_part(&mut self, bytes: usize) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
        let mut left = Some(bytes);
        std::iter::from_fn(move || {
            let part = left?;
            let row = self.row();
            left = row.as_ref().and_then(|(key, value)| part.checked_sub(key.len() + value.len()));
            row
        })
    }

    /// Returns the error that ended the rows, if one did.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.error.take().map_or(Ok(()), |error| Err(error.into()))
    }

    fn row(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        loop {
            match self.salvage.next() {
                Some(Ok(Salvaged::Row { key, value })) => {
                    self.found(&key);
                    self.last = Some(key.clone());
                    return Some((key, value));
                }
                Some(Ok(Salvaged::LostValue { key, page, why })) => {
                    self.found(&key);
                    self.missing.push(Missing { page, why, keys: Keys::One(key.clone()) });
                    self.last = Some(key);
                }
                Some(Ok(Salvaged::LostKeys { page, why, .. })) => {
                    self.missing.push(Missing { page, why, keys: Keys::Between(self.last.clone(), None) });
                    self.open += 1;
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    (self.error, self.is_over) = (Some(error), true);
                    return None;
                }
                None => {
                    self.is_over = true;
                    return None;
                }
            }
        }
    }

    /// Ends the gaps before a key.
    fn found(&mut self, key: &[u8]) {
        let first = self.missing.len() - self.open;
        for missing in &mut self.missing[first..] {
            if let Keys::Between(_, before) = &mut missing.keys {
                *before = Some(key.to_vec());
            }
        }
        self.open = 0;
    }

    /// Returns what is missing, as objects and as lines.
    pub(super) fn missing(&self) -> (Vec<Json>, Vec<String>) {
        let key = |key: &Option<Vec<u8>>| key.as_deref().map(|key| self.types.key(key));
        let both = |missing: &Missing| {
            let Missing { page, why, keys } = missing;
            let (row, after, before) = match keys {
                Keys::One(one) => (Some(self.types.key(one)), None, None),
                Keys::Between(after, before) => (None, key(after), key(before)),
            };
            let line = match (&row, &after, &before) {
                (Some(key), ..) => format!("the row {key} is missing"),
                (None, None, None) => "all rows are missing".to_owned(),
                (None, Some(after), None) => format!("rows after {after} are missing"),
                (None, None, Some(before)) => format!("rows before {before} are missing"),
                (None, Some(after), Some(before)) => format!("rows after {after} and before {before} are missing"),
            };
            let json = json!({ "page": page.0, "why": why, "key": row, "after": after, "before": before });
            (json, format!("page {}: {line}: {why}", page.0))
        };
        self.missing.iter().map(both).unzip()
    }
}
