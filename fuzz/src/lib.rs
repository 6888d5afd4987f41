//! What the fuzz targets share.
//!
//! An input is a list of changes to the files of a small database that was built by the engine itself ([`golden`]). The
//! changes are aimed at structures ([`layout`]), not at offsets of files, and the checksums of what was changed are made to fit
//! again ([`sums`]), unless the change says otherwise ([`patch`]). So an input gets behind the checksums, and what is found there
//! may be anything. [`exercise`] then opens the database and uses it.
//!
//! **What must hold**: no panic, no assertion that fails, no endless loop (the fuzzer's time limit), no allocation beyond
//! `limit.rs`, which each target includes, and only errors that say what is wrong with the files.

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
