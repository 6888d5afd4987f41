//! The disk behind traits: direct, buffered, in memory, simulated.
//!
//! The other crates reach files through [`Fs`] and [`File`].
//!
//! **Invariant:** no other code of Foreshore opens a file of a database.
//!
//! | backend | contents | a sync | used for |
//! |---|---|---|---|
//! | [`Disk`] direct | files, past the page cache | `RWF_DSYNC` per write, `fdatasync` | production |
//! | [`Disk`] uring | as direct | as direct, through one ring; feature `uring` | comparison |
//! | [`Disk`] buffered | files | `fdatasync` | where direct I/O is not possible |
//! | [`ReadOnly`] | files, past the page cache where possible | refused | reading what another process writes |
//! | [`Overlay`] | another backend, with every change in memory | free | a database that is only read |
//! | [`Mem`] null | memory | free | upper bounds |
//! | [`Mem`] delay | memory | sleeps | devices of a known latency |
//! | [`Sim`] | memory, live and durable image | moves effects to the durable image | tests of faults and of power loss |
//!
//! [`File::writes_whole`] says whether a direct file takes writes that power loss cannot tear (`RWF_ATOMIC`, Linux
//! 6.11).
//!
//! **Systems.** `os` has the calls in which Linux and macOS differ. On macOS direct I/O and io_uring are refused, a
//! sync is `F_FULLFSYNC`, and no read bypasses the page cache. The code compiles on macOS, and is not tested there.
//!
//! **Errors.** Every operation returns [`foreshore_base::Error`], which names the file. A full disk is
//! [`foreshore_base::Error::DiskFull`].
//!
//! **Invariant:** a failed write or sync is never retried here: after a failed sync the kernel may drop the dirty pages
//! and report success the next time. A failed sync fails every writer that wrote before it ended (`syncs`).
//!
//! **The page cache.** After a failed sync the cache shows bytes that are not on the medium, and marks them clean. So
//! recovery reads past the cache: [`File::read_past_cache`].

mod aligned;
mod content;
mod device;
mod disk;
mod fs;
mod layer;
mod mem;
mod names;
mod os;
mod overlay;
mod pause;
// Kernels, `pub` for the models in `tests/`, which see them under `foreshore_loom` only.
#[cfg(any(all(feature = "uring", target_os = "linux"), foreshore_loom))]
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod reap;
mod retry;
pub mod sim;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod syncs;
#[cfg_attr(not(foreshore_loom), allow(unreachable_pub))]
mod worker_pool;

pub use aligned::AlignedBuf;
pub use device::Device;
pub use disk::{Disk, ReadOnly, filesystem_name, syncs};
pub use fs::{Backend, DirLock, File, Fs, Kind};
pub use layer::{FileLayer, FsLayer};
pub use mem::Mem;
pub use overlay::Overlay;
pub use sim::Sim;

/// The kernels, for models in `tests/`.
#[cfg(foreshore_loom)]
pub mod model {
    pub use crate::reap::{Completions, Places};
    pub use crate::syncs::Syncs;
    pub use crate::worker_pool::WorkerPool;
}
