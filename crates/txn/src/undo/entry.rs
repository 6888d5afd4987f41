//! The format of an undo entry, in words.
//!
//! ```text
//!  0 lsn
//!  1 table u32 | kind u8 | flags u8 | bytes of the body u16
//!  2 previous entry of the transaction u48 | bytes of the rest of the image u16
//!  3 xid u48 | row flags u16: the previous holder of the row, and the flags of the row before the change
//!  4 commit number of that holder
//!  5 entry of that holder u48 | bytes of the rest in front of the middle u16
//!  6 offset of the middle in the body u16 | its bytes u16 | changes of the row until older versions are pruned u32
//!  7 entry of the last holder u48, if 4 and 5 skip it: its version is dead, and it is dropped after this transaction
//!  8 body, rest of the image
//! ```
//!
//! The image is the value of the row before the change. Its middle is in the body of the log record; the rest surrounds
//! the middle.
//!
//! Words are written and read with relaxed accesses. A reader may follow a pointer from a page that changes meanwhile.
//! The version of the page, or its latch, then tells whether its reads are consistent. For that a fence precedes the
//! writes of an entry. So a reader that sees such a write in reused memory also sees the change that unlinked the old
//! entry.

use super::change::{Link, Undoable};
use super::pointer::UndoPtr;
use foreshore_base::{Csn, Lsn, TableId, Xid};
use foreshore_sync::Word;
use foreshore_sync::primitive::atomic::{Ordering, fence};

const LSN: usize = 0;
const WHAT: usize = 1;
const PREVIOUS: usize = 2;
const OWNER: usize = 3;
const SINCE: usize = 4;
const NEXT: usize = 5;
const MIDDLE: usize = 6;
const PASSED: usize = 7;
/// The number of words before the body.
pub(super) const HEADER: usize = 8;
/// Flag: there was no row.
const ABSENT: u64 = 1 << 40;
/// Flag: at the last check a reader saw the next older version.
const SEEN: u64 = 2 << 40;
/// Flag: the change is undone, and the entry remains as the lock of its row.
const UNDONE: u64 = 4 << 40;

/// Returns how many words an entry takes that has `bytes` after its header.
pub(super) const fn words(bytes: usize) -> usize {
    HEADER + bytes.div_ceil(8)
}

fn load(words: &[Word], index: usize) -> u64 {
    // ORDERING: Relaxed, validated afterwards or under the latch, see the head of the file.
    words.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
}

fn store(words: &[Word], index: usize, value: u64) {
    // ORDERING: Relaxed, behind the fence in `write`.
    words[index].store(value, Ordering::Relaxed);
}

/// Packs a number of 16 bits above one of 48 bits.
fn pack(high: usize, low: u64) -> u64 {
    debug_assert!(low < 1 << 48);
    u64::from(u16::try_from(high).expect("lengths in an entry have 16 bits")) << 48 | low
}

const fn unpack(word: u64) -> (usize, u64) {
    ((word >> 48) as usize, word & ((1 << 48) - 1))
}

/// Writes an entry at the start of `words`, which has space for it, and returns its length in words.
pub(super) fn write(words: &[Word], change: &Undoable<'_>, link: &Link, previous: UndoPtr) -> usize {
    let body: usize = change.body.len();
    let before = change.before.unwrap_or_default();
    let rest = before.front.len() + before.back.len();
    // ORDERING: Release, pairs with the fence of a reader that validates: see the head of the file.
    fence(Ordering::Release);
    store(words, LSN, 0);
    let flags = if change.before.is_none() { ABSENT } else { 0 } | if link.seen { SEEN } else { 0 };
    store(words, WHAT, pack(body, u64::from(change.table.0) | u64::from(change.kind) << 32 | flags));
    store(words, PREVIOUS, pack(rest, previous.bits()));
    store(words, OWNER, before.xid.0 << 16 | u64::from(before.flags));
    store(words, SINCE, link.since.0);
    store(words, NEXT, pack(before.front.len(), link.next.bits()));
    store(
        words,
        MIDDLE,
        u64::from(before.middle.0) | u64::from(before.middle.1) << 16 | u64::from(link.countdown) << 32,
    );
    store(words, PASSED, link.passed.bits());
    let mut to = Packer { words: &words[HEADER..], word: 0, filled: 0 };
    [change.body, before.front, before.back].into_iter().for_each(|part| to.put(part));
    to.end();
    debug_assert!(
        Entry::of(words).is_some_and(|entry| (entry.body, entry.rest) == (body, rest)),
        "an entry of {body} + {rest} bytes is read with other lengths"
    );
    self::words(body + rest)
}

