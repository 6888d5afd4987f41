//! A reference count that its owner does not touch when it hands out references.
//!
//! The owner counts its references in its own plain word. The shared count begins at [`BIAS`], and dropped references
//! decrement it. When the owner is dropped, it subtracts the bias and adds its own count: from then on the shared
//! count is the number of references.
//!
//! **Invariant:** the shared count is above zero while the owner or a reference exists. The operation that brings it
//! to zero frees the value.
//!
//! After Choi, Shull and Torrellas, "Biased Reference Counting: Minimizing Atomic Operations in Garbage Collection",
//! PACT 2018.

use crate::model::mutant;
use crate::primitive::atomic::{AtomicU64, Ordering, fence};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::{fmt, mem};

/// More than all references together.
const BIAS: u64 = 1 << 62;

/// Alone on its cache line: owners of different threads would write the line that their counts share.
#[repr(align(64))]
struct Counted<T> {
    count: AtomicU64,
    value: T,
}

impl<T> Counted<T> {
    /// Subtracts `references` from the count, and frees the value with the last one.
    ///
    /// # Safety
    /// The caller gives up as many of its references, and does not use `counted` after.
    unsafe fn release(counted: NonNull<Self>, references: u64) {
        // SAFETY: the caller's references keep the value until the subtraction.
        let count = unsafe { &counted.as_ref().count };
        // ORDERING: Release, all uses by this thread come before the value is freed.
        let before = count.fetch_sub(references, Ordering::Release);
        assert!(before >= references, "{references} references end, and there are {before}");
        if before == references {
            if !mutant("biased: no fence before the value is freed") {
                // ORDERING: Acquire, pairs with the releases of the other references.
                fence(Ordering::Acquire);
            }
            // SAFETY: it was made by `Box`, and that was the last reference.
            drop(unsafe { Box::from_raw(counted.as_ptr()) });
        }
    }
}

/// The owner of a value. Hands out references without a read-modify-write.
pub struct BiasedOwner<T> {
    counted: NonNull<Counted<T>>,
    handed_out: u64,
    owns: PhantomData<T>,
}

/// A reference to the value of a [`BiasedOwner`].
pub struct BiasedRef<T> {
    counted: NonNull<Counted<T>>,
    owns: PhantomData<T>,
}

// SAFETY: the value is shared by reference, and dropped by any of the threads, as by `Arc`.
unsafe impl<T: Send + Sync> Send for BiasedOwner<T> {}
// SAFETY: as above; handing out takes the owner exclusively.
unsafe impl<T: Send + Sync> Sync for BiasedOwner<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for BiasedRef<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for BiasedRef<T> {}

impl<T> BiasedOwner<T> {
    /// Owns `value`.
    pub fn new(value: T) -> Self {
        let counted = Box::new(Counted { count: AtomicU64::new(BIAS), value });
        Self { counted: NonNull::from(Box::leak(counted)), handed_out: 0, owns: PhantomData }
    }

    /// Hands out a reference.
    #[inline]
    pub fn hand_out(&mut self) -> BiasedRef<T> {
        self.handed_out += 1;
        BiasedRef { counted: self.counted, owns: PhantomData }
    }

    /// Drops a reference to the value. Makes no read-modify-write if this owner has handed out references to its value
    /// that it has not taken back.
    #[inline]
    pub fn take_back(&mut self, reference: BiasedRef<T>) {
        let is_own = reference.counted == self.counted || mutant("biased: a reference to another value is taken back");
        if is_own && self.handed_out > 0 {
            // It leaves this count, and the shared one no longer expects its drop. Which of the references leaves does
            // not matter.
            self.handed_out -= 1;
            mem::forget(reference);
        }
    }

    /// Returns the value, if no reference to it is left.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: the owner keeps the value.
        let count = unsafe { &self.counted.as_ref().count };
        // ORDERING: Relaxed, the fence below orders it.
        if count.load(Ordering::Relaxed) != BIAS - self.handed_out {
            if mutant("biased: the value changes under the last reference") {
                // SAFETY: none, a defect for the model.
                return Some(unsafe { &mut self.counted.as_mut().value });
            }
            return None;
        }
        if !mutant("biased: no fence before the value is changed") {
            // ORDERING: Acquire, pairs with the releases of all references. They have ended, and none can be cloned.
            fence(Ordering::Acquire);
        }
        // ORDERING: Relaxed, no other thread has a reference.
        count.store(BIAS, Ordering::Relaxed);
        self.handed_out = 0;
        // SAFETY: there is no reference, and the owner is borrowed exclusively.
        Some(unsafe { &mut self.counted.as_mut().value })
    }
}

impl<T> Deref for BiasedOwner<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the owner keeps the value.
        unsafe { &self.counted.as_ref().value }
    }
}

impl<T> Drop for BiasedOwner<T> {
    fn drop(&mut self) {
        assert!(self.handed_out < BIAS, "{} references were handed out", self.handed_out);
        // SAFETY: the owner's share of the count is the rest of the bias.
        unsafe { Counted::release(self.counted, BIAS - self.handed_out) }
    }
}

impl<T> Clone for BiasedRef<T> {
    fn clone(&self) -> Self {
        // SAFETY: this reference keeps the value.
        let count = unsafe { &self.counted.as_ref().count };
        // ORDERING: Relaxed, the new reference comes from an existing one.
        count.fetch_add(1, Ordering::Relaxed);
        Self { counted: self.counted, owns: PhantomData }
    }
}

impl<T> Deref for BiasedRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this reference keeps the value.
        unsafe { &self.counted.as_ref().value }
    }
}

impl<T> Drop for BiasedRef<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it was counted when it was handed out, or when the owner ends.
        unsafe { Counted::release(self.counted, 1) }
    }
}

impl<T> fmt::Debug for BiasedOwner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BiasedOwner").field("handed_out", &self.handed_out).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for BiasedRef<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_value_lives_as_long_as_its_owner_and_its_references() {
        let value = Arc::new(7);
        let mut owner = BiasedOwner::new(value.clone());
        let (first, second) = (owner.hand_out(), owner.hand_out());
        drop(first);
        assert_eq!(Arc::strong_count(&value), 2, "the owner is there");
        let third = second.clone();
        drop(owner);
        drop(second);
        assert_eq!((**third, Arc::strong_count(&value)), (7, 2), "a reference is there");
        drop(third);
        assert_eq!(Arc::strong_count(&value), 1);
        let mut owner = BiasedOwner::new(value.clone());
        drop(owner.hand_out());
        drop(owner);
        assert_eq!(Arc::strong_count(&value), 1, "the owner was the last");
    }
}
