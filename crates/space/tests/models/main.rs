//! Models of protocols among many threads by shuttle. Empty in ordinary builds: they need `--cfg foreshore_shuttle`.

#[cfg(foreshore_shuttle)]
mod shuttle_space;