/// Stores bytes one part after the other, each word once.
struct Packer<'a> {
    /// The words that are still to be stored.
    words: &'a [Word],
    /// The first bytes of the next word, and how many they are: less than eight.
    word: u64,
    filled: u32,
}

impl Packer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (chunks, tail) = bytes.as_chunks::<8>();
        let (now, rest) = self.words.split_at(chunks.len());
        self.words = rest;
        let (shift, mut word) = (8 * self.filled, self.word);
        for (to, chunk) in now.iter().zip(chunks) {
            let next = u64::from_le_bytes(*chunk);
            // ORDERING: Relaxed, behind the fence in `write`.
            to.store(word | next << shift, Ordering::Relaxed);
            // The bytes that did not fit. Two shifts, because one shift by 64 bits would overflow.
            word = next >> 1 >> (63 - shift);
        }
        self.word = word;
        if !tail.is_empty() {
            self.push(tail.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)), tail.len() as u32);
        }
    }

    /// Appends the first `count` bytes of `value`, one to eight. The others are zero.
    #[inline(always)]
    fn push(&mut self, value: u64, count: u32) {
        let word = self.word | value << (8 * self.filled);
        let filled = self.filled + count;
        if filled < 8 {
            (self.word, self.filled) = (word, filled);
            return;
        }
        self.store(word);
        // The bytes that did not fit. Two shifts, because one shift by 64 bits would overflow.
        (self.word, self.filled) = (value >> (8 * (7 - self.filled)) >> 8, filled - 8);
    }

    fn store(&mut self, word: u64) {
        let (first, rest) = self.words.split_first().expect("space for an entry is reserved");
        // ORDERING: Relaxed, behind the fence in `write`.
        first.store(word, Ordering::Relaxed);
        self.words = rest;
    }

    /// Stores the last word.
    fn end(mut self) {
        if self.filled > 0 {
            self.store(self.word);
        }
    }
}

/// Appends `len` bytes from byte `at` on to `out`.
fn append_bytes(words: &[Word], at: usize, len: usize, out: &mut Vec<u8>) {
    let (mut at, end) = (at, at + len);
    while at < end {
        let word = load(words, at / 8).to_le_bytes();
        let (from, to) = (at % 8, (end - at + at % 8).min(8));
        out.extend_from_slice(&word[from..to]);
        at += to - from;
    }
}

/// An entry that is read. Until the read is validated any field may be inconsistent.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    words: &'a [Word],
    body: usize,
    rest: usize,
}

impl<'a> Entry<'a> {
    /// Returns the entry at the start of `words`; `None` if its length does not fit.
    pub(super) fn of(words: &'a [Word]) -> Option<Self> {
        let (body, rest) = (unpack(load(words, WHAT)).0, unpack(load(words, PREVIOUS)).0);
        (self::words(body + rest) <= words.len()).then_some(Self { words, body, rest })
    }

    /// Returns the bytes of its body.
    pub(super) const fn body_len(&self) -> usize {
        self.body
    }

    /// Returns its length in words.
    pub(super) const fn len(&self) -> usize {
        words(self.body + self.rest)
    }

    pub(super) fn lsn(&self) -> Lsn {
        Lsn(load(self.words, LSN))
    }

    pub(super) fn set_lsn(&self, lsn: Lsn) {
        store(self.words, LSN, lsn.0);
    }

    /// Returns whether it is only the lock of its row.
    pub(super) fn is_lock(&self) -> bool {
        self.lsn() == Lsn::ZERO
    }

    /// Returns whether the change is undone, and the entry remains as the lock of its row.
    pub(super) fn is_undone(&self) -> bool {
        load(self.words, WHAT) & UNDONE != 0
    }

    /// Turns the entry into a lock. Called by its transaction: only that one writes the entry while it runs.
    pub(super) fn turn_into_lock(&self) {
        // An entry without a record is a lock already, or its change was not logged, which must not be hidden.
        if self.lsn() > Lsn::ZERO {
            self.set_lsn(Lsn::ZERO);
            store(self.words, WHAT, load(self.words, WHAT) | UNDONE);
        }
    }

