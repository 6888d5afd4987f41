//! Tables of what became of transactions, one file a design.
//!
//! The engine needs none: its status window says of each recent xid what became of it and when, and all others have ended.
//! PostgreSQL asks a table, "did it commit?", and orders by something else. The tables here are asked beside the
//! window, by choice, to see what that costs; they never change what is visible.
//!
//! | [`StatusKind`] | where two bits lie | a look-up |
//! |---|---|---|
//! | `csnmap` | nowhere: the window alone, 8 bytes an xid | one load |
//! | `direct` | one array of memory for all, made ready ahead of the xid | one load |
//! | `lru:N` | pages in a file, N of them in memory, one lock (PostgreSQL up to 16, N = 8, later 32 and 128) | lock, linear search; miss: read, and write what is evicted, under the lock |
//! | `lru:N:banks` | the same in banks of 16 pages with a lock each (PostgreSQL 17) | the same in its bank |

mod direct;
mod lru;

pub use direct::Direct;
pub use lru::Lru;

use foreshore_base::{Result, Xid};
use foreshore_io::{File, Fs};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// Two bits of a transaction that has committed; zero is one that has not ended.
const COMMITTED: u8 = 1;
/// Of one that was rolled back.
const ABORTED: u8 = 2;

/// Asked "did it commit?".
pub trait StatusTable: Send + Sync + fmt::Debug {
    /// Makes a place ready for xids some way ahead of `xid`, so that nobody else waits for it.
    ///
    /// # Errors
    /// What the disk answered.
    fn prepare(&self, xid: Xid) -> Result<()>;

    /// Notes how the transaction with `xid` ends. Its own doing, once, before others learn that it has.
    ///
    /// # Errors
    /// What the disk answered: then it is not noted.
    fn set(&self, xid: Xid, committed: bool) -> Result<()>;

    /// Whether the transaction with `xid` has committed; for one from before the table began: whether it has ended.
    ///
    /// # Errors
    /// What the disk answered.
    fn has_committed(&self, xid: Xid) -> Result<bool>;
}

/// Which table is asked beside the status window.
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

    /// A new table for xids from `first` on, with its file at `path`, if it has one: what lay there is replaced.
    ///
    /// # Errors
    /// What memory or disk answered.
    pub fn table(self, first: Xid, fs: &dyn Fs, path: &Path) -> Result<Option<Arc<dyn StatusTable>>> {
        Ok(match self {
            Self::CsnMap => None,
            Self::Direct => Some(Arc::new(Direct::new(first)?)),
            Self::Lru { buffers, banks } => Some(Arc::new(Lru::new(first, buffers, banks, fresh(fs, path)?))),
        })
    }
}

/// An empty file. Nothing of it outlives a restart.
fn fresh(fs: &dyn Fs, path: &Path) -> Result<Arc<dyn File>> {
    if fs.kind(path)?.is_some() {
        fs.remove(path)?;
    }
    fs.create(path)
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
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let expected = "csnmap, direct, lru:8, lru:32, lru:128 or lru:128:banks";
        match text {
            "csnmap" => Ok(Self::CsnMap),
            "direct" => Ok(Self::Direct),
            _ => {
                let shape = text.strip_prefix("lru:").ok_or(expected)?;
                let (number, banks) = shape.strip_suffix(":banks").map_or((shape, false), |number| (number, true));
                let buffers: usize = number.parse().map_err(|_| expected)?;
                let fits = if banks { buffers >= lru::BANK && buffers.is_power_of_two() } else { buffers > 0 };
                if fits && buffers <= lru::MAX_BUFFERS { Ok(Self::Lru { buffers, banks }) } else { Err(expected) }
            }
        }
    }
}

#[cfg(test)]
mod tests;
