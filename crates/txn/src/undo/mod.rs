//! Undo: the changes that a rollback may have to undo, and the old versions of rows that readers may still need.
//!
//! | part | holds |
//! |---|---|
//! | [`entry`], [`change`] | the format of an entry, and the changes that are entered and undone |
//! | [`versions`] | the version chains of rows, and the pruning of what no reader needs |
//! | [`session`] | the entries of one transaction, and the chunks that its session fills |
//! | [`arena`], [`chunk`] | the memory of all entries, in chunks of 8 KiB |
//! | [`fetch`], [`file`] | the spill file, to which full chunks are moved when memory is short |
//! | [`space`], [`holder`] | waits for undo memory, and which sessions hold some |
//!
//! An undo entry contains the body of its log record. So a rollback, which reads the entries, and a restart, which
//! reads the log, run the same code. A crash needs none of this memory.
//!
//! The entry also contains the row as it was before the change: an older version. It leads to the entry with the next
//! older version. If no reader sees that version, the entry skips it in the chain and keeps a pointer to it for a
//! rollback alone.
//!
//! A transaction may lock a row and then change it, with no other entry in between. Then the entry of the change
//! replaces that of the lock, and the row has one entry.
//!
//! Entries outlive their transaction for as long as some reader may need one.

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
pub use session::SeveralUndo;
pub(crate) use session::{Place, Undo};
pub(crate) use space::{Holders, Request, UndoSpace};

pub(crate) use versions::Older;
