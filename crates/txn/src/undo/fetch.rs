//! Reads old versions back from the spill file.
//!
//! | type | holds |
//! |---|---|
//! | [`Fetched`] | the answers of one reader, and the entries at which its next fetch begins |
//! | `Search` | one search along a version chain: where it began, and the entry that it has reached |
//! | `Sweep` | the searches of one fetch that wait for a chunk in the file |
//!
//! **Protocol:**
//!
//! 1. A reader follows the version chain of a row. After each entry it checks that the chunk was still in memory:
//!    released memory reads as zeros.
//! 2. It records each entry that is in the file. A scan also records entries for the leaves ahead of it.
//! 3. It leaves the leaf, and fetches without a latch. Then it reads the leaf again and finds the answers.
//!
//! **Sweeps:** a fetch goes over the file in sweeps, from the chunk that was moved last to the one that was moved
//! first. A sweep reads each chunk once in which a search continues, up to [`BATCH`] chunks in parallel. Each search
//! that waits for the chunk then follows its chain as far as the chunk and memory allow. An entry points to older
//! entries, and most of those were moved earlier. So one sweep meets most entries of a chain.
//!
//! **Invariant:** an answer stays right until the reader uses it. The proof is at [`Fetched`].
//!
//! A transaction that rolls back does not fetch: it copies its spillable chunks, from memory or from the file.

use super::arena::{Arena, Away, BATCH, Copied};
use super::chunk::LEAVING;
use super::pointer::{CHUNK, Spot, UndoPtr};
use super::versions::{Older, look};
use foreshore_base::{Csn, Result};
use foreshore_io::AlignedBuf;
use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

/// The most versions that one fetch searches for beyond those of the leaf at hand.
const MOST: usize = 8192;
/// The most bytes that the values of these versions take.
const IMAGES: usize = 1 << 20;
/// The buffer for values grows by at least this many bytes.
const GROWTH: usize = IMAGES / 8;

// The memory of a scan, as in the documentation of `Options::spill_limit`, beside the values of the leaf at hand:
// - a hash table for 2 * MOST answers and those of one leaf: 4 * MOST places of an answer and a byte;
// - the values;
// - the copy of the last chunk.
const _: () = assert!(4 * MOST * (size_of::<(Spot, Answer)>() + 1) + 2 * IMAGES + GROWTH + CHUNK <= 5 << 20);
// The additional memory during a fetch:
// - 2 * MOST places for the entries wanted and for searches;
// - up to 4 places for each search that waits;
// - the buffer for a batch of chunks.
const _: () = assert!(2 * MOST * (size_of::<Spot>() + size_of::<Search>()) <= 3 << 19);
const _: () = assert!(MOST * (4 * size_of::<Search>() + 64) + BATCH * CHUNK <= 3 << 20);

/// The result of a search.
#[derive(Clone, Debug)]
struct Answer {
    found: Older,
    /// The place of the value among the images of [`Fetched`].
    image: Range<usize>,
    /// Whether the entry at which the search began is only the lock of its row.
    is_lock: bool,
}

/// The answers that a reader has fetched from the file, for the rows of some leaves.
///
/// An answer is kept from the fetch until the reader comes to the row. Meanwhile other transactions change rows, and
/// chunks are moved and freed.
///
/// **Invariant:** an answer is used only for a row whose header leads to the entry at which its search began. The chunk
/// of that entry has the same place as then, and the page validates. Under these conditions a new search would find the
/// same version:
///
/// 1. *The entry is the same.* Each move of a chunk to the file gives it a new number, its place. A chunk in the file
///    gets no new entries. A chunk that was freed and used again since the fetch is in memory or has another place. So
///    its old answers are never found.
/// 2. *The entry leads to the same entries.* Its chunk in the file is not written. A writer that prunes a version chain
///    stops at an entry that is in the file or on its way there. The spillable entries of a running transaction change
///    only when it rolls back, the newest first. Before such a change the row's header stops leading to the newest of
///    them, for good.
/// 3. *Those entries exist.* An entry names the commit that made the next entry. A search goes on to the next entry
///    only if the snapshot does not see that commit. The chunk of the next entry is freed only when no snapshot is
///    older than that commit, and the reader's snapshot is older.
/// 4. *The snapshot is the same.* All answers belong to one snapshot. A scan keeps its own answers; each other read
///    discards those of the read before it. A search that fails because its snapshot was cancelled may store a wrong
///    answer. From then on all reads by that snapshot fail.
///
/// A search may begin at an entry to which no header leads any more. It may find anything, but no reader asks for its
/// answer.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The CSN of the snapshot to which the answers belong.
    at: Csn,
    /// The entries at which the searches of the next fetch begin.
    wanted: Vec<Spot>,
    /// The answers, by the entry at which the search began.
    answers: HashMap<Spot, Answer>,
    images: Vec<u8>,
    /// The copy of the chunk that was read last. The next fetch may begin in the same chunk.
    last: Option<Copied>,
}

