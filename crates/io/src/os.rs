//! Calls in which operating systems differ: a module for each system, with the same functions.
//!
//! | function | Linux | macOS |
//! |---|---|---|
//! | `open_direct` | `O_DIRECT` | refused, `EINVAL` |
//! | `write_durable`, `write_whole` | `pwritev2` with `RWF_DSYNC`, `RWF_ATOMIC` | refused, `EOPNOTSUPP` |
//! | `whole_lengths` | `statx` | none |
//! | `sync_data`, `sync_dir` | `fdatasync`, `fsync` | `fcntl` with `F_FULLFSYNC` |
//! | `drop_cached` | `posix_fadvise` | nothing |
//! | `allocate` | `fallocate` | refused, `EOPNOTSUPP` |
//! | `write_in_place` | `FS_NOCOW_FL` | nothing |
//! | `memory_file` | `memfd_create` | refused, `EOPNOTSUPP` |
//! | `type_name`, `is_memory` | magic number of `statfs` | name in `statfs` |
//! | `sleep_until`, `NoSlack` | absolute sleep without timer slack | relative sleeps |
//!
//! The refusals are those of a Linux file system that lacks the call. So the callers take the path that they have for
//! such a one: buffered I/O, and zeros in place of allocated space.
//!
//! The code for macOS compiles, and has not been run.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!("Foreshore runs on Linux, and compiles on macOS");

pub(crate) use system::{
    NoSlack, allocate, drop_cached, is_memory, memory_file, open_direct, sleep_until, sync_data, sync_dir, type_name,
    whole_lengths, write_durable, write_in_place, write_whole,
};
