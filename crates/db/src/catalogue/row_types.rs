//! The types of a table's rows, as a caller that opens the table states them.

use crate::tables::TableInfo;
use crate::{Error, Result};
use foreshore_base::key::{Key, Value};
use std::any::TypeId;

/// The types with which a table is opened.
#[derive(Clone, Copy)]
pub(crate) enum RowTypes<'n> {
    /// Types of the program.
    Static { ids: (TypeId, TypeId), names: fn() -> (String, String) },
    /// The names of key type and value type. The caller reads and writes encoded rows.
    Named(&'n str, &'n str),
    /// The types that the table has. The caller reads and writes encoded rows.
    Stored,
}

impl RowTypes<'_> {
    /// Returns the types `K` and `V`.
    pub(crate) fn of<K: Key + 'static, V: Value + 'static>() -> Self {
        let names = || (K::type_name(), V::type_name());
        Self::Static { ids: (TypeId::of::<K>(), TypeId::of::<V>()), names }
    }

    /// Returns the names with which a table is created; `None` if these types create none.
    pub(crate) fn names(self) -> Option<(String, String)> {
        match self {
            Self::Static { names, .. } => Some(names()),
            Self::Named(key, value) => Some((key.to_owned(), value.to_owned())),
            Self::Stored => None,
        }
    }

    /// Refuses a table with other types.
    #[inline]
    pub(crate) fn check(self, info: &TableInfo) -> Result<()> {
        let (key, value) = match self {
            Self::Static { ids, .. } if info.has_matched(ids) => return Ok(()),
            Self::Stored => return Ok(()),
            Self::Static { names, .. } => names(),
            Self::Named(key, value) => (key.to_owned(), value.to_owned()),
        };
        if *info.key_type != *key || *info.value_type != *value {
            return Err(Error::TableTypes {
                table: info.name.to_string(),
                stored: format!("{} to {}", info.key_type, info.value_type),
                wanted: format!("{key} to {value}"),
            });
        }
        if let Self::Static { ids, .. } = self {
            info.remember_match(ids);
        }
        Ok(())
    }
}
