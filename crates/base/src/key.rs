//! Order-preserving encoding of keys, and encoding of values.
//!
//! Comparing the bytes of two encoded keys gives the order of the keys, so trees compare bytes and nothing else.
//! A key encodes in two ways: *whole*, alone in its byte string, and as a *part* of a tuple or an option, where it
//! also delimits itself.
//!
//! | type | name | key, whole | key, part | value, whole | value, part |
//! |---|---|---|---|---|---|
//! | `u8` … `u128` | `u64` | big-endian | same | little-endian | same |
//! | `i8` … `i128` | `i64` | big-endian, sign bit flipped | same | little-endian | same |
//! | `bool` | `bool` | `00` or `01` | same | same | same |
//! | `&str` | `str` | UTF-8 | each `00` as `00 FF`, then `00 00` | UTF-8 | length in 4 bytes, UTF-8 |
//! | `&[u8]` | `bytes` | the bytes | each `00` as `00 FF`, then `00 00` | the bytes | length in 4 bytes, the bytes |
//! | `[u8; N]` | `[u8;16]` | the bytes | same | same | same |
//! | `Option<T>` | `option<u64>` | `00`, or `01` and `T` whole | `00`, or `01` and `T` as part | `00`, or `01` and `T` whole | `00`, or `01` and `T` as part |
//! | tuples of 2 to 6 | `(u64,str)` | the parts | same | the parts | same |
//! | `()` | `unit` | - | - | nothing | nothing |
//!
//! A string and its extension keep their order in both ways: whole, the shorter is a prefix of the longer; as a part,
//! the terminator `00 00` is below the escape `00 FF` and below every other byte. The encoding of the first parts of a
//! tuple is a prefix of the encoding of every tuple that begins with them.
//!
//! Decoding never panics. Bytes that no value encodes to give `None`.

use crate::codec::Decoder;
use std::fmt::Debug;

/// A type that tables hold as values.
///
/// `Ref` is what a caller passes in and `Owned` what it gets back: `&str` and `String` for text, the type itself for
/// numbers. A method that takes `impl Borrow<V::Ref<'a>>` accepts both `7_u64` and `&7`, and `"text"`.
pub trait Value {
    /// The borrowed form.
    type Ref<'a>: Debug;
    /// The owned form.
    type Owned: Debug + Clone + Send + 'static;

    /// The name that the catalogue stores. Never changes for a type.
    fn type_name() -> String;

    /// Appends the whole encoding.
    fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>);

    /// Decodes a whole encoding.
    fn decode(bytes: &[u8]) -> Option<Self::Owned>;

    /// Appends the encoding as a part. By default the whole one after its length in four bytes.
    fn encode_part(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        Self::encode(value, out);
        let len = u32::try_from(out.len() - start - 4).expect("values are far below 4 GiB");
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Decodes a part from the front of `from`.
    fn decode_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
        let len = from.u32().ok()?;
        Self::decode(from.bytes(usize::try_from(len).ok()?).ok()?)
    }
}

/// A type that tables hold as keys: comparing encoded bytes gives the order of the values.
pub trait Key: Value {
    /// Appends the whole encoding as a key.
    fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>);

    /// Appends the self-delimiting encoding as a part of a key.
    fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>);

    /// Decodes a part of a key from the front of `from`.
    fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned>;

    /// Decodes a whole key.
    fn decode_key(bytes: &[u8]) -> Option<Self::Owned> {
        whole(bytes, Self::decode_key_part)
    }
}

/// The least byte string above every one that starts with `prefix`. `None` if there is none: every byte is `FF`.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Decodes with `part` and demands that nothing is left.
fn whole<T>(bytes: &[u8], part: impl FnOnce(&mut Decoder<'_>) -> Option<T>) -> Option<T> {
    let mut from = Decoder::new(bytes);
    let value = part(&mut from)?;
    from.is_empty().then_some(value)
}

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

impl Value for &[u8] {
    type Ref<'a> = &'a [u8];
    type Owned = Vec<u8>;

    fn type_name() -> String {
        "bytes".into()
    }

    fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }

    fn decode(bytes: &[u8]) -> Option<Self::Owned> {
        Some(bytes.to_vec())
    }
}

