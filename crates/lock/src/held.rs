//! The locks that one owner holds, as the owner records them, and the lock memory that they occupy.

use crate::hash::RowHash;
use crate::interval::Interval;
use crate::lock_memory::LockMemory;
use crate::mode::TableMode;
use crate::point_list::{self, PointList};
use crate::target::Target;
use foreshore_base::TableId;
use std::collections::BTreeMap;

/// The locks of an owner.
#[derive(Debug)]
pub(crate) struct Held {
    owner: u32,
    tables: Vec<(TableId, TableMode)>,
    points: PointList,
    /// Tables in which the owner has intervals, each with the memory that these occupy.
    ranges: Vec<(TableId, usize)>,
    /// Units of memory that its point locks and intervals occupy.
    charged: usize,
    /// Units of memory that they may occupy.
    capacity: usize,
    /// How often its locks were merged.
    merges: u64,
    /// The row and table of the key on which the owner has an exclusive turn.
    turn: Option<(RowHash, TableId)>,
}

impl Held {
    pub(crate) fn new(owner: u32, capacity: usize) -> Self {
        let (tables, points, ranges) = (Vec::new(), PointList::default(), Vec::new());
        Self { owner, tables, points, ranges, charged: 0, capacity, merges: 0, turn: None }
    }

    /// Returns the number of the owner's slot.
    pub(crate) const fn owner(&self) -> u32 {
        self.owner
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.points.is_empty() && self.ranges.is_empty() && self.turn.is_none()
    }

    /// Returns whether the owner holds no lock and no borrowed memory.
    #[inline]
    pub(crate) fn is_untouched(&self, memory: &LockMemory) -> bool {
        self.is_empty() && self.capacity == memory.own()
    }

    pub(crate) fn tables(&self) -> &[(TableId, TableMode)] {
        &self.tables
    }

    /// Returns the mode in which the owner has locked a table.
    pub(crate) fn table_mode(&self, table: TableId) -> Option<TableMode> {
        self.tables.iter().find(|&&(id, _)| id == table).map(|&(_, mode)| mode)
    }

    /// Returns whether the owner's lock of a table permits it to read the whole table.
    pub(crate) fn reads_all(&self, table: TableId) -> bool {
        self.table_mode(table).is_some_and(|held| held.covers(TableMode::Shared))
    }

    /// Records a granted lock of a table.
    pub(crate) fn set_table(&mut self, table: TableId, mode: TableMode) {
        match self.tables.iter_mut().find(|(id, _)| *id == table) {
            Some((_, held)) => *held = mode,
            None => self.tables.push((table, mode)),
        }
    }

    /// Removes and returns the table locks whose modes `goes` selects.
    pub(crate) fn take_tables(&mut self, goes: fn(TableMode) -> bool) -> impl Iterator<Item = (TableId, TableMode)> {
        self.tables.extract_if(.., move |&mut (_, mode)| goes(mode))
    }

    pub(crate) fn has_point(&self, row: RowHash) -> bool {
        self.points.has(row)
    }

    /// Returns the tables and keys of the point locks.
    pub(crate) fn points(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        self.points.iter()
    }

    pub(crate) fn add_point(&mut self, row: RowHash, target: Target<'_>) {
        self.charged += self.points.push(row, target);
    }

    /// Removes a point lock. Returns false if it was merged into an interval.
    pub(crate) fn remove_point(&mut self, row: RowHash) -> bool {
        self.points.remove(row).inspect(|&cost| self.uncharge(cost)).is_some()
    }

    /// Removes the point locks of a table. Returns their rows and the interval from the first key to the last.
    pub(crate) fn take_points(&mut self, table: TableId) -> Option<(Vec<RowHash>, Interval)> {
        let (rows, cost, hull) = self.points.take_table(table)?;
        self.uncharge(cost);
        Some((rows, hull))
    }

    fn uncharge(&mut self, cost: usize) {
        assert!(cost <= self.charged, "locks of {cost} units go, {} are charged", self.charged);
        self.charged -= cost;
    }

    /// Returns the tables in which the owner has intervals.
    pub(crate) fn range_tables(&self) -> impl Iterator<Item = TableId> {
        self.ranges.iter().map(|&(table, _)| table)
    }

    /// Records the memory that the intervals in a table occupy now; `None` if there are none left.
    pub(crate) fn note_ranges(&mut self, table: TableId, cost: Option<usize>) {
        let at = self.ranges.iter().position(|&(id, _)| id == table);
        self.uncharge(at.map_or(0, |at| self.ranges[at].1));
        self.charged += cost.unwrap_or(0);
        match (at, cost) {
            (Some(at), Some(cost)) => self.ranges[at].1 = cost,
            (Some(at), None) => drop(self.ranges.remove(at)),
            (None, cost) => self.ranges.extend(cost.map(|cost| (table, cost))),
        }
    }

    /// Returns how often the locks were merged.
    pub(crate) const fn merges(&self) -> u64 {
        self.merges
    }

    pub(crate) const fn note_merge(&mut self) {
        self.merges += 1;
    }

    pub(crate) const fn charged(&self) -> usize {
        self.charged
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.charged > self.capacity
    }

    /// Borrows more lock memory. Returns false if no more is available.
    pub(crate) fn borrow(&mut self, memory: &LockMemory) -> bool {
        memory.borrow(self.capacity).inspect(|&units| self.capacity = units).is_some()
    }

    /// Gives the borrowed memory back, and replaces an empty point list by a new one. The locks may exceed the owner's
    /// own memory until they are merged or released.
    pub(crate) fn give_back(&mut self, memory: &LockMemory) {
        let borrowed = self.capacity;
        self.capacity = memory.give_back(borrowed);
        if borrowed > self.capacity && self.points.is_empty() {
            self.points = PointList::default();
        }
    }

    /// Returns for each table the memory of its point locks and intervals, and whether it has point locks.
    pub(crate) fn costs(&self) -> BTreeMap<TableId, (usize, bool)> {
        let mut costs: BTreeMap<_, _> = self.ranges.iter().map(|&(table, cost)| (table, (cost, false))).collect();
        for (table, key) in self.points.iter() {
            let (cost, has_points) = costs.entry(table).or_default();
            (*cost, *has_points) = (*cost + point_list::cost(key.len()), true);
        }
        costs
    }

    /// Returns the memory of all point locks and intervals.
    fn cost(&self) -> usize {
        let points = self.points.iter().map(|(_, key)| point_list::cost(key.len()));
        points.chain(self.ranges.iter().map(|&(_, cost)| cost)).sum()
    }

    /// Removes and returns the rows of all point locks and the tables of all intervals.
    pub(crate) fn take_keys(&mut self) -> (impl Iterator<Item = RowHash>, impl Iterator<Item = TableId>) {
        debug_assert_eq!(self.charged, self.cost(), "of owner {}", self.owner);
        self.charged = 0;
        (self.points.drain(), self.ranges.drain(..).map(|(table, _)| table))
    }

    pub(crate) const fn turn(&self) -> Option<(RowHash, TableId)> {
        self.turn
    }

    pub(crate) const fn set_turn(&mut self, turn: (RowHash, TableId)) {
        self.turn = Some(turn);
    }

    pub(crate) const fn take_turn(&mut self) -> Option<(RowHash, TableId)> {
        self.turn.take()
    }
}
