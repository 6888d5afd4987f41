//! Models of the kernels, and of protocols among many threads. Nothing in ordinary builds.
#![cfg_attr(
    any(foreshore_loom, foreshore_shuttle),
    allow(dead_code, unreachable_pub, unused_imports, reason = "the parts of the crate are taken as a whole")
)]

#[cfg(foreshore_shuttle)]
#[path = "../toy/mod.rs"]
mod toy;

#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/grown.rs"]
mod grown;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/past.rs"]
mod past;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/pinned.rs"]
mod pinned;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/pins.rs"]
mod pins;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/readers.rs"]
mod readers;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/status.rs"]
mod status;
#[cfg(foreshore_shuttle)]
#[path = "../../src/undo/mod.rs"]
mod undo;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/view.rs"]
mod view;

#[cfg(foreshore_loom)]
mod loom_readers;
#[cfg(foreshore_loom)]
mod loom_status;
#[cfg(foreshore_shuttle)]
mod shuttle_kept;
#[cfg(foreshore_shuttle)]
mod shuttle_line;
#[cfg(foreshore_shuttle)]
mod shuttle_linger;
#[cfg(foreshore_shuttle)]
mod shuttle_parked;
#[cfg(foreshore_shuttle)]
mod shuttle_room;
#[cfg(foreshore_shuttle)]
mod shuttle_undo;
#[cfg(foreshore_shuttle)]
mod shuttle_xids;
