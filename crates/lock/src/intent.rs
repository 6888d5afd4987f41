//! Intents in words of their owner, so that transactions that use the same tables do not contend in the lock table.
//!
//! Each owner's slot has a few words, each for one table. A transaction holds IS or IX when such a word says so. The
//! word stays when the transaction ends. The next transaction in the slot takes it again by one exchange (speculative
//! lock inheritance, Johnson et al., VLDB 2009).
//!
//! Only a *strong* locker, which requests S, SIX or X, reads the words of other owners. It counts itself, searches the
//! words of all slots and **revokes** those of its table. Revoking a kept intent removes it. Revoking a held intent
//! moves it into the table, where the strong locker waits for it as for any holder. While the count is not zero, weak
//! requests also go to the table, behind the strong one.

use crate::mode::TableMode;
use foreshore_base::{Csn, TableId};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Words of a slot. Most transactions use fewer tables. A model checker gets two.
pub(crate) const WORDS: usize = if foreshore_sync::primitive::MODEL { 2 } else { 16 };

// A word.
//
//   bits 0..3    0 free | 1 kept | 2 held as IS | 3 held as IX | 4 revoked
//   bits 32..64  the table, unless it is free
//
// The *owner* has the slot leased. A table has one head, in the lock table, under a mutex.
//
// 1. 0 -> 2, 3: the owner, by a store. It fences and reads the strong count of the table. It has the lock only if that
//    is zero. Otherwise it frees the word by rule 4, and requests the lock in the table.
// 2. 1 -> 2, 3; 2 -> 3; 2, 3 -> 1: the owner, by an exchange. It need not read the count. A locker that has raised the
//    count either has revoked the word, so the exchange fails, or will find the word held.
// 3. 1, 2, 3 -> 4: a strong locker, with the head locked, after it has raised the count and fenced. It swaps, and adds
//    an intent that was held to the holders of the head.
// 4. any -> 0: the owner, with the head locked. So a word belongs to the same table while the table's head is locked.
// 5. `tag` is the largest commit number of a transaction that wrote under this word. Only the owner stores it, while it
//    holds the word. The owner adds it to the head before the word becomes free. A strong locker reads it after it has
//    revoked the word. If the word was held, its transaction adds its own number to the head when it ends.
const FREE: u64 = 0;
const KEPT: u64 = 1;
const HELD_SHARED: u64 = 2;
const HELD_EXCLUSIVE: u64 = 3;
const REVOKED: u64 = 4;

const STATE: u64 = 7;

const fn word(table: TableId, state: u64) -> u64 {
    (table.0 as u64) << 32 | state
}

const fn held(table: TableId, mode: TableMode) -> u64 {
    word(table, if mode.writes() { HELD_EXCLUSIVE } else { HELD_SHARED })
}

const fn table_of(word: u64) -> TableId {
    TableId((word >> 32) as u32)
}

#[derive(Debug)]
struct Entry {
    /// Contract above.
    word: AtomicU64,
    /// Contract above.
    tag: AtomicU64,
}

/// The words of a slot.
#[derive(Debug)]
pub(crate) struct Intents {
    entries: [Entry; WORDS],
}

/// The state in which the owner finds one of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Free.
    Free,
    /// Kept by an earlier transaction.
    Kept(TableId),
    /// Held by the running transaction.
    Held(TableId),
    /// Revoked. If the lock is held at all, the table has it.
    Revoked(TableId),
}

/// A word that a strong locker has revoked.
pub(crate) struct Revoked {
    /// The mode in which the word was held; `None` if it was only kept.
    pub(crate) held: Option<TableMode>,
    pub(crate) tag: Csn,
}

impl Intents {
    pub(crate) fn new() -> Self {
        let entry = |_| Entry { word: AtomicU64::new(FREE), tag: AtomicU64::new(0) };
        Self { entries: std::array::from_fn(entry) }
    }

    /// Returns the state of the word `at`. Only the owner calls it.
    pub(crate) fn find(&self, at: usize) -> Found {
        // ORDERING: hint, what follows is an exchange, or under the head's lock; a free word is the owner's own.
        let word = self.entries[at].word.load(Ordering::Relaxed);
        match word & STATE {
            FREE => Found::Free,
            KEPT => Found::Kept(table_of(word)),
            REVOKED => Found::Revoked(table_of(word)),
            _ => Found::Held(table_of(word)),
        }
    }

    /// Returns the position of the word of `table`, if there is one. Only the owner calls it.
    pub(crate) fn position(&self, table: TableId) -> Option<usize> {
        self.entries.iter().position(|entry| {
            // ORDERING: hint, see `find`.
            let word = entry.word.load(Ordering::Relaxed);
            word & STATE != FREE && table_of(word) == table
        })
    }

