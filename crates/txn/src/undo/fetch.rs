//! Reading undo back from the file to which it was moved.
//!
//! A reader looks behind each entry that it has read whether the chunk was still there: memory that was given back reads as
//! zeros. What is in the file it notes, and reads when it has left the leaf, without a latch; then it looks at the leaf once more.
//! What it has found counts if the leaf leads to the same entry in the same place: the entry was linked all the time. Who clears the
//! way does not get behind an entry in the file, nor behind one of a transaction that runs, so nobody has touched what lies behind.
//! And it stays while the reader's snapshot does. So it counts however much later the reader comes to the leaf: a scan also notes
//! what leaves lead to that lie ahead of it.
//!
//! All that is noted is searched for in sweeps. A sweep reads each chunk once in which some search goes on, [`BATCH`] of them side by
//! side, from the one that was moved last to the first: an entry leads to older ones, most of which were moved before. So a search
//! meets most of the entries on its way in one sweep. Each chunk takes every search that has arrived there as far as it leads.
//!
//! Memory of one reader: the buffer for a batch, [`MOST`] searches, and as many answers with [`IMAGES`] bytes of values: 2.5 MiB. The leaf
//! at hand is searched for even if that is more.
//!
//! A transaction that takes back what may be moved reads copies of the chunks, from memory or from the file.

use super::UndoPtr;
use super::arena::{Arena, CHUNK};
use super::copies::{Away, BATCH, Copied};
use super::entry::Entry;
use super::spill::LEAVING;
use super::versions::{Older, look};
use foreshore_base::{Csn, Result};
use foreshore_io::AlignedBuf;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};

/// Versions that a reader asks for at once, but for those of one leaf.
const MOST: usize = 8192;
/// Bytes of their values.
const IMAGES: usize = 1 << 20;

/// An entry that is in the file, and where its chunk is. Never the same again once the entry is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    entry: UndoPtr,
    place: u64,
}

/// What a reader has found.
#[derive(Clone, Debug)]
struct Answer {
    found: Older,
    /// The value, among the images.
    image: Range<usize>,
    /// Whether the entry from which on it has looked is only the lock of its row.
    is_lock: bool,
}

/// What a reader has fetched from the file, for the rows of some leaves.
#[derive(Debug, Default)]
pub struct Fetched {
    /// By which snapshot it looks.
    at: Csn,
    /// From where on it has to look.
    wanted: Vec<Spot>,
    /// By where the search began.
    answers: HashMap<Spot, Answer>,
    images: Vec<u8>,
    /// The copy that was read last: what is asked for next may begin there.
    last: Option<Copied>,
}

impl Fetched {
    /// What a snapshot at `at` sees from an entry on, if it has been fetched. Otherwise that is fetched next.
    pub(crate) fn answer(&mut self, from: Spot, at: Csn, image: &mut Vec<u8>) -> Older {
        let Some(answer) = self.find(from, at) else { return Older::Spilled(from) };
        image.clear();
        image.extend_from_slice(&self.images[answer.image]);
        answer.found
    }

    /// Whether that entry is only the lock of its row, if it has been fetched. Otherwise it is fetched next.
    pub(crate) fn is_lock(&mut self, entry: Spot, at: Csn) -> Option<bool> {
        self.find(entry, at).map(|answer| answer.is_lock)
    }

    fn find(&mut self, from: Spot, at: Csn) -> Option<Answer> {
        if self.at != at {
            self.forget();
            self.at = at;
        }
        let found = self.answers.get(&from).cloned();
        if found.is_none() {
            self.wanted.push(from);
        }
        found
    }

    /// How many versions are fetched next.
    pub(crate) const fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Whether a reader may ask for more than the leaf at hand leads to.
    pub(crate) fn has_space(&self) -> bool {
        self.wanted.len() + self.answers.len() < MOST && self.images.len() < IMAGES
    }

