//! Indexes of tables of encoded rows, for the bindings of other languages.
//!
//! Their keys come from a function of the program that reads and writes encoded bytes. The type of the index keys is a
//! name, which the catalogue stores as for any other index. So an index that one language has built is read by another.

use foreshore_base::codec::Decoder;
use foreshore_base::key::{Key, Value};

/// An encoded index key: whole for a unique index, and otherwise self-delimiting, as
/// [`encode_key_part`](Key::encode_key_part) writes it. Only an index of encoded rows has such keys.
#[doc(hidden)]
#[derive(Debug)]
pub struct RawKey;

impl Value for RawKey {
    type Ref<'a> = &'a [u8];
    type Owned = Vec<u8>;

    fn type_name() -> String {
        "an encoded index key".to_owned()
    }

    fn to_ref(owned: &Vec<u8>) -> &[u8] {
        owned
    }

    fn encode(value: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(value);
    }

    fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

impl Key for RawKey {
    fn encode_key(key: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn encode_key_part(key: &&[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    /// Takes all that is left: [`RawIndex::key_len`](crate::RawIndex) has cut the key off before.
    fn decode_key_part(from: &mut Decoder<'_>) -> Option<Vec<u8>> {
        let len = from.rest().len();
        from.bytes(len).ok().map(<[u8]>::to_vec)
    }
}
