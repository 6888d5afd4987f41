//! Tables whose types are known only at run time: rows are read and written encoded.

use super::Table;
use crate::catalogue::{Catalogue, Missing, RowTypes};
use crate::table_def::check_names;
use crate::{Error, Result, TableDef, TableIndex, Transaction};
use foreshore_base::limits::MAX_INLINE_VALUE;

/// A table of encoded rows.
type RawTable<'tx> = Table<'tx, &'static [u8], &'static [u8]>;

/// The largest number of bytes in the names of both types of a table: a row of the catalogue has them.
const MAX_TYPE_NAMES: usize = MAX_INLINE_VALUE - 64;

impl Transaction {
    /// Opens a table that exists, whatever its types. Keys and values are passed and returned encoded, and the order of
    /// the bytes is that of the keys.
    ///
    /// A table with indexes can be read, and not written: a write returns [`IndexUndeclared`](Error::IndexUndeclared).
    ///
    /// For tools that learn the types at run time: [`tables`](Self::tables) returns their names, and
    /// [`Key`](crate::Key) and [`Value`](crate::Value) of the named types decode the bytes. Nothing checks what is
    /// written. A row that is no encoding of the table's types is [`Undecodable`](Error::Undecodable) for programs that
    /// open it with them.
    ///
    /// # Errors
    /// Those of [`open_existing`](Self::open_existing), except `TableTypes`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Key, TableDef, Value};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// let (key, value) = db.begin().open_raw("stock")?.first()?.expect("one row");
    /// assert_eq!((u64::decode_key(&key), i64::decode(&value)), (Some(1), Some(10)));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn open_raw(&self, name: &str) -> Result<RawTable<'_>> {
        self.open_by(TableDef::new(name), RowTypes::Stored, Catalogue::open_existing)
    }

    /// Opens a table like [`open_raw`](Self::open_raw), and creates it with these names of types if there is none. For
    /// tools that copy tables between databases.
    ///
    /// # Errors
    /// Those of [`open`](Self::open): `TableTypes` if the table has other types. `InvalidOption` for names of more than
    /// 1984 bytes in all.
    ///
    /// ```
    /// # use foreshore::{Db, Error, Key, TableDef, Value};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let (mut key, mut value) = (Vec::new(), Vec::new());
    /// u64::encode_key(&1, &mut key);
    /// i64::encode(&10, &mut value);
    /// db.run(|tx| tx.create_raw("stock", &u64::type_name(), &i64::type_name())?.put(&*key, &*value))?;
    /// assert_eq!(db.read().open(STOCK)?.get(1)?, Some(10));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn create_raw(&self, name: &str, key_type: &str, value_type: &str) -> Result<RawTable<'_>> {
        let len = key_type.len() + value_type.len();
        if len > MAX_TYPE_NAMES {
            let expected = format!("names of at most {MAX_TYPE_NAMES} bytes in all");
            return Err(Error::InvalidOption { name: "types", value: format!("names of {len} bytes"), expected });
        }
        self.open_by(TableDef::new(name), RowTypes::Named(key_type, value_type), Catalogue::open)
    }

    /// Opens a table like [`create_raw`](Self::create_raw), with indexes of encoded rows, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// Those of `create_raw` and of [`open`](Self::open).
    #[doc(hidden)]
    pub fn create_raw_with(
        &self,
        name: &str,
        (key_type, value_type): (&str, &str),
        indexes: &[&'static dyn TableIndex<&'static [u8], &'static [u8]>],
    ) -> Result<RawTable<'_>> {
        check_names(indexes)?;
        self.open_indexes(self.create_raw(name, key_type, value_type)?, indexes, Missing::Create)
    }

    /// Opens a table that the snapshot of a reader sees, whatever its types.
    pub(crate) fn open_known_raw(&self, name: &str) -> Result<RawTable<'_>> {
        self.open_by(TableDef::new(name), RowTypes::Stored, Catalogue::open_known)
    }
}
