//! JSON, and words of a command line, as encoded keys and values.

use super::decode::Place;
use super::form::Form;
use super::name::{Scalar, Type};
use foreshore::{Key, Timestamp, Uuid, Value};
use serde_json::Value as Json;
use std::str::FromStr;
use std::time::Duration;

/// Encodes a word of a command line as a whole key or value. The word of an option or a tuple is JSON. That of any
/// other type is its text without quotes.
pub(super) fn word(of: &Type, word: &str, is_key: bool, form: Form) -> Result<Vec<u8>, String> {
    let json = if is_compound(of) {
        serde_json::from_str(word).map_err(|error| format!("expected JSON: {error}"))?
    } else {
        Json::String(word.to_owned())
    };
    whole(of, &json, is_key, form)
}

/// Encodes JSON as a whole key or value.
pub(super) fn whole(of: &Type, json: &Json, is_key: bool, form: Form) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    one(of, json, Place { is_key, is_whole: true }, form, &mut out)?;
    Ok(out)
}

/// Encodes what all keys begin with whose first characters, bytes or parts are `word`.
pub(super) fn prefix(of: &Type, prefix: &str, form: Form) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    match of {
        Type::Str | Type::Bytes => return word(of, prefix, true, form),
        Type::Tuple(parts) => {
            let Ok(Json::Array(given)) = serde_json::from_str(prefix) else {
                return Err("expected a JSON array of the first parts".to_owned());
            };
            if given.len() > parts.len() {
                return Err(format!("expected at most {} parts", parts.len()));
            }
            for (part, given) in parts.iter().zip(&given) {
                one(part, given, Place { is_key: true, is_whole: false }, form, &mut out)?;
            }
        }
        _ => return Err("keys of this type have no prefix: only str, bytes and tuples have".to_owned()),
    }
    Ok(out)
}

fn is_compound(of: &Type) -> bool {
    match of {
        Type::Option(_) | Type::Tuple(_) | Type::Scalar(Scalar::Unit) => true,
        Type::Reverse(inner) => is_compound(inner),
        Type::Scalar(_) | Type::Str | Type::Bytes | Type::Array(_) => false,
    }
}

fn one(of: &Type, json: &Json, place: Place, form: Form, out: &mut Vec<u8>) -> Result<(), String> {
    match (of, json) {
        (Type::Scalar(of), json) => scalar(*of, json, place, out),
        (Type::Str, Json::String(text)) => bytes(text.as_bytes(), place, out),
        (Type::Bytes, Json::String(text)) => bytes(&form.read(text)?, place, out),
        (Type::Array(len), Json::String(text)) => {
            let bytes = form.read(text)?;
            if bytes.len() != *len {
                return Err(format!("expected {len} bytes, not {}", bytes.len()));
            }
            out.extend_from_slice(&bytes);
            Ok(())
        }
        (Type::Option(_), Json::Null) => {
            out.push(0);
            Ok(())
        }
        (Type::Option(inner), some) => {
            out.push(1);
            let some = if inner.may_be_null() {
                some.get("some").ok_or_else(|| unexpected("null or {\"some\": …}", json))?
            } else {
                some
            };
            one(inner, some, place, form, out)
        }
        (Type::Reverse(inner), json) if place.is_key => {
            let start = out.len();
            one(inner, json, place.part(), form, out)?;
            out[start..].iter_mut().for_each(|byte| *byte = !*byte);
            Ok(())
        }
        (Type::Reverse(inner), json) => one(inner, json, place, form, out),
        (Type::Tuple(parts), Json::Array(given)) if parts.len() == given.len() => {
            parts.iter().zip(given).try_for_each(|(part, given)| one(part, given, place.part(), form, out))
        }
        (Type::Tuple(parts), json) => Err(unexpected(&format!("an array of {}", parts.len()), json)),
        (Type::Str | Type::Bytes | Type::Array(_), json) => Err(unexpected("a string", json)),
    }
}

fn unexpected(expected: &str, json: &Json) -> String {
    format!("expected {expected}, not {json}")
}

