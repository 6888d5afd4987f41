//! Keys as messages show them: decoded by the type name that the catalogue has.

use super::reverse::unflipped;
use super::{Key, Timestamp};
use crate::Uuid;
use crate::codec::Decoder;
use std::fmt::{self, Debug, Write};
use std::time::Duration;

/// Most bytes of a key that an error names.
pub const MAX_NAMED_KEY: usize = 64;

/// Writes a key, decoded by the name of its type. One that does not decode is shown as its bytes.
pub fn write_key(f: &mut impl Write, type_name: Option<&str>, key: &[u8]) -> fmt::Result {
    match type_name.and_then(|name| shown(name, key)) {
        Some(text) if key.len() < MAX_NAMED_KEY => f.write_str(&text),
        Some(text) => write!(f, "{text}…"),
        None if key.len() < MAX_NAMED_KEY => write!(f, "\"{}\"", key.escape_ascii()),
        None => write!(f, "\"{}\"…", key[..MAX_NAMED_KEY].escape_ascii()),
    }
}

fn shown(type_name: &str, key: &[u8]) -> Option<String> {
    let (mut name, mut from, mut out) = (type_name, Decoder::new(key), String::new());
    show(&mut name, &mut from, true, &mut out)?;
    (name.is_empty() && from.is_empty()).then_some(out)
}

/// Shows one value of the type that `name` begins with, and takes both away. `whole`: it is the rest of the key.
fn show(name: &mut &str, from: &mut Decoder<'_>, whole: bool, out: &mut String) -> Option<()> {
    if let Some(parts) = name.strip_prefix('(') {
        *name = parts;
        return show_tuple(name, from, out);
    }
    if let Some(inner) = name.strip_prefix("option<") {
        *name = inner;
        return show_option(name, from, whole, out);
    }
    if let Some(inner) = name.strip_prefix("reverse<") {
        *name = inner;
        return show_reverse(name, from, out);
    }
    let end = name.find([',', ')', '>']).unwrap_or(name.len());
    let (own, rest) = name.split_at(end);
    *name = rest;
    match own {
        "bool" => put::<bool>(from, out),
        "u8" => put::<u8>(from, out),
        "u16" => put::<u16>(from, out),
        "u32" => put::<u32>(from, out),
        "u64" => put::<u64>(from, out),
        "u128" => put::<u128>(from, out),
        "i8" => put::<i8>(from, out),
        "i16" => put::<i16>(from, out),
        "i32" => put::<i32>(from, out),
        "i64" => put::<i64>(from, out),
        "i128" => put::<i128>(from, out),
        "f32" => put::<f32>(from, out),
        "f64" => put::<f64>(from, out),
        "char" => put::<char>(from, out),
        "uuid" => put::<Uuid>(from, out),
        "time" => show_time(from, out),
        "duration" => put::<Duration>(from, out),
        "str" if whole => add(out, &std::str::from_utf8(rest_of(from)).ok()?),
        "str" => put::<&str>(from, out),
        "bytes" if whole => add_bytes(out, rest_of(from)),
        "bytes" => add_bytes(out, &<&[u8] as Key>::decode_key_part(from)?),
        array => {
            let len = array.strip_prefix("[u8;")?.strip_suffix(']')?.parse().ok()?;
            add_bytes(out, from.bytes(len).ok()?)
        }
    }
}

fn show_tuple(name: &mut &str, from: &mut Decoder<'_>, out: &mut String) -> Option<()> {
    out.push('(');
    for part in 0.. {
        show(name, from, false, out)?;
        let mut rest = name.chars();
        let separator = rest.next()?;
        *name = rest.as_str();
        match separator {
            ',' => out.push_str(", "),
            // A tuple of one part has a comma of its own.
            ')' if part == 0 => {
                out.push(',');
                break;
            }
            ')' => break,
            _ => return None,
        }
    }
    out.push(')');
    Some(())
}

fn show_option(name: &mut &str, from: &mut Decoder<'_>, whole: bool, out: &mut String) -> Option<()> {
    match from.u8().ok()? {
        0 => {
            out.push_str("None");
            *name = after_type(name)?;
        }
        1 => {
            out.push_str("Some(");
            show(name, from, whole, out)?;
            out.push(')');
        }
        _ => return None,
    }
    *name = name.strip_prefix('>')?;
    Some(())
}

fn show_reverse(name: &mut &str, from: &mut Decoder<'_>, out: &mut String) -> Option<()> {
    out.push_str("Reverse(");
    unflipped(from, |from| show(name, from, false, out))?;
    out.push(')');
    *name = name.strip_prefix('>')?;
    Some(())
}

/// Shows a point in time as seconds since 1970.
fn show_time(from: &mut Decoder<'_>, out: &mut String) -> Option<()> {
    let time = Timestamp::decode_key_part(from)?;
    match (time.secs(), time.nanos()) {
        // The nanoseconds of a time before 1970 count forwards too.
        (secs @ ..0, nanos @ 1..) => write!(out, "-{}.{:09}", (secs + 1).unsigned_abs(), 1_000_000_000 - nanos),
        (secs, nanos) => write!(out, "{secs}.{nanos:09}"),
    }
    .ok()
}

