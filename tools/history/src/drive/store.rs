//! Lists and registers in tables of a database.

use super::config::{Config, Planted};
use crate::check::Base;
use crate::{Found, Kind};
use foreshore::{
    Db, Error, Isolation, Key, ReadTable, ReadTransaction, Table, TableDef, Transaction, TxnOptions, Value,
    limits::MAX_INLINE_VALUE,
};
use foreshore_sim::Random;
use std::ops::Range;

const REGISTERS: TableDef<u64, u64> = TableDef::new("registers");
const MOVING: TableDef<(u64, u64), u64> = TableDef::new("moving");
const LISTS: TableDef<u64, &[u8]> = TableDef::new("lists");
const ELEMENTS: TableDef<(u64, u64), u64> = TableDef::new("elements");
/// Rows that fill memory: one for each transaction that does so.
const BALLAST: TableDef<u64, &[u8]> = TableDef::new("ballast");
/// Bytes of such a row.
const HEAVY: usize = MAX_INLINE_VALUE / 2;

/// Bytes of an element.
const ELEMENT: usize = size_of::<u64>();

/// Where values lie.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// A row for each register.
    Registers,
    /// A row for each register. Every write removes it from one of two places and adds it at the other, so a reader of
    /// one place depends on what was removed there.
    Moving,
    /// A row for each list.
    Lists,
    /// A row for each element, behind the row of the element before. Appends read a range and add a row to its end.
    Elements,
}

/// What a step may do in a transaction.
pub(super) trait Work {
    /// Appends or replaces.
    fn write(&mut self, key: u64, value: u64) -> Result<(), Error>;
    /// Reads one key.
    fn read(&mut self, key: u64) -> Result<Found, Error>;
    /// Reads all keys of a range in one scan.
    fn scan(&mut self, keys: Range<u64>) -> Result<Vec<(u64, Found)>, Error>;
}

/// How transactions run, and where they keep what they write.
#[derive(Debug)]
pub(super) struct Store {
    isolation: Isolation,
    base: Base,
    layout: Layout,
    planted: Option<Planted>,
}

impl Store {
    pub(super) fn new(config: &Config, isolation: Isolation) -> Self {
        // A transaction appends two elements at most on average; no key gets twice its share.
        let elements = 4 * config.sessions * config.txns / config.keys;
        let fits = elements < (MAX_INLINE_VALUE / ELEMENT) as u64;
        let layout = match config.kind {
            // At read committed the two places would be read at two moments.
            Kind::Register if config.seed.is_multiple_of(2) || config.isolation == Base::ReadCommitted => {
                Layout::Registers
            }
            Kind::Register => Layout::Moving,
            Kind::Append if fits && config.seed.is_multiple_of(2) => Layout::Lists,
            Kind::Append => Layout::Elements,
        };
        Self { isolation, base: config.isolation, layout, planted: config.planted }
    }

    pub(super) fn options(&self) -> TxnOptions {
        TxnOptions::new().isolation(self.isolation).label("history")
    }

    /// Whether an error is one that appends to a list of rows meet: at a snapshot the row may be there already.
    pub(super) fn expects(&self, error: &Error) -> bool {
        self.base == Base::Snapshot && matches!(error, Error::KeyExists { .. })
    }

    /// Makes the tables, so that no transaction of the history has to.
    pub(super) fn create(&self, db: &Db) -> Result<(), Error> {
        db.run(|tx| {
            tx.open(BALLAST)?;
            self.work(tx).map(drop)
        })
    }

    /// Writes much that no history shows, in a row that only `owner` writes.
    pub(super) fn weigh(&self, tx: &Transaction, owner: u64) -> Result<(), Error> {
        let ballast = tx.open(BALLAST)?;
        let before = ballast.get(owner)?.and_then(|row| row.first().copied()).unwrap_or(0);
        ballast.insert(owner, &[before.wrapping_add(1); HEAVY][..]).map(drop)
    }

