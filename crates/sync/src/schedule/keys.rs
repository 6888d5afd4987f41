//! Constant keys for the standard library's random hashing: the order of a hash map must follow from the plan of a
//! run.
//!
//! The standard library calls `getrandom` once a thread and counts up from there. A symbol of the program takes
//! precedence over that of the C library, so every thread of a run begins with the same keys.

/// Makes the linker include this module.
pub(crate) fn need() {
    std::hint::black_box(getrandom as *const ());
}

/// Fills `buf` with a constant.
///
/// # Safety
/// As for `getrandom(2)`: `buf` holds `len` bytes that may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buf: *mut u8, len: usize, _flags: u32) -> isize {
    // SAFETY: the caller lends `len` bytes.
    unsafe { buf.write_bytes(0x5A, len) };
    len as isize
}
