//! What every function does at the border: catches panics, checks pointers, and keeps the message of an error.

use foreshore_handles::{Fault, Result, Status, caught};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::slice;

thread_local! {
    /// The message of the last error of this thread.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Returns the message of the last error that a function has returned to this thread, empty if there was none.
///
/// The text belongs to the library. It stays until the next error of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn fs_message() -> *const c_char {
    // The thread may be ending, in a destructor of the program.
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Makes a C string of a message. A zero byte ends it.
pub(crate) fn c_message(message: &str) -> CString {
    let text = message.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// Runs the body of a function.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> Status {
    guard_status(|| body().map(|()| Status::Ok))
}

/// Runs the body of a function that has more than one good end.
pub(crate) fn guard_status(body: impl FnOnce() -> Result<Status>) -> Status {
    caught(body).unwrap_or_else(|fault| {
        let _ = MESSAGE.try_with(|message| message.replace(c_message(&fault.message)));
        fault.status
    })
}

/// Drops a handle.
///
/// # Safety
/// `handle` is null, or from [`hand_out`] and not freed yet.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        let _ = guard(|| {
            // SAFETY: as the caller promises.
            drop(unsafe { Box::from_raw(handle) });
            Ok(())
        });
    }
}

/// Returns the status of a question about a row.
pub(crate) const fn found(is_found: bool) -> Status {
    if is_found { Status::Ok } else { Status::NotFound }
}

pub(crate) fn null(what: &str) -> Fault {
    Fault::new(Status::Invalid, format!("`{what}` is null"))
}

/// Returns the object behind a pointer.
///
/// # Safety
/// `pointer` is null, or points to a `T` that lives and that nothing changes meanwhile.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Returns the object behind a pointer.
///
/// # Safety
/// `pointer` is null, or points to a `T` that lives and that nothing else uses meanwhile.
pub(crate) unsafe fn object_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| null(what))
}

/// Stores a new handle for the caller.
pub(crate) fn hand_out<T>(out: &mut *mut T, value: T) {
    *out = Box::into_raw(Box::new(value));
}

/// Returns the text behind a pointer.
///
/// # Safety
/// `pointer` is null, or points to a text that ends with a zero byte.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Fault::new(Status::Invalid, format!("`{what}` is not UTF-8")))
}

/// Returns the bytes behind a pointer, which may be null if there are none.
///
/// # Safety
/// `pointer` points to `len` bytes, unless it is null or `len` is zero.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    // SAFETY: as the caller promises.
    unsafe { elements(pointer.cast(), len, what) }
}

/// Returns the elements behind a pointer, which may be null if there are none.
///
/// # Safety
/// `pointer` points to `count` elements, unless it is null or `count` is zero.
pub(crate) unsafe fn elements<'a, T>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(what));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Fault::new(Status::Invalid, format!("`{what}` has {count} elements")));
    }
    // SAFETY: as the caller promises, and the length is one that an object may have.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Stores a number for the caller.
///
/// # Safety
/// `out` is null or of its type.
pub(crate) unsafe fn store(out: *mut u64, number: u64) {
    // SAFETY: as the caller promises.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = number;
    }
}
