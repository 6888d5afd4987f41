//! Locks whose waits are known to the scheduler.
//!
//! The data is in a lock of std, which a task only ever tries to take. A task that does not get it waits in the
//! scheduler for the end of a guard. Nothing happens between the failed attempt and the wait, since no other task
//! runs. A thread that is no task waits in the lock of std.

use super::{On, me, scheduling_point};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// Takes what `attempt` returns, as soon as it succeeds.
fn take<T>(at: usize, attempt: impl Fn() -> TryLockResult<T>, wait: impl FnOnce() -> LockResult<T>) -> T {
    scheduling_point();
    let Some((world, id)) = me() else { return wait().unwrap_or_else(PoisonError::into_inner) };
    loop {
        match attempt() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            // WAIT: park - until the lock is released.
            Err(TryLockError::WouldBlock) => _ = world.wait(id, On::Lock(at), None),
        }
    }
}

/// Wakes all that wait for the lock at this address: each tries again.
fn released(at: usize) {
    if let Some((world, _)) = me() {
        world.wake(On::Lock(at), usize::MAX);
        scheduling_point();
    }
}

/// Returns the address of a lock.
fn place<T: ?Sized>(lock: &T) -> usize {
    std::ptr::from_ref(lock).cast::<()>().addr()
}

/// A guard of std that reports its end.
pub(crate) struct Guard<G> {
    inner: ManuallyDrop<G>,
    at: usize,
}

impl<G> Guard<G> {
    const fn new(inner: G, at: usize) -> Self {
        Self { inner: ManuallyDrop::new(inner), at }
    }

    /// Returns std's guard, without a notification.
    fn into_inner(self) -> G {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so nothing uses the guard again.
        unsafe { ManuallyDrop::take(&mut this.inner) }
    }
}

impl<G> Drop for Guard<G> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        released(self.at);
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

pub(crate) type RwLockReadGuard<'a, T> = Guard<std::sync::RwLockReadGuard<'a, T>>;
pub(crate) type RwLockWriteGuard<'a, T> = Guard<std::sync::RwLockWriteGuard<'a, T>>;

/// Exclusive access, and its lock.
pub(crate) struct MutexGuard<'a, T> {
    guard: Guard<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// std's mutex.
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    fn guard<'a>(&'a self, inner: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { guard: Guard::new(inner, place(self)), mutex: self }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.guard(take(place(self), || self.0.try_lock(), || self.0.lock())))
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        scheduling_point();
        match self.0.try_lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Ok(self.guard(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    pub(crate) fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

/// std's reader-writer lock.
pub(crate) struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        Ok(Guard::new(take(place(self), || self.0.try_read(), || self.0.read()), place(self)))
    }

    pub(crate) fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        Ok(Guard::new(take(place(self), || self.0.try_write(), || self.0.write()), place(self)))
    }
}

/// std's condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

/// Whether a wait ended by timeout.
pub(crate) struct WaitTimeout(bool);

impl WaitTimeout {
    pub(crate) const fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.wait_until(guard, None).map(|(guard, _)| guard).map_err(|_| unreachable!("never poisoned"))
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeout)> {
        self.wait_until(guard, Some(timeout))
    }

    fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeout)> {
        let MutexGuard { guard, mutex } = guard;
        let Some((world, id)) = me() else {
            let (inner, timed_out) = match timeout {
                // WAIT: park - as std's.
                None => (self.0.wait(guard.into_inner()).unwrap_or_else(PoisonError::into_inner), false),
                Some(timeout) => {
                    // WAIT: park - as std's.
                    let waited = self.0.wait_timeout(guard.into_inner(), timeout);
                    let (inner, result) = waited.unwrap_or_else(PoisonError::into_inner);
                    (inner, result.timed_out())
                }
            };
            return Ok((mutex.guard(inner), WaitTimeout(timed_out)));
        };
        let at = guard.at;
        drop(guard.into_inner());
        world.wake(On::Lock(at), usize::MAX);
        // WAIT: park - until a notification or the end of the time.
        let timed_out = world.wait(id, On::Signal(place(self)), timeout);
        Ok((mutex.lock().unwrap_or_else(PoisonError::into_inner), WaitTimeout(timed_out)))
    }

    pub(crate) fn notify_one(&self) {
        self.notify(1);
    }

    pub(crate) fn notify_all(&self) {
        self.notify(usize::MAX);
    }

    fn notify(&self, most: usize) {
        match me() {
            Some((world, _)) => {
                world.wake(On::Signal(place(self)), most);
                scheduling_point();
            }
            // A thread outside of the scheduler notifies std's condition variable, where only such threads wait.
            None if most == 1 => self.0.notify_one(),
            None => self.0.notify_all(),
        }
    }
}
