//! Which records the transactions are about.

use super::values::{MANY, count, or_dash};
use crate::units::invalid;
use foreshore::{Error, Result};
use serde::Serialize;
use std::{fmt, str::FromStr};

/// Which records the operations of YCSB are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Some are hot, wherever they lie.
    Zipf,
    /// Those that were inserted last are hot.
    Latest,
}

names!(Distribution, "distribution", "uniform" => Uniform, "zipf" => Zipf, "latest" => Latest);

/// Number, size and choice of records. The scale says how many there are where these do not.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Records {
    /// Rows of the one table that all threads of `update` share; a table for each, of `scale` rows, if none.
    pub rows: Option<u64>,
    /// Bytes of a row of `update` and `queue`.
    pub row_bytes: usize,
    /// Rows of a transaction of `insert`.
    pub batch: u32,
    /// Which records YCSB reads and writes; `None`: those of the workload.
    pub distribution: Option<Distribution>,
    /// Exponent of Zipf's distribution over the accounts; 0: as the specification draws them.
    pub skew: f64,
}

impl Default for Records {
    fn default() -> Self {
        Self { rows: None, row_bytes: 100, batch: 1000, distribution: None, skew: 0.0 }
    }
}

/// Bytes of a row of `update` and `queue`: a number, and what the engine takes.
const ROW_BYTES: std::ops::RangeInclusive<usize> = 8..=2048;

impl Records {
    /// Refuses values out of range, of a workload with `most` rows.
    pub(super) fn check(&self, most: u64) -> Result<()> {
        count("batch", self.batch as usize, MANY)?;
        if let Some(rows) = self.rows.filter(|rows| !(1..=most).contains(rows)) {
            return Err(invalid("rows", &rows.to_string(), &format!("1 to {most}")));
        }
        if !ROW_BYTES.contains(&self.row_bytes) {
            return Err(invalid("row-bytes", &self.row_bytes.to_string(), "8 to 2048"));
        }
        if !(0.0..=100.0).contains(&self.skew) {
            return Err(invalid("skew", &self.skew.to_string(), "0 to 100"));
        }
        Ok(())
    }
}

impl fmt::Display for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row_bytes, batch, skew, .. } = self;
        let (rows, distribution) = (or_dash(self.rows), or_dash(self.distribution));
        write!(f, "rows {rows} row-bytes {row_bytes} batch {batch} distribution {distribution} skew {skew}")
    }
}
