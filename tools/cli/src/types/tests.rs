use super::{Form, RowTypes, name::Type};
use foreshore::{Key, Timestamp, Uuid, Value};
use serde_json::{Value as Json, json};
use std::cmp::Reverse;
use std::time::Duration;

/// Encodes with the engine's types, shows, and reads back what was shown.
fn key<K: Key>(key: &K::Ref<'_>) -> Json {
    let (mut bytes, types) = (Vec::new(), RowTypes::new(&K::type_name(), "unit", Form::Hex));
    K::encode_key(key, &mut bytes);
    let json = types.key(&bytes);
    assert_eq!(types.read_key(&as_word(&json, &K::type_name())).unwrap(), bytes, "{json}");
    assert!(types.fits(&bytes, b""));
    json
}

fn value<V: Value>(value: &V::Ref<'_>) -> Json {
    let (mut bytes, types) = (Vec::new(), RowTypes::new("u8", &V::type_name(), Form::Hex));
    V::encode(value, &mut bytes);
    let json = types.value(&bytes);
    assert_eq!(types.read_value(&as_word(&json, &V::type_name())).unwrap(), bytes, "{json}");
    assert!(types.fits(&[7], &bytes));
    json
}

/// As a user writes it on a command line: JSON for options and tuples, and no quotes around the text of other types.
fn as_word(json: &Json, name: &str) -> String {
    let inner = name.trim_start_matches("reverse<");
    let is_json = inner.starts_with("option<") || inner.starts_with('(');
    json.as_str().filter(|_| !is_json).map_or_else(|| json.to_string(), str::to_owned)
}

fn both<K: Key>(given: &K::Ref<'_>, expected: Json) {
    assert_eq!(key::<K>(given), expected);
    assert_eq!(value::<K>(given), expected);
}

#[test]
fn every_type_is_shown_and_read_back_as_key_and_as_value() {
    both::<u8>(&255, json!(255));
    both::<u16>(&258, json!(258));
    both::<u32>(&7, json!(7));
    both::<u64>(&u64::MAX, json!(u64::MAX));
    both::<u128>(&u128::MAX, json!(u128::MAX.to_string()));
    both::<i8>(&-1, json!(-1));
    both::<i16>(&-300, json!(-300));
    both::<i32>(&-7, json!(-7));
    both::<i64>(&i64::MIN, json!(i64::MIN));
    both::<i128>(&i128::MIN, json!(i128::MIN.to_string()));
    both::<f32>(&0.1, json!(0.1));
    both::<f64>(&-1.5, json!(-1.5));
    both::<f64>(&-0.0, json!(-0.0));
    both::<f64>(&f64::NAN, json!("NaN"));
    both::<f64>(&f64::NEG_INFINITY, json!("-inf"));
    both::<f32>(&f32::INFINITY, json!("inf"));
    both::<bool>(&true, json!(true));
    both::<char>(&'é', json!("é"));
    both::<&str>(&"é \"x\"\n", json!("é \"x\"\n"));
    both::<&str>(&"", json!(""));
    both::<&[u8]>(&&b"a\0b\xFF"[..], json!("610062ff"));
    both::<[u8; 2]>(&[1, 65], json!("0141"));
    both::<Uuid>(&Uuid([0xAB; 16]), json!("abababab-abab-abab-abab-abababababab"));
    for (secs, nanos, text) in [
        (1, 250_000_000, "1.250000000"),
        (-1, 750_000_000, "-0.250000000"),
        (-2, 0, "-2.000000000"),
        (i64::MIN, 0, "-9223372036854775808.000000000"),
        (i64::MIN, 999_999_999, "-9223372036854775807.000000001"),
    ] {
        both::<Timestamp>(&Timestamp::new(secs, nanos).unwrap(), json!(text));
    }
    both::<Duration>(&Duration::new(u64::MAX, 999_999_999), json!("18446744073709551615.999999999"));
    assert_eq!(value::<()>(&()), json!([]));
}

#[test]
fn types_within_types_are_shown_and_read_back() {
    both::<Option<u8>>(&None, Json::Null);
    both::<Option<u8>>(&Some(1), json!(1));
    both::<Option<&str>>(&Some("x"), json!("x"));
    both::<Option<Option<u8>>>(&None, Json::Null);
    both::<Option<Option<u8>>>(&Some(None), json!({ "some": null }));
    both::<Option<Option<u8>>>(&Some(Some(1)), json!({ "some": 1 }));
    both::<Option<Reverse<Option<u8>>>>(&Some(Reverse(None)), json!({ "some": null }));
    both::<Reverse<&str>>(&Reverse("a\0b"), json!("a\0b"));
    both::<Reverse<(&str, u8)>>(&Reverse(("x", 1)), json!(["x", 1]));
    both::<(u8,)>(&(1,), json!([1]));
    both::<(u32, &str, &[u8])>(&(1, "a\0", &b"b\0"[..]), json!([1, "a\0", "6200"]));
    both::<(Option<(u8, i8)>, Reverse<Option<u16>>)>(&(None, Reverse(Some(2))), json!([null, 2]));
    assert_eq!(value::<(u8, (), &str)>(&(1, (), "x")), json!([1, [], "x"]));
    assert_eq!(value::<Option<()>>(&Some(())), json!([]));
}

