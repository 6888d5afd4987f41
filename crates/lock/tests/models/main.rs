//! Models of the kernels, and of protocols among many threads. Nothing in ordinary builds.

#[cfg(foreshore_loom)]
mod loom_deadlock;
#[cfg(foreshore_loom)]
mod loom_hand_off;
#[cfg(foreshore_loom)]
mod loom_intents;
#[cfg(foreshore_loom)]
mod loom_range;
#[cfg(foreshore_loom)]
mod loom_share_count;
#[cfg(foreshore_shuttle)]
mod shuttle_deadlock;
#[cfg(foreshore_shuttle)]
mod shuttle_merged;
