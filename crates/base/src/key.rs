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
//! | `f32`, `f64` | `f64` | big-endian, sign bit flipped; negative: all bits flipped | same | little-endian | same |
//! | `bool` | `bool` | `00` or `01` | same | same | same |
//! | `char` | `char` | its number, as `u32` | same | its number, as `u32` | same |
//! | `&str`, `String` | `str` | UTF-8 | each `00` as `00 FF`, then `00 00` | UTF-8 | length in 4 bytes, UTF-8 |
//! | `&[u8]`, `Vec<u8>` | `bytes` | the bytes | each `00` as `00 FF`, then `00 00` | the bytes | length in 4 bytes, the bytes |
//! | `[u8; N]` | `[u8;16]` | the bytes | same | same | same |
//! | [`Uuid`](crate::Uuid) | `uuid` | the 16 bytes | same | same | same |
//! | [`Timestamp`] | `time` | seconds since 1970 as `i64`, nanoseconds as `u32` | same | the same fields | same |
//! | `Duration` | `duration` | seconds as `u64`, nanoseconds as `u32` | same | the same fields | same |
//! | `Option<T>` | `option<u64>` | `00`, or `01` and `T` whole | `00`, or `01` and `T` as part | `00`, or `01` and `T` whole | `00`, or `01` and `T` as part |
//! | `Reverse<T>` | `reverse<u64>` | `T` as part, all bits flipped | same | `T` whole | `T` as part |
//! | tuples of 1 to 8 | `(u64,str)` | the parts | same | the parts | same |
//! | `()` | `unit` | - | - | nothing | nothing |
//!
//! Floating-point numbers are in the total order of IEEE 754, as `f64::total_cmp`: negative NaN, -∞ … -0, 0 … ∞, NaN.
//!
//! A string sorts before its extensions in both encodings. As a whole key the shorter string is a prefix of the longer.
//! As a part of a tuple it ends with `00 00`, which is below the escape `00 FF` and below every other byte. The
//! encoding of the first parts of a tuple is a prefix of the encoding of every tuple that begins with them.
//!
//! Decoding never panics. Bytes that no value encodes to give `None`.

mod fixed;
mod nested;
mod reverse;
mod shown;
mod text;
mod time;

#[cfg(test)]
mod tests;

pub use shown::{MAX_NAMED_KEY, write_key};
pub use time::Timestamp;

use crate::codec::Decoder;
use std::fmt::Debug;

/// A type that tables hold as values.
///
/// `Ref` is what a caller passes in and `Owned` what it gets back: `&str` and `String` for text, the type itself for
/// numbers. A method that takes `impl Borrow<V::Ref<'a>>` accepts both `7_u64` and `&7`, and `"text"`. An application
/// may implement it; the documentation of `TableDef` has an example.
///
/// Encoding and decoding are parts of an operation of a transaction. They must not use that transaction.
#[diagnostic::on_unimplemented(
    note = "a struct or an enum gets it by `#[derive(Value)]` of the crate `foreshore-derive`",
    note = "lists, maps and types that implement serde's traits are stored by the crate `foreshore-serde`"
)]
pub trait Value {
    /// The borrowed form.
    type Ref<'a>: Debug;
    /// The owned form.
    type Owned: Debug + Clone + Send + 'static;

    /// The name that the catalogue stores. Never changes for a type. Two types share it only if they encode alike.
    fn type_name() -> String;

    /// Returns the borrowed form of an owned value.
    fn to_ref(owned: &Self::Owned) -> Self::Ref<'_>;

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
    #[inline]
    fn decode_key(bytes: &[u8]) -> Option<Self::Owned> {
        whole(bytes, Self::decode_key_part)
    }
}

/// The least byte string above every one that starts with `prefix`. `None` if there is none: every byte is `FF`.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    to_after_prefix(&mut end).then_some(end)
}

/// Turns a prefix into the smallest key above all keys that begin with it. Returns false if there is none.
#[must_use]
pub fn to_after_prefix(prefix: &mut Vec<u8>) -> bool {
    let Some(last) = prefix.iter().rposition(|&byte| byte != 0xFF) else { return false };
    prefix.truncate(last + 1);
    prefix[last] += 1;
    true
}

/// Decodes with `part` and demands that nothing is left.
#[inline]
fn whole<T>(bytes: &[u8], part: impl FnOnce(&mut Decoder<'_>) -> Option<T>) -> Option<T> {
    let mut from = Decoder::new(bytes);
    let value = part(&mut from)?;
    from.is_empty().then_some(value)
}
