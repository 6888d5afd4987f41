//! Ranges of keys.

use crate::guard::bytes;
use foreshore_handles::{Bounds, Fault, Result, Status};
use std::ffi::c_void;
use std::ops::Bound;

/// The row of the lower bound itself does not belong to the range.
pub const FS_LOWER_EXCLUDED: u32 = 1;
/// The row of the upper bound itself belongs to the range.
pub const FS_UPPER_INCLUDED: u32 = 2;

/// A range of keys: from `lower` on, and below `upper`, unless `flags` say otherwise. A null pointer is no bound.
#[repr(C)]
pub struct fs_range {
    /// The lower bound, or null.
    pub lower: *const c_void,
    /// Its bytes.
    pub lower_len: usize,
    /// The upper bound, or null.
    pub upper: *const c_void,
    /// Its bytes.
    pub upper_len: usize,
    /// `FS_LOWER_EXCLUDED`, `FS_UPPER_INCLUDED`.
    pub flags: u32,
}

/// Copies a range.
///
/// # Safety
/// `range` is null, or as the header says of the struct.
pub(crate) unsafe fn bounds(range: *const fs_range) -> Result<Bounds> {
    // SAFETY: as the caller promises.
    let Some(range) = (unsafe { range.as_ref() }) else { return Ok(Bounds::all()) };
    if range.flags & !(FS_LOWER_EXCLUDED | FS_UPPER_INCLUDED) != 0 {
        return Err(Fault::new(Status::Invalid, format!("`flags` {} of a range are unknown", range.flags)));
    }
    let bound = |pointer: *const c_void, len, is_included, what| -> Result<Bound<Vec<u8>>> {
        if pointer.is_null() {
            return Ok(Bound::Unbounded);
        }
        // SAFETY: as the caller promises.
        let key = unsafe { bytes(pointer, len, what) }?.to_vec();
        Ok(if is_included { Bound::Included(key) } else { Bound::Excluded(key) })
    };
    Ok(Bounds {
        lower: bound(range.lower, range.lower_len, range.flags & FS_LOWER_EXCLUDED == 0, "lower")?,
        upper: bound(range.upper, range.upper_len, range.flags & FS_UPPER_INCLUDED != 0, "upper")?,
    })
}