    /// Fetches no more than the first so many next.
    pub(crate) fn unwant(&mut self, from: usize) {
        self.wanted.truncate(from);
    }

    /// Nothing of it is asked for again.
    pub(crate) fn forget(&mut self) {
        self.wanted.clear();
        self.answers.clear();
        self.images.clear();
    }

    /// Notes what a search has found.
    fn note(&mut self, search: &Search, found: Older, image: &[u8]) {
        let start = self.images.len();
        if search.is_needed || start + image.len() <= IMAGES {
            self.images.extend_from_slice(image);
            let image = start..self.images.len();
            self.answers.insert(search.from, Answer { found, image, is_lock: search.is_lock });
        }
    }

    /// Ends a search at an entry from which on another search has found something. Whether there was one.
    fn note_same(&mut self, search: &Search) -> bool {
        let there = Spot { entry: search.next, place: search.away.place };
        let Some(answer) = self.answers.get(&there).cloned() else { return false };
        self.answers.insert(search.from, Answer { is_lock: search.is_lock, ..answer });
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
    /// By the place of the chunk: one that was moved later has a larger one.
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
    /// Where an entry that was read was in the file, so that what was read means nothing; `None` if it was in memory.
    pub(super) fn spot(&self, entry: UndoPtr) -> Option<Spot> {
        self.spill.as_ref()?;
        // ORDERING: Acquire, what was read is validated: memory is given back after the place is stored.
        fence(Ordering::Acquire);
        let place = self.place(entry);
        (place > LEAVING).then_some(Spot { entry, place })
    }

    /// Looks for what [`Fetched::answer`] has missed. The first `needed` are of the leaf at hand. Reads the file, so no latch is held;
    /// the snapshot that asks is in use, and the pages that led to the entries were validated. Some answers may still be missing if
    /// what led to them has changed since, or once `is_killed` says that the snapshot is not in use any more. Those that are not needed
    /// may also be missing for want of memory, or because they cannot be read.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the file does not hold what was written.
    pub(crate) fn fetch(&self, fetched: &mut Fetched, needed: usize, is_killed: &dyn Fn() -> bool) -> Result<()> {
        let mut image = Vec::new();
        let wanted = std::mem::take(&mut fetched.wanted);
        let begun = wanted.into_iter().enumerate().filter(|(_, from)| self.place(from.entry) == from.place);
        let mut searches: Vec<Search> = begun.map(|(number, from)| self.search(from, number < needed)).collect();
        if let Some(last) = fetched.last.take() {
            let at_last = |search: &Search| search.away.place == last.place;
            let there: Vec<Search> = searches.extract_if(.., |search| at_last(search)).collect();
            searches.extend(there.into_iter().filter_map(|at| self.follow(at, &last, fetched, &mut image, is_killed)));
            fetched.last = Some(last);
        }
        let mut sweep = Sweep::default();
        searches.into_iter().for_each(|search| sweep.add(search));
        let mut buffer = AlignedBuf::new(sweep.waiting.len().min(BATCH) * CHUNK);
        while let Some(chunks) = sweep.next(buffer.len() / CHUNK) {
            if is_killed() {
                return Ok(());
            }
            let read = self.read_side_by_side(&chunks, &mut buffer);
            // In the order of the sweep: from one of them some searches go on to the next.
            for (away, read) in read {
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

    fn search(&self, from: Spot, is_needed: bool) -> Search {
        let away = self.away(from.entry.chunk(), from.place);
        Search { from, next: from.entry, away, steps: self.limit_bytes() / 8, is_needed, is_lock: false }
    }

    /// Takes a search as far as the copy of a chunk and memory lead, and notes what it finds. Returns it if it goes on in another
    /// chunk of the file.
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
            // What a killed one is led through may be circles of what was written over.
            if is_killed() {
                return None;
            }
            search.steps -= 1;
            let step = if search.away.place <= LEAVING {
                let step = look(Entry::at(self, search.next), fetched.at, image);
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
