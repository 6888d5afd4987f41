//! The lock of one table: its holders, a FIFO queue and the tag of its last writer.

use crate::held::Held;
use crate::mode::TableMode;
use foreshore_base::{Csn, TableId};
use std::collections::VecDeque;

/// How often a queued request is overtaken at most to break cycles of waits, by all later requests together. It bounds
/// the wait of the request.
const MOST_OVERTAKES: u32 = 16;

/// The lock of one table. It is never removed, so its tag outlives its holders.
#[derive(Debug, Default)]
pub(crate) struct TableHead {
    holders: Vec<(u32, TableMode)>,
    /// The number of holders in each mode.
    counts: [u32; TableMode::ALL.len()],
    queue: VecDeque<Request>,
    /// The largest commit number of a finished transaction that wrote in this table. That transaction may have deleted
    /// rows that are absent now. So a reader of the whole table depends on it until it is durable.
    tag: Csn,
}

/// When a queued request waits for the earlier ones that exclude it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueOrder {
    /// Always.
    Counts,
    /// Unless it may overtake them now.
    UnlessSoft,
    /// Unless it may overtake them as soon as the holders allow it.
    UnlessOvertakable,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) owner: u32,
    pub(crate) table: TableId,
    /// The mode that the owner will hold.
    pub(crate) mode: TableMode,
    /// The weaker mode in which the owner already holds the table. Such a request goes ahead of those that wait for
    /// this lock.
    pub(crate) upgrade: Option<TableMode>,
    /// How often later requests have overtaken it to break a cycle of waits.
    overtaken: u32,
}

impl Request {
    /// Returns the request of an owner for `mode` in addition to what it holds; `None` if its lock already covers
    /// `mode`.
    pub(crate) fn new(held: &Held, table: TableId, mode: TableMode) -> Option<Self> {
        let upgrade = held.table_mode(table);
        let mode = upgrade.map_or(mode, |held| held.supremum(mode));
        (upgrade != Some(mode)).then_some(Self { owner: held.owner(), table, mode, upgrade, overtaken: 0 })
    }
}

impl TableHead {
    /// Returns whether the holders other than the requester allow the mode.
    fn holders_allow(&self, request: Request) -> bool {
        TableMode::ALL.into_iter().all(|mode| {
            let own = u32::from(request.upgrade == Some(mode));
            self.counts[mode as usize] == own || request.mode.is_compatible(mode)
        })
    }

    /// Returns where in the queue a request belongs: an upgrade before the first request that waits for the lock of its
    /// owner, any other request at the end. The requests behind that first one may wait for it, and so for the owner.
    ///
    /// If upgrades overtook all requests, transactions that read before they write would keep off a reader of the whole
    /// table for ever.
    fn place(&self, request: Request) -> usize {
        let waits_for = |held: TableMode| self.queue.iter().position(|before| !before.mode.is_compatible(held));
        request.upgrade.and_then(waits_for).unwrap_or(self.queue.len())
    }

    /// Returns the earlier requests for which a request at position `at` waits.
    fn ahead(&self, at: usize, request: Request) -> impl Iterator<Item = &Request> {
        self.queue.iter().take(at).filter(move |before| !before.mode.is_compatible(request.mode))
    }

    /// Returns whether the request at position `at` waits for earlier requests alone, and may overtake them to break a
    /// cycle of waits. A holder that excludes the request forbids it, whether or not that holder is in the cycle.
    fn may_overtake(&self, at: usize) -> bool {
        self.are_overtakable(at) && self.holders_allow(self.queue[at])
    }

    /// Returns whether the requests for which that at position `at` waits were overtaken less often than the bound.
    fn are_overtakable(&self, at: usize) -> bool {
        self.ahead(at, self.queue[at]).all(|before| before.overtaken < MOST_OVERTAKES)
    }

    /// Moves a queued request to the front if it waits for earlier requests alone. It is granted when its owner checks
    /// next: no later request that conflicts with it is placed before it, because all holders allow it. Returns false
    /// if nothing was moved.
    pub(crate) fn overtake(&mut self, owner: u32) -> bool {
        let Some(at) = self.position(owner).filter(|&at| self.may_overtake(at)) else { return false };
        let request = self.queue[at];
        self.queue.remove(at);
        let overtaken = self.queue.iter_mut().take(at).filter(|before| !before.mode.is_compatible(request.mode));
        overtaken.for_each(|before| before.overtaken += 1);
        self.queue.push_front(request);
        true
    }

    fn is_grantable(&self, at: usize, request: Request) -> bool {
        self.holders_allow(request) && self.ahead(at, request).next().is_none()
    }

