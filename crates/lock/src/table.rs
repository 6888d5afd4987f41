//! Table locks: a head per table with its holders, a FIFO queue and the tag of its last writer.
//!
//! Intents may be in words of their owners instead (see [`crate::intent`]); the head has those that a strong locker found.

use crate::hash::Spread;
use crate::intent::{Found, Intents, StrongCount, WORDS};
use crate::manager::{LockManager, Map, What};
use crate::mode::TableMode;
use crate::owner::{Owner, Wait};
use foreshore_base::{Csn, Result, TableId};
use foreshore_sync::model::mutant;
use foreshore_sync::{LockRank, Mutex, rmw};
use std::collections::VecDeque;
use std::time::Duration;

/// Tables whose ids fall together.
#[derive(Debug)]
pub(crate) struct TableShard {
    heads: Mutex<Map<TableId, TableHead>>,
    /// Strong locks and requests of these tables, each from before its look at the words of all slots to its end.
    strong: StrongCount,
}

/// The lock of one table. It lives for ever, so that its tag outlives its holders.
#[derive(Debug, Default)]
struct TableHead {
    holders: Vec<(u32, TableMode)>,
    /// Holders by mode.
    counts: [u32; TableMode::ALL.len()],
    queue: VecDeque<Request>,
    /// Largest commit number of a transaction that wrote in this table and is done. What is absent may be absent because
    /// of it, so a reader of the whole table rests on it until it is durable.
    tag: Csn,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    owner: u32,
    /// The mode it will hold.
    mode: TableMode,
    /// It holds the table in a weaker mode: it goes ahead of those that hold nothing, which may wait for it.
    upgrade: Option<TableMode>,
}

impl Request {
    /// What `owner` asks for to have `mode` as well; `None` if its lock covers that.
    fn new(owner: &Owner, table: TableId, mode: TableMode) -> Option<Self> {
        let upgrade = owner.table_mode(table);
        let mode = upgrade.map_or(mode, |held| held.supremum(mode));
        (upgrade != Some(mode)).then_some(Self { owner: owner.index, mode, upgrade })
    }

    /// Notes the grant with the owner.
    fn note_in(self, owner: &mut Owner, table: TableId) {
        match owner.tables.iter_mut().find(|(id, _)| *id == table) {
            Some((_, mode)) => *mode = self.mode,
            None => owner.tables.push((table, self.mode)),
        }
    }
}

impl TableShard {
    pub(crate) fn new(fast_intents: bool) -> Self {
        let heads = Mutex::new(LockRank::TableLocks, Map::with_hasher(Spread));
        Self { heads, strong: StrongCount::new(fast_intents) }
    }
}

impl TableShard {
    /// Grants to one who was counted if it is strong.
    fn grant(&self, head: &mut TableHead, request: Request) -> Csn {
        // From here on it counts for its new mode alone.
        if let Some(held) = request.upgrade {
            self.end_request(held);
        }
        head.grant(request)
    }

    /// A lock has ended, or will not be granted.
    fn end_request(&self, mode: TableMode) {
        if !mode.is_intent() {
            self.strong.retire();
        }
    }
}

impl TableHead {
    /// Whether the holders other than the requester allow the mode.
    fn holders_allow(&self, request: Request) -> bool {
        TableMode::ALL.into_iter().all(|mode| {
            let own = u32::from(request.upgrade == Some(mode));
            self.counts[mode as usize] == own || request.mode.is_compatible(mode)
        })
    }

    /// Requests that stand before `at` and that one at `at` may not pass.
    fn ahead(&self, at: usize, request: Request) -> impl Iterator<Item = u32> {
        let ahead = if request.upgrade.is_some() { 0 } else { at };
        let queued = self.queue.iter().take(ahead);
        queued.filter(move |before| !before.mode.is_compatible(request.mode)).map(|before| before.owner)
    }

    fn is_grantable(&self, at: usize, request: Request) -> bool {
        self.holders_allow(request) && self.ahead(at, request).next().is_none()
    }

    fn position(&self, owner: u32) -> Option<usize> {
        self.queue.iter().position(|request| request.owner == owner)
    }

    fn grant(&mut self, request: Request) -> Csn {
        if let Some(held) = request.upgrade {
            self.remove_holder(request.owner, held);
        }
        let (mode, holders) = (request.mode, &self.holders);
        let mut others = TableMode::ALL.into_iter().filter(|&other| self.counts[other as usize] > 0);
        assert!(others.all(|other| mode.is_compatible(other)), "{mode:?} is granted beside {holders:?}");
        self.add_holder(request.owner, mode);
        if mode.reads_all() { self.tag } else { Csn::ZERO }
    }

    fn add_holder(&mut self, owner: u32, mode: TableMode) {
        debug_assert!(
            self.holders.iter().all(|&(holder, _)| holder != owner),
            "owner {owner} gets {mode:?} beside its lock in {:?}",
            self.holders
        );
        self.holders.push((owner, mode));
        self.counts[mode as usize] += 1;
    }

