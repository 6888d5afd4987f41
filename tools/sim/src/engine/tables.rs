//! The tables of a run as sessions open them. All have a merge operator, and one has indexes, which every write keeps.

use super::history::TABLES;
use super::rows::{merged, value, value_number};
use foreshore::{IndexDef, MergeDef, ReadTransaction, TableDef};

pub(super) type Raw = TableDef<'static, &'static [u8], &'static [u8]>;

/// The table with indexes.
pub(super) const INDEXED: u8 = 2;

/// Few keys of many rows.
const BY_GROUP: IndexDef<&[u8], &[u8], u8> =
    IndexDef::new("by group", |_, value: &Vec<u8>, keys| value.iter().take(1).for_each(|byte| keys.add(byte % 8)));

/// Rows with one key in three, by the value and the key together, which no other row has.
const BY_BOTH: IndexDef<&[u8], &[u8], (u8, &[u8])> =
    IndexDef::unique("by both", |key: &Vec<u8>, value: &Vec<u8>, keys| {
        let chosen = value.iter().take(1).filter(|&byte| byte % 3 == 0);
        chosen.for_each(|&byte| keys.add((byte, key.as_slice())));
    });

/// Makes a damaged value of a damaged one, which the session then notices.
const MERGE: MergeDef<&[u8]> =
    MergeDef::new(|before: Option<Vec<u8>>, operand: &Vec<u8>| match (before, value_number(operand)) {
        (None, Ok(operand)) => value(merged(None, operand)),
        (Some(before), Ok(operand)) => {
            value_number(&before).map_or(before, |before| value(merged(Some(before), operand)))
        }
        (_, Err(_)) => operand.clone(),
    });

/// The names of the indexes.
pub(super) const INDEXES: [&str; 2] = ["by group", "by both"];

/// The definition of a table.
pub(super) const fn definition(table: u8) -> Raw {
    let plain = Raw::new(TABLES[table as usize]).with_merge(&MERGE);
    if table == INDEXED { plain.with_indexes(&[&BY_GROUP, &BY_BOTH]) } else { plain }
}

/// Compares the indexes of the indexed table with its rows, if it is there. An index that was dropped is absent.
pub(super) fn compare(tx: &ReadTransaction) -> Result<(), String> {
    let open = match tx.open(definition(INDEXED)) {
        Ok(open) => open,
        Err(foreshore::Error::NoTable { .. }) => return Ok(()),
        Err(error) => return Err(format!("open the indexed table: {error}")),
    };
    let compared = [
        open.by_index(BY_GROUP).and_then(|index| index.check()),
        open.by_index(BY_BOTH).and_then(|index| index.check()),
    ];
    for result in compared {
        match result {
            Ok(_) | Err(foreshore::Error::NoIndex { .. }) => {}
            Err(error) => return Err(format!("compare an index: {error} ({error:?})")),
        }
    }
    Ok(())
}