impl Fetched {
    /// Returns the version that a snapshot at `at` sees from entry `from` on, if it was fetched. Otherwise adds the
    /// entry to the next fetch.
    pub(crate) fn answer(&mut self, from: Spot, at: Csn, image: &mut Vec<u8>) -> Older {
        let Some(answer) = self.find(from, at) else { return Older::Spilled(from) };
        image.clear();
        image.extend_from_slice(&self.images[answer.image]);
        answer.found
    }

    /// Returns whether the entry is only the lock of its row, if it was fetched. Otherwise adds it to the next fetch.
    pub(crate) fn is_lock(&mut self, entry: Spot, at: Csn) -> Option<bool> {
        self.find(entry, at).map(|answer| answer.is_lock)
    }

    fn find(&mut self, from: Spot, at: Csn) -> Option<Answer> {
        if self.at != at {
            self.forget();
            self.at = at;
        }
        let found = self.answers.get(&from.key()).cloned();
        if found.is_none() {
            self.wanted.push(from);
        }
        found
    }

    /// Returns how many searches the next fetch has.
    pub(crate) const fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Returns whether a reader may add searches beyond those of the leaf at hand.
    pub(crate) fn has_space(&self) -> bool {
        self.wanted.len() + self.answers.len() < MOST && self.images.len() < IMAGES
    }

    /// Returns whether the answers have grown to twice what one fetch stores. They grow because rows change after a
    /// fetch and their new versions are fetched as well.
    pub(crate) fn is_over(&self) -> bool {
        self.answers.len() > 2 * MOST || self.images.len() > 2 * IMAGES
    }

    /// Keeps only the first `from` searches of the next fetch.
    pub(crate) fn unwant(&mut self, from: usize) {
        assert!(from <= self.wanted.len(), "{from} versions stay wanted of {}", self.wanted.len());
        self.wanted.truncate(from);
    }

    /// Discards all answers, and the searches of the next fetch.
    pub(crate) fn forget(&mut self) {
        *self = Self { at: self.at, last: self.last.take(), ..Self::default() };
    }

    /// Stores the result of a search.
    fn note(&mut self, search: &Search, found: Older, image: &[u8]) {
        let start = self.images.len();
        if search.is_needed || start + image.len() <= IMAGES {
            if self.images.capacity() - start < image.len() {
                self.images.reserve_exact(image.len().max(GROWTH));
            }
            self.images.extend_from_slice(image);
            let image = start..self.images.len();
            self.answers.insert(search.from.key(), Answer { found, image, is_lock: search.is_lock });
        }
    }

    /// Ends a search that has reached the first entry of an answered search, with that answer. Returns whether there
    /// was one.
    fn note_same(&mut self, search: &Search) -> bool {
        let there = Spot { entry: search.next, place: search.away.place };
        let Some(answer) = self.answers.get(&there.key()).cloned() else { return false };
        // Not if that is an earlier answer of this same search: it already says whether the first entry is a lock.
        if search.from != there {
            self.answers.insert(search.from.key(), Answer { is_lock: search.is_lock, ..answer });
        }
        true
    }
}

/// A search along a version chain for the version that a reader sees.
#[derive(Clone, Copy, Debug)]
struct Search {
    from: Spot,
    /// The entry that it has reached.
    next: UndoPtr,
    /// The chunk of that entry.
    away: Away,
    /// The number of entries that it may still read. Pointers of a damaged page may form a cycle.
    steps: usize,
    /// Whether it is for the leaf at hand.
    is_needed: bool,
    /// Set if the first entry is only the lock of its row.
    is_lock: bool,
}

/// The searches of one fetch that continue in the file.
#[derive(Debug, Default)]
struct Sweep {
    /// Searches by the place of their chunk. A chunk that was moved later has a larger place.
    waiting: BTreeMap<u64, Vec<Search>>,
    /// The sweep has visited all chunks from this place on. `None` before the first sweep.
    at: Option<u64>,
}

impl Sweep {
    fn add(&mut self, search: Search) {
        self.waiting.entry(search.away.place).or_default().push(search);
    }

    /// Returns the next chunks of the sweep, at most `most`, the largest place first. Begins a new sweep at the end of
    /// one. Returns `None` once no search is left.
    fn next(&mut self, most: usize) -> Option<Vec<Away>> {
        let from = |end: u64| self.waiting.range(..end).rev().take(most);
        let away = |(_, searches): (&u64, &Vec<Search>)| searches[0].away;
        let mut chunks: Vec<Away> = self.at.map_or_else(Vec::new, |at| from(at).map(away).collect());
        if chunks.is_empty() {
            chunks = from(u64::MAX).map(away).collect();
        }
        self.at = chunks.last().map(|away| away.place);
        (!chunks.is_empty()).then_some(chunks)
    }
}