    /// What steps in `tx` may do.
    pub(super) fn work<'tx>(&self, tx: &'tx Transaction) -> Result<TableWork<'tx>, Error> {
        Ok(self.with(match self.layout {
            Layout::Registers => Rows::Registers(Source::Table(tx.open(REGISTERS)?)),
            Layout::Moving => Rows::Moving(Source::Table(tx.open(MOVING)?)),
            Layout::Lists => Rows::Lists(Source::Table(tx.open(LISTS)?)),
            Layout::Elements => Rows::Elements(Source::Table(tx.open(ELEMENTS)?)),
        }))
    }

    /// What steps in `tx` may do, which are reads.
    pub(super) fn read<'tx>(&self, tx: &'tx ReadTransaction) -> Result<TableWork<'tx>, Error> {
        Ok(self.with(match self.layout {
            Layout::Registers => Rows::Registers(Source::Read(tx.open(REGISTERS)?)),
            Layout::Moving => Rows::Moving(Source::Read(tx.open(MOVING)?)),
            Layout::Lists => Rows::Lists(Source::Read(tx.open(LISTS)?)),
            Layout::Elements => Rows::Elements(Source::Read(tx.open(ELEMENTS)?)),
        }))
    }

    fn with<'tx>(&self, rows: Rows<'tx>) -> TableWork<'tx> {
        TableWork { base: self.base, rows, random: Random::new(0), planted: self.planted }
    }
}

/// A table open in a transaction of either sort.
enum Source<'tx, K, V> {
    Table(Table<'tx, K, V>),
    Read(ReadTable<'tx, K, V>),
}

impl<'tx, K: Key, V: Value> Source<'tx, K, V> {
    /// Reads a row, with a lock for a write if asked to and if the transaction may.
    fn get(&self, key: K::Ref<'_>, locks: bool) -> Result<Option<V::Owned>, Error> {
        match self {
            Self::Table(table) if locks => table.get_for_update(key),
            Self::Table(table) => table.get(key),
            Self::Read(table) => table.get(key),
        }
    }

    fn range<'k>(&self, keys: Range<K::Ref<'k>>) -> foreshore::Range<'tx, K, V> {
        match self {
            Self::Table(table) => table.range(keys),
            Self::Read(table) => table.range(keys),
        }
    }

    fn table(&self) -> &Table<'tx, K, V> {
        match self {
            Self::Table(table) => table,
            Self::Read(_) => unreachable!("a transaction that only reads was asked to write"),
        }
    }
}

