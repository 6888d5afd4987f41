//! Table locks: the heads of all tables, and the intents in words of their owners (see [`crate::intent`]).
//!
//! No call waits. A release wakes the waiters that would be granted if they looked.

use crate::hash::{Map, Spread};
use crate::held::Held;
use crate::intent::{Found, Intents, StrongCount, WORDS};
use crate::mode::TableMode;
use crate::slots::Slots;
use crate::table_head::{QueueOrder, Request, TableHead};
use foreshore_base::{Csn, TableId};
use foreshore_sync::model::mutant;
use foreshore_sync::{CachePadded, LockRank, Mutex, rmw};

/// The number of shards. Loom gets one, because each adds to its state.
const SHARDS: usize = if cfg!(foreshore_loom) { 1 } else { 64 };

/// The tables whose ids map to one shard.
#[derive(Debug)]
struct TableShard {
    heads: Mutex<Map<TableId, TableHead>>,
    /// The count of strong locks and requests of these tables. Each is counted from before its locker reads the words
    /// of all owners until the lock or request ends.
    strong: StrongCount,
}

impl TableShard {
    /// Grants a request. A strong request was counted before.
    fn grant(&self, head: &mut TableHead, request: Request) -> Csn {
        // An upgrade is counted for its new mode alone from here on.
        if let Some(held) = request.upgrade {
            self.end_request(held);
        }
        head.grant(request)
    }

    /// Uncounts a strong lock that has ended, or a strong request that will not be granted.
    fn end_request(&self, mode: TableMode) {
        if !mode.is_intent() {
            self.strong.retire();
        }
    }
}

/// The table locks of all owners.
#[derive(Debug)]
pub(crate) struct TableLocks {
    shards: Box<[CachePadded<TableShard>]>,
    /// The words of each owner.
    words: Box<[CachePadded<Intents>]>,
}

