//! Types whose encoding has a fixed length, the same whole and as a part.

use super::{Key, Value, whole};
use crate::Uuid;
use crate::codec::Decoder;

/// Value and key methods for types whose encoding has a fixed length, the same whole and as a part.
macro_rules! fixed {
    (value { $encode:expr, $decode:expr }) => {
        fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
            *owned
        }
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
        #[inline]
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

/// Floating-point numbers, `$bits` wide, in their total order.
macro_rules! float {
    ($($float:ident as $bits:ident, $signed:ident;)*) => {$(
        impl Value for $float {
            type Ref<'a> = Self;
            type Owned = Self;

            fn type_name() -> String {
                stringify!($float).into()
            }

            fixed!(value { Self::to_le_bytes, |bytes| Some(Self::from_le_bytes(bytes)) });
        }

        impl Key for $float {
            fixed!(key {
                |n: Self| {
                    let bits = n.to_bits();
                    // All bits of a negative number, and the sign bit of any other.
                    let flip = (bits.cast_signed() >> ($bits::BITS - 1)).cast_unsigned() | $signed::MIN.cast_unsigned();
                    (bits ^ flip).to_be_bytes()
                },
                |bytes| {
                    let placed = $bits::from_be_bytes(bytes);
                    let flip = (!placed.cast_signed() >> ($bits::BITS - 1)).cast_unsigned() | $signed::MIN.cast_unsigned();
                    Some(Self::from_bits(placed ^ flip))
                }
            });
        }
    )*};
}

float! {
    f32 as u32, i32;
    f64 as u64, i64;
}

impl Value for char {
    type Ref<'a> = Self;
    type Owned = Self;

    fn type_name() -> String {
        "char".into()
    }

    fixed!(value { |c| u32::from(c).to_le_bytes(), |bytes| Self::from_u32(u32::from_le_bytes(bytes)) });
}

impl Key for char {
    fixed!(key { |c| u32::from(c).to_be_bytes(), |bytes| Self::from_u32(u32::from_be_bytes(bytes)) });
}

impl Value for Uuid {
    type Ref<'a> = Self;
    type Owned = Self;

    fn type_name() -> String {
        "uuid".into()
    }

    fixed!(value { |uuid: Self| uuid.0, |bytes| Some(Self(bytes)) });
}

impl Key for Uuid {
    fixed!(key { |uuid: Self| uuid.0, |bytes| Some(Self(bytes)) });
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
