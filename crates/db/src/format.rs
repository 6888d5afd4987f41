//! Bytes of a catalogue row.
//!
//! The catalogue is a tree like any other, with table id 1 and its root at page 3. Its key is the name of the table in
//! UTF-8. Its value, all integers little-endian:
//!
//! ```text
//!  0         1       2          4       8       16
//!  | version | flags | reserved | table | root  | key type        | value type      |
//!  | u8 = 1  | u8    | u16 = 0  | u32   | u64   | u16 n, n bytes  | u16 n, n bytes  |
//! ```
//!
//! Flag 1: the table was dropped, and not all of its pages are free yet. The key of such a row is not the name, which
//! may have a new table, but the byte 255, which no UTF-8 begins with, and the table id, big-endian. A row with any
//! flag above 8 set is of a newer version. The types are the names that the key and value encodings give themselves.
//!
//! Flag 2: an index. Its name is that of its table, a byte zero, and its own name. The types are those of the index
//! keys and of the primary keys. Flag 4: a unique one. Behind the types such a row has:
//!
//! ```text
//!  | indexed table | version of the key function |
//!  | u32           | u64                         |
//! ```
//!
//! Flag 8: a table or index that was renamed. At its end such a row has the number of its naming, u32. It is drawn like
//! a table id by the rename, and so is above the id of the table. The number of the naming of other rows is their id.
//!
//! The table of sequences is a tree with table id 3 and its root at page 5. Its key is a table id, big-endian. Its
//! value is the first number that is not reserved, u64 little-endian. That of a table that has replaced a cleared one
//! is the id of the table whose sequence it uses, u32 big-endian.
//!
//! The note of a prepare record says which tables the transaction has created and dropped:
//!
//! ```text
//!  created: count u32, n x { name: u16 n, n bytes | catalogue row: u16 n, n bytes }
//!  | dropped: count u32, n x { table u32, root u64 }
//! ```
//!
//! The files of backups are in `backups`.

pub(crate) mod backups;

use foreshore_base::codec::{Decoder, Put, Short};
use foreshore_base::{PageId, TableId};
use foreshore_btree::format::CHAINS;
use foreshore_space::CHAINS_ROOT;

/// Table id of the catalogue itself.
pub(crate) const CATALOGUE: TableId = TableId(1);

/// Table id of the table of sequences.
pub(crate) const SEQUENCES: TableId = TableId(3);
/// Tables with a larger id are those of users and their indexes.
pub(crate) const LAST_SYSTEM_TABLE: TableId = SEQUENCES;
/// Root of the table of sequences, created behind that of the table of chains.
pub(crate) const SEQUENCES_ROOT: PageId = PageId(5);

const _: () = assert!(CATALOGUE.0 < CHAINS.0 && CHAINS.0 < SEQUENCES.0 && CHAINS_ROOT.0 < SEQUENCES_ROOT.0);

const VERSION: u8 = 1;
/// The table was dropped.
const DROPPED: u8 = 1;
/// The tree is an index of a table.
const INDEX: u8 = 2;
/// No two rows have the same key in the index.
const UNIQUE: u8 = 4;
/// The table or index was renamed.
const RENAMED: u8 = 8;
/// Between the names of a table and of its index in the key of the index. No name has this byte.
const SEPARATOR: char = '\0';
/// First byte of the key of a dropped table.
const DROPPED_KEY: u8 = 0xff;

/// Returns the catalogue key of a dropped table.
pub(crate) fn dropped_key(table: TableId) -> [u8; 5] {
    let [a, b, c, d] = table.0.to_be_bytes();
    [DROPPED_KEY, a, b, c, d]
}

/// Returns the catalogue key of an index.
pub(crate) fn index_key(table: &str, index: &str) -> String {
    let mut key = String::new();
    write_index_key(&mut key, table, index);
    key
}

/// Overwrites `key` with the catalogue key of an index.
pub(crate) fn write_index_key(key: &mut String, table: &str, index: &str) {
    key.clear();
    key.push_str(table);
    key.push(SEPARATOR);
    key.push_str(index);
}

/// Returns the names of the table and of the index of a catalogue key; `None` for the name of a table.
pub(crate) fn split_index_key(key: &str) -> Option<(&str, &str)> {
    key.split_once(SEPARATOR)
}

/// What the catalogue row of an index says besides that of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexRow {
    /// The indexed table.
    pub(crate) of: TableId,
    /// Version of the key function.
    pub(crate) version: u64,
    pub(crate) is_unique: bool,
}

/// A catalogue row, without its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRow {
    pub(crate) table: TableId,
    /// The number of its naming: its own id, or one that a rename has drawn.
    pub(crate) naming: TableId,
    pub(crate) root: PageId,
    pub(crate) key_type: String,
    pub(crate) value_type: String,
    /// Dropped by a transaction that has committed, or by the one that reads this.
    pub(crate) is_dropped: bool,
    /// Present if the tree is an index.
    pub(crate) index: Option<IndexRow>,
}

