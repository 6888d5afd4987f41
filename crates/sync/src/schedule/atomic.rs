//! std's atomics, with a scheduling point before each access.

use super::scheduling_point;
use std::fmt;
use std::sync::atomic::Ordering;

/// A fence. It adds nothing to the order of the one running task.
pub fn fence(order: Ordering) {
    scheduling_point();
    std::sync::atomic::fence(order);
}

/// Methods that are a scheduling point and then std's of the same name. The point comes behind the arguments, which may
/// be accesses themselves.
macro_rules! accesses {
    ($($method:ident($($argument:ident: $type:ty),+) $(-> $answer:ty)?;)+) => {$(
        #[inline]
        pub fn $method(&self, $($argument: $type),+) $(-> $answer)? {
            scheduling_point();
            self.0.$method($($argument),+)
        }
    )+};
}

macro_rules! atomic {
    ($name:ident, $value:ty, { $($extra:tt)* }) => {
        /// The atomic of this name, with a scheduling point before each access.
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(missing_docs, reason = "each is std's method of the same name")]
        impl $name {
            accesses! {
                load(order: Ordering) -> $value;
                store(value: $value, order: Ordering);
                swap(value: $value, order: Ordering) -> $value;
                compare_exchange(current: $value, new: $value, success: Ordering, failure: Ordering)
                    -> Result<$value, $value>;
                fetch_and(value: $value, order: Ordering) -> $value;
                fetch_or(value: $value, order: Ordering) -> $value;
                fetch_xor(value: $value, order: Ordering) -> $value;
                $($extra)*
            }
            #[inline]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }
            /// Never fails without a reason.
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
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            #[inline]
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
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
            fetch_add(value: $value, order: Ordering) -> $value;
            fetch_sub(value: $value, order: Ordering) -> $value;
            fetch_max(value: $value, order: Ordering) -> $value;
            fetch_min(value: $value, order: Ordering) -> $value;
        });
    )+};
}

atomic!(AtomicBool, bool, {});
atomic!(AtomicI32 i32, AtomicI64 i64, AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize);
