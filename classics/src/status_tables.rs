//! Tables of transaction status, one file a design.
//!
//! They are consulted beside the engine's status window, to measure their cost, and never change what is visible. A
//! table with a file reads it while a page of rows is latched, as PostgreSQL does.
//!
//! | [`StatusKind`] | where two bits lie | a lookup |
//! |---|---|---|
//! | `csnmap` | nowhere: the window alone, 8 bytes an xid | one load |
//! | `direct` | one array in memory for all, prepared ahead of the xid | one load |
//! | `lru:N` | pages in a file, N of them in memory, one lock (PostgreSQL up to 16, N = 8, later 32 and 128) | lock, linear search; miss: read, and write what is evicted, under the lock |
//! | `lru:N:banks` | the same in banks of 16 pages with a lock each (PostgreSQL 17) | the same in its bank |

mod bits;
mod direct;
mod lru;

pub use direct::Direct;
pub use lru::Lru;

use foreshore_base::{InvalidOption, Result, Xid};
use foreshore_io::{File, Fs};
use foreshore_txn::{MakeStatusTable, StatusTable};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// Which table is consulted beside the status window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusKind {
    /// None: the window alone.
    #[default]
    CsnMap,
    /// [`Direct`].
    Direct,
    /// [`Lru`].
    Lru {
        /// Pages in memory.
        buffers: usize,
        /// Whether they are divided into banks.
        banks: bool,
    },
}

impl StatusKind {
    /// All that have a name in a figure.
    pub const ALL: [Self; 6] = [
        Self::Lru { buffers: 8, banks: false },
        Self::Lru { buffers: 32, banks: false },
        Self::Lru { buffers: 128, banks: false },
        Self::Lru { buffers: 128, banks: true },
        Self::Direct,
        Self::CsnMap,
    ];

    /// Returns the factory of the table; `None` for the engine's window alone.
    #[must_use]
    pub fn maker(self) -> Option<Arc<dyn MakeStatusTable>> {
        (self != Self::CsnMap).then(|| Arc::new(self) as Arc<dyn MakeStatusTable>)
    }
}

impl MakeStatusTable for StatusKind {
    /// # Panics
    /// For `csnmap`, which has no table.
    fn make(&self, first: Xid, fs: &dyn Fs, path: &Path) -> Result<Arc<dyn StatusTable>> {
        Ok(match *self {
            Self::CsnMap => panic!("csnmap is the engine's own"),
            Self::Direct => Arc::new(Direct::new(first)?),
            Self::Lru { buffers, banks } => Arc::new(Lru::new(first, buffers, banks, fresh(fs, path)?)),
        })
    }
}

/// Makes an empty file without a name, since it is not needed after a restart.
fn fresh(fs: &dyn Fs, path: &Path) -> Result<Arc<dyn File>> {
    if fs.kind(path)?.is_some() {
        fs.remove(path)?;
    }
    let file = fs.create(path)?;
    fs.remove(path)?;
    Ok(file)
}

impl fmt::Display for StatusKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CsnMap => f.write_str("csnmap"),
            Self::Direct => f.write_str("direct"),
            Self::Lru { buffers, banks: false } => write!(f, "lru:{buffers}"),
            Self::Lru { buffers, banks: true } => write!(f, "lru:{buffers}:banks"),
        }
    }
}

impl FromStr for StatusKind {
    type Err = InvalidOption;

    fn from_str(text: &str) -> Result<Self, InvalidOption> {
        let kind = match text {
            "csnmap" => Some(Self::CsnMap),
            "direct" => Some(Self::Direct),
            _ => lru_of(text),
        };
        kind.ok_or_else(|| InvalidOption {
            name: "status",
            value: text.into(),
            expected: "csnmap, direct, lru:8, lru:32, lru:128 or lru:128:banks".into(),
        })
    }
}

fn lru_of(text: &str) -> Option<StatusKind> {
    let shape = text.strip_prefix("lru:")?;
    let (number, banks) = shape.strip_suffix(":banks").map_or((shape, false), |number| (number, true));
    let buffers: usize = number.parse().ok()?;
    let fits = if banks { buffers >= lru::BANK && buffers.is_power_of_two() } else { buffers > 0 };
    (fits && buffers <= lru::MAX_BUFFERS).then_some(StatusKind::Lru { buffers, banks })
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
