//! Options and tuples, of parts.

use super::{Key, Value, whole};
use crate::codec::Decoder;

impl<T: Value> Value for Option<T> {
    type Ref<'a> = Option<T::Ref<'a>>;
    type Owned = Option<T::Owned>;

    fn type_name() -> String {
        format!("option<{}>", T::type_name())
    }

    fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
        owned.as_ref().map(T::to_ref)
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

            fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
                ($($name::to_ref(&owned.$index),)*)
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

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
