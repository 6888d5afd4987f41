//! What the fuzz targets share.
//!
//! An input is a list of changes to the files of a small database that was built by the engine itself ([`golden`]). A
//! change names a structure ([`layout`]), not an offset of a file. The checksums of changed bytes are recomputed
//! ([`sums`]), unless the change says otherwise ([`patch`]). So an input passes the checksums, and the decoders behind
//! them may meet anything. [`exercise`] then opens the database and uses it.
//!
//! **What must hold**:
//!
//! - no panic, and no assertion that fails;
//! - no endless loop: the fuzzer has a time limit;
//! - no allocation beyond `limit.rs`, which each target includes;
//! - only errors that say what is wrong with the files.

#![forbid(unsafe_code)]

pub mod bounded;
pub mod exercise;
pub mod golden;
pub mod input;
pub mod layout;
pub mod machine;
pub mod model;
pub mod patch;
pub mod sums;
