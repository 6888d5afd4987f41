//! Models of the kernels. Empty in ordinary builds.

#[cfg(foreshore_loom)]
mod loom_reap;
#[cfg(foreshore_loom)]
mod loom_syncs;
#[cfg(foreshore_loom)]
mod loom_worker_pool;
