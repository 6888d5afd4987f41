//! The plan of the workload: what a transaction does follows from its thread and its number alone. So a process that
//! knows how far each thread came knows every row.

use crate::random::{Random, mixed};
use foreshore::{Db, DoublewriteKind, Error, Options, Result, TableDef, Transaction};

/// Threads of writers.
pub(super) const THREADS: u64 = 4;
/// Commits in flight of a thread that does not wait for each.
pub(super) const WINDOW: usize = 12;
/// Rows that a thread has for itself.
pub(super) const KEYS: u64 = 1500;
/// Balances that all threads change.
pub(super) const BALANCES: u64 = 48;
/// Transactions between two tables that a thread creates.
const RENEWAL: u64 = 12;
/// Tables back from the new one that are dropped with it: some renewals are left out.
const OLD_TABLES: u64 = 6;

/// Of so many seeds one has processes that fill a table, drop it, and shrink the data file.
pub(super) const SHRINKS_EVERY: u64 = 4;
/// The table that they fill. Its rows are not compared.
const BULK: TableDef<u64, &[u8]> = TableDef::new("bulk");
/// Rows of it: more pages than the space manager keeps ready.
const BULK_ROWS: u64 = 1600;
/// Rows of it in a transaction.
const BULK_PIECE: u64 = 50;

/// Rows of the threads, each in a part of its own.
pub(super) const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
/// Balances, whose sum is zero.
pub(super) const SHARED: TableDef<u64, i64> = TableDef::new("shared");
/// The newest transaction of each thread.
pub(super) const PROGRESS: TableDef<u64, u64> = TableDef::new("progress");
/// Thread and number of transactions that the engine has refused, and that did less instead.
pub(super) const LESSENED: TableDef<(u64, u64), bool> = TableDef::new("lessened");

/// What a transaction does before what counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detour {
    /// Nothing.
    None,
    /// Changes that it takes back to a savepoint.
    Savepoint,
    /// Another transaction, which is rolled back.
    Rollback,
}

/// What a transaction does.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    thread: u64,
    number: u64,
    /// Rows with the length of the new value, or none for those that are removed.
    pub(super) rows: Vec<(u64, Option<usize>)>,
    /// From one balance to another.
    pub(super) transfer: (u64, u64, i64),
    /// Whether it is committed in two phases.
    pub(super) is_prepared: bool,
    /// What comes before.
    pub(super) detour: Detour,
    /// The table that it creates, if any.
    pub(super) renewal: Option<u64>,
    is_lessened: bool,
}

impl Plan {
    /// The plan of transaction `number` of `thread`. A lessened one removes rows where the other one writes many.
    #[must_use]
    pub(super) fn new(thread: u64, number: u64, is_lessened: bool) -> Self {
        let mut random = Random::new(mixed(thread << 48 | number));
        let first = random.below(KEYS);
        let run = |len: u64| (first..first + len).map(|n| thread * KEYS + n % KEYS);
        let few = 1 + random.below(4);
        let len = 1 + random.below(1800) as usize;
        let rows = match random.below(16) {
            _ if is_lessened => run(few).map(|key| (key, None)).collect(),
            0 => run(400).map(|key| (key, Some(len))).collect(),
            1 | 2 => run(60).map(|key| (key, Some(len))).collect(),
            3..=5 => run(120).map(|key| (key, None)).collect(),
            6..=10 => run(few).map(|key| (key, Some(len))).collect(),
            _ => {
                (0..few).map(|_| (thread * KEYS + random.below(KEYS), Some(1 + random.below(2000) as usize))).collect()
            }
        };
        let from = random.below(BALANCES);
        let to = (from + 1 + random.below(BALANCES - 1)) % BALANCES;
        let detour = match random.below(6) {
            0 => Detour::Savepoint,
            1 => Detour::Rollback,
            _ => Detour::None,
        };
        Self {
            thread,
            number,
            rows,
            transfer: (from, to, random.below(1000) as i64),
            is_prepared: random.below(8) == 0,
            detour: if is_lessened { Detour::None } else { detour },
            renewal: (number.is_multiple_of(RENEWAL) && !is_lessened).then_some(number / RENEWAL),
            is_lessened,
        }
    }

    /// The tables that are dropped where `table` is created.
    pub(super) fn old_tables(table: u64) -> impl Iterator<Item = u64> {
        table.saturating_sub(OLD_TABLES)..table
    }

    /// Whether it creates a table, be it one that goes again: the locks of that stay.
    pub(super) fn creates_table(&self) -> bool {
        self.renewal.is_some() || self.detour == Detour::Savepoint
    }