impl TableLocks {
    pub(crate) fn new(owners: usize, fast_intents: bool) -> Self {
        let heads = || Mutex::new(LockRank::TableLocks, Map::with_hasher(Spread));
        let shard = |_| CachePadded::new(TableShard { heads: heads(), strong: StrongCount::new(fast_intents) });
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            words: (0..owners).map(|_| CachePadded::new(Intents::new())).collect(),
        }
    }

    /// Grants the request. If it cannot be granted now and may wait, enters it into the queue.
    pub(crate) fn request(&self, slots: &Slots, held: &Held, request: Request, may_wait: bool) -> Option<Csn> {
        if request.mode.is_intent() && self.take_intent(slots, held, request) {
            return Some(Csn::ZERO);
        }
        let shard = self.shard(request.table);
        let mut heads = shard.heads.lock();
        let head = heads.entry(request.table).or_default();
        if !request.mode.is_intent() {
            self.revoke_intents(slots, shard, request.table, head);
        }
        if head.admits(request) {
            return Some(shard.grant(head, request));
        }
        match may_wait {
            true => head.enqueue(request),
            false => shard.end_request(request.mode),
        }
        None
    }

    /// Grants a queued request if its turn has come. A grant frees no other request, so it wakes no waiter.
    pub(crate) fn try_queued(&self, request: Request) -> Option<Csn> {
        let shard = self.shard(request.table);
        let mut heads = shard.heads.lock();
        let head = heads.get_mut(&request.table).expect("a table with a request has a head");
        head.dequeue_granted(request).then(|| shard.grant(head, request))
    }

    /// Withdraws a queued request.
    pub(crate) fn leave_queue(&self, slots: &Slots, request: Request) {
        self.change(slots, request.table, |shard, head| {
            head.dequeue(request);
            shard.end_request(request.mode);
        });
    }

    /// Releases a lock. `csn` is the commit number of the transaction, if it has committed.
    pub(crate) fn release(&self, slots: &Slots, owner: u32, (table, mode): (TableId, TableMode), csn: Option<Csn>) {
        let words = self.words(owner);
        if mode.is_intent() && words.keep(table, mode, csn) {
            return;
        }
        self.change(slots, table, |shard, head| {
            if let Some(revoked) = words.position(table) {
                head.raise_tag(words.free(revoked));
            }
            head.remove_holder(owner, mode);
            shard.end_request(mode);
            head.raise_tag(csn.filter(|_| mode.writes()).unwrap_or(Csn::ZERO));
        });
    }

    /// Changes the lock of a table, and wakes the waiters that can be granted now.
    fn change(&self, slots: &Slots, table: TableId, change: impl FnOnce(&TableShard, &mut TableHead)) {
        let shard = self.shard(table);
        let mut heads = shard.heads.lock();
        let head = heads.get_mut(&table).expect("a table with a lock or a request has a head");
        change(shard, head);
        let woken = head.grantable();
        drop(heads);
        slots.wake(&woken);
    }

    /// Adds the owners that `owner`, queued at `table`, waits for; see [`TableHead::blockers`].
    pub(crate) fn blockers(&self, owner: u32, table: TableId, order: QueueOrder, into: &mut Vec<u32>) {
        let heads = self.shard(table).heads.lock();
        heads.get(&table).inspect(|head| head.blockers(owner, order, into));
    }

    /// Lets a queued owner overtake the requests that it waits for, and wakes it, if holders allow its request. Returns
    /// false otherwise.
    pub(crate) fn overtake(&self, slots: &Slots, owner: u32, table: TableId) -> bool {
        let mut heads = self.shard(table).heads.lock();
        let overtakes = heads.get_mut(&table).is_some_and(|head| head.overtake(owner));
        drop(heads);
        if overtakes && !mutant("deadlock: an owner overtakes and is not woken") {
            slots.wake(&[owner]);
        }
        overtakes
    }

    /// Returns an owner other than `owner` that has the table, or waits for it, in a mode that excludes `mode`.
    pub(crate) fn other_on(&self, owner: u32, table: TableId, mode: TableMode) -> Option<u32> {
        self.shard(table).heads.lock().get(&table)?.other_on(owner, mode)
    }

    /// Takes an intent on the fast path. Returns false if the caller has to request it from the head.
    fn take_intent(&self, slots: &Slots, held: &Held, Request { owner, table, mode, upgrade, .. }: Request) -> bool {
        let words = self.words(owner);
        let known = words.position(table);
        if upgrade.is_some() {
            // A lock held without a word is held in the table.
            return known.is_some_and(|at| words.take_again(at, table, mode));
        }
        if let Some(at) = known.filter(|&at| words.find(at) == Found::Kept(table)) {
            return words.take_again(at, table, mode);
        }
        let strong = &self.shards[self.shard_of(table)].strong;
        // A known word is revoked here, or there would be a lock to upgrade.
        let Some(at) = known.or_else(|| place(held, words, table)).filter(|_| strong.is_zero()) else {
            return false;
        };
        self.empty_word(words, at);
        words.enter(at, table, mode);
        if strong.has_let_by() {
            return true;
        }
        self.withdraw(slots, owner, (table, mode), at);
        false
    }

    /// Frees a word that no running transaction holds.
    fn empty_word(&self, words: &Intents, at: usize) {
        if let Found::Kept(table) | Found::Revoked(table) = words.find(at) {
            let mut heads = self.shard(table).heads.lock();
            heads.entry(table).or_default().raise_tag(words.free(at));
        }
    }

    /// Withdraws an intent that was entered beside a strong locker. The locker may have moved it to the head as a held
    /// one.
    fn withdraw(&self, slots: &Slots, owner: u32, (table, mode): (TableId, TableMode), at: usize) {
        let words = self.words(owner);
        let mut heads = self.shard(table).heads.lock();
        let head = heads.entry(table).or_default();
        let is_entered = matches!(words.find(at), Found::Revoked(_));
        head.raise_tag(words.free(at));
        if !is_entered {
            return;
        }
        head.remove_holder(owner, mode);
        let woken = head.grantable();
        drop(heads);
        if !mutant("intent: taken back without a wake") {
            slots.wake(&woken);
        }
    }

    /// Counts a strong locker of `table` and moves the intents of all owners to its head.
    fn revoke_intents(&self, slots: &Slots, shard: &TableShard, table: TableId, head: &mut TableHead) {
        let late = mutant("intent: words before the count");
        if !late {
            shard.strong.announce();
        }
        if !mutant("sabotage: a table lock does not look at intents") {
            for (index, words) in (0..).zip(&self.words[..slots.used().len()]) {
                let Some(revoked) = words.revoke(table) else { continue };
                head.raise_tag(revoked.tag);
                if let Some(mode) = revoked.held {
                    head.add_holder(index, mode);
                }
            }
        }
        if late {
            shard.strong.announce();
        }
    }

    fn words(&self, owner: u32) -> &Intents {
        &self.words[owner as usize]
    }

    /// Returns the shard of a table, for a caller that locks it.
    fn shard(&self, table: TableId) -> &TableShard {
        rmw::contended(2);
        &self.shards[self.shard_of(table)]
    }

    const fn shard_of(&self, table: TableId) -> usize {
        table.0 as usize % self.shards.len()
    }
}

/// Returns a word for `table`: a free one, or one that the running transaction does not need.
fn place(held: &Held, words: &Intents, table: TableId) -> Option<usize> {
    let spare = |at: &usize| match words.find(*at) {
        Found::Free | Found::Kept(_) => true,
        Found::Held(_) => false,
        Found::Revoked(of) => held.table_mode(of).is_none(),
    };
    let first = table.0 as usize % WORDS;
    let free = (0..WORDS).find(|&at| words.find(at) == Found::Free);
    free.or_else(|| (first..WORDS).chain(0..first).find(spare))
}
