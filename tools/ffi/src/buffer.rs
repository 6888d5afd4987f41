//! Memory that values are copied to.

use crate::guard::{bytes, free, guard, object_mut};
use foreshore_handles::Status;
use std::ffi::c_void;
use std::ptr;

/// Memory for a value. It grows as needed, and may be used for one call after another.
#[derive(Default)]
pub struct fs_buffer {
    pub(crate) bytes: Vec<u8>,
}

impl fs_buffer {
    pub(crate) fn set(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }

    /// Sets texts, each with a zero byte behind it.
    pub(crate) fn set_texts<'t>(&mut self, texts: impl Iterator<Item = &'t str>) {
        self.bytes.clear();
        for text in texts {
            self.bytes.extend_from_slice(text.as_bytes());
            self.bytes.push(0);
        }
    }
}

/// Makes an empty buffer. Free it with `fs_buffer_free`.
#[unsafe(no_mangle)]
pub extern "C" fn fs_buffer_new() -> *mut fs_buffer {
    Box::into_raw(Box::default())
}

/// Returns the bytes of the buffer, which stay until it is used for the next call. Null for a null buffer.
///
/// # Safety
/// `buffer` is null or a buffer that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_buffer_data(buffer: *const fs_buffer) -> *const c_void {
    // SAFETY: as the caller promises.
    unsafe { buffer.as_ref() }.map_or(ptr::null(), |buffer| buffer.bytes.as_ptr().cast())
}

/// Returns the number of bytes in the buffer. Zero for a null buffer.
///
/// # Safety
/// `buffer` is null or a buffer that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_buffer_len(buffer: *const fs_buffer) -> usize {
    // SAFETY: as the caller promises.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.bytes.len())
}

/// Sets the bytes of the buffer, as the function of `fs_update_with` does.
///
/// # Safety
/// `buffer` is null or a buffer that was not freed, and `data` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_buffer_set(buffer: *mut fs_buffer, data: *const c_void, len: usize) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { object_mut(buffer, "buffer")?.set(bytes(data, len, "data")?) };
        Ok(())
    })
}

/// Frees a buffer. Null is allowed.
///
/// # Safety
/// `buffer` is null or a buffer that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_buffer_free(buffer: *mut fs_buffer) {
    // SAFETY: as the caller promises.
    unsafe { free(buffer) };
}
