//! Definitions of secondary indexes: their names, and the functions that make their keys.
//!
//! An index is a tree of its own. It has an *entry* for each key that the function adds for a row:
//!
//! | index | entry, as a key of the tree | its value |
//! |---|---|---|
//! | unique | the index key, whole | the primary key |
//! | not unique | the index key as a part, then the primary key | nothing |
//!
//! The primary key is encoded as in its table. An index key that is a part is self-delimiting. So entries are ordered
//! by index key and then by primary key, and the two keys of an entry can be separated.

use crate::Result;
use crate::raw_index::RawKey;
use foreshore_base::codec::Decoder;
use foreshore_base::key::{Key, Value};
use std::{any::TypeId, borrow::Borrow, fmt, marker::PhantomData};

/// A function that adds the index keys of a row.
type KeysOf<K, V, I> = fn(&<K as Value>::Owned, &<V as Value>::Owned, &mut IndexKeys<'_, I>);

/// Definition of a secondary index: its name, and the function that makes its keys of a row.
///
/// `K` and `V` are the types of the table, and `I` is the type of the index keys. [`TableDef::with_indexes`] declares
/// the indexes of a table. From then on each write of a row through the table updates them, in the same transaction.
///
/// **The function** adds the index keys of a row to [`IndexKeys`]: one, none or several. A row without index keys is
/// not found through the index. The same key added twice counts once. The function is called with the old and the new
/// row of each change, and must depend on nothing else. It must not use the transaction. After a panic in it the
/// transaction can only be rolled back: a commit returns [`RolledBack`](crate::Error::RolledBack).
///
/// **The version** stands for the function, which cannot be stored. Raise it when the function changes: the next
/// [`Transaction::open`](crate::Transaction::open) builds the index anew. A changed function with an old version is not
/// detected until a write misses an entry ([`IndexMismatch`](crate::Error::IndexMismatch)).
/// [`ByIndex::check`](crate::ByIndex::check) compares an index with its table.
///
/// ```
/// use foreshore::{Db, Error, IndexDef, TableDef};
///
/// /// Name and city.
/// type User = (&'static str, &'static str);
///
/// const BY_NAME: IndexDef<u64, User, &str> =
///     IndexDef::unique("by name", |_, user: &(String, String), keys| keys.add(user.0.as_str()));
/// const BY_CITY: IndexDef<u64, User, &str> =
///     IndexDef::new("by city", |_, user: &(String, String), keys| keys.add(user.1.as_str()));
/// const USERS: TableDef<u64, User> = TableDef::new("users").with_indexes(&[&BY_NAME, &BY_CITY]);
///
/// # let db = Db::in_memory()?;
/// db.run(|tx| {
///     let users = tx.open(USERS)?;
///     users.insert_new(1, ("Ada", "London"))?;
///     users.insert_new(2, ("Grace", "New York"))?;
///     users.insert_new(3, ("Alan", "London"))
/// })?;
/// let reader = db.read();
/// let users = reader.open(USERS)?;
/// assert_eq!(users.by_index(BY_NAME)?.get("Grace")?.map(|(id, _)| id), Some(2));
/// let londoners = users.by_index(BY_CITY)?.range("London"..="London").map(|row| row.map(|(id, _)| id));
/// assert_eq!(londoners.collect::<Result<Vec<_>, _>>()?, [1, 3]);
///
/// let taken = db.run(|tx| tx.open(USERS)?.insert_new(4, ("Ada", "Paris")));
/// assert!(matches!(taken, Err(Error::IndexKeyExists { .. })));
/// # Ok::<(), Error>(())
/// ```
///
/// [`TableDef::with_indexes`]: crate::TableDef::with_indexes
pub struct IndexDef<K: Key, V: Value, I: Key> {
    name: &'static str,
    is_unique: bool,
    version: u64,
    keys: KeysOf<K, V, I>,
    /// What takes the place of `keys` and of the types, for a table of encoded rows.
    raw: Option<&'static RawIndex>,
}

/// An index of a table of encoded rows. The types have names only.
#[doc(hidden)]
pub struct RawIndex {
    /// The name of the type of the index keys.
    pub key_type: String,
    /// The name of the type of the table's keys.
    pub primary_type: String,
    /// Adds the index keys of an encoded row. The error names the part of the row that has none.
    pub keys: Box<RawKeysOf>,
    /// Returns the length of the index key at the front of an entry that is not unique.
    pub key_len: Box<RawKeyLen>,
}

/// A function that adds the index keys of an encoded row.
type RawKeysOf = dyn Fn(&[u8], &[u8], &mut IndexKeys<'_, RawKey>) -> Result<(), &'static str> + Send + Sync;

/// A function that returns the length of the index key at the front of an entry.
type RawKeyLen = dyn Fn(&[u8]) -> Option<usize> + Send + Sync;

impl IndexDef<&'static [u8], &'static [u8], RawKey> {
    /// Defines an index of a table of encoded rows, which bindings of other languages open.
    #[doc(hidden)]
    #[must_use]
    pub const fn raw(name: &'static str, is_unique: bool, version: u64, raw: &'static RawIndex) -> Self {
        Self { name, is_unique, version, keys: |_, _, _| {}, raw: Some(raw) }
    }
}

impl<K: Key, V: Value, I: Key> IndexDef<K, V, I> {
    /// Defines the index `name`, in which rows may share a key. The name has 1 to 255 bytes and no byte zero. Any other
    /// name is refused when the table is opened.
    #[must_use]
    pub const fn new(name: &'static str, keys: KeysOf<K, V, I>) -> Self {
        Self { name, is_unique: false, version: 1, keys, raw: None }
    }

    /// Defines the index `name`, in which no two rows have the same key. A write that would give a key to a second row
    /// is refused with [`IndexKeyExists`](crate::Error::IndexKeyExists), and the transaction goes on.
    ///
    /// The rule holds after each write, not only at the commit. So two rows that exchange their keys need a step
    /// between: a write that removes one of the keys.
    #[must_use]
    pub const fn unique(name: &'static str, keys: KeysOf<K, V, I>) -> Self {
        Self { name, is_unique: true, version: 1, keys, raw: None }
    }

    /// Sets the version of the function, which is 1 by default.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// const BY_FIRST: IndexDef<u64, &str, char> =
    ///     IndexDef::new("by first letter", |_, name: &String, keys| name.chars().take(1).for_each(|c| keys.add(c)));
    /// const FOLDED: IndexDef<u64, &str, char> = IndexDef::new("by first letter", |_, name: &String, keys| {
    ///     name.chars().flat_map(char::to_lowercase).take(1).for_each(|c| keys.add(c));
    /// })
    /// .version(2);
    ///
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| tx.open(TableDef::<u64, &str>::new("names").with_indexes(&[&BY_FIRST]))?.put(1, "Ada"))?;
    /// // Built anew, because the version differs from the stored one.
    /// db.run(|tx| {
    ///     let names = tx.open(TableDef::<u64, &str>::new("names").with_indexes(&[&FOLDED]))?;
    ///     assert!(names.by_index(FOLDED)?.get('a')?.is_some());
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// Returns the name.
    ///
    /// ```
    /// # use foreshore::IndexDef;
    /// const BY_LENGTH: IndexDef<u64, &str, u64> =
    ///     IndexDef::new("by length", |_, name: &String, keys| keys.add(name.len() as u64));
    /// assert_eq!((BY_LENGTH.name(), BY_LENGTH.is_unique()), ("by length", false));
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether no two rows have the same key.
    #[must_use]
    pub const fn is_unique(&self) -> bool {
        self.is_unique
    }

    /// Returns the index key and the encoded primary key of an entry; `None` if they do not decode.
    pub(crate) fn split<'b>(&self, entry: &'b [u8], value: &'b [u8]) -> Option<(I::Owned, &'b [u8])> {
        if self.is_unique {
            return Some((I::decode_key(entry)?, value));
        }
        if let Some(raw) = self.raw {
            let (key, primary) = entry.split_at_checked((raw.key_len)(entry)?)?;
            return Some((I::decode_key(key)?, primary));
        }
        let mut from = Decoder::new(entry);
        let key = I::decode_key_part(&mut from)?;
        Some((key, from.rest()))
    }
}

