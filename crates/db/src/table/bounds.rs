//! Ranges and prefixes of keys, as callers write them.

use foreshore_base::key::Key;
use std::{
    borrow::Borrow,
    ops::{self, Bound},
};

/// The lower and the upper bound of a range, with borrowed keys.
type Bounds<'b, K> = (Bound<&'b K>, Bound<&'b K>);

/// A range of keys of a table: `a..b`, `a..=b`, `a..`, `..b`, `..=b`, `..`, or a pair of [`Bound`]s.
///
/// Its keys are passed by value or by reference, as in the methods of [`Table`](crate::Table): `1..5`, `&a..&b`,
/// `"a".."b"`.
pub trait KeyRange<'k, K: Key> {
    /// Returns the bounds.
    fn bounds(&self) -> Bounds<'_, K::Ref<'k>>;
}

/// Ranges of a type that implements `RangeBounds`.
macro_rules! ranges {
    ($($range:ty),*) => {$(
        impl<'k, K: Key, Q: Borrow<K::Ref<'k>>> KeyRange<'k, K> for $range {
            fn bounds(&self) -> Bounds<'_, K::Ref<'k>> {
                (ops::RangeBounds::start_bound(self).map(Q::borrow), ops::RangeBounds::end_bound(self).map(Q::borrow))
            }
        }
    )*};
}

ranges!(
    ops::Range<Q>,
    ops::RangeInclusive<Q>,
    ops::RangeFrom<Q>,
    ops::RangeTo<Q>,
    ops::RangeToInclusive<Q>,
    (Bound<Q>, Bound<Q>)
);

impl<'k, K: Key> KeyRange<'k, K> for ops::RangeFull {
    fn bounds(&self) -> Bounds<'_, K::Ref<'k>> {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<'k, K: Key, R: KeyRange<'k, K> + ?Sized> KeyRange<'k, K> for &R {
    fn bounds(&self) -> Bounds<'_, K::Ref<'k>> {
        (**self).bounds()
    }
}

/// A prefix of keys: the first characters of a string, or the first bytes of a byte string. For tuples it is a shorter
/// tuple with the first parts, such as `(7,)` for keys `(u64, &str)`.
pub trait KeyPrefix<'k, K: Key> {
    /// Appends the bytes with which the encoding of a key begins if and only if the key has this prefix.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends the same for keys that are encoded as a part of a longer key.
    fn encode_part(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }
}

/// Strings and byte strings: the encoding of the prefix is a prefix of the encoding of the key.
macro_rules! strings {
    ($($prefix:ty => $($key:ty)*;)*) => {$($(
        impl<'k> KeyPrefix<'k, $key> for &$prefix {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(AsRef::<[u8]>::as_ref(*self));
            }

            fn encode_part(&self, out: &mut Vec<u8>) {
                <&[u8]>::encode_key_part(&AsRef::<[u8]>::as_ref(*self), out);
                // Removes the terminator of the part.
                out.truncate(out.len() - 2);
            }
        }
    )*)*};
}

strings! {
    str => &str String;
    [u8] => &[u8] Vec<u8>;
}

/// The first parts of a tuple. The encoding of each part is self-delimiting. In `A P 0; B`, the prefix has a part of
/// type `A`, passed as a `P`, at index 0. `B` is the type of a part behind the prefix.
macro_rules! tuple {
    ($($part:ident $given:ident $index:tt),* ; $($rest:ident)*) => {
        impl<'k, $($part: Key,)* $($rest: Key,)* $($given: Borrow<$part::Ref<'k>>,)*>
            KeyPrefix<'k, ($($part,)* $($rest,)*)> for ($($given,)*)
        {
            fn encode(&self, out: &mut Vec<u8>) {
                $($part::encode_key_part(self.$index.borrow(), out);)*
            }
        }
    };
}

tuple!(A P 0; B);
tuple!(A P 0; B C);
tuple!(A P 0, B Q 1; C);
tuple!(A P 0; B C D);
tuple!(A P 0, B Q 1; C D);
tuple!(A P 0, B Q 1, C R 2; D);
tuple!(A P 0; B C D E);
tuple!(A P 0, B Q 1; C D E);
tuple!(A P 0, B Q 1, C R 2; D E);
tuple!(A P 0, B Q 1, C R 2, D S 3; E);
tuple!(A P 0; B C D E F);
tuple!(A P 0, B Q 1; C D E F);
tuple!(A P 0, B Q 1, C R 2; D E F);
tuple!(A P 0, B Q 1, C R 2, D S 3; E F);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4; F);
tuple!(A P 0; B C D E F G);
tuple!(A P 0, B Q 1; C D E F G);
tuple!(A P 0, B Q 1, C R 2; D E F G);
tuple!(A P 0, B Q 1, C R 2, D S 3; E F G);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4; F G);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5; G);
tuple!(A P 0; B C D E F G H);
tuple!(A P 0, B Q 1; C D E F G H);
tuple!(A P 0, B Q 1, C R 2; D E F G H);
tuple!(A P 0, B Q 1, C R 2, D S 3; E F G H);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4; F G H);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5; G H);
tuple!(A P 0, B Q 1, C R 2, D S 3, E T 4, F U 5, G V 6; H);