    pub(super) fn kind(&self) -> u8 {
        (load(self.words, WHAT) >> 32) as u8
    }

    pub(super) fn table(&self) -> TableId {
        TableId(load(self.words, WHAT) as u32)
    }

    /// Returns the previous entry of its transaction.
    pub(super) fn previous(&self) -> UndoPtr {
        UndoPtr::from_bits(load(self.words, PREVIOUS))
    }

    pub(super) fn set_previous(&self, previous: UndoPtr) {
        let (rest, _) = unpack(load(self.words, PREVIOUS));
        store(self.words, PREVIOUS, pack(rest, previous.bits()));
    }

    /// Returns the xid that the row had before the change; zero if there was no row.
    pub(super) fn holder(&self) -> Xid {
        Xid(load(self.words, OWNER) >> 16)
    }

    /// Returns the entry of the next older version that a reader may see.
    pub(super) fn next(&self) -> UndoPtr {
        UndoPtr::from_bits(load(self.words, NEXT))
    }

    /// Returns the entry of the previous holder, if [`next`](Self::next) skips it.
    pub(super) fn passed(&self) -> UndoPtr {
        UndoPtr::from_bits(load(self.words, PASSED))
    }

    /// Removes the link to the skipped entry, which is dropped. Called under the exclusive latch of the row's leaf.
    pub(super) fn forget_passed(&self) {
        store(self.words, PASSED, 0);
    }

    /// Returns the entry that the row's header referred to before the change.
    pub(super) fn behind(&self) -> UndoPtr {
        let passed = self.passed();
        if passed == UndoPtr::NULL { self.next() } else { passed }
    }

    /// Returns the commit number of the version before the change.
    pub(super) fn since(&self) -> Csn {
        Csn(load(self.words, SINCE))
    }

    /// Returns its link to the version before.
    pub(super) fn link(&self, kept: bool) -> Link {
        let (since, next, passed) = (self.since(), self.next(), self.passed());
        Link { since, next, passed, seen: self.is_seen_behind(), countdown: self.countdown(), kept }
    }

    /// Returns the flags of the row before the change; `None` if there was no row.
    pub(super) fn flags(&self) -> Option<u16> {
        let is_absent = load(self.words, WHAT) & ABSENT != 0;
        (!is_absent).then(|| load(self.words, OWNER) as u16)
    }

    /// Returns after how many more changes of the row the versions that no reader needs are pruned.
    pub(super) fn countdown(&self) -> u32 {
        (load(self.words, MIDDLE) >> 32) as u32
    }

    /// Returns whether at the last check a reader saw the next older version. Then the next check is not due soon.
    pub(super) fn is_seen_behind(&self) -> bool {
        load(self.words, WHAT) & SEEN != 0
    }

    /// Sets whether a reader saw the next older version. Called under the exclusive latch of the row's leaf.
    pub(super) fn set_seen_behind(&self, seen: bool) {
        let what = load(self.words, WHAT) & !SEEN;
        store(self.words, WHAT, if seen { what | SEEN } else { what });
    }

    /// Skips the next entry of the chain, which no reader needs. Called under the exclusive latch of the row's leaf.
    ///
    /// The version before this change then gets the commit number of the skipped version. No snapshot lies between the
    /// two commit numbers, and the next entry still belongs to the commit with that number.
    pub(super) fn skip(&self, behind: &Self) {
        let (front, _) = unpack(load(self.words, NEXT));
        store(self.words, NEXT, pack(front, behind.next().bits()));
        store(self.words, SINCE, self.since().min(behind.since()).0);
        self.set_seen_behind(behind.is_seen_behind());
    }

    /// Appends the value of the row before the change.
    pub(super) fn append_image(&self, out: &mut Vec<u8>) {
        let (front, middle) = (unpack(load(self.words, NEXT)).0.min(self.rest), load(self.words, MIDDLE));
        let (at, len) = (usize::from(middle as u16), usize::from((middle >> 16) as u16));
        let (body, rest) = (HEADER * 8, HEADER * 8 + self.body);
        append_bytes(self.words, rest, front, out);
        append_bytes(self.words, body + at, len, out);
        append_bytes(self.words, rest + front, self.rest - front, out);
    }

    pub(super) fn append_body(&self, out: &mut Vec<u8>) {
        append_bytes(self.words, HEADER * 8, self.body, out);
    }
}