    /// Takes a word that is kept, or held in a weaker mode, as `mode`. Returns false if it was revoked. Only the owner
    /// calls it.
    pub(crate) fn take_again(&self, at: usize, table: TableId, mode: TableMode) -> bool {
        let entry = &self.entries[at].word;
        // ORDERING: Relaxed, the exchange checks.
        let before = entry.load(Ordering::Relaxed);
        if before & STATE == REVOKED {
            return false;
        }
        debug_assert_eq!(table_of(before), table, "the word is that of the table");
        let is_weaker = before & STATE == HELD_EXCLUSIVE && !mode.writes();
        debug_assert!(!is_weaker, "an intent on {table:?} is held exclusive and taken again as {mode:?}");
        if mutant("intent: taken again by a store") {
            // ORDERING: of the mutant.
            entry.store(held(table, mode), Ordering::Release);
            return true;
        }
        // ORDERING: claim. Failure: it was revoked, and the head's lock tells the rest.
        entry.compare_exchange(before, held(table, mode), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Enters an intent in a free word. The owner holds it if [`StrongCount::has_let_by`] then returns true. Otherwise
    /// the owner makes the word [`free`](Self::free) again.
    pub(crate) fn enter(&self, at: usize, table: TableId, mode: TableMode) {
        let found = self.find(at);
        assert!(found == Found::Free, "an intent on {table:?} enters word {at}, which is {found:?}");
        // ORDERING: store, fence, look; the fence is in `has_let_by`.
        self.entries[at].word.store(held(table, mode), Ordering::Relaxed);
    }

    /// Turns a held word into a kept one at the end of its transaction, whose commit number is `csn` if it wrote.
    /// Returns false if the lock is in the table. Only the owner calls it.
    pub(crate) fn keep(&self, table: TableId, mode: TableMode, csn: Option<Csn>) -> bool {
        let Some(at) = self.position(table) else { return false };
        let Entry { word: state, tag } = &self.entries[at];
        let tag_it = || {
            if let Some(csn) = csn.filter(|_| mode.writes()) {
                // ORDERING: Relaxed, the owner's own; published by the word.
                tag.store(csn.0.max(tag.load(Ordering::Relaxed)), Ordering::Relaxed);
            }
        };
        let early = mutant("intent: kept before its tag");
        if !early {
            tag_it();
        }
        // ORDERING: of the mutant, or publish, pairs with `revoke`.
        let order = if mutant("intent: relaxed release") { Ordering::Relaxed } else { Ordering::Release };
        // ORDERING: as said. Failure: it was revoked, and the head's lock tells the rest.
        let kept = state.compare_exchange(held(table, mode), word(table, KEPT), order, Ordering::Relaxed).is_ok();
        if early {
            tag_it();
        }
        kept
    }

    /// Makes the word free and returns its tag for the head. The owner calls it with the head of the word's table
    /// locked.
    pub(crate) fn free(&self, at: usize) -> Csn {
        let Entry { word, tag } = &self.entries[at];
        // ORDERING: Relaxed, the head's lock keeps strong lockers away.
        let newest = tag.load(Ordering::Relaxed);
        // ORDERING: as above; the next search for the table does not find it here.
        tag.store(0, Ordering::Relaxed);
        // ORDERING: as above.
        word.store(FREE, Ordering::Relaxed);
        Csn(newest)
    }

    /// Revokes the word of `table`, if there is one. An announced strong locker calls it with the head of `table`
    /// locked.
    pub(crate) fn revoke(&self, table: TableId) -> Option<Revoked> {
        self.entries.iter().find_map(|Entry { word: entry, tag }| {
            // ORDERING: Relaxed, ordered by the fence in `announce`.
            let seen = entry.load(Ordering::Relaxed);
            if matches!(seen & STATE, FREE | REVOKED) || table_of(seen) != table {
                return None;
            }
            // ORDERING: Acquire, pairs with `keep`: what was done under the intent is visible, and so is its tag.
            let before = entry.swap(word(table, REVOKED), Ordering::Acquire);
            debug_assert_eq!(table_of(before), table, "under the head's lock a word stays that of its table");
            let held = match before & STATE {
                HELD_SHARED => Some(TableMode::IntentShared),
                HELD_EXCLUSIVE => Some(TableMode::IntentExclusive),
                _ => None,
            };
            // ORDERING: Relaxed, published by the word, or too early for the transaction that runs.
            Some(Revoked { held, tag: Csn(tag.load(Ordering::Relaxed)) })
        })
    }
}

/// The number of strong locks and strong requests of the tables in one shard.
#[derive(Debug)]
pub(crate) struct StrongCount(AtomicU32);

impl StrongCount {
    /// Returns the count. Without `fast` intents it starts at one for a strong locker that never retires, so all
    /// intents go to the table.
    pub(crate) fn new(fast: bool) -> Self {
        Self(AtomicU32::new(u32::from(!fast)))
    }

    /// Counts a strong locker. The locker reads the words afterwards.
    pub(crate) fn announce(&self) {
        // ORDERING: store, fence, look; pairs with the fence in `has_let_by`.
        self.0.fetch_add(1, Ordering::Relaxed);
        if !mutant("intent: no fence behind the count") {
            fence(Ordering::SeqCst);
        }
    }

    /// Uncounts a strong lock that has ended, or a strong request that was not granted.
    pub(crate) fn retire(&self) {
        // ORDERING: Release, pairs with `has_let_by`.
        let before = self.0.fetch_sub(1, Ordering::Release);
        assert!(before > 0, "a strong lock ends once");
    }

    /// Returns whether no strong locker is counted now. An intent may be entered only then.
    pub(crate) fn is_zero(&self) -> bool {
        // ORDERING: hint, `has_let_by` decides.
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Returns whether an owner that has entered an intent holds it.
    pub(crate) fn has_let_by(&self) -> bool {
        if !mutant("intent: no fence behind the word") {
            // ORDERING: store, fence, look; pairs with the fence in `announce`.
            fence(Ordering::SeqCst);
        }
        // ORDERING: Acquire, pairs with `retire`: an owner that finds no strong locker sees what the last one did.
        self.0.load(Ordering::Acquire) == 0
    }
}