impl<K: Key, V: Value, I: Key> Clone for IndexDef<K, V, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Key, V: Value, I: Key> Copy for IndexDef<K, V, I> {}

impl<K: Key, V: Value, I: Key> fmt::Debug for IndexDef<K, V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, is_unique, version, .. } = self;
        f.debug_struct("IndexDef")
            .field("name", name)
            .field("is_unique", is_unique)
            .field("version", version)
            .finish_non_exhaustive()
    }
}

/// Receives the index keys of a row from the function of an [`IndexDef`].
pub struct IndexKeys<'e, I> {
    is_unique: bool,
    primary: &'e [u8],
    entries: &'e mut Entries,
    types: PhantomData<fn(I)>,
}

impl<I: Key> IndexKeys<'_, I> {
    /// Adds an index key of the row.
    ///
    /// ```
    /// # use foreshore::{Db, Error, IndexDef, TableDef};
    /// /// A key for each word of the text.
    /// const BY_WORD: IndexDef<u64, &str, &str> = IndexDef::new("by word", |_, text: &String, keys| {
    ///     text.split_whitespace().for_each(|word| keys.add(word));
    /// });
    /// const NOTES: TableDef<u64, &str> = TableDef::new("notes").with_indexes(&[&BY_WORD]);
    /// # let db = Db::in_memory()?;
    /// db.run(|tx| tx.open(NOTES)?.put(1, "buy ink"))?;
    /// assert_eq!(db.read().open(NOTES)?.by_index(BY_WORD)?.get("ink")?, Some((1, "buy ink".to_owned())));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn add<'i>(&mut self, key: impl Borrow<I::Ref<'i>>) {
        self.entries.push(|entry| {
            if self.is_unique {
                I::encode_key(key.borrow(), entry);
            } else {
                I::encode_key_part(key.borrow(), entry);
                entry.extend_from_slice(self.primary);
            }
        });
    }
}

