//! Verbs that look into a database, one a file, and what they share.

pub(crate) mod backup;
mod batch;
pub(crate) mod bounds;
pub(crate) mod check;
pub(crate) mod clear;
pub(crate) mod compact;
mod csv;
pub(crate) mod database;
pub(crate) mod del;
pub(crate) mod dump;
mod dump_format;
pub(crate) mod get;
pub(crate) mod info;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod page;
pub(crate) mod put;
pub(crate) mod reader;
pub(crate) mod rename;
pub(crate) mod repair;
pub(crate) mod restore;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod stats;
mod superblock;
pub(crate) mod tables;