/// Why a row is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFlaw {
    /// Too short, too long, or no text where text belongs.
    Malformed,
    /// Version or flags of a newer build.
    Newer(u8),
}

impl From<Short> for RowFlaw {
    fn from(_: Short) -> Self {
        Self::Malformed
    }
}

impl TableRow {
    /// Returns whether the table has another name than it was created with, or had one in between.
    pub(crate) fn is_renamed(&self) -> bool {
        self.naming != self.table
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.key_type.len() + self.value_type.len());
        out.put_u8(VERSION);
        let index = self.index.map_or(0, |index| if index.is_unique { INDEX | UNIQUE } else { INDEX });
        let dropped = if self.is_dropped { DROPPED } else { 0 };
        out.put_u8(index | dropped | if self.is_renamed() { RENAMED } else { 0 });
        out.put_u16(0);
        out.put_u32(self.table.0);
        out.put_u64(self.root.0);
        out.put_short_bytes(self.key_type.as_bytes());
        out.put_short_bytes(self.value_type.as_bytes());
        if let Some(index) = &self.index {
            out.put_u32(index.of.0);
            out.put_u64(index.version);
        }
        if self.is_renamed() {
            out.put_u32(self.naming.0);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RowFlaw> {
        let mut from = Decoder::new(bytes);
        let (version, flags) = (from.u8()?, from.u8()?);
        if version != VERSION {
            return Err(if version > VERSION { RowFlaw::Newer(version) } else { RowFlaw::Malformed });
        }
        if flags & !(DROPPED | INDEX | UNIQUE | RENAMED) != 0 {
            return Err(RowFlaw::Newer(version));
        }
        let (is_index, is_unique) = (flags & INDEX != 0, flags & UNIQUE != 0);
        from.u16()?;
        let (table, root) = (TableId(from.u32()?), PageId(from.u64()?));
        let mut text = || -> Result<String, RowFlaw> {
            String::from_utf8(from.short_bytes()?.to_vec()).map_err(|_| RowFlaw::Malformed)
        };
        let (key_type, value_type) = (text()?, text()?);
        let index =
            if is_index { Some(IndexRow { of: TableId(from.u32()?), version: from.u64()?, is_unique }) } else { None };
        let is_sound = |index: IndexRow| index.of > SEQUENCES && index.of != table;
        let renamed = if flags & RENAMED != 0 { Some(TableId(from.u32()?)) } else { None };
        if renamed.is_some_and(|naming| naming <= table) {
            return Err(RowFlaw::Malformed);
        }
        if !from.is_empty() || table <= SEQUENCES || root <= SEQUENCES_ROOT || !index.map_or(!is_unique, is_sound) {
            return Err(RowFlaw::Malformed);
        }
        Ok(Self {
            table,
            naming: renamed.unwrap_or(table),
            root,
            key_type,
            value_type,
            is_dropped: flags & DROPPED != 0,
            index,
        })
    }
}

/// What a prepare record notes of tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TablesNote {
    /// Name and row of each table created.
    pub(crate) created: Vec<(String, TableRow)>,
    /// Id and root of each table dropped.
    pub(crate) dropped: Vec<(TableId, PageId)>,
}

