//! Reads old versions back from the file to which they were moved.
//!
//! A reader checks behind each entry that it has read whether the chunk was still in memory: memory that was given back
//! reads as zeros. It notes what is in the file, and reads that when it has left the leaf, without a latch. Then it
//! reads the leaf again. A scan also notes what the leaves ahead of it lead to.
//!
//! A fetch follows all noted ways in sweeps. A sweep reads each chunk once in which some search goes on, [`BATCH`] of
//! them side by side. It goes from the chunk that was moved last to the first, for an entry leads to older ones, most
//! of which were moved before. So a search meets most of the entries on its way in one sweep. Each chunk takes every
//! search that has arrived there as far as it leads.
//!
//! [`Fetched`] keeps the answers, and says why they stay right.
//!
//! A transaction that rolls back what may be moved reads copies of the chunks, from memory or from the file.

use super::arena::{Arena, Away, BATCH, Copied};
use super::chunk::LEAVING;
use super::pointer::{CHUNK, Spot, UndoPtr};
use super::versions::{Older, look};
use foreshore_base::{Csn, Result};
use foreshore_io::AlignedBuf;
use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

/// Versions that a fetch searches for, but for those of the leaf at hand.
const MOST: usize = 8192;
/// Bytes of their values that are kept.
const IMAGES: usize = 1 << 20;
/// The buffer for values grows by so many bytes.
const GROWTH: usize = IMAGES / 8;

// The memory of a scan, as in the documentation of `Options::spill_limit`. The values of the leaf at hand come in
// addition. Kept: twice MOST answers and those of a leaf, in a table of 4 MOST places of an answer and a byte; the
// values; the last copy.
const _: () = assert!(4 * MOST * (size_of::<(Spot, Answer)>() + 1) + 2 * IMAGES + GROWTH + CHUNK <= 5 << 20);
// During a fetch: 2 MOST places for what is wanted and for searches; up to 4 places for each search that waits; the
// batch.
const _: () = assert!(2 * MOST * (size_of::<Spot>() + size_of::<Search>()) <= 3 << 19);
const _: () = assert!(MOST * (4 * size_of::<Search>() + 64) + BATCH * CHUNK <= 3 << 20);

/// What a reader has found.
#[derive(Clone, Debug)]
struct Answer {
    found: Older,
    /// The value, among the images.
    image: Range<usize>,
    /// Whether the entry at which the search began is only the lock of its row.
    is_lock: bool,
}

/// What a reader has fetched from the file, for the rows of some leaves.
///
/// An answer is kept from the fetch until the reader comes to the row, and other transactions change rows and chunks
/// meanwhile.
///
/// **Invariant:** an answer is used only for a row whose header leads to the entry at which its search began, in the
/// same place, in a page that validates. Then the search would find the same again:
///
/// 1. *The entry is the same.* Each move of a chunk to the file has a new number, its place. A chunk in the file gets
///    no new entries. So a chunk that was freed and used again since the fetch is in memory or has another place, and
///    its old answers are never found.
/// 2. *The entry leads to the same entries.* Its chunk in the file is not written. A writer that clears the way behind
///    a row stops at an entry that is in the file or about to leave. The entries of a running transaction that may be
///    moved change only when it rolls back, the newest first. Before such a change the header leads away from the
///    newest of them, and never to it again.
/// 3. *Those entries exist.* An entry names the commit that made the next one. The search goes on there only if the
///    snapshot does not see that commit. The chunk of the next entry is freed only when no snapshot is older than the
///    commit. The reader's is.
/// 4. *The snapshot is the same.* Answers are of one snapshot: those of a scan are its own, and each other read forgets
///    what the read before it has fetched. A search that goes wrong because its snapshot was cancelled may leave a
///    wrong answer. All reads by that snapshot fail from then on.
///
/// A search that begins at an entry which no header leads to any more may find anything. Its answer is never asked for.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The number of its snapshot.
    at: Csn,
    /// Where the searches of the next fetch begin.
    wanted: Vec<Spot>,
    /// What was found, by where the search began.
    answers: HashMap<Spot, Answer>,
    images: Vec<u8>,
    /// The copy that was read last: the next fetch may begin there.
    last: Option<Copied>,
}