    fn remove_holder(&mut self, owner: u32, mode: TableMode) {
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

    /// Makes a word of this table free, for its owner.
    fn take_word(&mut self, words: &Intents, at: usize) {
        self.tag = self.tag.max(words.free(at));
    }

    /// Waiters that would be granted if they looked now.
    fn grantable(&self) -> Vec<u32> {
        let queue = self.queue.iter().enumerate();
        queue.filter(|&(at, request)| self.is_grantable(at, *request)).map(|(_, request)| request.owner).collect()
    }
}

impl LockManager {
    /// Locks `table` for `owner`, or strengthens its lock to the supremum of both modes.
    ///
    /// Returns the table's tag when the new mode reads the whole table: the largest commit number of a writer that has
    /// released it, on which the absence of rows may rest. Otherwise, and when the lock was held already, zero.
    ///
    /// # Errors
    /// [`Deadlock`](foreshore_base::Error::Deadlock), [`LockTimeout`](foreshore_base::Error::LockTimeout).
    pub fn lock_table(&self, owner: &mut Owner, table: TableId, mode: TableMode, timeout: Duration) -> Result<Csn> {
        let Some(request) = Request::new(owner, table, mode) else { return Ok(Csn::ZERO) };
        let tag = match self.request(owner, table, request, true) {
            Some(tag) => tag,
            None => self.wait_table(owner, table, request, timeout)?,
        };
        request.note_in(owner, table);
        Ok(tag)
    }

    /// As [`lock_table`](Self::lock_table) if that does not have to wait; otherwise `None`, and nothing has changed.
    pub fn try_lock_table(&self, owner: &mut Owner, table: TableId, mode: TableMode) -> Option<Csn> {
        let Some(request) = Request::new(owner, table, mode) else { return Some(Csn::ZERO) };
        let tag = self.request(owner, table, request, false)?;
        request.note_in(owner, table);
        Some(tag)
    }

    /// Grants the request, or, if it may wait, enters it into the queue.
    fn request(&self, owner: &Owner, table: TableId, request: Request, may_wait: bool) -> Option<Csn> {
        if request.mode.is_intent() && self.take_intent(owner, table, request) {
            return Some(Csn::ZERO);
        }
        let shard = self.table_shard(table);
        let mut heads = shard.heads.lock();
        let head = heads.entry(table).or_default();
        if !request.mode.is_intent() {
            self.revoke_intents(shard, table, head);
        }
        if head.is_grantable(head.queue.len(), request) {
            return Some(shard.grant(head, request));
        }
        if !may_wait {
            shard.end_request(request.mode);
            return None;
        }
        let upgrades = head.queue.iter().take_while(|before| before.upgrade.is_some()).count();
        let at = if request.upgrade.is_some() { upgrades } else { head.queue.len() };
        debug_assert!(head.position(request.owner).is_none(), "owner {} queues twice for {table:?}", request.owner);
        head.queue.insert(at, request);
        debug_assert!(
            head.queue.iter().is_sorted_by_key(|queued| queued.upgrade.is_none()),
            "{table:?}: an upgrade waits behind a new request: {:?}",
            head.queue
        );
        None
    }

