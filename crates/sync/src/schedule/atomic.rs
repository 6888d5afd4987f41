//! std's atomics, with a scheduling point before each access.

use super::scheduling_point;
use std::fmt;
use std::sync::atomic::Ordering;

/// A fence. It adds nothing to the order of the one running task.
pub fn fence(order: Ordering) {
    scheduling_point();
    std::sync::atomic::fence(order);
}

macro_rules! atomic {
    ($name:ident, $value:ty, { $($extra:tt)* }) => {
        /// The atomic of this name, with a scheduling point before each access.
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(missing_docs, reason = "each is std's method of the same name")]
        impl $name {
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                scheduling_point();
                self.0.load(order)
            }
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                scheduling_point();
                self.0.store(value, order);
            }
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.swap(value, order)
            }
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                scheduling_point();
                self.0.compare_exchange(current, new, success, failure)
            }
            /// Never fails spuriously.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(fetch);
                while let Some(next) = update(before) {
                    match self.compare_exchange(before, next, set, fetch) {
                        Ok(before) => return Ok(before),
                        Err(now) => before = now,
                    }
                }
                Err(before)
            }
            #[inline]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.fetch_and(value, order)
            }
            #[inline]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.fetch_or(value, order)
            }
            #[inline]
            pub fn fetch_xor(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.fetch_xor(value, order)
            }
            #[inline]
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
            $($extra)*
        }

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
    ($($name:ident $value:ty),+) => {$(
        atomic!($name, $value, {
            #[inline]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.fetch_add(value, order)
            }
            #[inline]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.fetch_sub(value, order)
            }
            #[inline]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.fetch_max(value, order)
            }
            #[inline]
            pub fn fetch_min(&self, value: $value, order: Ordering) -> $value {
                scheduling_point();
                self.0.fetch_min(value, order)
            }
        });
    )+};
}

atomic!(AtomicBool, bool, {});
atomic!(AtomicI32 i32, AtomicI64 i64, AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize);
