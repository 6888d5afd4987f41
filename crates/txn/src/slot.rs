//! What a checkpoint sees of a running transaction.

use crate::manager::{SLIDE_STRIDE, TxnManager};
use crate::status::Status;
use foreshore_base::{Error, GroupNo, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::ops::Range;
use std::time::Duration;

/// Most xids that a session draws at once. Their status words are lines of their own.
const MOST_DRAWN: usize = 64;
/// So many moves of the window a session may take to use what it has drawn, at least.
const STRIDES: u64 = 4;

/// A transaction that has an xid and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    /// That of its records.
    pub(crate) xid: Xid,
    /// No record of it lies in an earlier log group. `None` as long as it has no record: it needs no log.
    pub(crate) first_group: Option<GroupNo>,
}

/// A session's xids.
#[derive(Debug, Default)]
struct Slot {
    active: Option<Active>,
    /// Drawn for its next transactions.
    left: Range<u64>,
}

/// One slot a session, by the number of its lock owner.
///
/// A session draws xids in blocks, so that sessions do not meet at the next xid, nor at the status words of their xids, with
/// each transaction. It holds its slot's lock while it draws a block, and while it takes an xid from one.
///
/// A checkpointer loads the next xid first and locks each slot afterwards. An xid below what it loaded is of a block that was
/// drawn under the lock before. So the checkpointer finds the xid active; or its transaction has ended; or it is
/// left in the block, and the checkpointer takes it away: no transaction will ever have it. The lock lets the checkpointer
/// park if the owner is off its core in between.
///
/// A transaction shows the group that the log is about to fill before it appends its first record, and holds back no log before: with
/// an xid and no record it may wait for log space, which others can only be given if it lets old log go. A checkpointer that finds no
/// group has loaded the next group before it looked, so the first record comes in that group or a later one.
///
/// What is left in blocks holds the status window. It is taken away when it has become old, and all of it where the window is
/// full.
#[derive(Debug)]
pub(crate) struct ActiveSlots {
    slots: Box<[CachePadded<Mutex<Slot>>]>,
    /// Undo entries of the transaction in each slot after its last operation. Written by its session.
    versions: Box<[CachePadded<AtomicU64>]>,
}

impl ActiveSlots {
    pub(crate) fn new(count: usize) -> Self {
        let slot = |_| CachePadded::new(Mutex::new(LockRank::Leaf, Slot::default()));
        let versions = (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { slots: (0..count).map(slot).collect(), versions }
    }

    /// The transaction in a slot has so many undo entries. By its session.
    pub(crate) fn note_versions(&self, index: usize, versions: u64) {
        // ORDERING: hint, a statistic.
        self.versions[index].store(versions, Ordering::Relaxed);
    }

    fn versions(&self, index: usize) -> u64 {
        // ORDERING: hint, a statistic.
        self.versions[index].load(Ordering::Relaxed)
    }

    /// Shows the next xid of the session, from a block that `draw` draws where none is left; `None` if none could be drawn.
    /// `first_group` is that of a transaction of the run before, which has records. `begin` has its status tell that it runs, or says that the xid is void and the
    /// next one is taken: under the lock, so that a thread that takes what is left finds no xid that is neither left nor
    /// running. In the log it has another xid if it was prepared before a restart.
    pub(crate) fn enter(
        &self,
        index: usize,
        first_group: Option<GroupNo>,
        draw: impl Fn() -> Option<Range<u64>>,
        begin: impl Fn(Xid) -> bool,
        logged_as: Option<Xid>,
    ) -> Option<Xid> {
        let mut slot = self.slots[index].lock();
        assert!(slot.active.is_none(), "a transaction draws one xid");
        let xid = loop {
            if slot.left.is_empty() {
                slot.left = draw()?;
            }
            let xid = Xid(slot.left.next().expect("a block has xids"));
            if begin(xid) {
                break xid;
            }
        };
        slot.active = Some(Active { xid: logged_as.unwrap_or(xid), first_group });
        Some(xid)
    }

    /// The first group of the transaction that runs on the session of a slot.
    pub(crate) fn first_group(&self, index: usize) -> Option<GroupNo> {
        self.slots[index].lock().active.and_then(|active| active.first_group)
    }

    /// The first record of the transaction that runs on the session of a slot is about to be appended. `next_group` is called under the
    /// lock: a checkpointer that has loaded a later group finds the one noted.
    pub(crate) fn note_first_record(&self, index: usize, next_group: impl FnOnce() -> GroupNo) {
        let mut slot = self.slots[index].lock();
        let active = slot.active.as_mut().expect("a transaction that runs");
        assert!(active.first_group.is_none(), "a transaction has one first record");
        active.first_group = Some(next_group());
    }

    /// What the log has of the transaction lies in `first_group` or behind from now on. It runs, on the session of this slot.
    pub(crate) fn move_on(&self, index: usize, first_group: GroupNo) {
        let mut slot = self.slots[index].lock();
        let active = slot.active.as_mut().expect("a transaction that runs");
        assert!(active.first_group.is_some_and(|before| before <= first_group), "log comes later, never earlier");
        active.first_group = Some(first_group);
    }

    /// The transaction has ended: its status is final, and its last record is in the log.
    pub(crate) fn leave(&self, index: usize) {
        let left = self.slots[index].lock().active.take();
        assert!(left.is_some(), "a transaction ends once");
    }

    /// All of them, each with the number of its slot. Not one moment.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, Active)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| slot.lock().active.map(|active| (index, active)))
    }