    fn position(&self, owner: u32) -> Option<usize> {
        self.queue.iter().position(|request| request.owner == owner)
    }

    pub(crate) fn grant(&mut self, request: Request) -> Csn {
        if let Some(held) = request.upgrade {
            self.remove_holder(request.owner, held);
        }
        let (mode, holders) = (request.mode, &self.holders);
        let mut others = TableMode::ALL.into_iter().filter(|&other| self.counts[other as usize] > 0);
        assert!(others.all(|other| mode.is_compatible(other)), "{mode:?} is granted beside {holders:?}");
        self.add_holder(request.owner, mode);
        if mode.reads_all() { self.tag } else { Csn::ZERO }
    }

    pub(crate) fn add_holder(&mut self, owner: u32, mode: TableMode) {
        debug_assert!(
            self.holders.iter().all(|&(holder, _)| holder != owner),
            "owner {owner} gets {mode:?} beside its lock in {:?}",
            self.holders
        );
        self.holders.push((owner, mode));
        self.counts[mode as usize] += 1;
    }

    pub(crate) fn remove_holder(&mut self, owner: u32, mode: TableMode) {
        let at = self.holders.iter().rposition(|&held| held == (owner, mode));
        self.holders.swap_remove(at.expect("a lock that is released is held"));
        assert!(self.counts[mode as usize] > 0, "owner {owner} releases {mode:?}, the counts are {:?}", self.counts);
        self.counts[mode as usize] -= 1;
        let counted: u32 = self.counts.iter().sum();
        assert_eq!(
            counted as usize,
            self.holders.len(),
            "counts of a table's holders after {owner}: {:?}",
            self.counts
        );
    }

    /// Adds the owners that a queued owner waits for: conflicting holders, and conflicting earlier requests as `order`
    /// says.
    pub(crate) fn blockers(&self, owner: u32, order: QueueOrder, into: &mut Vec<u32>) {
        let Some(at) = self.position(owner) else { return };
        let request = self.queue[at];
        let conflicting = |&&(holder, mode): &&(u32, TableMode)| holder != owner && !request.mode.is_compatible(mode);
        into.extend(self.holders.iter().filter(conflicting).map(|&(holder, _)| holder));
        let is_behind = match order {
            QueueOrder::Counts => true,
            QueueOrder::UnlessSoft => !self.may_overtake(at),
            QueueOrder::UnlessOvertakable => !self.are_overtakable(at),
        };
        into.extend(self.ahead(at, request).filter(|_| is_behind).map(|before| before.owner));
    }

    /// Returns an owner other than `owner` that has the table, or waits for it, in a mode that excludes `mode`.
    pub(crate) fn other_on(&self, owner: u32, mode: TableMode) -> Option<u32> {
        let queued = self.queue.iter().map(|request| (request.owner, request.mode));
        let mut all = self.holders.iter().copied().chain(queued);
        all.find(|&(other, held)| other != owner && !mode.is_compatible(held)).map(|(other, _)| other)
    }

    /// Raises the tag.
    pub(crate) fn raise_tag(&mut self, csn: Csn) {
        self.tag = self.tag.max(csn);
    }

    /// Queues a request that cannot be granted.
    pub(crate) fn enqueue(&mut self, request: Request) {
        debug_assert!(self.position(request.owner).is_none(), "{request:?} queues twice: {:?}", self.queue);
        self.queue.insert(self.place(request), request);
    }

    /// Returns whether a request may be granted without queueing.
    pub(crate) fn admits(&self, request: Request) -> bool {
        self.is_grantable(self.place(request), request)
    }

    /// Removes a queued request that may be granted. Returns false if it may not yet.
    pub(crate) fn dequeue_granted(&mut self, request: Request) -> bool {
        let at = self.position(request.owner).expect("a request stands in the queue until it is granted");
        let is_granted = self.is_grantable(at, request);
        if is_granted {
            self.queue.remove(at);
        }
        is_granted
    }

    /// Removes a request that will not be granted.
    pub(crate) fn dequeue(&mut self, request: Request) {
        let at = self.position(request.owner).expect("a request stands in the queue until it is granted");
        self.queue.remove(at);
    }

    /// Returns the waiters that would be granted if they checked now. Allocates only if there are some.
    pub(crate) fn grantable(&self) -> Vec<u32> {
        let queue = self.queue.iter().enumerate();
        queue.filter(|&(at, request)| self.is_grantable(at, *request)).map(|(_, request)| request.owner).collect()
    }
}
