//! Encodings of keys and values: what decodes encodes to the same bytes, keys keep their order, nothing panics.
#![no_main]

#[path = "../src/limit.rs"]
mod limit;

use foreshore_base::codec::Decoder;
use foreshore_base::key::{Key, Value, after_prefix};
use foreshore_fuzz::input::Input;
use libfuzzer_sys::fuzz_target;

/// Checks a type on two byte strings. The closure borrows from what is owned.
macro_rules! check {
    ($left:expr, $right:expr, $type:ty, $borrow:expr) => {{
        one::<$type>($left, $borrow);
        one::<$type>($right, $borrow);
        let (left, right) = (<$type>::decode_key($left), <$type>::decode_key($right));
        if let (Some(a), Some(b)) = (left, right) {
            let (a, b): (<$type as Value>::Owned, <$type as Value>::Owned) = (a, b);
            assert_eq!(a.cmp(&b), $left.cmp($right), "{a:?} and {b:?} are out of order");
            let parts = [&a, &b].map(|value| {
                let mut part = Vec::new();
                <$type>::encode_key_part(&borrowed::<$type, _>(value, $borrow), &mut part);
                part
            });
            assert_eq!(a.cmp(&b), parts[0].cmp(&parts[1]), "parts {a:?} and {b:?} are out of order");
        }
    }};
}

fn borrowed<'a, T: Value, F: Fn(&'a T::Owned) -> T::Ref<'a>>(owned: &'a T::Owned, borrow: F) -> T::Ref<'a> {
    borrow(owned)
}

fn one<T: Key<Owned: PartialEq>>(bytes: &[u8], borrow: impl for<'a> Fn(&'a T::Owned) -> T::Ref<'a>) {
    if let Some(owned) = T::decode_key(bytes) {
        let mut again = Vec::new();
        T::encode_key(&borrow(&owned), &mut again);
        assert_eq!(again, bytes, "another key encodes {owned:?}");
    }
    if let Some(owned) = T::decode(bytes) {
        let mut again = Vec::new();
        T::encode(&borrow(&owned), &mut again);
        assert_eq!(again, bytes, "another value encodes {owned:?}");
    }
    let mut from = Decoder::new(bytes);
    if let Some(owned) = T::decode_key_part(&mut from) {
        let mut again = Vec::new();
        T::encode_key_part(&borrow(&owned), &mut again);
        assert_eq!([&again[..], from.rest()].concat(), bytes, "another part of a key encodes {owned:?}");
    }
    let mut from = Decoder::new(bytes);
    if let Some(owned) = T::decode_part(&mut from) {
        let mut again = Vec::new();
        T::encode_part(&borrow(&owned), &mut again);
        assert_eq!([&again[..], from.rest()].concat(), bytes, "another part of a value encodes {owned:?}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let (kind, len) = (input.byte(), input.below(64));
    let left = input.bytes(len);
    let right = input.rest();
    if let Some(end) = after_prefix(left) {
        assert!(&end[..] > left && !end.starts_with(left));
        assert_eq!(right >= left && right < &end[..], right.starts_with(left));
    } else {
        assert!(left.iter().all(|&byte| byte == 0xFF));
    }
    match kind % 15 {
        0 => check!(left, right, u8, |v| *v),
        1 => check!(left, right, u64, |v| *v),
        2 => check!(left, right, i8, |v| *v),
        3 => check!(left, right, i64, |v| *v),
        4 => check!(left, right, i128, |v| *v),
        5 => check!(left, right, bool, |v| *v),
        6 => check!(left, right, &str, |v| &**v),
        7 => check!(left, right, &[u8], |v| &**v),
        8 => check!(left, right, [u8; 5], |v| *v),
        9 => check!(left, right, Option<u16>, |v| *v),
        10 => check!(left, right, Option<&str>, |v| v.as_deref()),
        11 => check!(left, right, (u16, &str), |v| (v.0, &*v.1)),
        12 => check!(left, right, (&str, &[u8], i16), |v| (&*v.0, &*v.1, v.2)),
        13 => check!(left, right, (Option<&[u8]>, bool), |v| (v.0.as_deref(), v.1)),
        _ => check!(left, right, ((&[u8], u8), Option<(&str, i8)>), |v| (
            (&*v.0.0, v.0.1),
            v.1.as_ref().map(|(text, number)| (&**text, *number))
        )),
    }
});
