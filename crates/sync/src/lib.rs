//! Primitive shim, latches, parking and background steps of Foreshore.
