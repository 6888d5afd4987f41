//! A value for each thread that asks for one, in an object that threads share.
//!
//! 1. The first value belongs to the thread that asks first. A further thread makes its own.
//! 2. A thread that ends calls [`EndWithThread::end`] for its values, except first ones.
//! 3. All values stay in their places until the whole object is dropped.
//!
//! **Invariant:** a reference to a value exists only on the thread that owns the value. So `T` need not be `Sync`.

use crate::counter::thread_number;
use crate::{LockRank, RwLock};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, Weak};

/// A value that frees what it holds when its thread ends.
pub trait EndWithThread {
    /// Called on the thread that owns the value, at its end. The thread may still have references to the value.
    fn end(&self);
}

/// A value for each thread that has asked for one.
///
/// A thread asks rarely, and keeps what it gets.
pub struct PerThread<T> {
    /// The number of the thread that owns the first value.
    owner: OnceLock<usize>,
    first: T,
    others: Others<T>,
}

// SAFETY: `get` returns a reference to the first value only on the thread whose number is its owner's. Numbers are
// given to one thread each and never again, and `&T` of a `T` that is not `Sync` does not leave the thread. The other
// methods take the object exclusively, and thereby the value from its thread, for which it is `Send`.
unsafe impl<T: Send> Sync for PerThread<T> {}

impl<T: EndWithThread + Send + 'static> PerThread<T> {
    /// Holds a first value, for the thread that is the first to call [`get`](Self::get).
    pub const fn new(first: T) -> Self {
        Self { owner: OnceLock::new(), first, others: Others(OnceLock::new()) }
    }

    /// Returns the value of the calling thread. If it has none, it gets the first one if that is free, or else `make`
    /// makes its value.
    ///
    /// A thread whose thread-locals are gone makes a value at each call.
    ///
    /// # Errors
    /// Those of `make`.
    #[inline]
    pub fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let this = thread_number();
        if *self.owner.get_or_init(|| this) == this { Ok(&self.first) } else { self.others.get(this, make) }
    }

    /// Returns the first value and those of other threads.
    pub fn into_values(self) -> (T, Vec<T>) {
        (self.first, self.others.take().into_values().map(Own::into_value).collect())
    }
}

/// The values of further threads, by the numbers of the threads.
struct Others<T>(OnceLock<Arc<RwLock<Owners<T>>>>);

type Owners<T> = BTreeMap<usize, Own<T>>;

impl<T: EndWithThread + Send + 'static> Others<T> {
    #[cold]
    fn get<E>(&self, this: usize, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let owners = self.0.get_or_init(|| Arc::new(RwLock::new(LockRank::PerThread, BTreeMap::new())));
        let own = owners.read().get(&this).map(|own| own.0);
        let own = match own {
            Some(own) => own,
            None => {
                let new = Own::new(make()?);
                // `make` may have called this, and got a value: that one stays. The new one is dropped unlocked.
                let (own, new) = match owners.write().entry(this) {
                    Entry::Occupied(known) => (known.get().0, Some(new)),
                    Entry::Vacant(place) => (place.insert(new).0, None),
                };
                if new.is_none() {
                    end_with_thread(Arc::downgrade(owners) as Weak<dyn EndThread>);
                }
                own
            }
        };
        // SAFETY: the value stays in its place until `self` is dropped, and this is the thread that owns it.
        Ok(unsafe { own.as_ref() })
    }
}

impl<T> Others<T> {
    fn take(&self) -> Owners<T> {
        self.0.get().map(|owners| std::mem::take(&mut *owners.write())).unwrap_or_default()
    }
}

impl<T> Drop for Others<T> {
    fn drop(&mut self) {
        // Not left to the last reference, which a thread that ends may have: no value outlives this object.
        drop(self.take());
    }
}

/// A value in a place of its own, to which its thread may have references.
struct Own<T>(NonNull<T>);

// SAFETY: it owns the value, as a box does.
unsafe impl<T: Send> Send for Own<T> {}
// SAFETY: threads that share it copy the pointer. The thread that owns the value alone uses that.
unsafe impl<T: Send> Sync for Own<T> {}

