//! Keys in descending order.
//!
//! The bits of the part are flipped. No part is a prefix of another one, so two different parts differ in a byte, and
//! that byte decides in both orders. The whole form would not do: a string and its extension would keep their order.

use super::{Key, Value};
use crate::codec::Decoder;
use std::cmp::Reverse;

impl<T: Value> Value for Reverse<T> {
    type Ref<'a> = Reverse<T::Ref<'a>>;
    type Owned = Reverse<T::Owned>;

    fn type_name() -> String {
        format!("reverse<{}>", T::type_name())
    }

    fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
        Reverse(T::to_ref(&owned.0))
    }

    fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
        T::encode(&value.0, out);
    }

    fn decode(bytes: &[u8]) -> Option<Self::Owned> {
        T::decode(bytes).map(Reverse)
    }

    fn encode_part(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
        T::encode_part(&value.0, out);
    }

    fn decode_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
        T::decode_part(from).map(Reverse)
    }
}

impl<T: Key> Key for Reverse<T> {
    fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        Self::encode_key_part(key, out);
    }

    fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        T::encode_key_part(&key.0, out);
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }

    fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
        unflipped(from, T::decode_key_part).map(Reverse)
    }
}

/// Decodes a part from the front of `from`, whose bits are flipped.
pub(super) fn unflipped<T>(from: &mut Decoder<'_>, decode: impl FnOnce(&mut Decoder<'_>) -> Option<T>) -> Option<T> {
    let flipped: Vec<u8> = from.rest().iter().map(|byte| !byte).collect();
    let mut inner = Decoder::new(&flipped);
    let value = decode(&mut inner)?;
    let used = flipped.len() - inner.rest().len();
    from.bytes(used).ok().map(|_| value)
}
