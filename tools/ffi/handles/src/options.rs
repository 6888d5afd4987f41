//! Options that have names.

use crate::Result;
use foreshore::{Error, Group, Options};
use std::time::Duration;

/// Sets the device by its name: `auto`, `direct`, `uring`, `buffered`, `null` or `delay:TIME`.
///
/// # Errors
/// `Invalid` for another name.
pub fn with_device(options: Options, name: &str) -> Result<Options> {
    Ok(options.device(name.parse().map_err(Error::from)?))
}

/// Sets the use of the doublewrite file by its name: `auto`, `on` or `off`.
///
/// # Errors
/// `Invalid` for another name.
pub fn with_doublewrite(options: Options, name: &str) -> Result<Options> {
    Ok(options.doublewrite(name.parse().map_err(Error::from)?))
}

/// Sets the group-commit window. Zero writes each group as soon as the device is free.
#[must_use]
pub fn with_group_window(options: Options, window: Duration) -> Options {
    options.group(if window.is_zero() { Group::Greedy } else { Group::Window(window) })
}
