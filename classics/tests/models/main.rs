//! Models of the log buffers and of Nb-GCLOCK by loom, and of protocols among many threads by shuttle. Empty in
//! ordinary builds: each needs `--cfg foreshore_loom` or `--cfg foreshore_shuttle`.

#[cfg(any(foreshore_loom, foreshore_shuttle))]
mod regions;

#[cfg(foreshore_loom)]
mod loom_byte_lock;
#[cfg(foreshore_loom)]
mod loom_carray;
#[cfg(foreshore_loom)]
mod loom_decoupled;
#[cfg(foreshore_loom)]
mod loom_delegated;
#[cfg(foreshore_loom)]
mod loom_faa;
#[cfg(foreshore_loom)]
mod loom_hybrid;
#[cfg(foreshore_loom)]
mod loom_laser;
#[cfg(foreshore_loom)]
mod loom_mutex;
#[cfg(foreshore_loom)]
mod loom_nbgclock;
#[cfg(foreshore_loom)]
mod loom_queue_lock;
#[cfg(foreshore_shuttle)]
mod shuttle_decoupled;
#[cfg(foreshore_shuttle)]
mod shuttle_laser;
#[cfg(foreshore_shuttle)]
mod shuttle_locks;
#[cfg(foreshore_shuttle)]
mod shuttle_nbgclock;
