//! What one owner holds, as the owner itself knows it, and the lock memory that this takes.

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
    /// Tables in which it has intervals, and the memory that these take.
    ranges: Vec<(TableId, usize)>,
    /// Units of memory that point locks and intervals take.
    charged: usize,
    /// Units of memory that they may take.
    capacity: usize,
    /// Counts merges of its locks.
    merges: u64,
    /// The key, by its row and table, of which it has an exclusive turn.
    turn: Option<(RowHash, TableId)>,
}

impl Held {
    pub(crate) fn new(owner: u32, capacity: usize) -> Self {
        let (tables, points, ranges) = (Vec::new(), PointList::default(), Vec::new());
        Self { owner, tables, points, ranges, charged: 0, capacity, merges: 0, turn: None }
    }

    /// Number of the owner's slot.
    pub(crate) const fn owner(&self) -> u32 {
        self.owner
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.points.is_empty() && self.ranges.is_empty() && self.turn.is_none()
    }

    pub(crate) fn tables(&self) -> &[(TableId, TableMode)] {
        &self.tables
    }

    /// The mode in which it has a table.
    pub(crate) fn table_mode(&self, table: TableId) -> Option<TableMode> {
        self.tables.iter().find(|&&(id, _)| id == table).map(|&(_, mode)| mode)
    }

    /// Whether its lock of a table lets it read all of it.
    pub(crate) fn reads_all(&self, table: TableId) -> bool {
        self.table_mode(table).is_some_and(|held| held.covers(TableMode::Shared))
    }

    /// Notes a granted lock of a table.
    pub(crate) fn set_table(&mut self, table: TableId, mode: TableMode) {
        match self.tables.iter_mut().find(|(id, _)| *id == table) {
            Some((_, held)) => *held = mode,
            None => self.tables.push((table, mode)),
        }
    }

    /// Takes the locks of tables out whose modes `goes` chooses.
    pub(crate) fn take_tables(&mut self, goes: fn(TableMode) -> bool) -> impl Iterator<Item = (TableId, TableMode)> {
        self.tables.extract_if(.., move |&mut (_, mode)| goes(mode))
    }

    pub(crate) fn has_point(&self, row: RowHash) -> bool {
        self.points.has(row)
    }

    /// Tables and keys of its point locks.
    pub(crate) fn points(&self) -> impl Iterator<Item = (TableId, &[u8])> {
        self.points.iter()
    }

    pub(crate) fn add_point(&mut self, row: RowHash, target: Target<'_>) {
        self.charged += self.points.push(row, target);
    }

    /// Takes a point lock out. False if it has been merged.
    pub(crate) fn remove_point(&mut self, row: RowHash) -> bool {
        self.points.remove(row).inspect(|&cost| self.uncharge(cost)).is_some()
    }

    /// Takes the point locks of a table out, and returns their rows and the interval from the first to the last.
    pub(crate) fn take_points(&mut self, table: TableId) -> Option<(Vec<RowHash>, Interval)> {
        let (rows, cost, hull) = self.points.take_table(table)?;
        self.uncharge(cost);
        Some((rows, hull))
    }

    fn uncharge(&mut self, cost: usize) {
        assert!(cost <= self.charged, "locks of {cost} units go, {} are charged", self.charged);
        self.charged -= cost;
    }

    /// Tables in which it has intervals.
    pub(crate) fn range_tables(&self) -> impl Iterator<Item = TableId> {
        self.ranges.iter().map(|&(table, _)| table)
    }

    /// Notes the memory that its intervals in a table take now; `None` if it has none.
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

    /// How often its locks have been merged.
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

    /// Borrows more memory. False if no more is lent.
    pub(crate) fn borrow(&mut self, memory: &LockMemory) -> bool {
        memory.borrow(self.capacity).inspect(|&units| self.capacity = units).is_some()
    }

    /// Returns what it has borrowed, which it may use a little longer.
    pub(crate) fn give_back(&mut self, memory: &LockMemory) {
        let borrowed = self.capacity;
        self.capacity = memory.give_back(borrowed);
        if borrowed > self.capacity && self.points.is_empty() {
            self.points = PointList::default();
        }
    }

    /// The memory of its point locks and intervals by table, and whether there are point locks.
    pub(crate) fn costs(&self) -> BTreeMap<TableId, (usize, bool)> {
        let mut costs: BTreeMap<_, _> = self.ranges.iter().map(|&(table, cost)| (table, (cost, false))).collect();
        for (table, key) in self.points.iter() {
            let (cost, has_points) = costs.entry(table).or_default();
            (*cost, *has_points) = (*cost + point_list::cost(key.len()), true);
        }
        costs
    }

    /// The memory of its point locks and intervals together.
    fn cost(&self) -> usize {
        let points = self.points.iter().map(|(_, key)| point_list::cost(key.len()));
        points.chain(self.ranges.iter().map(|&(_, cost)| cost)).sum()
    }

    /// Takes all point locks and the tables of all intervals out.
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
