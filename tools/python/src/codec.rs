//! Encoding of Python objects, as the Rust library encodes the types of these names.

use foreshore::{Decoder, Key, Uuid, Value};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyString, PyTuple};

/// A type of keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    U8,
    U16,
    U32,
    U64,
    U128,
    I8,
    I16,
    I32,
    I64,
    I128,
    F32,
    F64,
    Bool,
    Str,
    Bytes,
    Uuid,
    /// A value only: UTF-8 of `json.dumps`.
    Json,
    /// A value only: nothing.
    Unit,
    Option(Box<Self>),
    Tuple(Vec<Self>),
}

/// What is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum As {
    Key,
    Value,
}

/// Calls `$call` with the Rust type of a number.
macro_rules! numbers {
    ($codec:expr, $type:ident => $call:expr, else $other:expr) => {
        match $codec {
            Codec::U8 => numbers!(@ u8, $type, $call),
            Codec::U16 => numbers!(@ u16, $type, $call),
            Codec::U32 => numbers!(@ u32, $type, $call),
            Codec::U64 => numbers!(@ u64, $type, $call),
            Codec::U128 => numbers!(@ u128, $type, $call),
            Codec::I8 => numbers!(@ i8, $type, $call),
            Codec::I16 => numbers!(@ i16, $type, $call),
            Codec::I32 => numbers!(@ i32, $type, $call),
            Codec::I64 => numbers!(@ i64, $type, $call),
            Codec::I128 => numbers!(@ i128, $type, $call),
            Codec::F32 => numbers!(@ f32, $type, $call),
            Codec::F64 => numbers!(@ f64, $type, $call),
            _ => $other,
        }
    };
    (@ $number:ty, $type:ident, $call:expr) => {{
        type $type = $number;
        $call
    }};
}

impl Codec {
    /// Returns the name that the catalogue stores.
    pub(crate) fn name(&self) -> String {
        numbers!(self, Number => <Number as Value>::type_name(), else match self {
            Self::Bool => "bool".into(),
            Self::Str => "str".into(),
            Self::Bytes => "bytes".into(),
            Self::Uuid => "uuid".into(),
            Self::Json => "json".into(),
            Self::Option(inner) => format!("option<{}>", inner.name()),
            Self::Tuple(parts) => format!("({})", parts.iter().map(Self::name).collect::<Vec<_>>().join(",")),
            _ => "unit".into(),
        })
    }

    /// Returns an error if keys cannot have this type.
    pub(crate) fn check_key(&self) -> PyResult<()> {
        match self {
            Self::Json | Self::Unit => Err(PyTypeError::new_err(format!("`{}` is no type of keys", self.name()))),
            Self::Option(inner) => inner.check_key(),
            Self::Tuple(parts) => parts.iter().try_for_each(Self::check_key),
            _ => Ok(()),
        }
    }

    /// Appends a whole key.
    pub(crate) fn encode_key(&self, key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        self.encode(As::Key, true, key, out)
    }

    /// Appends a whole value.
    pub(crate) fn encode_value(&self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        self.encode(As::Value, true, value, out)
    }

    /// Appends what every key begins with that begins with `prefix`: text, bytes, or the first parts of a tuple.
    pub(crate) fn encode_prefix(&self, prefix: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        match self {
            Self::Str | Self::Bytes => self.encode_key(prefix, out),
            Self::Tuple(parts) => {
                let given = prefix.cast::<PyTuple>().map_err(|_| wrong(self, prefix))?;
                if given.len() > parts.len() {
                    return Err(wrong(self, prefix));
                }
                parts.iter().zip(given).try_for_each(|(part, given)| part.encode(As::Key, false, &given, out))
            }
            _ => Err(PyTypeError::new_err(format!("keys of type `{}` have no prefix", self.name()))),
        }
    }

    /// Appends an index key: whole if the index is unique, and else as a part.
    pub(crate) fn encode_index_key(&self, is_unique: bool, key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        self.encode(As::Key, is_unique, key, out)
    }

    /// Appends what every index key begins with that begins with `prefix`.
    pub(crate) fn encode_index_prefix(
        &self,
        is_unique: bool,
        prefix: &Bound<'_, PyAny>,
        out: &mut Vec<u8>,
    ) -> PyResult<()> {
        if is_unique || !matches!(self, Self::Str | Self::Bytes) {
            return self.encode_prefix(prefix, out);
        }
        self.encode(As::Key, false, prefix, out)?;
        // Removes the terminator of the part.
        out.truncate(out.len() - 2);
        Ok(())
    }