enum Rows<'tx> {
    Registers(Source<'tx, u64, u64>),
    Moving(Source<'tx, (u64, u64), u64>),
    Lists(Source<'tx, u64, &'static [u8]>),
    Elements(Source<'tx, (u64, u64), u64>),
}

/// A table open in a transaction.
pub(super) struct TableWork<'tx> {
    base: Base,
    rows: Rows<'tx>,
    random: Random,
    planted: Option<Planted>,
}

impl TableWork<'_> {
    /// Chooses anew how reads lock, and from which end scans come.
    pub(super) fn shuffle(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Locks the table, of which more rows may be read then than there is room for locks.
    pub(super) fn lock_table(&self) -> Result<(), Error> {
        match &self.rows {
            Rows::Registers(rows) => rows.table().lock_against_writes(),
            Rows::Moving(rows) => rows.table().lock_against_writes(),
            Rows::Lists(rows) => rows.table().lock_against_writes(),
            Rows::Elements(rows) => rows.table().lock_against_writes(),
        }
    }

    /// Whether a read that may lock for a write does so.
    fn locks(&mut self) -> bool {
        self.random.below(3) == 0
    }

    /// From where a scan takes its rows.
    fn way(&mut self) -> Way {
        let is_short = self.planted == Some(Planted::Short);
        match self.random.below(3) {
            0 => Way::Up,
            1 => Way::Down { is_short },
            _ => Way::Inwards,
        }
    }

    /// The two places of a register, the first one read first or last.
    fn places(&mut self, key: u64) -> [(u64, u64); 2] {
        let first = self.random.below(2);
        [(key, first), (key, 1 - first)]
    }

    /// Moves a register to its other place.
    fn replace(&mut self, key: u64, value: u64, locks: bool) -> Result<(), Error> {
        let places = self.places(key);
        let Rows::Moving(registers) = &self.rows else { unreachable!("asked by its layout") };
        let mut held = None;
        for place in places {
            if registers.get(place, locks)?.is_some() {
                held = Some(place.1);
            }
        }
        if let Some(held) = held {
            registers.table().remove((key, held))?;
        }
        // Two first writers of a register take the same place, so under snapshot isolation one of them fails.
        registers.table().insert((key, held.map_or(0, |held| 1 - held)), value).map(drop)
    }

    /// Adds an element to the row of its list. At read committed nothing keeps an absent row absent: the first element
    /// goes in as a new row, or behind the one that another transaction has put there meanwhile.
    fn extend_list(&self, key: u64, value: u64, locks: bool) -> Result<(), Error> {
        let Rows::Lists(lists) = &self.rows else { unreachable!("asked by its layout") };
        loop {
            if let Some(mut list) = lists.get(key, locks)? {
                list.extend(value.to_le_bytes());
                return lists.table().insert(key, &*list).map(drop);
            }
            match lists.table().insert_new(key, &value.to_le_bytes()[..]) {
                Err(Error::KeyExists { .. }) if self.base == Base::ReadCommitted => {}
                result => return result,
            }
        }
    }

    /// Adds an element behind the last one. Another transaction may have done so since the scan. At read committed the
    /// scan is repeated then. At the other levels the transaction has to end; at serializable this cannot happen.
    fn add_element(&mut self, key: u64, value: u64) -> Result<(), Error> {
        loop {
            let only_last = self.random.below(2) == 0;
            let Rows::Elements(elements) = &self.rows else { unreachable!("asked by its layout") };
            let mut list = elements.range((key, 0)..(key + 1, 0));
            let last = if only_last { list.next_back() } else { list.last() };
            let next = last.transpose()?.map_or(0, |row| row.0.1 + 1);
            match elements.table().insert_new((key, next), value) {
                Err(Error::KeyExists { .. }) if self.base == Base::ReadCommitted => {}
                result => return result,
            }
        }
    }
}

impl Work for TableWork<'_> {
    fn write(&mut self, key: u64, value: u64) -> Result<(), Error> {
        // At read committed, what was read without a lock may have changed when it is written over.
        let locks = self.locks() || self.base == Base::ReadCommitted;
        match &self.rows {
            Rows::Registers(registers) => registers.table().insert(key, value).map(drop),
            Rows::Moving(_) => self.replace(key, value, locks),
            Rows::Lists(_) => self.extend_list(key, value, locks),
            Rows::Elements(_) => self.add_element(key, value),
        }
    }

    fn read(&mut self, key: u64) -> Result<Found, Error> {
        let (locks, places, way) = (self.locks(), self.places(key), self.way());
        match &self.rows {
            Rows::Moving(registers) => {
                let mut found = Found::new();
                for place in places {
                    found.extend(registers.get(place, locks)?);
                }
                Ok(found)
            }
            Rows::Registers(registers) => Ok(registers.get(key, locks)?.into_iter().collect()),
            Rows::Lists(lists) => Ok(lists.get(key, locks)?.map_or_else(Vec::new, |list| elements(&list))),
            Rows::Elements(rows) => {
                let rows = way.collect(rows.range((key, 0)..(key + 1, 0)))?;
                Ok(rows.into_iter().map(|row| row.1).collect())
            }
        }
    }

    fn scan(&mut self, keys: Range<u64>) -> Result<Vec<(u64, Found)>, Error> {
        let way = self.way();
        match &self.rows {
            Rows::Registers(registers) => {
                let rows = way.collect(registers.range(keys))?;
                Ok(rows.into_iter().map(|(key, version)| (key, vec![version])).collect())
            }
            Rows::Lists(lists) => {
                let rows = way.collect(lists.range(keys))?;
                Ok(rows.into_iter().map(|(key, list)| (key, elements(&list))).collect())
            }
            Rows::Elements(rows) | Rows::Moving(rows) => {
                let mut lists: Vec<(u64, Found)> = Vec::new();
                for ((key, _), value) in way.collect(rows.range((keys.start, 0)..(keys.end, 0)))? {
                    match lists.last_mut().filter(|list| list.0 == key) {
                        Some((_, list)) => list.push(value),
                        None => lists.push((key, vec![value])),
                    }
                }
                Ok(lists)
            }
        }
    }
}

/// From which end rows are taken.
#[derive(Clone, Copy, Debug)]
enum Way {
    Up,
    Down {
        /// See [`Planted::Short`].
        is_short: bool,
    },
    /// From both in turns.
    Inwards,
}

impl Way {
    /// The rows, in the order of their keys.
    fn collect<T>(self, mut rows: impl DoubleEndedIterator<Item = Result<T, Error>>) -> Result<Vec<T>, Error> {
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let from_back = match self {
                Self::Up => false,
                Self::Down { .. } => true,
                Self::Inwards => front.len() > back.len(),
            };
            let Some(row) = (if from_back { rows.next_back() } else { rows.next() }) else { break };
            if from_back { &mut back } else { &mut front }.push(row?);
        }
        if matches!(self, Self::Down { is_short: true }) {
            back.pop();
        }
        front.extend(back.into_iter().rev());
        Ok(front)
    }
}

fn elements(list: &[u8]) -> Found {
    let (elements, _) = list.as_chunks::<ELEMENT>();
    elements.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}
