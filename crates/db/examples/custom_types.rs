//! Types of an application as key and value, by hand: a semantic version that sorts as versions do, and a package. The
//! crate `foreshore-derive` writes such implementations for most structs and enums.
//!
//! ```text
//! cargo run -p foreshore --example custom_types
//! ```

use foreshore::{Db, Decoder, Error, Key, TableDef, Value};

/// `1.2.0-beta` lies before `1.2.0`, and `1.9.0` before `1.10.0`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Version {
    numbers: [u16; 3],
    is_beta: bool,
}

impl Value for Version {
    type Ref<'a> = &'a Self;
    type Owned = Self;

    /// Stored with each table: a table of another type is refused. It changes when the encoding does.
    fn type_name() -> String {
        "version".into()
    }

    fn to_ref(owned: &Self) -> &Self {
        owned
    }

    fn encode(version: &&Self, out: &mut Vec<u8>) {
        Self::encode_key(version, out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::decode_key(bytes)
    }
}

/// The order of the encoded bytes is the order of the keys: numbers are big-endian, and what counts most comes first.
impl Key for Version {
    fn encode_key(version: &&Self, out: &mut Vec<u8>) {
        version.numbers.iter().for_each(|number| out.extend(number.to_be_bytes()));
        out.push(u8::from(!version.is_beta));
    }

    /// As a part of a tuple. The encoding has a fixed length, so it needs no mark of its end.
    fn encode_key_part(version: &&Self, out: &mut Vec<u8>) {
        Self::encode_key(version, out);
    }

    /// `None` for bytes that no version encodes to. It must not panic, whatever the bytes are.
    fn decode_key_part(from: &mut Decoder<'_>) -> Option<Self> {
        let bytes = from.bytes(7).ok()?;
        let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let is_beta = *bytes.get(6)?;
        (is_beta <= 1).then_some(Self { numbers: [number(0)?, number(2)?, number(4)?], is_beta: is_beta == 0 })
    }
}

/// Package and version to the bytes of the archive.
const PACKAGES: TableDef<(&str, Version), u64> = TableDef::new("packages");

fn main() -> Result<(), Error> {
    let version = |numbers, is_beta| Version { numbers, is_beta };
    let sorted =
        [version([1, 2, 0], true), version([1, 2, 0], false), version([1, 9, 0], false), version([1, 10, 0], false)];
    let db = Db::in_memory()?;
    db.run(|tx| {
        let packages = tx.open(PACKAGES)?;
        sorted.iter().rev().try_for_each(|version| packages.put(("shore", version), 4096))
    })?;
    let reader = db.read();
    let packages = reader.open(PACKAGES)?;
    let found = packages.prefix(("shore",)).map(|row| row.map(|((_, version), _)| version));
    assert_eq!(found.collect::<Result<Vec<_>, _>>()?, sorted);
    let newest = packages.prefix(("shore",)).next_back().transpose()?;
    println!("the newest: {:?}", newest.map(|((_, version), _)| version.numbers));
    Ok(())
}
