//! Secondary indexes.

use crate::buffer::fs_buffer;
use crate::cursor::{direction, fs_cursor};
use crate::guard::{
    bytes, elements, found, free, guard, guard_status, hand_out, null, object, object_mut, store, text,
};
use crate::options::copied;
use crate::range::{bounds, fs_range};
use crate::table::fs_table;
use crate::tx::fs_tx;
use foreshore_handles::{Bounds, Fault, Index, IndexDef, IndexTypes, Result, Status, Table, bytes_key};
use std::ffi::{c_char, c_int, c_void};
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

/// Receives the index keys of a row, by `fs_keys_add`.
pub struct fs_keys<'a> {
    add: &'a mut dyn FnMut(&[u8]),
}

/// Adds the index keys of a row: one, several, or none, so that the index does not find the row. It is called with the
/// old and the new row of each change, also on other threads, and must depend on nothing else. It must not use the
/// transaction. Zero, or anything else if the row has no such form: then the call returns `FS_UNDECODABLE`, and the
/// transaction is rolled back. `keys` belongs to the library and ends with the call. No exception of C++ and no
/// `longjmp` may leave the function.
pub type fs_index_keys = Option<
    unsafe extern "C" fn(
        arg: *mut c_void,
        key: *const c_void,
        key_len: usize,
        value: *const c_void,
        value_len: usize,
        keys: *mut fs_keys<'_>,
    ) -> c_int,
>;

/// The definition of an index. Set `struct_size` to `sizeof(fs_index_options)`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct fs_index_options {
    /// `sizeof(fs_index_options)`.
    pub struct_size: usize,
    /// The name of the index.
    pub name: *const c_char,
    /// The function that adds the keys of a row. They are bytes, in the order of their bytes.
    pub keys: fs_index_keys,
    /// Passed to the function, for the life of the process.
    pub arg: *mut c_void,
    /// The version of the function; 1 by default. Raise it when the function changes: the next open of a table with the
    /// index builds it anew.
    pub version: u64,
    /// Not zero if no two rows may have the same key.
    pub unique: u32,
}

/// The definition of an index. Any thread may use it, and several at once.
pub struct fs_index {
    name: String,
    function: Function,
    version: u64,
    is_unique: bool,
    /// The definitions that the engine has got, by the names of the types of their tables' keys.
    made: Mutex<Vec<(String, IndexDef)>>,
}

/// A function of the program and its argument.
#[derive(Clone, Copy)]
struct Function {
    function: unsafe extern "C" fn(*mut c_void, *const c_void, usize, *const c_void, usize, *mut fs_keys<'_>) -> c_int,
    arg: *mut c_void,
}

// SAFETY: the library does not use what `arg` points to. The header says that threads call the function.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    fn call(self, key: &[u8], value: &[u8], add: &mut dyn FnMut(&[u8])) -> std::result::Result<(), &'static str> {
        let mut keys = fs_keys { add };
        let (key_len, value_len) = (key.len(), value.len());
        // SAFETY: as the caller of `fs_index_new` promises.
        let status = unsafe {
            (self.function)(self.arg, key.as_ptr().cast(), key_len, value.as_ptr().cast(), value_len, &raw mut keys)
        };
        if status == 0 { Ok(()) } else { Err("index key") }
    }
}

impl fs_index {
    /// Returns the definition for a table with keys of a type.
    fn of(&self, primary_type: &str) -> Result<IndexDef> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, def)) = made.iter().find(|(of, _)| of == primary_type) {
            return Ok(*def);
        }
        let (name, is_unique, version) = (&*self.name, self.is_unique, self.version);
        let function = self.function;
        let types = IndexTypes { name, is_unique, version, key_type: "bytes", primary_type };
        let def = IndexDef::of_bytes(types, move |key, value, add| function.call(key, value, add))?;
        made.push((primary_type.to_owned(), def));
        Ok(def)
    }

    /// Returns the index of an open table.
    fn of_table(&self, table: &fs_table) -> Result<Index> {
        let Some(primary_type) = &table.key_type else {
            let why = "the table was opened without its types: `fs_table_open_typed` names them";
            return Err(Fault::new(Status::Invalid, why));
        };
        table.inner.by_index(self.of(primary_type)?)
    }

    fn key(&self, bytes: &[u8]) -> Vec<u8> {
        bytes_key(bytes, self.is_unique)
    }
}

/// Makes the definition of an index. The library keeps the function and `arg` for the life of the process. Free the
/// handle with `fs_index_free`.
///
/// Make each definition once. A process may use 1024: one counts when it is used first, by an open or a read, and again
/// for each other type of the keys of tables. Further ones return `FS_INVALID` there.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte. The function may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_index_new(options: *const fs_index_options, index: *mut *mut fs_index) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (given, out) = unsafe { (copied(options, "options of an index")?, object_mut(index, "index")?) };
        let given = given.ok_or_else(|| null("options"))?;
        // SAFETY: as the caller promises.
        let name = unsafe { text(given.name, "name") }?.to_owned();
        let function = Function { function: given.keys.ok_or_else(|| null("keys"))?, arg: given.arg };
        let (version, is_unique) = (given.version.max(1), given.unique != 0);
        hand_out(out, fs_index { name, function, version, is_unique, made: Mutex::default() });
        Ok(())
    })
}