/// Appends a byte string.
fn bytes(bytes: &[u8], place: Place, out: &mut Vec<u8>) -> Result<(), String> {
    match place {
        Place { is_whole: true, .. } => out.extend_from_slice(bytes),
        Place { is_key: true, .. } => <&[u8] as Key>::encode_key_part(&bytes, out),
        Place { is_key: false, .. } if u32::try_from(bytes.len()).is_ok() => {
            <&[u8] as Value>::encode_part(&bytes, out);
        }
        Place { .. } => return Err("a part of a value has less than 4 GiB".to_owned()),
    }
    Ok(())
}

fn scalar(of: Scalar, json: &Json, Place { is_key, .. }: Place, out: &mut Vec<u8>) -> Result<(), String> {
    let text = match json {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        Json::Bool(truth) => truth.to_string(),
        Json::Array(parts) if of == Scalar::Unit && parts.is_empty() && !is_key => return Ok(()),
        _ => return Err(unexpected(&format!("{of:?}").to_lowercase(), json)),
    };
    let mut to = Target { is_key, text: &text, out };
    match of {
        Scalar::Bool => to.parsed::<bool>("true or false"),
        Scalar::U8 => to.parsed::<u8>("a number of u8"),
        Scalar::U16 => to.parsed::<u16>("a number of u16"),
        Scalar::U32 => to.parsed::<u32>("a number of u32"),
        Scalar::U64 => to.parsed::<u64>("a number of u64"),
        Scalar::U128 => to.parsed::<u128>("a number of u128"),
        Scalar::I8 => to.parsed::<i8>("a number of i8"),
        Scalar::I16 => to.parsed::<i16>("a number of i16"),
        Scalar::I32 => to.parsed::<i32>("a number of i32"),
        Scalar::I64 => to.parsed::<i64>("a number of i64"),
        Scalar::I128 => to.parsed::<i128>("a number of i128"),
        Scalar::F32 => to.parsed::<f32>("a number of f32"),
        Scalar::F64 => to.parsed::<f64>("a number of f64"),
        Scalar::Char => to.parsed::<char>("one character"),
        Scalar::Uuid => to.put(uuid(&text), "a uuid of 32 hex digits"),
        Scalar::Time => to.put(time(&text), "seconds since 1970 with up to nine decimals"),
        Scalar::Duration => to.put(duration(&text), "seconds with up to nine decimals"),
        Scalar::Unit => Err("expected []".to_owned()),
    }
}

/// Where a scalar is encoded to, and its text.
struct Target<'t> {
    is_key: bool,
    text: &'t str,
    out: &'t mut Vec<u8>,
}

impl Target<'_> {
    fn parsed<K: FromStr + for<'a> Key<Ref<'a> = K>>(&mut self, expected: &str) -> Result<(), String> {
        self.put(self.text.parse::<K>().ok(), expected)
    }

    fn put<K: for<'a> Key<Ref<'a> = K>>(&mut self, value: Option<K>, expected: &str) -> Result<(), String> {
        let value = value.ok_or_else(|| format!("expected {expected}, not {:?}", self.text))?;
        if self.is_key {
            K::encode_key(&value, self.out)
        } else {
            K::encode(&value, self.out)
        }
        Ok(())
    }
}

fn uuid(text: &str) -> Option<Uuid> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let bytes = Form::Hex.read(&digits).ok()?;
    <[u8; 16]>::try_from(bytes).ok().map(Uuid)
}

/// Splits seconds with up to nine decimals into sign, seconds and nanoseconds.
fn seconds(text: &str) -> Option<(bool, u64, u32)> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (secs, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if secs.is_empty() || !is_number(secs) || !is_number(decimals) || decimals.len() > 9 {
        return None;
    }
    Some((is_negative, secs.parse().ok()?, format!("{decimals:0<9}").parse().ok()?))
}

fn time(text: &str) -> Option<Timestamp> {
    let (is_negative, secs, nanos) = seconds(text)?;
    match (is_negative, nanos) {
        (false, _) => Timestamp::new(i64::try_from(secs).ok()?, nanos),
        (true, 0) => Timestamp::new(0_i64.checked_sub_unsigned(secs)?, 0),
        (true, _) => Timestamp::new(0_i64.checked_sub_unsigned(secs)?.checked_sub(1)?, 1_000_000_000 - nanos),
    }
}

fn duration(text: &str) -> Option<Duration> {
    let (is_negative, secs, nanos) = seconds(text)?;
    (!is_negative).then(|| Duration::new(secs, nanos))
}
