//! Models of the kernels by loom, and of protocols among many threads by shuttle. Empty in ordinary builds: each needs
//! `--cfg foreshore_loom` or `--cfg foreshore_shuttle`.

#[cfg(foreshore_loom)]
mod loom_biased;
#[cfg(foreshore_loom)]
mod loom_biased_mutex;
#[cfg(foreshore_loom)]
mod loom_event_count;
#[cfg(foreshore_loom)]
mod loom_latch;
#[cfg(foreshore_loom)]
mod loom_latch_wait;
#[cfg(foreshore_loom)]
mod loom_park_table;
#[cfg(foreshore_loom)]
mod loom_revocable;
#[cfg(foreshore_loom)]
mod loom_wake_queue;
#[cfg(foreshore_shuttle)]
mod shuttle_waits;