impl TablesNote {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = |len: usize| u32::try_from(len).expect("tables are fewer than 2^32");
        let mut out = Vec::new();
        out.put_u32(count(self.created.len()));
        for (name, row) in &self.created {
            out.put_short_bytes(name.as_bytes());
            out.put_short_bytes(&row.encode());
        }
        out.put_u32(count(self.dropped.len()));
        for (table, root) in &self.dropped {
            out.put_u32(table.0);
            out.put_u64(root.0);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RowFlaw> {
        let mut from = Decoder::new(bytes);
        let mut note = Self::default();
        for _ in 0..from.u32()? {
            let name = std::str::from_utf8(from.short_bytes()?).map_err(|_| RowFlaw::Malformed)?;
            note.created.push((name.to_owned(), TableRow::decode(from.short_bytes()?)?));
        }
        for _ in 0..from.u32()? {
            note.dropped.push((TableId(from.u32()?), PageId(from.u64()?)));
        }
        if from.is_empty() { Ok(note) } else { Err(RowFlaw::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> TableRow {
        let (key_type, value_type) = ("u64".into(), "(str,i64)".into());
        let (table, root) = (TableId(7), PageId(99));
        TableRow { table, naming: table, root, key_type, value_type, is_dropped: false, index: None }
    }

    #[test]
    fn a_row_has_these_bytes() {
        let bytes = row().encode();
        assert_eq!(&bytes[..16], &[1, 0, 0, 0, 7, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[16..], b"\x03\0u64\x09\0(str,i64)");
        assert_eq!(TableRow::decode(&bytes), Ok(row()));
        let dropped = TableRow { is_dropped: true, ..row() };
        assert_eq!(dropped.encode()[..2], [1, 1]);
        assert_eq!(TableRow::decode(&dropped.encode()), Ok(dropped));
        assert_eq!(dropped_key(TableId(258)), [255, 0, 0, 1, 2]);
    }

    #[test]
    fn a_row_of_an_index_has_these_bytes() {
        for (is_unique, flags) in [(true, 6), (false, 2)] {
            let of = TableId(5);
            let row = TableRow { index: Some(IndexRow { of, version: 258, is_unique }), ..row() };
            let bytes = row.encode();
            assert_eq!(bytes[..2], [1, flags]);
            assert_eq!(bytes[16..], *b"\x03\0u64\x09\0(str,i64)\x05\0\0\0\x02\x01\0\0\0\0\0\0");
            assert_eq!(TableRow::decode(&bytes), Ok(row));
            for len in 0..bytes.len() {
                assert_eq!(TableRow::decode(&bytes[..len]), Err(RowFlaw::Malformed), "{len} bytes");
            }
            for of in [2, 7] {
                let mut changed = bytes.clone();
                changed[32] = of;
                assert_eq!(TableRow::decode(&changed), Err(RowFlaw::Malformed), "an index of table {of}");
            }
        }
        assert_eq!(index_key("users", "by email"), "users\0by email");
        assert_eq!(split_index_key("users\0by email"), Some(("users", "by email")));
        assert_eq!(split_index_key("users"), None);
    }

    #[test]
    fn a_row_of_a_renamed_table_has_these_bytes() {
        let index = Some(IndexRow { of: TableId(5), version: 1, is_unique: false });
        for (index, is_dropped, flags) in [(None, false, 8), (None, true, 9), (index, false, 10)] {
            let row = TableRow { naming: TableId(258), index, is_dropped, ..row() };
            let bytes = row.encode();
            assert_eq!((bytes[1], &bytes[bytes.len() - 4..]), (flags, &[2, 1, 0, 0][..]));
            assert_eq!(TableRow::decode(&bytes), Ok(row));
            for naming in [0, 7] {
                let mut changed = bytes.clone();
                changed.splice(bytes.len() - 4.., [naming, 0, 0, 0]);
                assert_eq!(TableRow::decode(&changed), Err(RowFlaw::Malformed), "naming {naming}");
            }
        }
    }

    #[test]
    fn malformed_rows_are_refused() {
        let bytes = row().encode();
        for len in 0..bytes.len() {
            assert_eq!(TableRow::decode(&bytes[..len]), Err(RowFlaw::Malformed), "{len} bytes");
        }
        let set = |at: usize, value: u8| {
            let mut changed = bytes.clone();
            changed[at] = value;
            TableRow::decode(&changed)
        };
        assert_eq!(set(0, 2), Err(RowFlaw::Newer(2)));
        assert_eq!(set(1, 16), Err(RowFlaw::Newer(1)));
        assert_eq!(set(1, 17), Err(RowFlaw::Newer(1)));
        assert_eq!(set(1, 8), Err(RowFlaw::Malformed), "a naming without its number");
        assert_eq!(set(1, 2), Err(RowFlaw::Malformed), "an index of no table");
        assert_eq!(set(1, 4), Err(RowFlaw::Malformed), "only an index is unique");
        assert_eq!(set(4, 1), Err(RowFlaw::Malformed), "the catalogue does not list itself");
        assert_eq!(set(4, 2), Err(RowFlaw::Malformed), "nor the table of chains");
        assert_eq!(set(4, 3), Err(RowFlaw::Malformed), "nor the table of sequences");
        assert_eq!(set(18, 0xff), Err(RowFlaw::Malformed), "not UTF-8");
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(TableRow::decode(&longer), Err(RowFlaw::Malformed));
    }

    #[test]
    fn a_note_of_tables_has_these_bytes() {
        let note = TablesNote { created: vec![("t".into(), row())], dropped: vec![(TableId(3), PageId(77))] };
        let bytes = note.encode();
        let row = row().encode();
        let len = row.len() as u8;
        let expected =
            [&[1, 0, 0, 0, 1, 0, b't', len, 0], &row[..], &[1, 0, 0, 0, 3, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0]];
        assert_eq!(bytes, expected.concat());
        assert_eq!(TablesNote::decode(&bytes), Ok(note));
        for len in 0..bytes.len() {
            assert_eq!(TablesNote::decode(&bytes[..len]), Err(RowFlaw::Malformed), "{len} bytes");
        }
        assert_eq!(TablesNote::decode(&[&bytes[..], &[0]].concat()), Err(RowFlaw::Malformed));
    }
}