impl Key for &[u8] {
    fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn decode_key(bytes: &[u8]) -> Option<Self::Owned> {
        Some(bytes.to_vec())
    }

    fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        for &byte in *key {
            out.push(byte);
            if byte == 0 {
                out.push(0xFF);
            }
        }
        out.extend_from_slice(&[0, 0]);
    }

    fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
        let mut bytes = Vec::new();
        loop {
            match from.u8().ok()? {
                0 => match from.u8().ok()? {
                    0 => return Some(bytes),
                    0xFF => bytes.push(0),
                    _ => return None,
                },
                byte => bytes.push(byte),
            }
        }
    }
}

impl Value for &str {
    type Ref<'a> = &'a str;
    type Owned = String;

    fn type_name() -> String {
        "str".into()
    }

    fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(value.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self::Owned> {
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

impl Key for &str {
    fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(key.as_bytes());
    }

    fn decode_key(bytes: &[u8]) -> Option<Self::Owned> {
        Self::decode(bytes)
    }

    fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        <&[u8]>::encode_key_part(&key.as_bytes(), out);
    }

    fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
        String::from_utf8(<&[u8]>::decode_key_part(from)?).ok()
    }
}

impl<T: Value> Value for Option<T> {
    type Ref<'a> = Option<T::Ref<'a>>;
    type Owned = Option<T::Owned>;

    fn type_name() -> String {
        format!("option<{}>", T::type_name())
    }

    fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.push(u8::from(value.is_some()));
        if let Some(value) = value {
            T::encode(value, out);
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self::Owned> {
        match bytes.split_first()? {
            (0, []) => Some(None),
            (1, rest) => T::decode(rest).map(Some),
            _ => None,
        }
    }

    fn encode_part(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.push(u8::from(value.is_some()));
        if let Some(value) = value {
            T::encode_part(value, out);
        }
    }

    fn decode_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
        match from.u8().ok()? {
            0 => Some(None),
            1 => T::decode_part(from).map(Some),
            _ => None,
        }
    }
}

impl<T: Key> Key for Option<T> {
    fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.push(u8::from(key.is_some()));
        if let Some(key) = key {
            T::encode_key(key, out);
        }
    }

    fn decode_key(bytes: &[u8]) -> Option<Self::Owned> {
        match bytes.split_first()? {
            (0, []) => Some(None),
            (1, rest) => T::decode_key(rest).map(Some),
            _ => None,
        }
    }

    fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        out.push(u8::from(key.is_some()));
        if let Some(key) = key {
            T::encode_key_part(key, out);
        }
    }

    fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
        match from.u8().ok()? {
            0 => Some(None),
            1 => T::decode_key_part(from).map(Some),
            _ => None,
        }
    }
}

macro_rules! tuple {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Value),*> Value for ($($name,)*) {
            type Ref<'a> = ($($name::Ref<'a>,)*);
            type Owned = ($($name::Owned,)*);

            fn type_name() -> String {
                format!("({})", [$($name::type_name()),*].join(","))
            }

            fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
                $($name::encode_part(&value.$index, out);)*
            }

            fn decode(bytes: &[u8]) -> Option<Self::Owned> {
                whole(bytes, Self::decode_part)
            }

            fn encode_part(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
                Self::encode(value, out);
            }

            fn decode_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
                Some(($($name::decode_part(from)?,)*))
            }
        }

        impl<$($name: Key),*> Key for ($($name,)*) {
            fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
                $($name::encode_key_part(&key.$index, out);)*
            }

            fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
                Self::encode_key(key, out);
            }

            fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
                Some(($($name::decode_key_part(from)?,)*))
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
