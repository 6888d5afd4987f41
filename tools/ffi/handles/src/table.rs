//! Tables of encoded rows.

use crate::open::{AnyTable, Running, Slot, WriteTable, on};
use crate::{Bounds, Cursor, Direction, Fault, IndexDef, Result, Status, Transaction};
use foreshore::{Error, RowLock, TableDef, TableIndex};
use std::sync::Arc;

/// A table that is open in a transaction. It is bytes to bytes; keys are in the order of their bytes.
pub struct Table {
    slot: Arc<Slot>,
}

impl Table {
    /// Opens the table `name` with these names of types. One that is missing is created, unless the transaction only
    /// reads.
    ///
    /// # Errors
    /// `TableTypes`, `TableName`, `NoTable`, and those of the engine.
    pub fn open(tx: &Transaction, name: &str, key_type: &str, value_type: &str) -> Result<Self> {
        Self::open_with(tx, name, (key_type, value_type), &[])
    }

    /// Opens the table `name` like [`open`](Self::open), with these indexes. A transaction that writes builds those
    /// that are missing or were built by another definition. One that reads ignores them.
    ///
    /// # Errors
    /// Those of [`open`](Self::open). `IndexKeyExists` of a new unique index.
    pub fn open_with(
        tx: &Transaction,
        name: &str,
        (key_type, value_type): (&str, &str),
        indexes: &[IndexDef],
    ) -> Result<Self> {
        Self::opened(tx, |running| match running {
            Running::Write(tx) => {
                let defs = indexes.iter().map(|index| index.get() as &'static dyn TableIndex<_, _>);
                let table = tx.create_raw_with(name, (key_type, value_type), &defs.collect::<Vec<_>>())?;
                Ok(AnyTable::Write(table))
            }
            Running::Read(tx) if (key_type, value_type) == ("bytes", "bytes") => {
                Ok(AnyTable::Read(tx.open(TableDef::new(name))?))
            }
            Running::Read(tx) => {
                let table = tx.open_raw(name)?;
                let listed = tx.tables()?.into_iter().find(|table| &*table.name == name);
                let (stored_key, stored_value) = match &listed {
                    Some(table) => (&*table.key_type, &*table.value_type),
                    // It was created since the snapshot, and is empty.
                    None => (key_type, value_type),
                };
                if (stored_key, stored_value) != (key_type, value_type) {
                    return Err(Error::TableTypes {
                        table: name.to_owned(),
                        stored: format!("{stored_key} -> {stored_value}"),
                        wanted: format!("{key_type} -> {value_type}"),
                    });
                }
                Ok(AnyTable::Read(table))
            }
        })
    }

    /// Opens the table `name`, whatever its types, and creates none.
    ///
    /// # Errors
    /// `NoTable`, `TableName`, and those of the engine.
    pub fn open_existing(tx: &Transaction, name: &str) -> Result<Self> {
        Self::opened(tx, |running| match running {
            Running::Write(tx) => Ok(AnyTable::Write(tx.open_raw(name)?)),
            Running::Read(tx) => Ok(AnyTable::Read(tx.open_raw(name)?)),
        })
    }

    fn opened(tx: &Transaction, open: impl FnOnce(Running) -> foreshore::Result<AnyTable>) -> Result<Self> {
        let number = tx.with(|state| {
            let table = open(state.running()?)?;
            let number = state.number();
            state.tables.insert(number, table);
            Ok(number)
        })?;
        Ok(Self { slot: Arc::new(Slot { shared: Arc::clone(tx.shared()), number }) })
    }

    pub(crate) const fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    fn with<T>(&self, operation: impl FnOnce(&AnyTable) -> Result<T>) -> Result<T> {
        self.slot.shared.with(|open| operation(self.slot.of(open)?))
    }

    /// Runs an operation that may write.
    pub(crate) fn write<T>(&self, operation: impl FnOnce(&WriteTable) -> foreshore::Result<T>) -> Result<T> {
        self.slot.shared.with(|open| {
            open.writing()?;
            open.writes += 1;
            match self.slot.of(open)? {
                AnyTable::Write(table) => Ok(operation(table)?),
                AnyTable::Read(_) => Err(Fault::new(Status::ReadOnly, "the transaction only reads")),
            }
        })
    }

    /// Calls `read` with the value of `key`, if there is one. `read` must not use the transaction.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn get<T>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.with(|table| Ok(on!(table, table => table.get_with(key, read))?))
    }