#[test]
fn a_key_of_a_tuple_may_be_text_that_another_program_quotes() {
    let types = RowTypes::new("(u64,str)", "option<str>", Form::Hex);
    assert_eq!(types.key(&types.read_key(r#"["7", "x"]"#).unwrap()), json!([7, "x"]));
    assert_eq!(types.value(&types.read_value(r#""null""#).unwrap()), json!("null"));
    assert_eq!(types.value(&types.read_value("null").unwrap()), Json::Null);
}

#[test]
fn bytes_are_shown_as_text_that_loses_none() {
    let types = RowTypes::new("bytes", "shape.v2", Form::Utf8);
    for (bytes, text) in [
        (&b"plain"[..], "plain"),
        (b"a\\x00", "a\\\\x00"),
        (b"\xFFa\x80\x01", "\\xffa\\x80\u{1}"),
        ("é\n".as_bytes(), "é\n"),
        (b"", ""),
    ] {
        for json in [types.key(bytes), types.value(bytes)] {
            assert_eq!(json, json!(text));
        }
        assert_eq!(types.read_key(text).unwrap(), bytes);
        assert_eq!(types.read_value(text).unwrap(), bytes);
    }
    for wrong in ["\\", "\\n", "\\x1", "\\xgg", "\\x1é"] {
        assert!(types.read_key(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn types_of_applications_are_bytes() {
    let types = RowTypes::new("(id,option<event.v2>)", "vec<u8>", Form::Hex);
    assert_eq!((types.key(b"\x01"), types.value(b"")), (json!("01"), json!("")));
    assert_eq!(types.read_key("0aFF").unwrap(), [10, 255]);
    assert!(types.read_key("0a1").is_err() && types.read_key("0g").is_err() && types.read_key("+1").is_err());
    assert!(types.fits(b"anything", b"goes"));
    for name in ["", "u65", "(u8", "(u8,", "()", "(,)", "option<u8", "reverse<>", "[u8;x]", "[u8;+1]", "u8)", "(u8)x"] {
        assert_eq!(Type::of(name), None, "{name}");
    }
    let deep = |depth: usize| format!("{}u8{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Type::of(&deep(31)).is_some());
    assert!(Type::of(&deep(2000)).is_none(), "and the stack is safe");
}

#[test]
fn what_does_not_fit_its_type_is_refused() {
    let refused = |of: &str, word: &str| {
        let types = RowTypes::new(of, of, Form::Hex);
        types.read_key(word).unwrap_err();
        types.read_value(word).unwrap_err().to_string()
    };
    assert_eq!(refused("u8", "256"), "value \"256\": expected a number of u8, not \"256\"");
    for (of, word) in [
        ("u64", "-1"),
        ("u64", "1.5"),
        ("bool", "yes"),
        ("char", "ab"),
        ("uuid", "12"),
        ("time", "1.0000000001"),
        ("time", "99999999999999999999"),
        ("duration", "-1"),
        ("duration", "1e3"),
        ("[u8;2]", "00"),
        ("(u8,str)", "[1]"),
        ("(u8,str)", "1"),
        ("(u8,str)", "[1,2]"),
        ("option<u8>", "\"x\""),
        ("option<option<u8>>", "1"),
        ("option<u8>", "[1]"),
    ] {
        refused(of, word);
    }
}

#[test]
fn rows_that_do_not_decode_are_shown_as_they_are() {
    let types = RowTypes::new("u64", "str", Form::Utf8);
    assert_eq!(types.key(b"\x01"), json!({ "undecodable": "01" }));
    assert_eq!(types.value(b"\xFF"), json!({ "undecodable": "ff" }));
    assert!(!types.fits(b"\x01", b"") && !types.fits(&[0; 8], b"\xFF") && types.fits(&[0; 8], b"x"));
    let unit = RowTypes::new("unit", "unit", Form::Hex);
    assert_eq!(unit.key(b""), json!({ "undecodable": "" }), "no key is a unit");
    for name in ["u64", "str", "(str,u8)", "option<(u8,bytes)>", "reverse<(bytes,char)>", "time", "bool", "f32"] {
        let types = RowTypes::new(name, name, Form::Hex);
        for first in 0..=255 {
            types.key(&[first, 1, 0, 255, 0]);
            types.value(&[first, 1, 0, 255, 0]);
        }
    }
}

#[test]
fn a_prefix_is_what_the_keys_begin_with() {
    let prefix = |of: &str, word: &str| RowTypes::new(of, "unit", Form::Hex).read_prefix(word);
    assert_eq!(prefix("str", "ab").unwrap(), b"ab");
    assert_eq!(prefix("(u16,str,u8)", "[258]").unwrap(), [1, 2]);
    assert_eq!(prefix("(u16,str,u8)", r#"[258, "a"]"#).unwrap(), [1, 2, b'a', 0, 0]);
    assert_eq!(prefix("shape", "01ff").unwrap(), [1, 255]);
    for (of, word) in [("u64", "1"), ("(u8,u8)", "1"), ("(u8,u8)", "[1,2,3]"), ("option<str>", "\"a\"")] {
        assert!(prefix(of, word).is_err(), "{of} {word}");
    }
}