impl Fetched {
    /// Returns what a snapshot at `at` sees from an entry on, if it has been fetched. Otherwise that is fetched next.
    pub(crate) fn answer(&mut self, from: Spot, at: Csn, image: &mut Vec<u8>) -> Older {
        let Some(answer) = self.find(from, at) else { return Older::Spilled(from) };
        image.clear();
        image.extend_from_slice(&self.images[answer.image]);
        answer.found
    }

    /// Returns whether that entry is only the lock of its row, if it has been fetched. Otherwise it is fetched next.
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

    /// Returns how many versions are fetched next.
    pub(crate) const fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Returns whether a reader may ask for more than the leaf at hand leads to.
    pub(crate) fn has_space(&self) -> bool {
        self.wanted.len() + self.answers.len() < MOST && self.images.len() < IMAGES
    }

    /// Returns whether it has grown to twice what one fetch leaves: rows change after a fetch, and their new versions
    /// are fetched, too.
    pub(crate) fn is_over(&self) -> bool {
        self.answers.len() > 2 * MOST || self.images.len() > 2 * IMAGES
    }

    /// Fetches no more than the first so many next.
    pub(crate) fn unwant(&mut self, from: usize) {
        assert!(from <= self.wanted.len(), "{from} versions stay wanted of {}", self.wanted.len());
        self.wanted.truncate(from);
    }

    /// Frees what was fetched, and what is to be.
    pub(crate) fn forget(&mut self) {
        *self = Self { at: self.at, last: self.last.take(), ..Self::default() };
    }

    /// Notes what a search has found.
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

    /// Ends a search at an entry from which on another search has found something. Whether there was one.
    fn note_same(&mut self, search: &Search) -> bool {
        let there = Spot { entry: search.next, place: search.away.place };
        let Some(answer) = self.answers.get(&there.key()).cloned() else { return false };
        // Not if it is the answer of this search, of which it says more.
        if search.from != there {
            self.answers.insert(search.from.key(), Answer { is_lock: search.is_lock, ..answer });
        }
        true
    }
}

/// A search for the version that a reader sees.
#[derive(Clone, Copy, Debug)]
struct Search {
    from: Spot,
    /// The entry at which it has arrived.
    next: UndoPtr,
    /// The chunk of that entry.
    away: Away,
    /// Entries that it may still look at. A damaged page may lead into a circle.
    steps: usize,
    /// Whether it is for the leaf at hand.
    is_needed: bool,
    /// See [`Answer`].
    is_lock: bool,
}

/// Searches that go on in the file.
#[derive(Debug, Default)]
struct Sweep {
    /// Searches by the place of the chunk: one that was moved later has a larger one.
    waiting: BTreeMap<u64, Vec<Search>>,
    /// All chunks from this place on have had their turn.
    at: Option<u64>,
}

impl Sweep {
    fn add(&mut self, search: Search) {
        self.waiting.entry(search.away.place).or_default().push(search);
    }

    /// The next chunks, at most so many, and the largest place first. `None` once no search is left.
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
    /// Searches for what [`Fetched::answer`] has missed. The first `needed` are of the leaf at hand. Reads the file, so
    /// no latch is held; the snapshot that asks is in use, and the pages that led to the entries were validated.
    ///
    /// Afterwards some answers may still be missing:
    /// - what led to the entry has changed since;
    /// - `is_killed` says that the snapshot is not in use any more;
    /// - it is not needed, and there is no memory for it, or it cannot be read.
    ///
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
            // Searches that begin in one chunk may go on in many.
            if buffer.len() < chunks.len() * CHUNK {
                buffer = AlignedBuf::new(chunks.len() * CHUNK);
            }
            // In the order of the sweep: from one of them some searches go on to the next.
            for (away, read) in self.read_side_by_side(&chunks, &mut buffer) {
                let Some(searches) = sweep.waiting.remove(&away.place) else { continue };
                let copied = match read {
                    Err(_) if searches.iter().all(|search| !search.is_needed) => None,
                    read => read?,
                };
                // Otherwise the chunk is free, and what led there has changed.
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

    /// Begins the searches for what is wanted. Those that begin in the copy that was read last have gone as far as that
    /// leads.
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

    /// Takes a search as far as the copy of a chunk and memory lead, and notes what it finds. Returns it if it goes on
    /// in another chunk of the file.
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
            // What a cancelled one is led through may be circles of what was written over.
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