    fn wait_table(&self, owner: &Owner, table: TableId, request: Request, timeout: Duration) -> Result<Csn> {
        let mut wait = self.queue_wait(timeout);
        let what = What::Table(table);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            if let Some(tag) = self.try_queued(table, request) {
                break Ok(tag);
            }
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Table(table), seen, &what) {
                break Err(error);
            }
        };
        wait.end(owner);
        if outcome.is_err() {
            self.leave_table_queue(table, request);
        }
        outcome
    }

    /// Grants a queued request whose turn has come. A grant frees nobody behind it, so nobody is woken.
    fn try_queued(&self, table: TableId, request: Request) -> Option<Csn> {
        let shard = self.table_shard(table);
        let mut heads = shard.heads.lock();
        let head = heads.get_mut(&table).expect("a table with a request has a head");
        let at = head.position(request.owner).expect("a request stands in the queue until it is granted");
        if !head.is_grantable(at, request) {
            return None;
        }
        head.queue.remove(at);
        Some(shard.grant(head, request))
    }

    fn leave_table_queue(&self, table: TableId, request: Request) {
        let shard = self.table_shard(table);
        let mut heads = shard.heads.lock();
        let head = heads.get_mut(&table).expect("a table with a request has a head");
        let before = head.queue.len();
        head.queue.retain(|queued| queued.owner != request.owner);
        let left = before - head.queue.len();
        assert_eq!(left, 1, "requests of owner {} that leave the queue of {table:?}", request.owner);
        shard.end_request(request.mode);
        let woken = head.grantable();
        drop(heads);
        self.wake(&woken);
    }

    pub(crate) fn release_table(&self, owner: u32, table: TableId, mode: TableMode, csn: Option<Csn>) {
        let words = &self.slots.get(owner).intents;
        if mode.is_intent() && words.keep(table, mode, csn) {
            return;
        }
        let shard = self.table_shard(table);
        let mut heads = shard.heads.lock();
        let head = heads.get_mut(&table).expect("a locked table has a head");
        if let Some(revoked) = words.position(table) {
            head.take_word(words, revoked);
        }
        head.remove_holder(owner, mode);
        shard.end_request(mode);
        if let Some(csn) = csn.filter(|_| mode.writes()) {
            head.tag = head.tag.max(csn);
        }
        if head.queue.is_empty() {
            return;
        }
        let woken = head.grantable();
        drop(heads);
        self.wake(&woken);
    }

    /// Whom `owner`, queued at `table`, waits for: holders and earlier requests that conflict.
    pub(crate) fn table_blockers(&self, owner: u32, table: TableId, into: &mut Vec<u32>) {
        let heads = self.table_shard(table).heads.lock();
        let Some(head) = heads.get(&table) else { return };
        let Some(at) = head.position(owner) else { return };
        let request = head.queue[at];
        let conflicting = |&&(holder, mode): &&(u32, TableMode)| holder != owner && !request.mode.is_compatible(mode);
        into.extend(head.holders.iter().filter(conflicting).map(|&(holder, _)| holder));
        into.extend(head.ahead(at, request));
    }

    /// Another transaction that has the table, or waits for it, in a mode that excludes `mode`.
    pub(crate) fn other_on(&self, owner: &Owner, table: TableId, mode: TableMode) -> Option<u32> {
        let heads = self.table_shard(table).heads.lock();
        let head = heads.get(&table)?;
        let queued = head.queue.iter().map(|request| (request.owner, request.mode));
        let mut all = head.holders.iter().copied().chain(queued);
        all.find(|&(other, held)| other != owner.index && !mode.is_compatible(held)).map(|(other, _)| other)
    }

    /// Takes an intent on the fast path. False if the table is to be asked.
    fn take_intent(&self, owner: &Owner, table: TableId, request: Request) -> bool {
        let words = &self.slots.get(owner.index).intents;
        let known = words.position(table);
        if request.upgrade.is_some() {
            // Held without a word: by the table.
            return known.is_some_and(|at| words.take_again(at, table, request.mode));
        }
        if let Some(at) = known.filter(|&at| words.find(at) == Found::Kept(table)) {
            return words.take_again(at, table, request.mode);
        }
        let strong = &self.tables[self.shard_of(table)].strong;
        // What is known is revoked, or there would be a lock to strengthen.
        let Some(at) = known.or_else(|| self.place(owner, words, table)).filter(|_| strong.is_zero()) else {
            return false;
        };
        self.empty_word(words, at);
        words.enter(at, table, request.mode);
        if strong.has_let_by() {
            return true;
        }
        self.take_back(owner, table, request.mode, at);
        false
    }

    /// A word for `table`: one that is free, or that the running transaction does not need.
    fn place(&self, owner: &Owner, words: &Intents, table: TableId) -> Option<usize> {
        let spare = |at: &usize| match words.find(*at) {
            Found::Free | Found::Kept(_) => true,
            Found::Held(_) => false,
            Found::Revoked(of) => owner.table_mode(of).is_none(),
        };
        let first = table.0 as usize % WORDS;
        let free = (0..WORDS).find(|&at| words.find(at) == Found::Free);
        free.or_else(|| (first..WORDS).chain(0..first).find(spare))
    }

    /// Makes a word free that no running transaction holds.
    fn empty_word(&self, words: &Intents, at: usize) {
        if let Found::Kept(table) | Found::Revoked(table) = words.find(at) {
            let mut heads = self.table_shard(table).heads.lock();
            heads.entry(table).or_default().take_word(words, at);
        }
    }

    /// Takes back an intent that was entered beside a strong locker, who may have taken it for one that is held.
    fn take_back(&self, owner: &Owner, table: TableId, mode: TableMode, at: usize) {
        let words = &self.slots.get(owner.index).intents;
        let mut heads = self.table_shard(table).heads.lock();
        let head = heads.entry(table).or_default();
        let is_entered = matches!(words.find(at), Found::Revoked(_));
        head.take_word(words, at);
        if !is_entered {
            return;
        }
        head.remove_holder(owner.index, mode);
        let woken = head.grantable();
        drop(heads);
        if !mutant("intent: taken back without a wake") {
            self.wake(&woken);
        }
    }

    /// Counts a strong locker of `table` and brings the intents of all slots to its head.
    fn revoke_intents(&self, shard: &TableShard, table: TableId, head: &mut TableHead) {
        let late = mutant("intent: words before the count");
        if !late {
            shard.strong.announce();
        }
        if !mutant("sabotage: a table lock does not look at intents") {
            for (index, slot) in (0..).zip(self.slots.used()) {
                let Some(revoked) = slot.intents.revoke(table) else { continue };
                head.tag = head.tag.max(revoked.tag);
                if let Some(mode) = revoked.held {
                    head.add_holder(index, mode);
                }
            }
        }
        if late {
            shard.strong.announce();
        }
    }

    /// Those who ask for a shard lock it.
    fn table_shard(&self, table: TableId) -> &TableShard {
        rmw::contended(2);
        &self.tables[self.shard_of(table)]
    }

    const fn shard_of(&self, table: TableId) -> usize {
        table.0 as usize % self.tables.len()
    }
}
