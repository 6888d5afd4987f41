//! The xids of running transactions, as checkpoints see them.

use foreshore_base::{GroupNo, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{BiasedMutex, CachePadded, LockRank, Mutex};
use std::ops::Range;

/// A transaction that has an xid and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    /// The xid that its records carry.
    pub(crate) xid: Xid,
    /// A log group such that no record of the transaction lies in an earlier one. `None` while the transaction has no
    /// record and needs no log.
    pub(crate) first_group: Option<GroupNo>,
}

/// The xids of one session.
#[derive(Debug, Default)]
struct Slot {
    active: Option<Active>,
    /// Xids drawn for the session's next transactions.
    left: Range<u64>,
}

/// The slots of all sessions, indexed by the number of the session's lock owner.
///
/// A session draws xids in blocks. So sessions do not contend, with each transaction, for the next xid or for the
/// status words of their xids. A session holds its slot's lock while it draws a block, and while it takes an xid from
/// one.
///
/// A checkpointer loads the next xid first and locks each slot afterwards. Each xid below the loaded one belongs to a
/// block that was drawn under a slot's lock before. So one of these holds:
///
/// - The checkpointer finds the xid active.
/// - Its transaction has ended.
/// - The xid is left in the block. The checkpointer then voids what is left, so no transaction ever gets it.
///
/// The lock lets the checkpointer park if the owner is off its core meanwhile.
///
/// Before a transaction appends its first record, it publishes the group that the log is about to fill. It keeps no log
/// before that. A transaction with an xid and no record may wait for log space, which comes only if it lets old log be
/// truncated. A checkpointer that finds no group has loaded the next group before it checked. So the first record comes
/// in that group or a later one.
///
/// Losers of a restart that are still undone have no slots of their own. They are listed with the number of the owner
/// that stands for all of them. Each is removed when its END record is in the log, as a transaction leaves its slot.
///
/// Xids left in blocks hold the status window. They are voided when they have become old. If the window is full, all of
/// them are voided.
#[derive(Debug)]
pub(crate) struct ActiveSlots {
    slots: Box<[CachePadded<BiasedMutex<Slot>>]>,
    /// The number of undo entries of each slot's transaction after its last operation. The slot's session writes it.
    versions: Box<[CachePadded<AtomicU64>]>,
    losers: Mutex<Vec<(usize, Active)>>,
}

impl ActiveSlots {
    pub(super) fn new(count: usize) -> Self {
        let slot = |_| CachePadded::new(BiasedMutex::new(LockRank::Leaf, Slot::default()));
        let versions = (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        let losers = Mutex::new(LockRank::Leaf, Vec::new());
        Self { slots: (0..count).map(slot).collect(), versions, losers }
    }

    /// Lists the losers of a restart, for which the owner with number `index` stands. No record of them lies in a group
    /// before `first_group`.
    pub(crate) fn hold_losers(&self, index: usize, first_group: GroupNo, losers: Vec<Xid>) {
        let active = |xid| (index, Active { xid, first_group: Some(first_group) });
        self.losers.lock().extend(losers.into_iter().map(active));
    }

    /// Removes a loser that has ended: its last record is in the log.
    pub(crate) fn end_loser(&self, xid: Xid) {
        self.losers.lock().retain(|&(_, loser)| loser.xid != xid);
    }

    /// Records the number of undo entries of the transaction in a slot. Only its session calls it.
    pub(crate) fn note_versions(&self, index: usize, versions: u64) {
        // ORDERING: hint, a statistic.
        self.versions[index].store(versions, Ordering::Relaxed);
    }

    pub(super) fn versions(&self, index: usize) -> u64 {
        // ORDERING: hint, a statistic.
        self.versions[index].load(Ordering::Relaxed)
    }

    /// Publishes the next xid of the session; `None` if none could be drawn.
    ///
    /// - `draw` draws a block if none is left.
    /// - `first_group` is set for a transaction of the previous run, which has records.
    /// - `begin` sets the status of the xid to running, or returns false if the xid is void. Then the next one is
    ///   taken. It is called under the lock, so a thread that voids xids finds each xid either left or running.
    /// - `logged_as` is the xid in the log of a transaction that was taken over from the previous run.
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

    /// Returns the first group of the transaction that runs on the session of a slot.
    pub(crate) fn first_group(&self, index: usize) -> Option<GroupNo> {
        self.slots[index].lock().active.and_then(|active| active.first_group)
    }

    /// Records the group before the first record of the slot's transaction is appended. `next_group` is called under
    /// the lock. So a checkpointer that has loaded a later group finds the recorded one.
    pub(super) fn note_first_record(&self, index: usize, next_group: impl FnOnce() -> GroupNo) {
        let mut slot = self.slots[index].lock();
        let active = slot.active.as_mut().expect("a transaction that runs");
        assert!(active.first_group.is_none(), "a transaction has one first record");
        active.first_group = Some(next_group());
    }

    /// Records that the log has no record of the slot's transaction before `first_group` any more. The transaction is
    /// running.
    pub(crate) fn move_on(&self, index: usize, first_group: GroupNo) {
        let mut slot = self.slots[index].lock();
        let active = slot.active.as_mut().expect("a transaction that runs");
        assert!(active.first_group.is_some_and(|before| before <= first_group), "log comes later, never earlier");
        active.first_group = Some(first_group);
    }

    /// Removes a transaction that has ended: its status is final, and its last record is in the log.
    pub(crate) fn leave(&self, index: usize) {
        let left = self.slots[index].lock().active.take();
        assert!(left.is_some(), "a transaction ends once");
    }

    /// Returns all running transactions with the numbers of their slots. The slots are not read at one moment.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, Active)> {
        let in_slot = |(index, slot): (usize, &CachePadded<BiasedMutex<Slot>>)| Some((index, slot.visit().active?));
        let losers = self.losers.lock().clone();
        losers.into_iter().chain(self.slots.iter().enumerate().filter_map(in_slot))
    }

    /// Takes the rest of each session's block, if that rest starts below `below`. Passes it to `void` under the slot's
    /// lock. Returns the running transactions.
    pub(super) fn take_left(&self, below: Xid, mut void: impl FnMut(Range<u64>)) -> Vec<Active> {
        let mut all: Vec<Active> = self.losers.lock().iter().map(|&(_, loser)| loser).collect();
        for slot in &self.slots {
            let mut slot = slot.visit();
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