/// What follows the type that `name` begins with.
fn after_type(name: &str) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, sign) in name.char_indices() {
        match sign {
            '(' | '<' => depth += 1,
            ',' | ')' | '>' if depth == 0 => return Some(&name[at..]),
            ')' | '>' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn rest_of<'a>(from: &mut Decoder<'a>) -> &'a [u8] {
    let rest = from.rest();
    from.bytes(rest.len()).expect("the rest is there")
}

fn put<K: Key>(from: &mut Decoder<'_>, out: &mut String) -> Option<()> {
    add(out, &K::decode_key_part(from)?)
}

fn add(out: &mut String, value: &impl Debug) -> Option<()> {
    write!(out, "{value:?}").ok()
}

fn add_bytes(out: &mut String, bytes: &[u8]) -> Option<()> {
    write!(out, "b\"{}\"", bytes.escape_ascii()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    fn says<K: Key>(key: &K::Ref<'_>) -> String {
        let (mut bytes, mut text) = (Vec::new(), String::new());
        K::encode_key(key, &mut bytes);
        write_key(&mut text, Some(&K::type_name()), &bytes).expect("text");
        text
    }

    #[test]
    fn keys_of_every_type_are_shown_as_their_users_write_them() {
        assert_eq!(says::<u64>(&7), "7");
        assert_eq!(says::<i32>(&-7), "-7");
        assert_eq!(says::<bool>(&true), "true");
        assert_eq!(says::<&str>(&"é \"x\""), r#""é \"x\"""#);
        assert_eq!(says::<&[u8]>(&&b"a\0b"[..]), r#"b"a\x00b""#);
        assert_eq!(says::<[u8; 2]>(&[1, 65]), r#"b"\x01A""#);
        assert_eq!(says::<f32>(&-1.5), "-1.5");
        assert_eq!(says::<f64>(&f64::INFINITY), "inf");
        assert_eq!(says::<char>(&'é'), "'é'");
        assert_eq!(says::<Uuid>(&Uuid([0xAB; 16])), "abababab-abab-abab-abab-abababababab");
        for (secs, nanos, text) in [
            (1, 250_000_000, "1.250000000"),
            (-1, 750_000_000, "-0.250000000"),
            (-2, 1, "-1.999999999"),
            (-2, 0, "-2.000000000"),
            (i64::MIN, 999_999_999, "-9223372036854775807.000000001"),
        ] {
            assert_eq!(says::<Timestamp>(&Timestamp::new(secs, nanos).expect("a time")), text);
        }
        assert_eq!(says::<Duration>(&Duration::from_millis(1500)), "1.5s");
        assert_eq!(says::<Reverse<(&str, u8)>>(&Reverse(("x", 1))), r#"Reverse(("x", 1))"#);
        assert_eq!(says::<(Reverse<u8>, Option<Reverse<&str>>)>(&(Reverse(1), None)), "(Reverse(1), None)");
        assert_eq!(says::<(u8,)>(&(1,)), "(1,)");
        assert_eq!(says::<Option<u8>>(&None), "None");
        assert_eq!(says::<Option<&str>>(&Some("x")), r#"Some("x")"#);
        assert_eq!(says::<(u32, &str, &[u8])>(&(1, "a", &b"b"[..])), r#"(1, "a", b"b")"#);
        assert_eq!(says::<(Option<(u8, i8)>, Option<u16>)>(&(None, Some(2))), "(None, Some(2))");
        assert_eq!(says::<(Option<(u8, i8)>, Option<u16>)>(&(Some((1, -1)), None)), "(Some((1, -1)), None)");
    }

    #[test]
    fn what_does_not_decode_is_shown_as_bytes() {
        let says = |name, key: &[u8]| {
            let mut text = String::new();
            write_key(&mut text, name, key).expect("text");
            text
        };
        assert_eq!(says(None, b"a\x01"), r#""a\x01""#);
        for name in [
            "u64",
            "(u8",
            "(u8,u8",
            "option<u8",
            "option<",
            "reverse<u8",
            "f64",
            "time",
            "char",
            "[u8;x]",
            "[u8;99]",
            "new",
            "",
            "bool",
            "(,)",
        ] {
            assert_eq!(says(Some(name), b"a\x02"), r#""a\x02""#, "{name}");
        }
        assert_eq!(says(Some("u64"), &[b'a'; 70]), format!("\"{}\"…", "a".repeat(64)), "cut off");
        for name in ["u64", "str", "(str,u8)", "option<(u8,bytes)>", "reverse<(bytes,char)>"] {
            (0_u8..=255).for_each(|first| drop(says(Some(name), &[first, 1, 0, 255, 0])));
        }
    }
}
