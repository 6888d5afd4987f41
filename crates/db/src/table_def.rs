//! Names and types of tables.

use crate::index_def::TableIndex;
use crate::merge_def::MergeDef;
use crate::{Error, Result};
use foreshore_base::key::{Key, Value};
use foreshore_base::limits::MAX_TABLE_NAME;
use std::{any::Any, fmt, marker::PhantomData};

/// Name and types with which a table is opened.
///
/// Make it a constant if the name is fixed: `const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");`. The
/// names of the types are stored when the table is created and compared at each open. `TableDef<&[u8], &[u8]>` holds
/// raw bytes.
///
/// **Types.** Keys and values are integers, `f32`, `f64`, `bool`, `char`, `&str` or `String`, `&[u8]` or `Vec<u8>`,
/// `[u8; N]`, `Option`, `Reverse`, tuples of 1 to 8, [`Uuid`](crate::Uuid), [`Timestamp`](crate::Timestamp) and
/// `Duration`. `()` may be a value, but not a key. `TableDef<String, u64>` and `TableDef<&str, u64>` open the same
/// table.
///
/// **Types of an application** implement [`Key`] and [`Value`]. The crate `foreshore-derive` writes the implementations
/// of structs and enums, and `foreshore-serde` stores values by serde. An implementation by hand best encodes a type as
/// one of those above:
///
/// ```
/// use foreshore::{Db, Decoder, Error, Key, TableDef, Value};
///
/// /// A version `major.minor`, in the order of its numbers.
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// struct Version(u16, u16);
///
/// impl Value for Version {
///     type Ref<'a> = Version;
///     type Owned = Version;
///
///     fn type_name() -> String {
///         "version".into()
///     }
///     fn to_ref(owned: &Version) -> Version {
///         *owned
///     }
///     fn encode(value: &Version, out: &mut Vec<u8>) {
///         <(u16, u16)>::encode(&(value.0, value.1), out);
///     }
///     fn decode(bytes: &[u8]) -> Option<Version> {
///         <(u16, u16)>::decode(bytes).map(|(major, minor)| Version(major, minor))
///     }
/// }
///
/// impl Key for Version {
///     fn encode_key(key: &Version, out: &mut Vec<u8>) {
///         Self::encode_key_part(key, out);
///     }
///     fn encode_key_part(key: &Version, out: &mut Vec<u8>) {
///         <(u16, u16)>::encode_key_part(&(key.0, key.1), out);
///     }
///     fn decode_key_part(from: &mut Decoder<'_>) -> Option<Version> {
///         <(u16, u16)>::decode_key_part(from).map(|(major, minor)| Version(major, minor))
///     }
/// }
///
/// const RELEASES: TableDef<Version, &str> = TableDef::new("releases");
/// # let db = Db::in_memory()?;
/// db.run(|tx| {
///     let releases = tx.open(RELEASES)?;
///     releases.insert(Version(1, 10), "autumn")?;
///     releases.insert(Version(1, 9), "summer")
/// })?;
/// assert_eq!(db.read().open(RELEASES)?.last()?, Some((Version(1, 10), "autumn".to_owned())));
/// # Ok::<(), Error>(())
/// ```
pub struct TableDef<'n, K: 'static, V: 'static> {
    name: &'n str,
    indexes: &'static [&'static dyn TableIndex<K, V>],
    /// A `MergeDef<V>`, without the bounds of that type.
    merge: Option<&'static (dyn Any + Send + Sync)>,
    types: PhantomData<fn(K) -> V>,
}

impl<'n, K: Key, V: Value> TableDef<'n, K, V> {
    /// Defines the table `name`. A name has 1 to 255 bytes and no zero byte; `open` refuses any other.
    #[must_use]
    pub const fn new(name: &'n str) -> Self {
        Self { name, indexes: &[], merge: None, types: PhantomData }
    }

    /// Declares the indexes of the table: all of them, each with its own name. Each write through the opened table
    /// updates them, in the same transaction.
    ///
    /// [`Transaction::open`](crate::Transaction::open) creates those that are missing and builds them from the rows,
    /// in the same transaction. Meanwhile the table is locked against writes of other transactions, and readers go on.
    /// It builds an index anew if its version, its key type or its uniqueness differ from what is stored. An error of
    /// the build ends the transaction. While a savepoint of the transaction is in use, the undo of a build has to fit
    /// in memory.
    ///
    /// A table that has other indexes too can be read by this definition, but not written: a write returns
    /// [`IndexUndeclared`](crate::Error::IndexUndeclared). [`Transaction::drop_index`](crate::Transaction::drop_index)
    /// drops an index. [`IndexDef`](crate::IndexDef) has an example.
    #[must_use]
    pub const fn with_indexes(self, indexes: &'static [&'static dyn TableIndex<K, V>]) -> Self {
        Self { indexes, ..self }
    }

    /// Declares the merge operator of the table, which [`Table::merge`](crate::Table::merge) applies. It is not stored:
    /// each program that merges declares it.
    #[must_use]
    pub const fn with_merge(self, merge: &'static MergeDef<V>) -> Self {
        Self { merge: Some(merge), ..self }
    }

    pub(crate) const fn merge(&self) -> Option<&'static (dyn Any + Send + Sync)> {
        self.merge
    }

    /// Returns the name.
    ///
    /// ```
    /// # use foreshore::{IndexDef, MergeDef, TableDef};
    /// const BY_VALUE: IndexDef<u64, i64, i64> = IndexDef::new("by value", |_, value: &i64, keys| keys.add(value));
    /// const ADD: MergeDef<i64> = MergeDef::new(|old, more| old.unwrap_or(0) + more);
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock").with_indexes(&[&BY_VALUE]).with_merge(&ADD);
    /// assert_eq!(STOCK.name(), "stock");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'n str {
        self.name
    }

    pub(crate) const fn indexes(&self) -> &'static [&'static dyn TableIndex<K, V>] {
        self.indexes
    }

    /// Returns the name of the table if it and those of the indexes are allowed.
    pub(crate) fn checked_name(&self) -> Result<&'n str> {
        check_name(self.name)?;
        check_names(self.indexes)?;
        Ok(self.name)
    }
}

/// Checks the names of indexes of one table.
pub(crate) fn check_names<K, V>(indexes: &[&'static dyn TableIndex<K, V>]) -> Result<()> {
    for (at, index) in indexes.iter().enumerate() {
        let name = index.name();
        check_name(name)?;
        if indexes[..at].iter().any(|other| other.name() == name) {
            return Err(Error::TableName { name: name.to_owned() });
        }
    }
    Ok(())
}

/// Checks the name of a table or of an index. The catalogue separates the two by a byte zero.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if (1..=MAX_TABLE_NAME).contains(&name.len()) && !name.contains('\0') {
        return Ok(());
    }
    Err(Error::TableName { name: name.to_owned() })
}

impl<K, V> Clone for TableDef<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for TableDef<'_, K, V> {}

impl<K, V> fmt::Debug for TableDef<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableDef").field(&self.name).finish()
    }
}