/// Frees the handle of a definition. Null is allowed.
///
/// # Safety
/// `index` is null or a definition that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_index_free(index: *mut fs_index) {
    // SAFETY: as the caller promises.
    unsafe { free(index) };
}

/// Adds an index key of the row, in the function of an index.
///
/// # Safety
/// `keys` is null or what the function has got, and `key` has `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_keys_add(keys: *mut fs_keys<'_>, key: *const c_void, key_len: usize) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (keys, key) = unsafe { (object_mut(keys, "keys")?, bytes(key, key_len, "key")?) };
        (keys.add)(key);
        Ok(())
    })
}

/// Opens the table `name` like `fs_table_open_typed`, with indexes. A transaction that writes builds those that are
/// missing or were built by another definition, and each write of the table keeps them. A table that has other indexes
/// too is only read: a write returns `FS_INDEXED`. If two rows have one key of a new unique index, this returns
/// `FS_INDEX_KEY_EXISTS` and the transaction is rolled back.
///
/// # Safety
/// Each pointer is null or of its type, `indexes` has `count` elements, and texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_table_open_indexed(
    tx: *const fs_tx,
    name: *const c_char,
    key_type: *const c_char,
    value_type: *const c_char,
    indexes: *const *const fs_index,
    count: usize,
    table: *mut *mut fs_table,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (tx, name, out) = unsafe { (object(tx, "tx")?, text(name, "name")?, object_mut(table, "table")?) };
        // SAFETY: as the caller promises.
        let (key_type, value_type) = unsafe { (text(key_type, "key_type")?, text(value_type, "value_type")?) };
        let mut defs = Vec::new();
        // SAFETY: as the caller promises.
        for &index in unsafe { elements(indexes, count, "indexes") }? {
            // SAFETY: as the caller promises.
            defs.push(unsafe { object(index, "index") }?.of(key_type)?);
        }
        let inner = Table::open_with(&tx.inner, name, (key_type, value_type), &defs)?;
        hand_out(out, fs_table { inner, key_type: Some(key_type.to_owned()) });
        Ok(())
    })
}

/// Copies the key and the value of the row with an index key, the first of several. `FS_NOT_FOUND` if there is none;
/// then the buffers are empty. `FS_NO_INDEX` if the table has no such index, `FS_INDEX_TYPES` if another definition has
/// built it. `key` and `value` may be null.
///
/// # Safety
/// Each pointer is null or of its type, and `index_key` has `index_key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_index_get(
    table: *const fs_table,
    index: *const fs_index,
    index_key: *const c_void,
    index_key_len: usize,
    key: *mut fs_buffer,
    value: *mut fs_buffer,
) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (table, index) = unsafe { (object(table, "table")?, object(index, "index")?) };
        // SAFETY: as the caller promises.
        let index_key = index.key(unsafe { bytes(index_key, index_key_len, "index_key") }?);
        let row = index.of_table(table)?.get(&index_key)?;
        let is_found = row.is_some();
        let (found_key, found_value) = row.unwrap_or_default();
        for (out, bytes) in [(key, found_key), (value, found_value)] {
            // SAFETY: as the caller promises.
            if let Some(out) = unsafe { out.as_mut() } {
                out.bytes = bytes;
            }
        }
        Ok(found(is_found))
    })
}

/// Begins a scan of the rows whose index keys lie in a range, which may be null for all, in the order of the index
/// keys. `fs_cursor_next` returns their keys and values. After an error it returns the same error again. Free it with
/// `fs_cursor_free`. If the transaction changes the index key of a row, the scan may return the row again.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_index_scan(
    table: *const fs_table,
    index: *const fs_index,
    range: *const fs_range,
    direction: u32,
    cursor: *mut *mut fs_cursor,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, index, out) =
            unsafe { (object(table, "table")?, object(index, "index")?, object_mut(cursor, "cursor")?) };
        // SAFETY: as the caller promises.
        let Bounds { lower, upper } = unsafe { bounds(range) }?;
        let encoded = |bound: Bound<Vec<u8>>| bound.map(|bytes| index.key(&bytes));
        let bounds = Bounds { lower: encoded(lower), upper: encoded(upper) };
        let direction = self::direction(direction)?;
        hand_out(out, fs_cursor::new(index.of_table(table)?.scan(bounds, direction)?));
        Ok(())
    })
}

/// Compares an index with its table, and stores the number of entries, unless `count` is null. `FS_INDEX_MISMATCH` if
/// they differ: the function has changed, and its version has not.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_index_check(table: *const fs_table, index: *const fs_index, count: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (table, index) = unsafe { (object(table, "table")?, object(index, "index")?) };
        let entries = index.of_table(table)?.check()?;
        // SAFETY: as the caller promises.
        unsafe { store(count, entries) };
        Ok(())
    })
}

/// Drops an index of the table `table`. `FS_NOT_FOUND` if there is none.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_drop_index(tx: *const fs_tx, table: *const c_char, index: *const c_char) -> Status {
    guard_status(|| {
        // SAFETY: as the caller promises.
        let (tx, table, index) = unsafe { (object(tx, "tx")?, text(table, "table")?, text(index, "index")?) };
        Ok(found(tx.inner.drop_index(table, index)?))
    })
}
