//! Types of keys and values, as programs name them: `int`, `(str, int)`, or `"(str,u64)"` as Rust programs do.

use crate::codec::{Codec, uuid_class};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};

/// Parts that a tuple may have.
const MAX_PARTS: usize = 8;
/// Types that may lie in one another. The encoder calls itself for each.
const MAX_DEPTH: usize = 32;

/// Returns the codec of a type.
pub(crate) fn codec(spec: &Bound<'_, PyAny>) -> PyResult<Codec> {
    within(spec, MAX_DEPTH)
}

/// Returns the codec of a type, in which others may lie so many deep.
fn within(spec: &Bound<'_, PyAny>, depth: usize) -> PyResult<Codec> {
    if let Ok(name) = spec.cast::<PyString>() {
        let name = name.to_cow()?;
        return named(&name, depth).ok_or_else(|| {
            // A name that nests without end is not shown whole.
            let shown: String = name.chars().take(100).collect();
            PyTypeError::new_err(format!("there is no type `{shown}`, or it is more than {MAX_DEPTH} deep"))
        });
    }
    if let Ok(parts) = spec.cast::<PyTuple>() {
        if parts.is_empty() || parts.len() > MAX_PARTS {
            return Err(PyTypeError::new_err(format!(
                "a tuple of {} types: 1 to {MAX_PARTS} are allowed",
                parts.len()
            )));
        }
        let Some(below) = depth.checked_sub(1) else {
            return Err(PyTypeError::new_err(format!("tuples of types more than {MAX_DEPTH} deep")));
        };
        return Ok(Codec::Tuple(parts.iter().map(|part| within(&part, below)).collect::<PyResult<_>>()?));
    }
    let py = spec.py();
    let plain = [
        (py.get_type::<PyInt>(), Codec::I64),
        (py.get_type::<PyString>(), Codec::Str),
        (py.get_type::<PyBytes>(), Codec::Bytes),
        (py.get_type::<PyFloat>(), Codec::F64),
        (py.get_type::<PyBool>(), Codec::Bool),
    ];
    for (class, codec) in plain {
        if spec.is(&class) {
            return Ok(codec);
        }
    }
    if spec.is(uuid_class(py)?) {
        return Ok(Codec::Uuid);
    }
    Err(PyTypeError::new_err(format!("{} is no type of keys or values", spec.repr()?)))
}

/// Returns the codec of a name as Rust programs store it. `json` is a value of this package.
fn named(name: &str, depth: usize) -> Option<Codec> {
    Some(match name {
        "u8" => Codec::U8,
        "u16" => Codec::U16,
        "u32" => Codec::U32,
        "u64" => Codec::U64,
        "u128" => Codec::U128,
        "i8" => Codec::I8,
        "i16" => Codec::I16,
        "i32" => Codec::I32,
        "i64" => Codec::I64,
        "i128" => Codec::I128,
        "f32" => Codec::F32,
        "f64" => Codec::F64,
        "bool" => Codec::Bool,
        "str" => Codec::Str,
        "bytes" => Codec::Bytes,
        "uuid" => Codec::Uuid,
        "json" => Codec::Json,
        "unit" => Codec::Unit,
        _ => {
            let below = depth.checked_sub(1)?;
            if let Some(inner) = name.strip_prefix("option<").and_then(|rest| rest.strip_suffix('>')) {
                return Some(Codec::Option(Box::new(named(inner, below)?)));
            }
            let parts = parts(name.strip_prefix('(')?.strip_suffix(')')?)?;
            let parts: Option<Vec<_>> = parts.into_iter().map(|part| named(part, below)).collect();
            return parts.filter(|parts| (1..=MAX_PARTS).contains(&parts.len())).map(Codec::Tuple);
        }
    })
}

/// Splits at the commas that are in no parenthesis.
fn parts(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut start, mut found) = (0_u32, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'<' => depth += 1,
            b')' | b'>' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    Some(found)
}
