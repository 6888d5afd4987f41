//! Large values: chains of pages that never change.
//!
//! The tuple of a large value holds a [`Stub`], which leads to the pages of the value. Versions in undo hold stubs too.
//! A new value is a new chain. So the pages of a chain are written once, before the row. They stay as long as a version
//! of a row needs them.
//!
//! **The table of chains** ([`Trees::chains`]) has a row for each chain that no committed row of a table refers to:
//!
//! 1. *Begin.* One record allocates the first page and inserts the row of the chain. It belongs to no transaction.
//!    Each further record links one more page.
//! 2. *Adopt.* The transaction locks the row of its table, and deletes the row of the chain. A rollback restores that,
//!    and a restart does.
//! 3. *Retire.* A transaction that replaces or removes a large value inserts the row of the old chain.
//! 4. *Change.* The row of the table gets the stub, another value, or is deleted.
//! 5. *Free.* See [`free`].
//!
//! An undo goes the other way, and may stop between two steps for long. So it first restores the row of the table. Only
//! then the new chain has a row again by which it may be freed.
//!
//! A transaction in which a step after the first fails has to be rolled back.
//!
//! **Invariant:** a chain has a row in the table of chains, or one row of a table refers to it. Both may be true while
//! a transaction runs. Neither is true between the steps of one that has adopted the chain: then the chain has a ghost
//! of that transaction.
//!
//! **Invariant:** no page of a chain is freed while a snapshot or a lock can lead a reader to it. A reader whose
//! snapshot was cancelled finds that out after the read.

mod check;
mod free;
mod read;
mod renew;
mod stream;
mod write;

pub use check::ChainRef;
pub use free::FreedChains;
pub use renew::FarValues;
pub use stream::{OpenValue, ValueWriter};

use crate::format::{CHAINS, Stub};
use crate::tree::{Tree, Trees};
use foreshore_base::limits::MAX_VALUE;
use foreshore_base::{Error, Result};
use foreshore_space::CHAINS_ROOT;
use foreshore_wal::Session;

impl Trees {
    /// Creates the table of chains, right after the catalogue. Not part of a transaction.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn create_chains(&self, session: &mut Session) -> Result<()> {
        self.create_root(session, CHAINS, CHAINS_ROOT).map(drop)
    }

    /// Returns the table of chains.
    #[must_use]
    pub fn chains(&self) -> Tree {
        self.tree(CHAINS, CHAINS_ROOT)
    }
}

impl Tree {
    pub(crate) fn is_of_chains(&self) -> bool {
        self.table() == CHAINS && self.root() == CHAINS_ROOT
    }

    /// Refuses a value over the limit of large ones.
    pub(crate) fn check_large(&self, len: u64) -> Result<()> {
        if len <= MAX_VALUE as u64 {
            return Ok(());
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Err(Error::ValueTooLarge { table: Some(self.table().into()), len, max: MAX_VALUE })
    }

    /// Decodes what a row with a large value holds.
    pub(crate) fn stub(&self, value: &[u8]) -> Result<Stub> {
        Stub::decode(value).map_err(|why| self.corrupted(self.root(), why))
    }
}
