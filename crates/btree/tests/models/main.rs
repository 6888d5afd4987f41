//! Models: by loom, of lock-free parts; by shuttle, of protocols among many threads. Empty in ordinary builds: each
//! needs `--cfg foreshore_loom` or `--cfg foreshore_shuttle`.

#[cfg(foreshore_shuttle)]
#[expect(dead_code, reason = "the models use a part")]
#[path = "../common/mod.rs"]
mod common;
#[cfg(foreshore_shuttle)]
mod four_keys;

#[cfg(foreshore_loom)]
mod loom_queue;
#[cfg(foreshore_shuttle)]
mod shuttle_chains;
#[cfg(foreshore_shuttle)]
mod shuttle_descend;
#[cfg(foreshore_shuttle)]
mod shuttle_drop;
#[cfg(foreshore_shuttle)]
mod shuttle_exact;
#[cfg(foreshore_shuttle)]
mod shuttle_merge;
#[cfg(foreshore_shuttle)]
mod shuttle_modes;
#[cfg(foreshore_shuttle)]
mod shuttle_moves;
#[cfg(foreshore_shuttle)]
mod shuttle_refused;
#[cfg(foreshore_shuttle)]
mod shuttle_serial;
#[cfg(foreshore_shuttle)]
mod shuttle_verify;
#[cfg(foreshore_shuttle)]
mod shuttle_versions;
