//! What a checkpoint sees of a running transaction.

use crate::manager::TxnManager;
use foreshore_base::{GroupNo, Xid};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::time::Duration;

/// A transaction that has an xid and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Active {
    /// That of its records.
    pub(crate) xid: Xid,
    /// No record of it lies in an earlier log group.
    pub(crate) first_group: GroupNo,
}

/// One slot a session, by the number of its lock owner.
///
/// The owner holds its slot's lock while it draws its xid. A checkpointer loads the next xid first and locks each slot
/// afterwards: a transaction whose xid is below what it loaded had the lock before, so the checkpointer finds the xid,
/// or the transaction has ended. The lock lets it park if the owner is off its core in between.
#[derive(Debug)]
pub(crate) struct ActiveSlots {
    slots: Box<[CachePadded<Mutex<Option<Active>>>]>,
}

impl ActiveSlots {
    pub(crate) fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| CachePadded::new(Mutex::new(LockRank::Leaf, None))).collect() }
    }

    /// Draws an xid by `draw` and shows it, with the group that the log is about to fill; `None` if none could be drawn. In the
    /// log it has another xid if it was prepared before a restart.
    pub(crate) fn enter(
        &self,
        index: usize,
        first_group: impl FnOnce() -> GroupNo,
        draw: impl FnOnce() -> Option<Xid>,
        logged_as: Option<Xid>,
    ) -> Option<Xid> {
        let mut slot = self.slots[index].lock();
        assert!(slot.is_none(), "a transaction draws one xid");
        // The group first: a record of this transaction cannot land before it.
        let first_group = first_group();
        let xid = draw()?;
        *slot = Some(Active { xid: logged_as.unwrap_or(xid), first_group });
        Some(xid)
    }

    /// The transaction has ended: its status is final, and its last record is in the log.
    pub(crate) fn leave(&self, index: usize) {
        let left = self.slots[index].lock().take();
        assert!(left.is_some(), "a transaction ends once");
    }

    /// All of them, each with the number of its slot. Not one moment.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, Active)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| slot.lock().map(|active| (index, active)))
    }
}

/// The transaction that has run longest with an xid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestActive {
    /// Its xid.
    pub xid: Xid,
    /// The first log group that it keeps from being truncated.
    pub first_group: GroupNo,
    /// Its label.
    pub label: &'static str,
    /// How long it has run.
    pub age: Duration,
}

impl TxnManager {
    /// The running transaction with the smallest xid.
    #[must_use]
    pub fn oldest_active(&self) -> Option<OldestActive> {
        let (index, active) = self.active.all().min_by_key(|(_, active)| active.xid)?;
        let (label, age) = self.locks.running(index)?;
        Some(OldestActive { xid: active.xid, first_group: active.first_group, label, age })
    }
}
