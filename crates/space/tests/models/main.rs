//! Models of protocols among many threads. Nothing in ordinary builds.

#[cfg(foreshore_shuttle)]
mod shuttle_space;
