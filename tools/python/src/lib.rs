//! Foreshore for Python: the module `foreshore._foreshore`, which the package `foreshore` wraps.
//!
//! Each method that may wait releases the interpreter. Handles are those of `foreshore-handles`; keys and values are
//! encoded as the Rust library encodes them, so programs in both languages share databases.

#![forbid(unsafe_code)]

mod codec;
mod copies;
mod database;
mod errors;
mod index;
mod options;
mod queue;
mod rows;
mod spec;
mod table;
mod ticket;
mod transaction;
mod value;

use pyo3::prelude::*;

/// The classes of the package.
#[pymodule]
fn _foreshore(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<database::Database>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::Savepoint>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<index::Index>()?;
    module.add_class::<index::ByIndex>()?;
    module.add_class::<value::RawValue>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<ticket::Ticket>()?;
    module.add_class::<queue::Queue>()?;
    module.add_function(wrap_pyfunction!(copies::restore, module)?)?;
    module.add_function(wrap_pyfunction!(copies::repair, module)?)
}
