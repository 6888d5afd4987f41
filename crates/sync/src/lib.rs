//! Primitive shim, latches, parking and background steps of Foreshore.
//!
//! This crate is the only home of atomics, locks, threads and time. Every other crate takes them from here, so that
//! one cfg puts a kernel under a model checker (`foreshore_loom`, `foreshore_shuttle`) or the engine under a scheduler
//! (`foreshore_sim`). Each wait in the engine ends in one of four places:
//!
//! - a [`Mutex`]
//! - a [`Condvar`]
//! - a [`Parker`], directly or through a [`ParkTable`], an [`EventCount`] or a [`Signal`]
//! - the few pauses of a [`SpinWait`] before one of these, which a [`SpinSite`] leaves out if they do not pay
//!
//! Nothing here spins without a bound.
//!
//! | need | use |
//! |---|---|
//! | guard a structure, short and cold | [`Mutex`], [`RwLock`] with a [`LockRank`] |
//! | guard a structure that one thread locks far more often than others | [`BiasedMutex`] |
//! | guard a page | [`HybridLatch`]: shared, exclusive, optimistic |
//! | wait for a state kept in some atomic word | [`ParkTable`] by key, [`EventCount`] for one place |
//! | wake one known thread | [`Parker`], [`Unparker`] |
//! | wake many threads | [`WakeQueue`] |
//! | work on a value that another thread may revoke in between | [`Revocable`] |
//! | references that one thread hands out and many threads drop | [`BiasedOwner`], [`BiasedRef`] |
//! | a value for each thread that uses an object | `PerThread` |
//! | background work | [`Step`] run by a [`Daemon`], woken by its [`Signal`] |
//! | a fence between a side that runs often and one that runs rarely | [`AsymmetricFence`], [`SparingFence`] |
//! | measure where the time of a thread goes | [`spent`], [`Hottest`] |
//! | memory that may be large and mostly untouched | [`LazyArray`], [`ChunkedArray`], [`ByteArena`] |

pub mod model;
pub mod pause;
pub mod primitive;
pub mod rmw;
#[cfg(foreshore_sim)]
pub mod schedule;
pub mod spent;

mod asymmetric;
mod biased;
mod biased_mutex;
mod clock;
mod counter;
mod daemon;
mod event_count;
mod hottest;
mod latch;
mod mapping;
mod mutex;
mod park_table;
mod parker;
#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
mod per_thread;
mod rank;
mod revocable;
mod spin;
mod spin_site;
mod turns;
mod wake_queue;

pub use asymmetric::{AsymmetricFence, SparingFence};
pub use biased::{BiasedOwner, BiasedRef};
pub use biased_mutex::{BiasedGuard, BiasedMutex};
pub use clock::{Clock, Nanos, SystemClock, wall_clock};
pub use counter::{ShardedCounter, thread_index};
pub use crossbeam_utils::CachePadded;
pub use daemon::{Daemon, Joiner, NextWake, OnPanic, Signal, Step, spawn};
pub use event_count::{EventCount, EventKey};
pub use hottest::{Hot, Hottest};
pub use latch::HybridLatch;
pub use mapping::{ByteArena, ChunkedArray, LazyArray, Word, ZeroAtomic};
pub use mutex::{Condvar, Mutex, MutexGuard, RwLock, RwLockGuard};
pub use park_table::{ParkOutcome, ParkTable};
pub use parker::{Parker, Unparker};
#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
pub use per_thread::{EndWithThread, PerThread};
pub use rank::{LockRank, lock_order_markdown};
pub use revocable::{Custody, InUse, Revocable, Revoked};
pub use spin::{SpinWait, available_parallelism};
pub use spin_site::{SiteSpin, SpinSite};
pub use turns::{Turn, Turns};
pub use wake_queue::WakeQueue;
