//! Encoded keys and values as JSON.

use super::form::Form;
use super::name::{Scalar, Type};
use foreshore::{Decoder, Key, Timestamp, Uuid, Value};
use serde_json::{Value as Json, json};
use std::time::Duration;

/// Where an encoding stands: see the documentation of `foreshore::Key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) is_key: bool,
    /// Alone in its byte string. Otherwise it delimits itself.
    pub(super) is_whole: bool,
}

impl Place {
    pub(super) const fn part(self) -> Self {
        Self { is_whole: false, ..self }
    }
}

/// Decodes a whole encoding. `None` if no value of the type encodes to it.
pub(super) fn decode(of: &Type, bytes: &[u8], is_key: bool, form: Form) -> Option<Json> {
    let mut from = Decoder::new(bytes);
    let json = one(of, &mut from, Place { is_key, is_whole: true }, form)?;
    from.is_empty().then_some(json)
}

fn one(of: &Type, from: &mut Decoder<'_>, place: Place, form: Form) -> Option<Json> {
    match of {
        Type::Scalar(of) => scalar(*of, from, place),
        Type::Str => String::from_utf8(bytes(from, place)?).ok().map(Json::String),
        Type::Bytes => bytes(from, place).map(|bytes| Json::String(form.show(&bytes))),
        Type::Array(len) => from.bytes(*len).ok().map(|bytes| Json::String(form.show(bytes))),
        Type::Option(inner) => match from.u8().ok()? {
            0 => Some(Json::Null),
            1 if inner.may_be_null() => Some(json!({ "some": one(inner, from, place, form)? })),
            1 => one(inner, from, place, form),
            _ => None,
        },
        Type::Reverse(inner) if place.is_key => {
            let flipped: Vec<u8> = from.rest().iter().map(|byte| !byte).collect();
            let mut inside = Decoder::new(&flipped);
            let json = one(inner, &mut inside, place.part(), form)?;
            from.bytes(flipped.len() - inside.rest().len()).ok()?;
            Some(json)
        }
        Type::Reverse(inner) => one(inner, from, place, form),
        Type::Tuple(parts) => {
            let parts: Option<_> = parts.iter().map(|part| one(part, from, place.part(), form)).collect();
            parts.map(Json::Array)
        }
    }
}

/// Takes a byte string.
fn bytes(from: &mut Decoder<'_>, place: Place) -> Option<Vec<u8>> {
    match place {
        Place { is_whole: true, .. } => from.bytes(from.rest().len()).ok().map(<[u8]>::to_vec),
        Place { is_key: true, .. } => <&[u8] as Key>::decode_key_part(from),
        Place { is_key: false, .. } => <&[u8] as Value>::decode_part(from),
    }
}

fn scalar(of: Scalar, from: &mut Decoder<'_>, Place { is_key, .. }: Place) -> Option<Json> {
    fn take<K: Key<Owned = K>>(from: &mut Decoder<'_>, is_key: bool) -> Option<K> {
        if is_key { K::decode_key_part(from) } else { K::decode_part(from) }
    }
    Some(match of {
        Scalar::Bool => take::<bool>(from, is_key)?.into(),
        Scalar::U8 => take::<u8>(from, is_key)?.into(),
        Scalar::U16 => take::<u16>(from, is_key)?.into(),
        Scalar::U32 => take::<u32>(from, is_key)?.into(),
        Scalar::U64 => take::<u64>(from, is_key)?.into(),
        Scalar::U128 => take::<u128>(from, is_key)?.to_string().into(),
        Scalar::I8 => take::<i8>(from, is_key)?.into(),
        Scalar::I16 => take::<i16>(from, is_key)?.into(),
        Scalar::I32 => take::<i32>(from, is_key)?.into(),
        Scalar::I64 => take::<i64>(from, is_key)?.into(),
        Scalar::I128 => take::<i128>(from, is_key)?.to_string().into(),
        Scalar::F32 => {
            // The digits of the `f32`, not those of the `f64` nearest to it.
            let text = take::<f32>(from, is_key)?.to_string();
            text.parse().ok().and_then(number).unwrap_or_else(|| text.into())
        }
        Scalar::F64 => {
            let float = take::<f64>(from, is_key)?;
            number(float).unwrap_or_else(|| float.to_string().into())
        }
        Scalar::Char => take::<char>(from, is_key)?.to_string().into(),
        Scalar::Uuid => take::<Uuid>(from, is_key)?.to_string().into(),
        Scalar::Time => time(take::<Timestamp>(from, is_key)?).into(),
        Scalar::Duration => {
            let duration = take::<Duration>(from, is_key)?;
            format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos()).into()
        }
        Scalar::Unit if is_key => return None,
        Scalar::Unit => json!([]),
    })
}

/// Returns a number that JSON has.
fn number(float: f64) -> Option<Json> {
    serde_json::Number::from_f64(float).map(Json::Number)
}

/// Returns the seconds since 1970. The nanoseconds of a time before 1970 count forwards, its decimals do not.
fn time(time: Timestamp) -> String {
    match (time.secs(), time.nanos()) {
        (secs @ ..0, nanos @ 1..) => format!("-{}.{:09}", (secs + 1).unsigned_abs(), 1_000_000_000 - nanos),
        (secs, nanos) => format!("{secs}.{nanos:09}"),
    }
}
