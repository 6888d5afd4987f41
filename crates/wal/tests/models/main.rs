//! Models of the kernels by loom, and of protocols among many threads by shuttle. Empty in ordinary builds: each needs
//! `--cfg foreshore_loom` or `--cfg foreshore_shuttle`.

#[cfg(foreshore_shuttle)]
#[expect(dead_code, reason = "the models use a part")]
#[path = "../common/mod.rs"]
mod common;

#[cfg(foreshore_loom)]
mod loom_lanes;
#[cfg(foreshore_loom)]
mod loom_pipeline;
#[cfg(foreshore_loom)]
mod loom_waits;
#[cfg(foreshore_loom)]
mod loom_watch;
#[cfg(foreshore_shuttle)]
mod shuttle_flights;
#[cfg(foreshore_shuttle)]
mod shuttle_lanes;
#[cfg(foreshore_shuttle)]
mod shuttle_log;
#[cfg(foreshore_shuttle)]
mod shuttle_pipeline;
#[cfg(foreshore_shuttle)]
mod shuttle_requests;
#[cfg(foreshore_shuttle)]
mod shuttle_returns;
#[cfg(foreshore_shuttle)]
mod shuttle_turns;
