//! Types whose encoding has a fixed length, the same whole and as a part.

use super::{Key, Value, whole};
use crate::codec::Decoder;

/// Value and key methods for types whose encoding has a fixed length, the same whole and as a part.
macro_rules! fixed {
    (value { $encode:expr, $decode:expr }) => {
        fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
            out.extend_from_slice(&$encode(*value));
        }
        fn decode(bytes: &[u8]) -> Option<Self::Owned> {
            whole(bytes, Self::decode_part)
        }
        fn encode_part(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
            Self::encode(value, out);
        }
        fn decode_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
            from.array().ok().and_then($decode)
        }
    };
    (key { $encode:expr, $decode:expr }) => {
        fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
            out.extend_from_slice(&$encode(*key));
        }
        fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
            Self::encode_key(key, out);
        }
        fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
            from.array().ok().and_then($decode)
        }
    };
}

/// Integers; `$flip` has the bits that differ between the number and its place in the order.
macro_rules! integer {
    ($($int:ident flip $flip:expr;)*) => {$(
        impl Value for $int {
            type Ref<'a> = Self;
            type Owned = Self;

            fn type_name() -> String {
                stringify!($int).into()
            }

            fixed!(value { Self::to_le_bytes, |bytes| Some(Self::from_le_bytes(bytes)) });
        }

        impl Key for $int {
            fixed!(key { |n: Self| (n ^ $flip).to_be_bytes(), |bytes| Some(Self::from_be_bytes(bytes) ^ $flip) });
        }
    )*};
}

integer! {
    u8 flip 0;
    u16 flip 0;
    u32 flip 0;
    u64 flip 0;
    u128 flip 0;
    i8 flip Self::MIN;
    i16 flip Self::MIN;
    i32 flip Self::MIN;
    i64 flip Self::MIN;
    i128 flip Self::MIN;
}

/// Zero and one are the only bytes of a `bool`.
fn bool_from([byte]: [u8; 1]) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

impl Value for bool {
    type Ref<'a> = Self;
    type Owned = Self;

    fn type_name() -> String {
        "bool".into()
    }

    fixed!(value { |b| [u8::from(b)], bool_from });
}

impl Key for bool {
    fixed!(key { |b| [u8::from(b)], bool_from });
}

impl<const N: usize> Value for [u8; N] {
    type Ref<'a> = Self;
    type Owned = Self;

    fn type_name() -> String {
        format!("[u8;{N}]")
    }

    fixed!(value { |bytes: Self| bytes, Some });
}

impl<const N: usize> Key for [u8; N] {
    fixed!(key { |bytes: Self| bytes, Some });
}

impl Value for () {
    type Ref<'a> = ();
    type Owned = ();

    fn type_name() -> String {
        "unit".into()
    }

    fixed!(value { |()| [], |[]: [u8; 0]| Some(()) });
}
