//! Models of the kernels by loom. Empty in ordinary builds: they need `--cfg foreshore_loom`.

#[cfg(foreshore_loom)]
mod loom_reap;
#[cfg(foreshore_loom)]
mod loom_syncs;
#[cfg(foreshore_loom)]
mod loom_worker_pool;
