//! Where in a file an error was found.

use crate::PageId;
use std::fmt;

/// Where in a file something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A page of the data file.
    Page(PageId),
    /// A byte offset.
    Offset(u64),
    /// The file as a whole.
    File,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(id) => write!(f, "page {id}"),
            Self::Offset(at) => write!(f, "offset {at}"),
            Self::File => f.write_str("the whole file"),
        }
    }
}
