//! Older versions of a row, one behind the other.
//!
//! The header of a row leads to the entry of its last holder, which has the row as it was before and leads to the entry of the holder
//! before that one. Only who has the leaf of the row latched exclusively changes the header or the chain, so a reader
//! that finds the version of the page unchanged afterwards has read a chain that was whole.

use super::UndoPtr;
use super::arena::Arena;
use super::entry::Entry;
use foreshore_base::Csn;

/// Entries that are followed between two looks at whether that still makes sense.
const STRIDE: usize = 64;

/// What a reader finds behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// The row with these flags, as the commit left it; its value has been copied.
    Row(u16, Csn),
    /// No row.
    Absent,
    /// Nothing that makes sense: the page has changed meanwhile, or the snapshot was killed.
    Lost,
}

impl Arena {
    /// The version of a row that a snapshot at `at` sees, which does not see the change that `entry` takes back. Its value goes to
    /// `image`. `holds` tells whether the page that led here is as it was.
    pub(crate) fn older(&self, entry: UndoPtr, at: Csn, image: &mut Vec<u8>, holds: impl Fn() -> bool) -> Older {
        let mut next = entry;
        for step in 1.. {
            let Some(entry) = Entry::at(self, next) else { return Older::Lost };
            let since = entry.since();
            if since <= at {
                let Some(flags) = entry.flags() else { return Older::Absent };
                image.clear();
                entry.append_image(image);
                return Older::Row(flags, since);
            }
            next = entry.next();
            if step % STRIDE == 0 && !holds() {
                return Older::Lost;
            }
        }
        Older::Lost
    }
}
