//! Byte strings and text: raw when whole, escaped and terminated as a part of a key.
//!
//! In a part, a zero byte becomes `00 FF`, and `00 00` ends it. So parts sort as the strings do, and none is a prefix
//! of another.

use super::{Key, Value};
use crate::codec::Decoder;

impl Value for &[u8] {
    type Ref<'a> = &'a [u8];
    type Owned = Vec<u8>;

    fn type_name() -> String {
        "bytes".into()
    }

    fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
        owned
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

    fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
        owned
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

/// Owned types that are another spelling of a borrowed one: `TableDef<String, Vec<u8>>` opens the same table as
/// `TableDef<&str, &[u8]>`, and its methods take `&str` and `&[u8]`.
macro_rules! owned {
    ($($owned:ty as $borrowed:ty;)*) => {$(
        impl Value for $owned {
            type Ref<'a> = <&'a $borrowed as Value>::Ref<'a>;
            type Owned = Self;

            fn type_name() -> String {
                <&$borrowed>::type_name()
            }

            fn to_ref(owned: &Self::Owned) -> Self::Ref<'_> {
                owned
            }

            fn encode(value: &Self::Ref<'_>, out: &mut Vec<u8>) {
                <&$borrowed>::encode(value, out);
            }

            fn decode(bytes: &[u8]) -> Option<Self::Owned> {
                <&$borrowed>::decode(bytes)
            }
        }

        impl Key for $owned {
            fn encode_key(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
                <&$borrowed>::encode_key(key, out);
            }

            fn decode_key(bytes: &[u8]) -> Option<Self::Owned> {
                <&$borrowed>::decode_key(bytes)
            }

            fn encode_key_part(key: &Self::Ref<'_>, out: &mut Vec<u8>) {
                <&$borrowed>::encode_key_part(key, out);
            }

            fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self::Owned> {
                <&$borrowed>::decode_key_part(from)
            }
        }
    )*};
}

owned! {
    String as str;
    Vec<u8> as [u8];
}
