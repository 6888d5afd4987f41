//! What a checkpoint sees of a running transaction.

use foreshore_base::{GroupNo, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::ops::Range;

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
/// A session draws xids in blocks, so that sessions do not meet at the next xid, nor at the status words of their xids,
/// with each transaction. It holds its slot's lock while it draws a block, and while it takes an xid from one.
///
/// A checkpointer loads the next xid first and locks each slot afterwards. An xid below what it loaded is of a block
/// that was drawn under the lock before. So the checkpointer finds the xid active, or its transaction has ended, or it
/// is left in the block. What is left the checkpointer takes away: no transaction will ever have it. The lock lets the
/// checkpointer park if the owner is off its core in between.
///
/// A transaction shows the group that the log is about to fill before it appends its first record, and holds back no
/// log before. With an xid and no record it may wait for log space, and that comes only if it lets old log go. A
/// checkpointer that finds no group has loaded the next group before it looked, so the first record comes in that group
/// or a later one.
///
/// What is left in blocks holds the status window. It is taken away when it has become old, and all of it where the
/// window is full.
#[derive(Debug)]
pub(crate) struct ActiveSlots {
    slots: Box<[CachePadded<Mutex<Slot>>]>,
    /// Undo entries of the transaction in each slot after its last operation. Written by its session.
    versions: Box<[CachePadded<AtomicU64>]>,
}

impl ActiveSlots {
    pub(super) fn new(count: usize) -> Self {
        let slot = |_| CachePadded::new(Mutex::new(LockRank::Leaf, Slot::default()));
        let versions = (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { slots: (0..count).map(slot).collect(), versions }
    }

    /// The transaction in a slot has so many undo entries. By its session.
    pub(crate) fn note_versions(&self, index: usize, versions: u64) {
        // ORDERING: hint, a statistic.
        self.versions[index].store(versions, Ordering::Relaxed);
    }

    pub(super) fn versions(&self, index: usize) -> u64 {
        // ORDERING: hint, a statistic.
        self.versions[index].load(Ordering::Relaxed)
    }

    /// Shows the next xid of the session, from a block that `draw` draws where none is left; `None` if none could be
    /// drawn. `first_group` is that of a transaction of the run before, which has records. `begin` has its status tell
    /// that it runs, or says that the xid is void, and then the next one is taken. It is called under the lock: a
    /// thread that takes what is left finds no xid that is neither left nor running. In the log it has another xid if
    /// it was prepared before a restart.
    pub(super) fn enter(
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

    /// The first record of the transaction that runs on the session of a slot is about to be appended. `next_group` is
    /// called under the lock: a checkpointer that has loaded a later group finds the one noted.
    pub(super) fn note_first_record(&self, index: usize, next_group: impl FnOnce() -> GroupNo) {
        let mut slot = self.slots[index].lock();
        let active = slot.active.as_mut().expect("a transaction that runs");
        assert!(active.first_group.is_none(), "a transaction has one first record");
        active.first_group = Some(next_group());
    }

    /// Notes that the log has nothing of the transaction before `first_group` from now on. It runs, on the session of
    /// this slot.
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

    /// Takes from each session what is left of its block, if that starts below `below`, and hands it to `void` before
    /// others find it gone. Returns those that run.
    pub(super) fn take_left(&self, below: Xid, mut void: impl FnMut(Range<u64>)) -> Vec<Active> {
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