    /// Takes from each session what is left of its block, if that starts below `below`, and hands it to `void` before others find
    /// it gone. Returns those that run.
    pub(crate) fn take_left(&self, below: Xid, mut void: impl FnMut(Range<u64>)) -> Vec<Active> {
        let mut all = Vec::new();
        for slot in &self.slots {
            let mut slot = slot.lock();
            all.extend(slot.active);
            let is_taken = !slot.left.is_empty() && slot.left.start < below.0;
            if is_taken && !mutant("slots: left xids stay with their session") {
                let left = std::mem::take(&mut slot.left);
                if mutant("slots: voided when the slot is free again") {
                    drop(slot);
                }
                void(left);
            }
        }
        all
    }
}

/// The running transaction whose log is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestTransaction {
    /// Its xid.
    pub xid: Xid,
    /// The first log group that it keeps from being truncated; `None` if the log has no record of it.
    pub first_group: Option<GroupNo>,
    /// Its label.
    pub label: &'static str,
    /// How long it has run. One that was prepared before the last restart has run since then.
    pub age: Duration,
    /// About how many bytes of log are kept for it.
    pub log_bytes: u64,
    /// Versions of rows that are kept for its rollback.
    pub versions: u64,
}

impl TxnManager {
    /// Draws a block of xids for one session, whose slot is locked.
    pub(crate) fn draw_block(&self) -> Option<Range<u64>> {
        let block = self.xids.draw(self.draws)?;
        self.window.set_aside(block.clone());
        Some(block)
    }

    /// Takes away what sessions have drawn and not used, where it starts below `below`, so that the window can move over it.
    /// Returns who runs. No status table is told, for nobody asks what became of an xid that no row has.
    pub(crate) fn void_left(&self, below: Xid) -> Vec<Active> {
        self.active.take_left(below, |left| left.for_each(|xid| self.window.void(Xid(xid))))
    }

    /// Whether what a session keeps for later holds the window.
    pub(crate) fn is_window_waiting(&self) -> bool {
        self.window.get(self.window.lo()) == Status::Spare
    }

    /// Takes what holds the window and was drawn so long ago that a session that goes on drawing has used it, for those would draw anew each time: a
    /// few strides ago, in which each session may have drawn two blocks, and a quarter of the window at most.
    pub(crate) fn void_old(&self) {
        let sessions = (self.leases(false).made() + self.leases(true).made()) as u64;
        let in_use = STRIDES * SLIDE_STRIDE + 2 * self.draws * sessions;
        let old = Xid(self.xids.next().0.saturating_sub(in_use.min(self.window.capacity() as u64 / 4)));
        if old > self.window.lo() && self.is_window_waiting() {
            self.void_left(old);
        }
    }

    /// The running transaction whose log is the oldest, of those that have an xid. Those without a record come last, the one with the
    /// oldest xid first.
    #[must_use]
    pub fn oldest_transaction(&self) -> Option<OldestTransaction> {
        let by_log = |&(_, active): &(usize, Active)| (active.first_group.is_none(), active.first_group, active.xid);
        let (index, Active { xid, first_group }) = self.active.all().min_by_key(by_log)?;
        let (label, age) = self.locks.running(index)?;
        let (log_bytes, versions) =
            (first_group.map_or(0, |group| self.log.bytes_since(group)), self.active.versions(index));
        Some(OldestTransaction { xid, first_group, label, age, log_bytes, versions })
    }

    /// Names the oldest transaction in an error that says that the disk is full, if log could be given up but for that one.
    #[cold]
    pub(crate) fn name_log_holder(&self, error: Error) -> Error {
        let Error::DiskFull { path, held_by: None } = error else { return error };
        let keeps = |oldest: &OldestTransaction| {
            let kept = oldest.first_group.map(|group| self.log.truncatable(group));
            kept.is_some_and(|kept| self.log.truncatable(self.log.next_group()) > kept)
        };
        Error::DiskFull { path, held_by: self.oldest_transaction().filter(keeps).map(|oldest| oldest.label) }
    }

    /// The first log group that a running transaction keeps from being truncated.
    #[must_use]
    pub fn oldest_group(&self) -> Option<GroupNo> {
        self.active.all().filter_map(|(_, active)| active.first_group).min()
    }
}

/// Xids that a session draws at once, a power of two, so that the window moves at the first of a block. What all sessions have
/// drawn and not used is an eighth of the window at most.
pub(crate) fn draws(capacity: usize, sessions: usize) -> u64 {
    let most = (capacity / (8 * sessions)).clamp(1, MOST_DRAWN);
    1 << most.ilog2()
}