impl<I> fmt::Debug for IndexKeys<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexKeys").field("entries", &self.entries.places.len()).finish_non_exhaustive()
    }
}

/// The entries of a row in an index, without their values. They lie one behind the other, so that the memory serves the
/// next row.
#[derive(Debug, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    /// Start and end of each entry in `bytes`.
    places: Vec<(usize, usize)>,
}

impl Entries {
    /// Appends the entry that `encode` appends to the bytes.
    fn push(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        self.places.push((start, self.bytes.len()));
    }

    /// Puts the entries in order, and drops repeated ones.
    fn sort(&mut self) {
        let Self { bytes, places } = self;
        places.sort_unstable_by_key(|&(start, end)| &bytes[start..end]);
        places.dedup_by_key(|&mut (start, end)| &bytes[start..end]);
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Removes all entries, and frees memory beyond about `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.clear();
        self.bytes.shrink_to(bytes);
        self.places.shrink_to(bytes / size_of::<(usize, usize)>());
    }

    /// Returns the entries, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|&(start, end)| &self.bytes[start..end])
    }

    pub(crate) fn has(&self, entry: &[u8]) -> bool {
        self.places.binary_search_by_key(&entry, |&(start, end)| &self.bytes[start..end]).is_ok()
    }
}

/// An index of a table with keys `K` and values `V`, with any type of index keys. [`IndexDef`] is the only
/// implementation.
pub trait TableIndex<K, V>: Definition {}

impl<K: Key + 'static, V: Value, I: Key + 'static> TableIndex<K, V> for IndexDef<K, V, I> {}

/// An index definition without its type parameters, for the engine. [`TableIndex`] makes sure that it fits the types of
/// its table.
pub trait Definition: Send + Sync {
    /// Returns the name.
    fn name(&self) -> &'static str;

    /// Returns whether no two rows have the same key.
    fn is_unique(&self) -> bool;

    /// Returns the version of the key function.
    fn version(&self) -> u64;

    /// Returns the types of the index keys and of the primary keys, unless they have names only.
    fn types(&self) -> Option<(TypeId, TypeId)>;

    /// Returns the names of these types.
    fn type_names(&self) -> (String, String);

    /// Replaces `out` by the entries of an encoded row, in order and without repetition. The error names the part of
    /// the row that does not decode.
    fn entries(&self, key: &[u8], value: &[u8], out: &mut Entries) -> Result<(), &'static str>;
}

impl<K: Key + 'static, V: Value, I: Key + 'static> Definition for IndexDef<K, V, I> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_unique(&self) -> bool {
        self.is_unique
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn types(&self) -> Option<(TypeId, TypeId)> {
        self.raw.is_none().then(|| (TypeId::of::<I>(), TypeId::of::<K>()))
    }

    fn type_names(&self) -> (String, String) {
        match self.raw {
            Some(raw) => (raw.key_type.clone(), raw.primary_type.clone()),
            None => (I::type_name(), K::type_name()),
        }
    }

    fn entries(&self, key: &[u8], value: &[u8], out: &mut Entries) -> Result<(), &'static str> {
        out.clear();
        if let Some(raw) = self.raw {
            let mut keys = IndexKeys { is_unique: self.is_unique, primary: key, entries: out, types: PhantomData };
            (raw.keys)(key, value, &mut keys)?;
            out.sort();
            return Ok(());
        }
        let owned = K::decode_key(key).ok_or("key")?;
        let value = V::decode(value).ok_or("value")?;
        let mut keys = IndexKeys { is_unique: self.is_unique, primary: key, entries: out, types: PhantomData };
        (self.keys)(&owned, &value, &mut keys);
        out.sort();
        Ok(())
    }
}