impl Arena {
    /// Runs the searches for which [`Fetched::answer`] had no answer. The first `needed` of them are for the leaf at
    /// hand.
    ///
    /// The fetch reads the file, so the caller holds no latch. The caller's snapshot is in use. The pages that led to
    /// the entries were validated.
    ///
    /// Some answers may be missing afterwards:
    /// - the pointer that led to the entry has changed since;
    /// - the snapshot is no longer in use, as `is_killed` tells;
    /// - the answer is not needed, and there is no memory for it, or its chunk cannot be read.
    /// # Errors
    /// `Io`; `Corrupted` if the file does not hold what was written.
    pub(crate) fn fetch(&self, fetched: &mut Fetched, needed: usize, is_killed: &dyn Fn() -> bool) -> Result<()> {
        let mut image = Vec::new();
        let mut sweep = self.begin(fetched, needed, &mut image, is_killed);
        let mut buffer = AlignedBuf::new(0);
        while let Some(chunks) = sweep.next(BATCH) {
            if is_killed() {
                return Ok(());
            }
            // Searches that begin in one chunk may continue in many.
            if buffer.len() < chunks.len() * CHUNK {
                buffer = AlignedBuf::new(chunks.len() * CHUNK);
            }
            // In the order of the sweep: some searches continue from one of these chunks in the next.
            for (away, read) in self.read_side_by_side(&chunks, &mut buffer) {
                let Some(searches) = sweep.waiting.remove(&away.place) else { continue };
                let copied = match read {
                    Err(_) if searches.iter().all(|search| !search.is_needed) => None,
                    read => read?,
                };
                // Without a copy the chunk is free, so the pointer that led there has changed.
                if let Some(copied) = copied {
                    for search in searches {
                        let further = self.follow(search, &copied, fetched, &mut image, is_killed);
                        further.into_iter().for_each(|search| sweep.add(search));
                    }
                    fetched.last = Some(copied);
                }
            }
        }
        Ok(())
    }

    /// Begins the searches of this fetch. Those that begin in the chunk that was read last follow its copy at once.
    fn begin(&self, fetched: &mut Fetched, needed: usize, image: &mut Vec<u8>, is_killed: &dyn Fn() -> bool) -> Sweep {
        let wanted = std::mem::take(&mut fetched.wanted);
        let begun = wanted.into_iter().enumerate().filter(|(_, from)| self.place(from.entry) == from.place);
        let mut searches: Vec<Search> = begun.map(|(number, from)| self.search(from, number < needed)).collect();
        if let Some(last) = fetched.last.take() {
            let at_last = |search: &Search| search.away.place == last.place;
            let there: Vec<Search> = searches.extract_if(.., |search| at_last(search)).collect();
            searches.extend(there.into_iter().filter_map(|at| self.follow(at, &last, fetched, image, is_killed)));
            fetched.last = Some(last);
        }
        let mut sweep = Sweep::default();
        searches.into_iter().for_each(|search| sweep.add(search));
        sweep
    }

    fn search(&self, from: Spot, is_needed: bool) -> Search {
        let away = self.away(from.entry.chunk(), from.place);
        Search { from, next: from.entry, away, steps: self.limit_bytes() / 8, is_needed, is_lock: false }
    }

    /// Follows the chain of a search as far as memory and the copy of a chunk allow, and stores its result. Returns the
    /// search if it continues in another chunk of the file.
    fn follow(
        &self,
        mut search: Search,
        copied: &Copied,
        fetched: &mut Fetched,
        image: &mut Vec<u8>,
        is_killed: &dyn Fn() -> bool,
    ) -> Option<Search> {
        image.clear();
        while search.steps > 0 {
            // The chain of a cancelled snapshot may lead through overwritten memory and form a cycle.
            if is_killed() {
                return None;
            }
            search.steps -= 1;
            let step = if search.away.place <= LEAVING {
                let step = look(self.entry(search.next), fetched.at, image);
                if let Some(Spot { entry, place }) = self.spot(search.next) {
                    search.away = self.away(entry.chunk(), place);
                    continue;
                }
                step
            } else if search.away.place == copied.place {
                let entry = copied.entry(search.next);
                search.is_lock |= search.next == search.from.entry && entry.is_some_and(|entry| entry.is_lock());
                look(entry, fetched.at, image)
            } else if fetched.note_same(&search) {
                return None;
            } else {
                return Some(search);
            };
            match step {
                ControlFlow::Break(found) => {
                    let has_value = matches!(found, Older::Row(..));
                    fetched.note(&search, found, if has_value { image } else { &[] });
                    return None;
                }
                ControlFlow::Continue(behind) => {
                    search.next = behind;
                    search.away = self.away(behind.chunk(), self.place(behind));
                }
            }
        }
        fetched.note(&search, Older::Lost, &[]);
        None
    }
}
