use super::*;
use crate::Uuid;
use proptest::prelude::*;
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::time::Duration;

fn key<K: Key>(key: &K::Ref<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    K::encode_key(key, &mut out);
    out
}

fn key_part<K: Key>(key: &K::Ref<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    K::encode_key_part(key, &mut out);
    out
}

fn value<V: Value>(value: &V::Ref<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    V::encode(value, &mut out);
    out
}

fn value_part<V: Value>(value: &V::Ref<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    V::encode_part(value, &mut out);
    out
}

/// Round trips in all four forms; `owned` is `v` as its owner sees it.
fn round_trip<K: Key<Owned: PartialEq>>(v: &K::Ref<'_>, owned: &K::Owned) {
    assert_eq!(value::<K>(&K::to_ref(owned)), value::<K>(v));
    assert_eq!(key::<K>(&K::to_ref(owned)), key::<K>(v));
    assert_eq!(K::decode(&value::<K>(v)).as_ref(), Some(owned));
    assert_eq!(K::decode_key(&key::<K>(v)).as_ref(), Some(owned));
    let tail = [0, 0xFF, 0, 0, 7];
    for (part, decode) in
        [(value_part::<K>(v), K::decode_part as fn(&mut Decoder<'_>) -> _), (key_part::<K>(v), K::decode_key_part)]
    {
        let bytes = [&part[..], &tail].concat();
        let mut from = Decoder::new(&bytes);
        assert_eq!(decode(&mut from).as_ref(), Some(owned));
        assert_eq!(from.rest(), tail, "a part ends where it ends");
    }
}

/// Both key forms compare as the values do.
fn same_order<'a, K: Key<Ref<'a>: Ord>>(a: &K::Ref<'a>, b: &K::Ref<'a>) {
    assert_eq!(key::<K>(a).cmp(&key::<K>(b)), a.cmp(b), "{a:?} {b:?}");
    assert_eq!(key_part::<K>(a).cmp(&key_part::<K>(b)), a.cmp(b), "parts of {a:?} {b:?}");
}

/// Numbers near the ends and the sign change, where orders go wrong, and any others.
fn number() -> impl Strategy<Value = i128> {
    let edges = [0, 1, -1, 255, 256, i64::MIN.into(), i64::MAX.into(), i128::MIN, i128::MAX, u64::MAX.into()];
    prop_oneof![proptest::sample::select(edges.to_vec()), any::<i128>(), -300_i128..300]
}

/// Byte strings full of the bytes that escaping is about.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0), Just(1), Just(0xFE), Just(0xFF), any::<u8>()];
    proptest::collection::vec(byte, 0..6)
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![Just('\0'), Just('\u{1}'), Just('a'), any::<char>()], 0..5)
        .prop_map(|chars| chars.into_iter().collect())
}

fn borrowed((bytes, number, text): &(Vec<u8>, i128, String)) -> (&[u8], i64, &str) {
    (bytes, *number as i64, text)
}

macro_rules! all_integers {
    ($check:ident($a:expr, $b:expr): $($int:ident)*) => {$( $check!($int, $a as $int, $b as $int); )*};
}

macro_rules! check_integer {
    ($int:ident, $a:expr, $b:expr) => {
        same_order::<$int>(&$a, &$b);
        round_trip::<$int>(&$a, &$a);
        assert_eq!(key::<$int>(&$a).len(), size_of::<$int>());
    };
}

/// Numbers whose order is special, and any others.
fn float() -> impl Strategy<Value = f64> {
    let nan = f64::NAN.abs();
    let edges =
        [0.0, -0.0, f64::MIN_POSITIVE, -5e-324, f64::MIN, f64::MAX, f64::INFINITY, f64::NEG_INFINITY, nan, -nan];
    prop_oneof![proptest::sample::select(edges.to_vec()), any::<u64>().prop_map(f64::from_bits), -9.0..9.0]
}

/// Points in time on both sides of 1970, whole seconds among them.
fn time() -> impl Strategy<Value = Timestamp> {
    let nanos = prop_oneof![Just(0), Just(1), Just(999_999_999), 0_u32..1_000_000_000];
    (prop_oneof![-3_i64..3, any::<i64>()], nanos).prop_map(|(secs, nanos)| Timestamp::new(secs, nanos).unwrap())
}

proptest! {
    #[test]
    fn floats_in_total_order(a in float(), b in float()) {
        let (c, d) = (a as f32, b as f32);
        prop_assert_eq!(key::<f64>(&a).cmp(&key::<f64>(&b)), a.total_cmp(&b));
        prop_assert_eq!(key_part::<f32>(&c).cmp(&key_part::<f32>(&d)), c.total_cmp(&d));
        prop_assert_eq!(f64::decode_key(&key::<f64>(&a)).map(f64::to_bits), Some(a.to_bits()));
        prop_assert_eq!(f64::decode(&value::<f64>(&a)).map(f64::to_bits), Some(a.to_bits()));
        prop_assert_eq!(f32::decode_key(&key::<f32>(&c)).map(f32::to_bits), Some(c.to_bits()));
        prop_assert_eq!(f32::decode(&value::<f32>(&c)).map(f32::to_bits), Some(c.to_bits()));
    }

    #[test]
    fn characters_uuids_and_times(a: char, b: char, c: u128, d: u128, t in time(), u in time()) {
        same_order::<char>(&a, &b);
        round_trip::<char>(&a, &a);
        let (c, d) = (Uuid::from(c), Uuid::from(d));
        same_order::<Uuid>(&c, &d);
        round_trip::<Uuid>(&c, &c);
        same_order::<Timestamp>(&t, &u);
        round_trip::<Timestamp>(&t, &t);
        let since = |time: Timestamp| Duration::new(time.secs().unsigned_abs(), time.nanos());
        prop_assert_eq!(t.since_epoch().map(Timestamp::from), (t.secs() >= 0).then_some(t));
        same_order::<Duration>(&since(t), &since(u));
        round_trip::<Duration>(&since(t), &since(t));
    }

    #[test]
    fn reversed_keys_are_in_descending_order(a in (text(), number(), bytes()), b in (text(), number(), bytes())) {
        let of = |(text, number, _): &(String, i128, Vec<u8>)| Reverse((text.clone(), *number as i64));
        let (x, y) = (of(&a), of(&b));
        same_order::<Reverse<&str>>(&Reverse(&a.0), &Reverse(&b.0));
        round_trip::<Reverse<&str>>(&Reverse(&a.0), &Reverse(a.0.clone()));
        same_order::<Reverse<Option<&[u8]>>>(&Reverse(Some(&a.2)), &Reverse(Some(&b.2)));
        same_order::<Reverse<(String, i64)>>(&Reverse((&x.0.0, x.0.1)), &Reverse((&y.0.0, y.0.1)));
        round_trip::<Reverse<(String, i64)>>(&Reverse((&x.0.0, x.0.1)), &x);
        let (p, q) = ((Reverse(&a.2[..]), a.1 as i8, Reverse(Reverse(&*a.0))), (Reverse(&b.2[..]), b.1 as i8, Reverse(Reverse(&*b.0))));
        same_order::<(Reverse<&[u8]>, i8, Reverse<Reverse<&str>>)>(&p, &q);
    }

    #[test]
    fn owned_types_encode_as_borrowed_ones(a in text(), b in bytes()) {
        round_trip::<String>(&&*a, &a);
        round_trip::<Vec<u8>>(&&*b, &b);
        prop_assert_eq!(key_part::<(String, Vec<u8>)>(&(&a, &b)), key_part::<(&str, &[u8])>(&(&a, &b)));
        prop_assert_eq!(value_part::<(String, Vec<u8>)>(&(&a, &b)), value_part::<(&str, &[u8])>(&(&a, &b)));
    }

    #[test]
    fn tuples_of_one_to_eight_parts(a in proptest::collection::vec(bytes(), 8), b in proptest::collection::vec(bytes(), 8)) {
        macro_rules! check {
            ($($t:ident $i:tt),*) => {
                let (x, y) = (($(&a[$i][..],)*), ($(&b[$i][..],)*));
                same_order::<($($t,)*)>(&x, &y);
                round_trip::<($($t,)*)>(&x, &($(a[$i].clone(),)*));
            };
        }
        type B<'a> = &'a [u8];
        check!(B 0);
        check!(B 0, B 1);
        check!(B 0, B 1, B 2, B 3, B 4, B 5, B 6);
        check!(B 0, B 1, B 2, B 3, B 4, B 5, B 6, B 7);
    }

    #[test]
    fn integers(a in number(), b in number()) {
        all_integers!(check_integer(a, b): u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);
    }

    #[test]
    fn byte_strings(a in bytes(), b in bytes()) {
        let (a, b) = (&a[..], &b[..]);
        same_order::<&[u8]>(&a, &b);
        round_trip::<&[u8]>(&a, &a.to_vec());
        prop_assert_eq!(b.starts_with(a), key::<&[u8]>(&b).starts_with(&key::<&[u8]>(&a)));
    }

    #[test]
    fn strings(a in text(), b in text()) {
        same_order::<&str>(&a.as_str(), &b.as_str());
        round_trip::<&str>(&a.as_str(), &a);
    }

    #[test]
    fn arrays_and_booleans(a: [u8; 3], b: [u8; 3], c: bool, d: bool) {
        same_order::<[u8; 3]>(&a, &b);
        round_trip::<[u8; 3]>(&a, &a);
        same_order::<bool>(&c, &d);
        round_trip::<bool>(&c, &c);
    }

    #[test]
    fn options(a in proptest::option::of(bytes()), b in proptest::option::of(bytes())) {
        same_order::<Option<&[u8]>>(&a.as_deref(), &b.as_deref());
        round_trip::<Option<&[u8]>>(&a.as_deref(), &a);
        let nested = (a.is_some().then_some(a.as_deref()), b.as_deref());
        round_trip::<(Option<Option<&[u8]>>, Option<&[u8]>)>(&nested, &(a.is_some().then_some(a.clone()), b.clone()));
    }

    #[test]
    fn tuples(a in (bytes(), number(), text()), b in (bytes(), number(), text())) {
        let (x, y) = (borrowed(&a), borrowed(&b));
        same_order::<(&[u8], i64, &str)>(&x, &y);
        round_trip::<(&[u8], i64, &str)>(&x, &(a.0.clone(), a.1 as i64, a.2.clone()));
        same_order::<((&[u8], i64), Option<&str>)>(&((x.0, x.1), Some(x.2)), &((y.0, y.1), Some(y.2)));
        let whole = key::<(&[u8], i64, &str)>(&x);
        prop_assert!(whole.starts_with(&key::<(&[u8], i64)>(&(x.0, x.1))));
        // Only tuples with that first part begin with its encoding.
        prop_assert_eq!(x.0 == y.0, whole.starts_with(&key_part::<&[u8]>(&y.0)));
    }

    #[test]
    fn hostile_bytes_decode_to_nothing_or_to_what_encodes_to_them(bytes in bytes()) {
        macro_rules! check {
            ($($t:ty),*) => {$(
                let _ = <$t>::decode(&bytes);
                let _ = <$t>::decode_key(&bytes);
                let _ = <$t>::decode_part(&mut Decoder::new(&bytes));
                let _ = <$t>::decode_key_part(&mut Decoder::new(&bytes));
            )*};
        }
        check!(f32, f64, char, Uuid, Timestamp, Duration, Reverse<&str>, (Reverse<u8>, String), Vec<u8>);
        check!(u8, i64, bool, [u8; 4], &str, &[u8], Option<u16>, Option<&str>, (u8, &[u8]), (&str, Option<bool>, u8));
        if let Some((a, b)) = <(&[u8], bool)>::decode_key(&bytes) {
            prop_assert_eq!(key::<(&[u8], bool)>(&(&a, b)), bytes.clone());
        }
        if let Some(time) = Timestamp::decode_key(&bytes) {
            prop_assert_eq!(key::<Timestamp>(&time), bytes.clone());
        }
        if let Some(Reverse(text)) = <Reverse<String>>::decode_key(&bytes) {
            prop_assert_eq!(key::<Reverse<String>>(&Reverse(&text)), bytes.clone());
        }
        if let Some(option) = <Option<&str>>::decode_key(&bytes) {
            prop_assert_eq!(key::<Option<&str>>(&option.as_deref()), bytes);
        }
    }

    #[test]
    fn after_prefix_is_the_least_above(prefix in bytes(), other in bytes()) {
        let inside = other.starts_with(&prefix);
        let below_end = after_prefix(&prefix).is_none_or(|end| other < end);
        prop_assert_eq!(inside, other >= prefix && below_end);
    }
}

#[test]
fn encodings_are_those_of_the_table() {
    assert_eq!(key::<u16>(&0x0102), [1, 2]);
    assert_eq!(value::<u16>(&0x0102), [2, 1]);
    assert_eq!(key::<i16>(&-1), [0x7F, 0xFF]);
    assert_eq!(value::<i16>(&-2), [0xFE, 0xFF]);
    assert_eq!(key::<&str>(&"a\0b"), *b"a\0b");
    assert_eq!(key_part::<&str>(&"a\0b"), *b"a\0\xFFb\0\0");
    assert_eq!(value_part::<&str>(&"ab"), *b"\x02\0\0\0ab");
    assert_eq!(key::<Option<&str>>(&Some("a")), *b"\x01a");
    assert_eq!(key_part::<Option<&str>>(&Some("a")), *b"\x01a\0\0");
    assert_eq!(key::<Option<u8>>(&None), [0]);
    assert_eq!(key::<(u8, &[u8], bool)>(&(7, &[0], true)), [7, 0, 0xFF, 0, 0, 1]);
    assert_eq!(value::<(u8, &[u8], bool)>(&(7, &[5], true)), [7, 1, 0, 0, 0, 5, 1]);
    assert_eq!(value::<()>(&()), []);
    assert_eq!(key::<f32>(&1.0), [0xBF, 0x80, 0, 0]);
    assert_eq!(key::<f32>(&-1.0), [0x40, 0x7F, 0xFF, 0xFF]);
    assert_eq!(key::<char>(&'é'), [0, 0, 0, 0xE9]);
    assert_eq!(key::<Reverse<&str>>(&Reverse("a")), [!b'a', 0xFF, 0xFF]);
    assert_eq!(value::<Reverse<&str>>(&Reverse("a")), *b"a");
    assert_eq!(key::<Timestamp>(&Timestamp::default()), [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(value::<Duration>(&Duration::new(1, 2)), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn malformed_encodings_are_none() {
    assert_eq!(u32::decode(&[0; 5]), None);
    assert_eq!(u32::decode_key(&[0; 3]), None);
    assert_eq!(bool::decode_key(&[2]), None);
    assert_eq!(<&str>::decode_key(&[0xFF]), None);
    assert_eq!(<(&[u8], u8)>::decode_key(&[1, 0, 1, 0, 0, 9]), None, "00 is followed by 00 or FF");
    assert_eq!(<(&[u8], u8)>::decode_key(&[1, 0]), None, "no terminator");
    assert_eq!(<(&[u8], u8)>::decode(&[0xFF, 0xFF, 0xFF, 0xFF, 1]), None, "longer than what is there");
    assert_eq!(<Option<u8>>::decode_key(&[0, 1]), None, "something after nothing");
    assert_eq!(<Option<u8>>::decode_key(&[2, 1]), None);
    assert_eq!(<()>::decode(&[0]), None);
    assert_eq!(char::decode_key(&[0, 0, 0xD8, 0]), None, "a surrogate");
    assert_eq!(Duration::decode_key(&[0, 0, 0, 0, 0, 0, 0, 0, 0x3B, 0x9A, 0xCA, 0]), None, "a full second");
    assert_eq!(<Reverse<&[u8]>>::decode_key(&[0xFF]), None, "no terminator");
}

#[test]
fn names_of_types_never_change() {
    assert_eq!(<(u64, u32)>::type_name(), "(u64,u32)");
    assert_eq!(<(&str, &[u8], [u8; 16])>::type_name(), "(str,bytes,[u8;16])");
    assert_eq!(<Option<(i128, bool)>>::type_name(), "option<(i128,bool)>");
    assert_eq!(<()>::type_name(), "unit");
    assert_eq!(<(f32, f64, char, Uuid)>::type_name(), "(f32,f64,char,uuid)");
    assert_eq!(<(String, Vec<u8>)>::type_name(), <(&str, &[u8])>::type_name());
    assert_eq!(<(Reverse<(Timestamp,)>, Duration)>::type_name(), "(reverse<(time)>,duration)");
}

#[test]
fn callers_pass_values_and_references() {
    fn insert<'k, 'v, K: Key, V: Value>(key: impl Borrow<K::Ref<'k>>, value: impl Borrow<V::Ref<'v>>) -> Vec<u8> {
        let mut out = Vec::new();
        K::encode_key(key.borrow(), &mut out);
        V::encode(value.borrow(), &mut out);
        out
    }
    let from = 30_i64;
    assert_eq!(insert::<u64, i64>(&7, &(from - 10)), insert::<u64, i64>(7, from - 10));
    assert_eq!(insert::<&str, ()>("x", ()), insert::<&str, ()>(String::from("x").as_str(), &()));
    assert_eq!(insert::<&[u8], &str>(&[1_u8, 2][..], "v"), [1, 2, b'v']);
    assert_eq!(insert::<(u64, &str), u8>(&(1, "a"), 2), insert::<(u64, &str), u8>((1, "a"), 2));
}

#[test]
fn durations_beyond_the_last_time_become_that() {
    let last = Timestamp::new(i64::MAX, 999_999_999);
    assert_eq!(Some(Timestamp::from(Duration::new(i64::MAX as u64, 999_999_999))), last);
    assert_eq!(Some(Timestamp::from(Duration::new(i64::MAX as u64 + 1, 0))), last);
    assert_eq!(Some(Timestamp::from(Duration::MAX)), last);
    assert_eq!(Some(Timestamp::from(Duration::new(3, 4))), Timestamp::new(3, 4));
}
