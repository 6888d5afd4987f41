//! Waits for another thread, as the options say.

use crate::log_buffers::names::WaitKind;
use foreshore_sync::primitive::thread;
use foreshore_sync::{ParkTable, SpinSite, SpinWait};

/// A wait that ends when another thread has changed some word, as the options say.
#[derive(Debug)]
pub(super) struct Waits {
    pub(super) kind: WaitKind,
    pub(super) table: ParkTable,
    site: SpinSite,
}

impl Waits {
    pub(super) fn new(kind: WaitKind) -> Self {
        Self { kind, table: ParkTable::new(), site: SpinSite::new() }
    }

    /// Waits until `ready`. The thread that makes it true calls [`Waits::wake`] with the same place.
    ///
    /// `ready` reads atomics with `Acquire` and does nothing else: it also runs under a lock of the table.
    pub(super) fn until<T>(&self, place: &T, ready: impl Fn() -> bool) {
        if self.kind == WaitKind::Spin {
            return spin_until(ready);
        }
        let mut spin = self.site.begin();
        while !ready() {
            if !spin.spin() {
                // WAIT: park - until `wake`.
                self.table.park(key(place), None, || !ready());
            }
        }
        spin.end();
    }

    /// Wakes all threads that wait at a place.
    pub(super) fn wake<T>(&self, place: &T) {
        if self.kind == WaitKind::Park {
            self.table.unpark_all(key(place), 0);
        }
    }
}

/// Waits until `ready` as the papers do: with some pauses, then with yields for as long as it takes.
pub(super) fn spin_until(ready: impl Fn() -> bool) {
    let mut spin = SpinWait::new();
    while !ready() {
        if !spin.spin() {
            // WAIT: window - without a bound, as the options say; the yield lets the other side run.
            thread::yield_now();
        }
    }
}

/// The address of a place that does not move: the same for all threads that wait there.
pub(super) fn key<T>(place: &T) -> u64 {
    std::ptr::from_ref(place).addr() as u64
}
