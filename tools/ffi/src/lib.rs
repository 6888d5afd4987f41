//! Foreshore for programs in C.
//!
//! `include/foreshore.h` declares everything here, and is made from it by `header`. Each function catches panics,
//! checks its pointers for null and returns a status. The message of an error stays for [`fs_message`].
//!
//! The objects behind the handles are those of `foreshore-handles`. They say by a status that a transaction has ended,
//! is used by two threads at once, or belongs to the parent process.

#![allow(non_camel_case_types)]

mod buffer;
mod commit;
mod copies;
mod cursor;
mod db;
mod guard;
mod index;
mod load;
mod options;
mod prepared;
mod queue;
mod range;
mod run;
mod table;
mod tx;
mod value;

pub use buffer::*;
pub use commit::*;
pub use copies::*;
pub use cursor::*;
pub use db::*;
pub use guard::fs_message;
pub use index::*;
pub use load::*;
pub use options::*;
pub use prepared::*;
pub use queue::*;
pub use range::*;
pub use run::*;
pub use table::*;
pub use tx::*;
pub use value::*;