    /// Returns the value of `key`, and locks the row for a write.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn get_for_update(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(|table| table.get_for_update(key))
    }

    /// Returns whether there is a row of `key`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.with(|table| Ok(on!(table, table => table.contains(key))?))
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|table| table.put(key, value))
    }

    /// Sets the value of a new key.
    ///
    /// # Errors
    /// `KeyExists`, and those of the engine.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(|table| table.insert_new(key, value))
    }

    /// Sets the value of `key` and returns the old one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn replace(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(|table| table.insert(key, value))
    }

    /// Changes the value of `key` as `change` says, under a lock of the row, and returns the new value. `change` gets
    /// the value, or `None` if there is no row. If it returns `None`, the row is removed. It may use the transaction,
    /// and is called again if another transaction has inserted the row meanwhile.
    ///
    /// # Errors
    /// That of `change`, after which the row is unchanged and locked; those of the engine.
    pub fn update_with<E: From<Fault>>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> std::result::Result<Option<Vec<u8>>, E>,
    ) -> std::result::Result<Option<Vec<u8>>, E> {
        loop {
            let old = self.get_for_update(key)?;
            let new = change(old.as_deref());
            self.slot.shared.process().must_be_present();
            let new = new?;
            match (&new, old.is_some()) {
                (Some(value), true) => self.put(key, value)?,
                (Some(value), false) => match self.insert(key, value) {
                    Err(Fault { status: Status::KeyExists, .. }) => continue,
                    inserted => inserted?,
                },
                (None, true) => drop(self.remove(key)?),
                (None, false) => {}
            }
            return Ok(new);
        }
    }

    /// Removes the row of `key` and returns its value.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn remove(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(|table| table.remove(key))
    }

    /// Removes the rows between the bounds and returns how many there were.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn remove_range(&self, bounds: &Bounds) -> Result<u64> {
        self.write(|table| table.remove_range(bounds.borrowed()))
    }

    /// Returns the number of rows between the bounds, by a scan.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn count(&self, bounds: &Bounds) -> Result<u64> {
        self.with(|table| Ok(on!(table, table => table.count(bounds.borrowed()))?))
    }

    /// Estimates the number of rows.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn len_estimate(&self) -> Result<u64> {
        self.with(|table| Ok(on!(table, table => table.len_estimate())?))
    }

    /// Locks the row of `key` and returns its value; a locked row is `RowLocked` at once.
    ///
    /// # Errors
    /// `RowLocked`, and those of the engine.
    pub fn get_for_update_now(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(|table| {
            Ok(match table.get_locked(key, RowLock::update().no_wait())? {
                foreshore::Locked::Row(value) => Some(value),
                foreshore::Locked::Absent | foreshore::Locked::Skipped => None,
            })
        })
    }

    /// Returns a number for a new row, which no other call gets.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn next_id(&self) -> Result<u64> {
        self.slot.shared.with(|open| {
            let tx = open.writing()?;
            match self.slot.of(open)? {
                AnyTable::Write(table) => Ok(tx.next_id(table)?),
                AnyTable::Read(_) => Err(Fault::new(Status::ReadOnly, "the transaction only reads")),
            }
        })
    }

    /// Makes the numbers of [`next_id`](Self::next_id) begin above `last`, at once and durably.
    ///
    /// # Errors
    /// `Invalid` if `last` is 2^63 or more, and those of the engine.
    pub fn skip_ids(&self, last: u64) -> Result<()> {
        self.slot.shared.with(|open| {
            let tx = open.writing()?;
            match self.slot.of(open)? {
                AnyTable::Write(table) => Ok(tx.skip_ids(table, last)?),
                AnyTable::Read(_) => Err(Fault::new(Status::ReadOnly, "the transaction only reads")),
            }
        })
    }

    /// Begins a scan of the rows between the bounds.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn scan(&self, bounds: Bounds, direction: Direction) -> Result<Cursor> {
        self.with(|_| Ok(()))?;
        Ok(Cursor::new(Arc::clone(&self.slot), bounds, direction, None))
    }
}
