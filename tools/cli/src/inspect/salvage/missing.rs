//! Rows of a damaged table for a load, and what is missing between them.

use super::spool::Spool;
use crate::exit::Failure;
use crate::types::{Form, RowTypes};
use foreshore::{ListedTable, PageId, Salvage, Salvaged};
use serde_json::{Value as Json, json};

/// A key and its value, encoded.
type Row = (Vec<u8>, Vec<u8>);

/// The readable rows of a table.
pub(super) struct Rows<'a> {
    salvage: Salvage<'a>,
    types: RowTypes,
    is_over: bool,
    /// The error that ended the iteration.
    error: Option<Failure>,
    /// The key of the last row.
    last: Option<Vec<u8>>,
    spool: &'a mut Spool,
    missing: u64,
    /// Whether no row has been found behind the last gap.
    is_open: bool,
}

impl<'a> Rows<'a> {
    pub(super) fn new(salvage: Salvage<'a>, table: &ListedTable, spool: &'a mut Spool) -> Self {
        let types = RowTypes::new(&table.key_type, &table.value_type, Form::Hex);
        Self { salvage, types, is_over: false, error: None, last: None, spool, missing: 0, is_open: false }
    }

    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns how many gaps and lost values were found.
    pub(super) const fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns rows of up to `bytes` bytes beside the last one.
    pub(super) fn next_part(&mut self, bytes: usize) -> impl Iterator<Item = Row> {
        let mut left = Some(bytes);
        std::iter::from_fn(move || {
            let part = left?;
            let row = self.row().unwrap_or_else(|error| {
                (self.error, self.is_over) = (Some(error), true);
                None
            });
            left = row.as_ref().and_then(|(key, value)| part.checked_sub(key.len() + value.len()));
            row
        })
    }

    /// Returns the error that ended the rows, if one did.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.error.take().map_or(Ok(()), Err)
    }

    fn row(&mut self) -> Result<Option<Row>, Failure> {
        loop {
            match self.salvage.next().transpose()? {
                Some(Salvaged::Row { key, value }) => {
                    self.found(Some(&key))?;
                    self.last = Some(key.clone());
                    return Ok(Some((key, value)));
                }
                Some(Salvaged::LostValue { key, page, why }) => {
                    self.found(Some(&key))?;
                    self.add(page, why, (Some(&key), None))?;
                    self.last = Some(key);
                }
                Some(Salvaged::LostKeys { page, why, .. }) => {
                    let last = self.last.take();
                    self.add(page, why, (None, last.as_deref()))?;
                    (self.last, self.is_open) = (last, true);
                }
                Some(_) => {}
                None => {
                    self.is_over = true;
                    self.found(None)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Adds a lost row, or a gap behind a key.
    fn add(&mut self, page: PageId, why: &str, (row, after): (Option<&[u8]>, Option<&[u8]>)) -> Result<(), Failure> {
        let [row, after] = [row, after].map(|key| key.map(|key| self.types.key(key)));
        self.missing += 1;
        self.spool.gap(&json!({ "page": page.0, "why": why, "key": row, "after": after }))
    }

    /// Ends the gaps before a key, or at the end of the table.
    fn found(&mut self, key: Option<&[u8]>) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_open) {
            self.spool.end_gaps(key.map(|key| self.types.key(key)))?;
        }
        Ok(())
    }
}

/// Returns what is missing as a line.
pub(super) fn line(missing: &Json) -> String {
    let [row, after, before] = ["key", "after", "before"].map(|of| Some(&missing[of]).filter(|key| !key.is_null()));
    let what = match (row, after, before) {
        (Some(key), ..) => format!("the row {key} is missing"),
        (None, None, None) => "all rows are missing".to_owned(),
        (None, Some(after), None) => format!("rows after {after} are missing"),
        (None, None, Some(before)) => format!("rows before {before} are missing"),
        (None, Some(after), Some(before)) => format!("rows after {after} and before {before} are missing"),
    };
    format!("page {}: {what}: {}", missing["page"], missing["why"].as_str().unwrap_or_default())
}
