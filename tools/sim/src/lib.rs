//! Simulation of the whole engine on a disk that fails.
//!
//! One thread runs a seeded [`Script`] of transactions on a [`foreshore_io::Sim`]; background work is stepped inline by
//! the same seed. The disk keeps a record of its operations, so that one run gives the disk as a power loss at any of
//! them may leave it. The [`Oracle`] knows what may be found there. [`crash`] visits the power losses, [`faults`] the
//! failing operations, [`write_back`] the page cache after a write-back has failed. [`Shrink`] is a script of its own,
//! of a file that grows and is truncated.
//!
//! [`real`] ends processes, cuts power and breaks disks of this machine.
//!
//! [`engine`] runs the engine with its threads under a seeded scheduler, in builds with `--cfg foreshore_sim`.

#![forbid(unsafe_code)]

pub mod build;
pub mod crash;
pub mod engine;
pub mod faults;
mod marks;
mod oracle;
mod random;
#[cfg(not(foreshore_sim))]
pub mod real;
mod script;
mod shrink;
pub mod write_back;

pub use marks::Marks;
pub use oracle::{Contents, Fingerprint, Oracle};
pub use random::Random;
pub use script::{Script, open, options, spills};
pub use shrink::{Shrink, ShrinkMarks};
