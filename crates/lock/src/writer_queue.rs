//! The writers that wait to write keys which scans have locked, and the scans that wait for such writers.
//!
//! A scan loads the count of queued writers, so it takes the mutex only if there is one. The rules are those of
//! [`crate::range`].

use crate::hash::{Map, RowHash, Spread};
use crate::interval::Interval;
use crate::target::Target;
use foreshore_base::TableId;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering, fence};
use foreshore_sync::{LockRank, Mutex, rmw};

/// A writer queued on a key.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) owner: u32,
    pub(crate) row: RowHash,
    pub(crate) key: Vec<u8>,
}

/// The queue of one table.
#[derive(Debug, Default)]
struct TableQueue {
    /// Writers that wait for point locks or intervals of other owners.
    writers: Vec<Queued>,
    /// Scans that wait for one of those writers.
    scans: Vec<(u32, Interval)>,
}

impl TableQueue {
    /// Returns the writers of other transactions on keys of an interval.
    fn writers_in(&self, owner: u32, interval: &Interval) -> Vec<Queued> {
        let is_in = |writer: &&Queued| writer.owner != owner && interval.contains(&writer.key);
        self.writers.iter().filter(is_in).cloned().collect()
    }
}

/// The queues of the tables of a shard.
#[derive(Debug)]
pub(crate) struct WriterQueue {
    /// Contract: the number of writers in `tables`. It changes with these, under the mutex.
    queued: AtomicU32,
    tables: Mutex<Map<TableId, TableQueue>>,
}

impl WriterQueue {
    pub(crate) fn new() -> Self {
        let tables = Mutex::new(LockRank::RangeLocks, Map::with_hasher(Spread));
        Self { queued: AtomicU32::new(0), tables }
    }

    /// Returns whether no writer is queued.
    pub(crate) fn is_empty(&self) -> bool {
        // ORDERING: store, fence, look; after an addition the caller has fenced, which pairs with the fence in `enter`.
        // At a removal: a writer that found the interval had queued before, by the mutex of the stripe.
        self.queued.load(Ordering::Relaxed) == 0
    }

    /// Queues a writer on its key. The caller looks for intervals afterwards.
    pub(crate) fn enter(&self, owner: u32, row: RowHash, target: Target<'_>) {
        rmw::contended(3);
        let mut tables = self.tables.lock();
        let writers = &mut tables.entry(target.table).or_default().writers;
        let is_new = writers.iter().all(|writer| writer.owner != owner);
        assert!(is_new, "writer {owner} is queued twice in {:?}: {writers:?}", target.table);
        writers.push(Queued { owner, row, key: target.key.to_vec() });
        // ORDERING: store, fence, look; the fence below pairs with the one in `extended` of `range.rs`.
        self.queued.fetch_add(1, Ordering::Relaxed);
        drop(tables);
        if !mutant("range: no fence after queueing") {
            fence(Ordering::SeqCst);
        }
    }

    /// Removes a writer, and returns the scans that may have waited for it.
    pub(crate) fn leave(&self, owner: u32, table: TableId) -> Vec<u32> {
        rmw::contended(1);
        let woken = self.change(table, |queue| {
            let at = queue.writers.iter().position(|writer| writer.owner == owner);
            let writer = queue.writers.remove(at.expect("a writer leaves the queue once"));
            // ORDERING: Relaxed, a scan that loads the old count takes the mutex, and finds the writer gone.
            self.queued.fetch_sub(1, Ordering::Relaxed);
            let waited = queue.scans.iter().filter(|(_, interval)| interval.contains(&writer.key));
            waited.map(|&(scan, _)| scan).collect()
        });
        woken.expect("a table with a queued writer has a queue")
    }

    /// Returns the writers of other transactions on keys of an interval.
    pub(crate) fn writers_in(&self, owner: u32, table: TableId, interval: &Interval) -> Vec<Queued> {
        self.read(table, |queue| queue.writers_in(owner, interval)).unwrap_or_default()
    }

    /// Lists a scan as waiting, and returns the writers that it may have to wait for. Each of them wakes it when it
    /// leaves.
    pub(crate) fn stand_behind(&self, owner: u32, table: TableId, interval: &Interval) -> Vec<Queued> {
        rmw::contended(2);
        let reads_first = mutant("range: a scan reads the writers before it is listed");
        let early = reads_first.then(|| self.writers_in(owner, table, interval));
        let mut tables = self.tables.lock();
        let queue = tables.entry(table).or_default();
        queue.scans.retain(|&(scan, _)| scan != owner);
        queue.scans.push((owner, interval.clone()));
        early.unwrap_or_else(|| queue.writers_in(owner, interval))
    }

    /// Removes a scan from those that wait, if it is listed.
    pub(crate) fn cancel(&self, owner: u32, table: TableId) {
        self.change(table, |queue| queue.scans.retain(|&(scan, _)| scan != owner));
    }

    /// Returns the writers of a table that `selects` selects.
    pub(crate) fn writers_where(&self, table: TableId, selects: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let selected = |queue: &TableQueue| queue.writers.iter().filter(|writer| selects(writer)).cloned().collect();
        self.read(table, selected).unwrap_or_default()
    }

    /// Returns the key on which a writer is queued.
    pub(crate) fn key_of(&self, owner: u32, table: TableId) -> Option<Vec<u8>> {
        let key = |queue: &TableQueue| Some(queue.writers.iter().find(|writer| writer.owner == owner)?.key.clone());
        self.read(table, key).flatten()
    }

    /// Returns the writers of other transactions on keys of the interval that a waiting scan requests.
    pub(crate) fn writers_before(&self, owner: u32, table: TableId) -> Vec<Queued> {
        let before = |queue: &TableQueue| {
            let (_, interval) = queue.scans.iter().find(|&&(scan, _)| scan == owner)?;
            Some(queue.writers_in(owner, interval))
        };
        self.read(table, before).flatten().unwrap_or_default()
    }

    fn read<R>(&self, table: TableId, read: impl FnOnce(&TableQueue) -> R) -> Option<R> {
        rmw::contended(2);
        self.tables.lock().get(&table).map(read)
    }

    /// Changes the queue of a table, if it has one. An empty queue ends.
    fn change<R>(&self, table: TableId, change: impl FnOnce(&mut TableQueue) -> R) -> Option<R> {
        rmw::contended(2);
        let mut tables = self.tables.lock();
        let queue = tables.get_mut(&table)?;
        let changed = change(queue);
        if queue.writers.is_empty() && queue.scans.is_empty() {
            tables.remove(&table);
        }
        Some(changed)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_scan_that_is_not_listed_can_be_cancelled() {
        let (queue, table) = (WriterQueue::new(), TableId(1));
        queue.cancel(1, table);
        let key = Interval::of_key(b"k");
        assert!(queue.stand_behind(1, table, &key).is_empty());
        queue.cancel(2, table);
        queue.cancel(1, table);
        assert!(queue.tables.lock().is_empty(), "an empty queue ends");
    }
}
