//! Models of the kernels by loom, and of protocols among many threads by shuttle. Empty in ordinary builds: each needs
//! `--cfg foreshore_loom` or `--cfg foreshore_shuttle`.

#[cfg(foreshore_shuttle)]
#[expect(dead_code, reason = "the models use only some of the helpers")]
#[path = "../common/mod.rs"]
mod common;

#[cfg(foreshore_loom)]
mod loom_frame;
#[cfg(foreshore_loom)]
mod loom_free;
#[cfg(foreshore_shuttle)]
mod shuttle_doublewrite;
#[cfg(foreshore_shuttle)]
mod shuttle_page_redo;
#[cfg(foreshore_shuttle)]
mod shuttle_pool;
#[cfg(foreshore_shuttle)]
mod shuttle_shared_pass;
