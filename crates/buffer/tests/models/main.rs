//! Models of the kernels, and of protocols among many threads. Empty in ordinary builds.

#[cfg(foreshore_shuttle)]
#[expect(dead_code, reason = "the models use a part")]
#[path = "../common/mod.rs"]
mod common;

#[cfg(foreshore_loom)]
mod loom_frame;
#[cfg(foreshore_loom)]
mod loom_free;
#[cfg(foreshore_shuttle)]
mod shuttle_helped;
#[cfg(foreshore_shuttle)]
mod shuttle_pool;
#[cfg(foreshore_shuttle)]
mod shuttle_rounds;