    /// Passes over a part of a key, as it is encoded in an index.
    pub(crate) fn skip_key_part(&self, from: &mut Decoder<'_>) -> Option<()> {
        numbers!(self, Number => return Number::decode_key_part(from).map(drop), else ());
        match self {
            Self::Bool => bool::decode_key_part(from).map(drop),
            Self::Str | Self::Bytes => bytes_part(As::Key, from).map(drop),
            Self::Uuid => Uuid::decode_key_part(from).map(drop),
            Self::Option(inner) => match from.u8() {
                Ok(0) => Some(()),
                Ok(1) => inner.skip_key_part(from),
                _ => None,
            },
            Self::Tuple(parts) => parts.iter().try_for_each(|part| part.skip_key_part(from)),
            // No types of keys.
            _ => None,
        }
    }

    fn encode(&self, what: As, is_whole: bool, given: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
        numbers!(self, Number => {
            let number: Number = number_of(self, given)?;
            if what == As::Key { Number::encode_key(&number, out) } else { Number::encode(&number, out) }
            return Ok(());
        }, else ());
        match self {
            Self::Bool => out.push(u8::from(given.cast::<PyBool>().map_err(|_| wrong(self, given))?.is_true())),
            Self::Str => {
                let text = given.cast::<PyString>().map_err(|_| wrong(self, given))?;
                // The limited interface copies text that is not ASCII.
                encode_bytes(what, is_whole, text.to_cow()?.as_bytes(), out);
            }
            Self::Bytes => match given.cast::<PyBytes>() {
                Ok(bytes) => encode_bytes(what, is_whole, bytes.as_bytes(), out),
                Err(_) => {
                    // `bytearray`, `memoryview`. A list of numbers is none of them.
                    let view = given.py().import("builtins")?.getattr("memoryview")?.call1((given,));
                    let bytes = view.and_then(|view| view.call_method0("tobytes")).map_err(|_| wrong(self, given))?;
                    encode_bytes(what, is_whole, bytes.cast::<PyBytes>()?.as_bytes(), out);
                }
            },
            Self::Uuid => {
                let bytes = given.getattr("bytes").map_err(|_| wrong(self, given))?;
                let bytes: [u8; 16] = bytes.extract().map_err(|_| wrong(self, given))?;
                out.extend_from_slice(&bytes);
            }
            Self::Json => {
                let text = json(given.py())?.getattr("dumps")?.call1((given,))?;
                encode_bytes(what, is_whole, text.cast::<PyString>()?.to_cow()?.as_bytes(), out);
            }
            Self::Option(inner) => {
                out.push(u8::from(!given.is_none()));
                if !given.is_none() {
                    inner.encode(what, is_whole, given, out)?;
                }
            }
            Self::Tuple(parts) => {
                let given_parts = given.cast::<PyTuple>().map_err(|_| wrong(self, given))?;
                if given_parts.len() != parts.len() {
                    return Err(wrong(self, given));
                }
                for (part, given) in parts.iter().zip(given_parts) {
                    part.encode(what, false, &given, out)?;
                }
            }
            _ => {
                if !given.is_none() {
                    return Err(wrong(self, given));
                }
            }
        }
        Ok(())
    }

