//! Models of the kernels by loom, and of protocols among many threads by shuttle. Empty in ordinary builds: each needs
//! `--cfg foreshore_loom` or `--cfg foreshore_shuttle`.

#[cfg(foreshore_loom)]
mod loom_deadlock;
#[cfg(foreshore_loom)]
mod loom_hand_off;
#[cfg(foreshore_loom)]
mod loom_intents;
#[cfg(foreshore_loom)]
mod loom_range;
#[cfg(foreshore_loom)]
mod loom_range_queue;
#[cfg(foreshore_loom)]
mod loom_share_count;
#[cfg(foreshore_shuttle)]
mod shuttle_deadlock;
#[cfg(foreshore_shuttle)]
mod shuttle_merged;
#[cfg(foreshore_shuttle)]
mod shuttle_queue;