impl<T> Own<T> {
    fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    fn into_value(self) -> T {
        let place = self.0;
        std::mem::forget(self);
        // SAFETY: it was made by `Box`, and is given up here.
        *unsafe { Box::from_raw(place.as_ptr()) }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        // SAFETY: as in `into_value`. References ended before the object that has the value.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// An object that may have a value of a thread.
trait EndThread {
    /// Ends the value of the calling thread, whose number is `this`.
    fn end_thread(&self, this: usize);
}

impl<T: EndWithThread> EndThread for RwLock<Owners<T>> {
    fn end_thread(&self, this: usize) {
        // Under the lock, so that no other thread takes the value meanwhile.
        if let Some(own) = self.read().get(&this) {
            // SAFETY: the value is there while the lock is held, and this is the thread that owns it.
            unsafe { own.0.as_ref() }.end();
        }
    }
}

/// The objects that have values of one thread, and the thread's number. Those that are gone are left out now and then.
struct Ends(usize, Vec<Weak<dyn EndThread>>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.1.iter().filter_map(Weak::upgrade).for_each(|object| object.end_thread(self.0));
    }
}

/// Ends the value that the calling thread has in `object` when the thread ends.
fn end_with_thread(object: Weak<dyn EndThread>) {
    std::thread_local! {
        static ENDS: RefCell<Ends> = RefCell::new(Ends(thread_number(), Vec::new()));
    }
    // In a thread whose thread-locals are gone, the value ends with the object.
    let _ = ENDS.try_with(|ends| {
        let objects = &mut ends.borrow_mut().1;
        if objects.len() == objects.capacity() {
            objects.retain(|object| object.strong_count() > 0);
        }
        objects.push(object);
    });
}

impl<T> fmt::Debug for PerThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerThread").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::thread;
    use std::cell::Cell;
    use std::convert::Infallible;

    #[derive(Default)]
    struct Count {
        uses: Cell<u64>,
        ends: Cell<u64>,
    }

    impl EndWithThread for Count {
        fn end(&self) {
            self.ends.set(self.ends.get() + 1);
        }
    }

    #[test]
    fn each_thread_has_its_value_and_the_first_one_is_used() {
        const THREADS: u64 = 8;
        const ROUNDS: u64 = 1000;
        let values = PerThread::new(Count::default());
        let threads = thread::scope(|scope| {
            let threads = (0..THREADS).map(|thread| {
                let values = &values;
                scope.spawn(move || {
                    let own: *const _ = values.get(|| Ok::<_, Infallible>(Count::default())).unwrap();
                    for _ in 0..ROUNDS {
                        let value = values
                            .get(|| panic!("thread {thread} has a value"))
                            .unwrap_or_else(|never: Infallible| match never {});
                        assert!(std::ptr::eq(value, own));
                        value.uses.set(value.uses.get() + 1);
                    }
                })
            });
            threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
            THREADS
        });
        let (first, others) = values.into_values();
        assert_eq!((first.uses.get(), first.ends.get()), (ROUNDS, 0));
        assert_eq!(others.len() as u64, threads - 1);
        assert!(others.iter().all(|value| value.uses.get() == ROUNDS && value.ends.get() <= 1));
    }

    #[test]
    fn a_thread_ends_its_value_and_no_value_of_others() {
        let values = Arc::new(PerThread::new(Count::default()));
        values.get(|| Ok::<_, Infallible>(Count::default())).unwrap();
        let late = PerThread::new(Count::default());
        late.get(|| Ok::<_, Infallible>(Count::default())).unwrap();
        let use_both = {
            let values = Arc::clone(&values);
            move || {
                values.get(|| Ok::<_, Infallible>(Count::default())).unwrap();
                late.get(|| Ok::<_, Infallible>(Count::default())).unwrap();
                // This object is gone when the thread ends.
                drop(late);
            }
        };
        thread::spawn(use_both).join().unwrap();
        // A join waits for the thread's end, and that for its thread-locals.
        let values = Arc::into_inner(values).expect("the thread has ended");
        let (first, others) = values.into_values();
        assert_eq!((first.ends.get(), others.len(), others[0].ends.get()), (0, 1, 1));
    }

    #[test]
    fn a_value_that_is_made_within_another_one_stays() {
        let values = PerThread::new(Count::default());
        values.get(|| Ok::<_, Infallible>(Count::default())).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut inner = None;
                let outer = values.get(|| {
                    inner = Some(values.get(|| Ok::<_, Infallible>(Count::default())).unwrap());
                    Ok::<_, Infallible>(Count::default())
                });
                assert!(std::ptr::eq(outer.unwrap(), inner.unwrap()));
            });
        });
        assert_eq!(values.into_values().1.len(), 1);
    }

    #[test]
    fn a_value_that_cannot_be_made_is_asked_for_again() {
        let values = PerThread::new(Count::default());
        assert_eq!(values.get(|| Err(())).unwrap().uses.get(), 0, "the first one is there");
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(values.get(|| Err(())).is_err());
                assert_eq!(values.get(|| Ok::<_, ()>(Count::default())).unwrap().uses.get(), 0);
            });
        });
        assert!(values.get(|| Err(())).is_ok());
        assert_eq!(values.into_values().1.len(), 1);
    }
}
