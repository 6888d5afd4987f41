//! The codes that the library returns.

use super::ffi;
use crate::error::{Error, Result};
use std::ffi::{CStr, c_int};

pub(super) const NAME: &str = "wiredtiger";

/// Returns the error that a code stands for.
pub(super) fn check(call: &'static str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library returns a string that lives as long as the process.
    let cause = unsafe { CStr::from_ptr(ffi::shim_error(code)) };
    Err(Error::Failed { engine: NAME, call, cause: cause.to_string_lossy().into_owned() })
}
