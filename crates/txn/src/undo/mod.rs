//! Undo: what a rollback would have to restore, and what readers may still have to see.
//!
//! An entry holds the very bytes that the log record of its change holds. So a rollback at run time, from here, and one
//! at restart, from the log, run the same code. A crash needs none of this memory.
//!
//! It also holds the row as it was before the change, which is an older version of the row, and leads to the entry with
//! the next older one. If no transaction sees that version the entry leads past it, and keeps it for a rollback alone
//! (see [`versions`]). Where a transaction locks a row and enters nothing before it changes the row, the change takes
//! the place of the lock. The row has one entry then.
//!
//! Entries outlive their transactions for as long as a transaction may look for one (see [`arena`]).
//! Where memory is spent they go to a temporary file (see `arena::spill` and [`fetch`]).

mod arena;
mod change;
mod chunk;
mod entry;
mod fetch;
mod file;
mod holder;
mod pointer;
mod session;
mod space;
mod versions;

pub(crate) use arena::Arena;
pub(crate) use change::Link;
pub use change::{Before, MAX_STRUCTURE, UndoEntry, Undoable};
pub use fetch::Fetched;
pub use file::SpillFile;
pub use pointer::UndoPtr;
pub(crate) use session::{Place, Undo};
pub(crate) use space::{Holders, Request, UndoSpace};

pub(crate) use versions::Older;
