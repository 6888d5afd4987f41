//! Models of the kernels by loom, and of protocols among many threads by shuttle. Empty in ordinary builds: each needs
//! `--cfg foreshore_loom` or `--cfg foreshore_shuttle`.
#![cfg_attr(
    any(foreshore_loom, foreshore_shuttle),
    allow(dead_code, unreachable_pub, unused_imports, reason = "the parts of the crate are taken as a whole")
)]

#[cfg(foreshore_shuttle)]
#[path = "../toy/mod.rs"]
mod toy;

#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/halt.rs"]
mod halt;
#[cfg(foreshore_shuttle)]
#[path = "../../src/undo/mod.rs"]
mod undo;
#[cfg(any(foreshore_loom, foreshore_shuttle))]
#[path = "../../src/visibility/mod.rs"]
mod visibility;

#[cfg(foreshore_loom)]
mod loom_readers;
#[cfg(foreshore_loom)]
mod loom_status;
#[cfg(foreshore_shuttle)]
mod shuttle_held;
#[cfg(foreshore_shuttle)]
mod shuttle_kept;
#[cfg(foreshore_shuttle)]
mod shuttle_parked;
#[cfg(foreshore_shuttle)]
mod shuttle_queue;
#[cfg(foreshore_shuttle)]
mod shuttle_room;
#[cfg(foreshore_shuttle)]
mod shuttle_undo;
#[cfg(foreshore_shuttle)]
mod shuttle_xids;
