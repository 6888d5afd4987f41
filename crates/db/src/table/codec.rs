//! Encoding of keys and values.

use crate::Error;
use foreshore_base::TableId;
use foreshore_base::key::{Key, Value};

/// Returns the error of a row that does not decode to the types of its table.
pub(super) fn undecodable(table: TableId, key: &[u8], part: &'static str) -> Error {
    Error::Undecodable { table: table.into(), key: key.into(), part }
}

/// Encodes a key. The tree checks its length.
pub(super) fn encode_key<K: Key>(key: &K::Ref<'_>, out: &mut Vec<u8>) {
    out.clear();
    K::encode_key(key, out);
}

/// Encodes a value. The tree checks its length.
pub(super) fn encode_value<V: Value>(value: &V::Ref<'_>, out: &mut Vec<u8>) {
    out.clear();
    V::encode(value, out);
}
