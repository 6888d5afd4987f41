//! The core workloads A to F of YCSB: one operation a transaction, on one table of `scale` records at first.
//!
//! | workload | operations | records |
//! |---|---|---|
//! | A | 50 % reads, 50 % updates | zipf |
//! | B | 95 % reads, 5 % updates | zipf |
//! | C | reads | zipf |
//! | D | 95 % reads, 5 % inserts | latest |
//! | E | 95 % scans of 1 to 100 records, 5 % inserts | zipf |
//! | F | 50 % reads, 50 % reads and then updates of the same record | zipf |
//!
//! Records have 100 bytes in ten fields, of which an update changes one. Every read verifies what it gets.
//!
//! Rules and checks are those of `foreshore bench ycsb-a` to `ycsb-f`.
//!
//! Source: Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, section 4 and table 2.

mod draw;
mod numbers;
mod record;
mod zipf;

use crate::{
    engine::{Calls, Engine, Session},
    error::Result,
    workload::{LAST_KEY, ROWS, RowBytes, Rows},
};
pub(crate) use draw::{Draw, Mix, Operation};
pub(crate) use numbers::Numbers;
use record::key;

/// Returns the records that are loaded.
pub(crate) fn loaded(records: u64) -> Box<Rows<'static>> {
    let mut keys: Vec<(u64, u64)> = (0..records).map(|number| (key(number), number)).collect();
    keys.sort_unstable();
    Box::new(keys.into_iter().map(|(key, number)| (key, RowBytes::Row(record::new(number)))))
}

/// Runs an operation as one transaction. Returns whether it found what must be there.
///
/// # Errors
/// What the engine gives.
pub(crate) fn run(session: &mut dyn Session, operation: Operation) -> Result<bool> {
    let mut is_right = false;
    match operation {
        Operation::Read { number } => {
            let key = key(number);
            session.read_only(Calls::One, &mut |tx| {
                is_right = false;
                tx.get(ROWS, key, &mut |bytes| is_right = record::read(key, bytes).is_some()).map(drop)
            })?;
        }
        Operation::Update { number, field, to } => session.read_write(&mut |tx| {
            is_right = tx.update(ROWS, key(number), &mut |record| record::update(record, field, to))?;
            Ok(is_right)
        })?,
        Operation::Scan { number, records } => session.read_only(Calls::One, &mut |tx| {
            let mut found = 0;
            is_right = true;
            tx.range(ROWS, key(number)..=LAST_KEY, &mut |key, bytes| {
                is_right &= record::read(key, bytes).is_some();
                found += 1;
                found < records
            })?;
            // The first one is there, and only the end of the table ends a scan early.
            is_right &= found > 0;
            Ok(())
        })?,
        Operation::Insert { number } => session.read_write(&mut |tx| {
            is_right = tx.insert(ROWS, key(number), &record::new(number))?;
            Ok(is_right)
        })?,
        Operation::ReadModifyWrite { number, field, to } => session.read_write(&mut |tx| {
            let (key, mut is_whole) = (key(number), false);
            let is_there = tx.update(ROWS, key, &mut |record| {
                is_whole = record::read(key, record).is_some();
                record::update(record, field, to);
            })?;
            is_right = is_there && is_whole;
            Ok(is_there)
        })?,
    }
    Ok(is_right)
}

/// Checks the quiet table, and passes each check with its outcome to `note`. `kinds` are the operations of each kind.
///
/// `records`: those that were loaded and inserted are there, no others, and each is whole. `versions`: they add up to
/// one for each record and one for each update.
///
/// # Errors
/// What the engine gives.
pub(crate) fn verify(
    engine: &dyn Engine,
    records: u64,
    kinds: &[(u64, u64)],
    note: &mut dyn FnMut(&str, bool),
) -> Result<()> {
    let of = |kind: usize| kinds.get(kind).map_or(0, |&(operations, _)| operations);
    let inserts = of(draw::INSERT);
    let (mut rows, mut loaded, mut versions, mut is_sound) = (0, 0, 0_u64, true);
    engine.scan(ROWS, &mut |key, bytes| {
        rows += 1;
        match record::read(key, bytes) {
            Some((number, version)) => {
                loaded += u64::from(number < records);
                versions = versions.wrapping_add(version);
            }
            None => is_sound = false,
        }
    })?;
    note("records", is_sound && loaded == records && rows == records + inserts);
    note("versions", versions == records + inserts + of(draw::UPDATE) + of(draw::READ_MODIFY_WRITE));
    Ok(())
}
