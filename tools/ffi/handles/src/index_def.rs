//! Definitions of indexes of tables of encoded rows.

use crate::open::AnyTable;
use crate::system::Process;
use crate::{Fault, Result, Status};
use foreshore::{ByIndex, Decoder, Key, RawIndex, RawKey};
use std::sync::{Mutex, PoisonError};

/// How many definitions a process may make. The engine keeps them for its life.
const MAX_DEFINITIONS: usize = 1024;

type Definition = foreshore::IndexDef<&'static [u8], &'static [u8], RawKey>;

/// The definitions of this process.
static DEFINITIONS: Mutex<Vec<&'static Definition>> = Mutex::new(Vec::new());

/// The definition of an index of a table of encoded rows.
#[derive(Clone, Copy, Debug)]
pub struct IndexDef(&'static Definition);

/// The name and the types of an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexTypes<'a> {
    /// The name of the index.
    pub name: &'a str,
    /// Whether no two rows may have the same key.
    pub is_unique: bool,
    /// The version of its function: another one makes the next open build the index anew.
    pub version: u64,
    /// The name of the type of the index keys.
    pub key_type: &'a str,
    /// The name of the type of the table's keys.
    pub primary_type: &'a str,
}

impl IndexDef {
    /// Defines an index. `keys` gets an encoded row and a function that adds an index key: encoded whole if the index
    /// is unique, and otherwise as a part. It must not use the transaction. Its error names what of the row is wrong,
    /// and ends the transaction. `key_len` returns the length of the part at the front of an entry.
    ///
    /// # Errors
    /// `Invalid` if there are 1024 definitions already: a program makes each of them once.
    pub fn new(
        types: IndexTypes<'_>,
        keys: impl Fn(&[u8], &[u8], &mut dyn FnMut(&[u8])) -> std::result::Result<(), &'static str> + Send + Sync + 'static,
        key_len: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut made = DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() == MAX_DEFINITIONS {
            let name = types.name;
            let why = format!("{MAX_DEFINITIONS} indexes are defined, `{name}` would be another");
            return Err(Fault::new(Status::Invalid, why));
        }
        let raw = Box::leak(Box::new(RawIndex {
            key_type: types.key_type.to_owned(),
            primary_type: types.primary_type.to_owned(),
            keys: Box::new(move |key, value, out| {
                let process = Process::of_call();
                let added = keys(key, value, &mut |key| out.add(key));
                process.must_be_present();
                added
            }),
            key_len: Box::new(key_len),
        }));
        let name: &'static str = Box::leak(Box::from(types.name));
        let definition: &'static Definition =
            Box::leak(Box::new(Definition::raw(name, types.is_unique, types.version, raw)));
        made.push(definition);
        Ok(Self(definition))
    }

    /// Defines an index whose keys are bytes, which `keys` adds as they are.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn of_bytes(
        types: IndexTypes<'_>,
        keys: impl Fn(&[u8], &[u8], &mut dyn FnMut(&[u8])) -> std::result::Result<(), &'static str> + Send + Sync + 'static,
    ) -> Result<Self> {
        let is_unique = types.is_unique;
        let encoded = move |key: &[u8], value: &[u8], add: &mut dyn FnMut(&[u8])| {
            keys(key, value, &mut |bytes| add(&bytes_key(bytes, is_unique)))
        };
        Self::new(types, encoded, |entry| {
            let mut from = Decoder::new(entry);
            <&[u8]>::decode_key_part(&mut from)?;
            Some(entry.len() - from.rest().len())
        })
    }

    /// Returns whether no two rows may have the same key.
    #[must_use]
    pub const fn is_unique(self) -> bool {
        self.0.is_unique()
    }

    /// Returns the definition for a table of the engine.
    pub(crate) const fn get(self) -> &'static Definition {
        self.0
    }
}

/// Encodes a key of bytes for an index.
#[must_use]
pub fn bytes_key(bytes: &[u8], is_unique: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 2);
    if is_unique {
        out.extend_from_slice(bytes);
    } else {
        <&[u8]>::encode_key_part(&bytes, &mut out);
    }
    out
}

/// Returns the index of a table.
pub(crate) fn by_index(
    table: &AnyTable,
    def: IndexDef,
) -> foreshore::Result<ByIndex<'static, &'static [u8], &'static [u8], RawKey>> {
    match table {
        AnyTable::Write(table) => table.by_index(*def.get()),
        AnyTable::Read(table) => table.by_index(*def.get()),
    }
}
