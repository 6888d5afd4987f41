//! The engines, one file each.

mod fjall;
mod foreshore;
mod lmdb;
mod redb;
#[cfg(have_rocksdb)]
mod rocksdb;
mod sqlite;
#[cfg(have_wiredtiger)]
mod wiredtiger;

use crate::{engine::Kind, error::Error};

/// The engines that this program was built with.
pub(crate) const ALL: &[Kind] = &[
    foreshore::KIND,
    lmdb::KIND,
    redb::KIND,
    fjall::KIND,
    sqlite::KIND,
    #[cfg(have_rocksdb)]
    rocksdb::KIND,
    #[cfg(have_wiredtiger)]
    wiredtiger::KIND,
];

/// Engines that are bound to a library of the system.
const OF_THE_SYSTEM: [&str; 2] = ["rocksdb", "wiredtiger"];

/// Returns the engine of that name, if the program was built with it.
pub(crate) fn named(name: &str) -> Option<&'static Kind> {
    ALL.iter().find(|kind| kind.name == name)
}

/// Returns the engines whose library was missing when the program was built.
pub(crate) fn missing() -> impl Iterator<Item = &'static str> {
    OF_THE_SYSTEM.into_iter().filter(|name| named(name).is_none())
}

/// Returns the error for an engine that is not known. It names all engines, missing ones too.
pub(crate) fn unknown(name: String) -> Error {
    Error::Engine { name, known: ALL.iter().map(|kind| kind.name).chain(missing()).collect() }
}