    /// Does it in `tx`.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn run(&self, tx: &Transaction) -> Result<()> {
        if self.detour == Detour::Savepoint {
            let savepoint = tx.savepoint()?;
            self.stray(tx)?;
            tx.rollback_to(&savepoint)?;
        }
        let rows = tx.open(ROWS)?;
        for &(key, len) in &self.rows {
            match len {
                Some(len) => rows.insert(key, &value(key, self.number, len)[..]).map(drop)?,
                None => rows.remove(key).map(drop)?,
            }
        }
        if let Some(table) = self.renewal {
            for old in Self::old_tables(table) {
                tx.drop_table(&table_name(self.thread, old))?;
            }
            let name = table_name(self.thread, table);
            let table = tx.open(TableDef::<u64, u64>::new(&name))?;
            (0..3).try_for_each(|key| table.insert(key, self.number).map(drop))?;
        }
        // In the order of their keys, so that no two threads wait for each other.
        let (from, to, amount) = self.transfer;
        let shared = tx.open(SHARED)?;
        for key in [from.min(to), from.max(to)] {
            let balance = shared.get_for_update(key)?.unwrap_or(0);
            shared.insert(key, if key == from { balance - amount } else { balance + amount })?;
        }
        if self.is_lessened {
            tx.open(LESSENED)?.insert((self.thread, self.number), true)?;
        }
        tx.open(PROGRESS)?.insert(self.thread, self.number).map(drop)
    }

    /// Changes that are to be taken back.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn stray(&self, tx: &Transaction) -> Result<()> {
        let rows = tx.open(ROWS)?;
        let first = self.rows.first().map_or(0, |&(key, _)| key % KEYS);
        for n in (first..first + 30).map(|n| self.thread * KEYS + n % KEYS) {
            match n % 3 {
                0 => rows.remove(n).map(drop)?,
                _ => rows.insert(n, &value(n, u64::MAX, 900)[..]).map(drop)?,
            }
        }
        let name = format!("stray-{}", self.thread);
        tx.open(TableDef::<u64, u64>::new(&name))?.insert(0, 0).map(drop)
    }
}

/// Creates the tables of all threads where they are not there.
///
/// # Errors
/// Those of the engine.
pub(super) fn create_tables(tx: &Transaction) -> Result<()> {
    tx.open(ROWS)?;
    tx.open(SHARED)?;
    tx.open(PROGRESS)?;
    tx.open(LESSENED).map(drop)
}

/// Fills a table, drops it, and has the data file cut off behind what is left.
///
/// # Errors
/// Those of the engine.
pub(super) fn fill_and_shrink(db: &Db) -> Result<()> {
    for first in (0..BULK_ROWS).step_by(BULK_PIECE as usize) {
        db.run(|tx| {
            let bulk = tx.open(BULK)?;
            (first..first + BULK_PIECE).try_for_each(|key| bulk.insert(key, &value(key, 0, 2000)[..]).map(drop))
        })?;
    }
    db.run(|tx| tx.drop_table(BULK.name()))?;
    db.vacuum().map(drop)
}

/// The value that transaction `number` gives a row.
#[must_use]
pub(super) fn value(key: u64, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![(key ^ number) as u8; len];
    let head: Vec<u8> = [key, number].iter().flat_map(|word| word.to_le_bytes()).collect();
    let copied = len.min(head.len());
    bytes[..copied].copy_from_slice(&head[..copied]);
    bytes
}

/// The name of a table of a thread.
#[must_use]
pub(super) fn table_name(thread: u64, table: u64) -> String {
    format!("table-{thread}-{table}")
}

/// The name of a prepared transaction.
#[must_use]
pub(super) fn prepared_name(thread: u64, number: u64) -> String {
    format!("prepared-{thread}-{number}")
}

/// Thread and number from the name of a prepared transaction.
#[must_use]
pub(super) fn of_prepared(name: &str) -> Option<(u64, u64)> {
    let (thread, number) = name.strip_prefix("prepared-")?.split_once('-')?;
    Some((thread.parse().ok()?, number.parse().ok()?))
}

/// Options with little memory and log, so that eviction, spilling, checkpoints and new segments come within a round.
/// The seed decides the rest.
#[must_use]
pub(super) fn options(seed: u64) -> Options {
    let mut random = Random::new(mixed(seed));
    let mut draw = |values: [u64; 3]| values[random.below(3) as usize];
    let options = Options::new()
        .memory_limit(draw([4 << 20, 6 << 20, 12 << 20]))
        .lab(|lab| lab.segment_bytes = draw([64 << 10, 128 << 10, 256 << 10]))
        .log_budget(draw([1 << 20, 2 << 20, 4 << 20]))
        .lab(|lab| lab.undo_limit = Some(draw([128 << 10, 256 << 10, 1 << 20])))
        .spill_limit(draw([0, 64 << 20, 64 << 20]));
    match draw([0, 0, 1]) {
        0 => options,
        _ => options.doublewrite(DoublewriteKind::On),
    }
}

/// Whether the engine refuses a transaction for want of space of some kind, and goes on.
#[must_use]
pub(super) fn is_refusal(error: &Error) -> bool {
    error.is_retryable()
        || matches!(
            error,
            Error::RolledBack
                | Error::TransactionTooLarge { .. }
                | Error::OwnThreadLock { .. }
                | Error::OutOfFrames { .. }
        )
}

/// Whether the engine refuses a transaction because of the disk, and goes on.
#[must_use]
pub(super) fn is_refused_by_disk(error: &Error) -> bool {
    matches!(error, Error::DiskFull { .. } | Error::RollbackParked { .. } | Error::Io { .. })
}
