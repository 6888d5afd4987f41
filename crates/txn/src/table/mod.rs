//! Tables of what became of transactions, one file a design.
//!
//! The engine needs none: its status window says of each recent xid what became of it and when, and all others have ended.
//! PostgreSQL asks a table, "did it commit?", and orders by something else. The tables here are asked beside the
//! window, by choice, to see what that costs; they never change what is visible. A table with a file reads it where a
//! page of rows is latched, as PostgreSQL does.
//!
//! | [`StatusKind`] | where two bits lie | a look-up |
//! |---|---|---|
//! | `csnmap` | nowhere: the window alone, 8 bytes an xid | one load |
//! | `direct` | one array of memory for all, made ready ahead of the xid | one load |
//! | `lru:N` | pages in a file, N of them in memory, one lock (PostgreSQL up to 16, N = 8, later 32 and 128) | lock, linear search; miss: read, and write what is evicted, under the lock |
//! | `lru:N:banks` | the same in banks of 16 pages with a lock each (PostgreSQL 17) | the same in its bank |

mod csnmap;
mod direct;
mod lru;

pub use csnmap::CsnMap;
pub use direct::Direct;
pub use lru::Lru;

use crate::manager::TxnManager;
use foreshore_base::{Error, Result, Xid};
use foreshore_io::{File, Fs};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, io};

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

    /// A new table for xids from `first` on. If it has a file, that is made at `path` and has no name when this returns.
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

/// An empty file without a name, for nothing of it outlives a restart.
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
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let kind = match text {
            "csnmap" => Some(Self::CsnMap),
            "direct" => Some(Self::Direct),
            _ => lru_of(text),
        };
        kind.ok_or_else(|| Error::InvalidOption {
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

impl TxnManager {
    /// Names a table that is asked what became of transactions, beside the status window, and told of those that end. Once,
    /// before the first transaction writes; it begins at the first xid that is handed out.
    ///
    /// # Panics
    /// The second time.
    pub fn set_status_table(&self, table: Arc<dyn StatusTable>) {
        assert!(self.table.set(table).is_ok(), "the status table is wired once");
    }

    /// Tells the status table, if there is one, how a transaction ends; before the window does.
    pub(crate) fn note(&self, xid: Xid, committed: bool) -> Result<()> {
        self.table.get().map_or(Ok(()), |table| table.set(xid, committed))
    }

    /// Asks the status table, if there is one, whether a transaction that has ended has committed. Its answer must be that of
    /// the window, which is `None` for what it has forgotten. An xid that was read without a latch may be one that was never
    /// handed out: then nobody is asked.
    #[inline]
    pub(crate) fn ask(&self, xid: Xid, by_window: Option<bool>) {
        if let Some(table) = self.table.get().filter(|_| xid < self.xids.next()) {
            // The table may have forgotten what became of a pinned xid.
            self.ask_table(&**table, xid, by_window.filter(|_| xid >= self.window.lo()));
        }
    }

    fn ask_table(&self, table: &dyn StatusTable, xid: Xid, by_window: Option<bool>) {
        match table.has_committed(xid) {
            Ok(found) if by_window.is_none_or(|known| known == found) => {}
            Ok(_) => self.halt(&Error::io("read", "the status table", io::Error::other("it does not agree"))),
            Err(cause) => self.halt(&cause),
        }
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