    /// Decodes a whole key. `None` if the bytes are of no key of this type.
    pub(crate) fn decode_key<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.whole(As::Key, py, bytes)
    }

    /// Decodes a whole value. `None` if the bytes are of no value of this type.
    pub(crate) fn decode_value<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.whole(As::Value, py, bytes)
    }

    fn whole<'py>(&self, what: As, py: Python<'py>, bytes: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::Bytes => Ok(Some(PyBytes::new(py, bytes).into_any())),
            Self::Str => Ok(std::str::from_utf8(bytes).ok().map(|text| PyString::new(py, text).into_any())),
            Self::Json => json_of(py, bytes),
            Self::Option(inner) => match bytes.split_first() {
                Some((0, [])) => Ok(Some(py.None().into_bound(py))),
                Some((1, rest)) => inner.whole(what, py, rest),
                _ => Ok(None),
            },
            _ => {
                let mut from = Decoder::new(bytes);
                let found = self.part(what, py, &mut from)?;
                Ok(found.filter(|_| from.is_empty()))
            }
        }
    }

    fn part<'py>(&self, what: As, py: Python<'py>, from: &mut Decoder<'_>) -> PyResult<Option<Bound<'py, PyAny>>> {
        numbers!(self, Number => {
            let number = if what == As::Key { Number::decode_key_part(from) } else { Number::decode_part(from) };
            return number.map(|number| Ok(number.into_pyobject(py)?.into_any())).transpose();
        }, else ());
        Ok(match self {
            Self::Bool => bool::decode_key_part(from).map(|flag| PyBool::new(py, flag).to_owned().into_any()),
            Self::Str => bytes_part(what, from)
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .map(|text| PyString::new(py, &text).into_any()),
            Self::Bytes => bytes_part(what, from).map(|bytes| PyBytes::new(py, &bytes).into_any()),
            Self::Uuid => match Uuid::decode_key_part(from) {
                Some(uuid) => Some(uuid_class(py)?.call1((py.None(), PyBytes::new(py, &uuid.0)))?),
                None => None,
            },
            Self::Json => match bytes_part(what, from) {
                Some(bytes) => json_of(py, &bytes)?,
                None => None,
            },
            Self::Option(inner) => match from.u8() {
                Ok(0) => Some(py.None().into_bound(py)),
                Ok(1) => inner.part(what, py, from)?,
                _ => None,
            },
            Self::Tuple(parts) => {
                let mut found = Vec::with_capacity(parts.len());
                for part in parts {
                    let Some(part) = part.part(what, py, from)? else { return Ok(None) };
                    found.push(part);
                }
                Some(PyTuple::new(py, found)?.into_any())
            }
            _ => Some(py.None().into_bound(py)),
        })
    }
}

fn encode_bytes(what: As, is_whole: bool, bytes: &[u8], out: &mut Vec<u8>) {
    match (what, is_whole) {
        (_, true) => out.extend_from_slice(bytes),
        (As::Key, false) => <&[u8]>::encode_key_part(&bytes, out),
        (As::Value, false) => <&[u8]>::encode_part(&bytes, out),
    }
}

fn bytes_part(what: As, from: &mut Decoder<'_>) -> Option<Vec<u8>> {
    match what {
        As::Key => <&[u8]>::decode_key_part(from),
        As::Value => <&[u8]>::decode_part(from),
    }
}

/// Returns the number of an `int` or a `float`. A `bool` is none.
fn number_of<'a, 'py, T: FromPyObject<'a, 'py>>(codec: &Codec, given: &'a Bound<'py, PyAny>) -> PyResult<T> {
    let is_float = matches!(codec, Codec::F32 | Codec::F64);
    if given.is_instance_of::<PyBool>() || !is_float && given.is_instance_of::<PyFloat>() {
        return Err(wrong(codec, given));
    }
    // The conversion to fewer bits would make it infinite.
    if *codec == Codec::F32 && given.extract::<f64>().is_ok_and(|wide| wide.is_finite() && (wide as f32).is_infinite())
    {
        return Err(PyOverflowError::new_err(format!("{given} is out of the range of `f32`")));
    }
    T::extract(given.as_borrowed()).map_err(|error| {
        let error: PyErr = error.into();
        // A number that is out of range stays an `OverflowError`.
        if error.is_instance_of::<PyTypeError>(given.py()) { wrong(codec, given) } else { error }
    })
}

fn wrong(codec: &Codec, given: &Bound<'_, PyAny>) -> PyErr {
    let kind = given.get_type().name().map_or_else(|_| String::from("?"), |name| name.to_string());
    PyTypeError::new_err(format!("`{}` wanted, not {kind}", codec.name()))
}

fn json(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static JSON: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    JSON.get_or_try_init(py, || Ok(py.import("json")?.into_any().unbind())).map(|json| json.bind(py))
}

fn json_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(None) };
    match json(py)?.getattr("loads")?.call1((text,)) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the class `uuid.UUID`.
pub(crate) fn uuid_class(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    CLASS.get_or_try_init(py, || Ok(py.import("uuid")?.getattr("UUID")?.unbind())).map(|class| class.bind(py))
}
