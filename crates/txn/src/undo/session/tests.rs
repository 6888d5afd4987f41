use super::back::Back;
use super::*;
use crate::undo::change::{Before, UndoEntry};
use crate::undo::fetch::Fetched;
use crate::undo::file::SpillFile;
use crate::undo::pointer::CHUNK;
use crate::undo::versions::Older;
use crate::visibility::View;
use crate::visibility::pins::Pins;
use crate::visibility::readers::{About, Readers};
use foreshore_base::{TableId, Xid};
use foreshore_io::{Fs, Mem};
use foreshore_sync::Nanos;
use std::path::Path;

/// Returns a horizon at which all entries of ended transactions may be freed.
const ALL: fn() -> Csn = || Csn(u64::MAX);

fn arena(limit: usize) -> Arc<Arena> {
    Arc::new(Arena::new(limit, None).expect("memory"))
}

fn change(kind: u8, body: &[u8]) -> Undoable<'_> {
    Undoable { kind, table: TableId(7), body, before: None, structure: 0 }
}

fn newest(undo: &mut Undo) -> Option<UndoEntry<'_>> {
    let back = undo.back();
    (back.at != UndoPtr::NULL).then(|| undo.entry(&back).expect("in memory").0)
}

fn pop(undo: &mut Undo) {
    let mut back = undo.back();
    undo.drop_at(&mut back);
}

#[test]
fn entries_come_back_newest_first_across_chunks() {
    let arena = arena(1 << 20);
    let mut undo = Undo::new(arena.clone());
    for n in 0..40_u64 {
        let body = vec![n as u8; 3000 + n as usize];
        undo.reserve(body.len() + 100, false, ALL).expect("fits");
        let before = Before { undo: UndoPtr::from_bits(n + 1), back: &[9; 100], ..Before::default() };
        let change = Undoable { table: TableId(n as u32), before: Some(before), ..change(7, &body) };
        let pointer = undo.push(&change, &Link { since: Csn(n), next: before.undo, ..Link::default() });
        assert!(pointer != UndoPtr::NULL && pointer.bits() < 1 << 48);
        if n % 2 == 0 {
            undo.stamp_newest(Lsn(n + 1));
        }
    }
    assert!(arena.used_bytes() >= 20 * CHUNK);
    for n in (0..40_u64).rev() {
        let entry = newest(&mut undo).expect("an entry");
        let lsn = if n % 2 == 0 { Lsn(n + 1) } else { Lsn::ZERO };
        assert_eq!(
            (entry.lsn, entry.kind, entry.table, entry.next),
            (lsn, 7, TableId(n as u32), UndoPtr::from_bits(n + 1))
        );
        assert_eq!(entry.body, vec![n as u8; 3000 + n as usize]);
        pop(&mut undo);
    }
    assert!(newest(&mut undo).is_none());
    undo.end(Csn::ZERO);
    drop(undo);
    assert_eq!(arena.used_bytes(), 0, "nobody needs what was taken back");
}

/// A small reserved chunk, left by an operation that did not need it, does not count as space for a large entry.
#[test]
fn a_small_chunk_in_reserve_does_not_count_as_space() {
    let arena = arena(1 << 20);
    let mut undo = Undo::new(arena.clone());
    undo.reserve(100, false, ALL).expect("fits");
    undo.push(&change(1, &[1; 100]), &Link::default());
    let small = arena.take(100, ALL, &undo.holder).expect("memory");
    undo.open[SPARE] = Some(Open { at: CHUNK_WORDS - 100, ..small });
    undo.reserve(3000, false, ALL).expect("fits");
    undo.push(&change(2, &[2; 3000]), &Link { kept: true, ..Link::default() });
    assert_eq!(newest(&mut undo).expect("an entry").body, [2; 3000]);
    undo.end(Csn::ZERO);
}

#[test]
fn entries_that_stay_as_locks_are_in_the_way_of_none() {
    let arena = arena(1 << 20);
    let mut undo = Undo::new(arena.clone());
    let enter = |undo: &mut Undo, n: u8| {
        undo.reserve(100, false, ALL).expect("fits");
        undo.push(&change(n, &[n]), &Link::default());
        undo.stamp_newest(Lsn(u64::from(n)));
        undo.newest()
    };
    let all = |undo: &mut Undo| {
        let (mut back, mut found) = (undo.back(), Vec::new());
        while back.at != UndoPtr::NULL {
            let (entry, _) = undo.entry(&back).expect("in memory");
            found.push((entry.kind, entry.lsn.0, entry.is_undone));
            back = Back { at: undo.arena.entry(back.at).expect("an entry").previous(), stays: UndoPtr::NULL };
        }
        found
    };
    let marks: Vec<UndoPtr> = (1..=6).map(|n| enter(&mut undo, n)).collect();
    let mut back = undo.back();
    // Drop 6, keep 5, drop 4 and 3, keep 2.
    for stays in [false, true, false, false, true] {
        if stays { undo.keep_at(&mut back) } else { undo.drop_at(&mut back) }
    }
    assert_eq!((back.at, undo.newest()), (marks[0], marks[4]));
    assert_eq!(all(&mut undo), [(5, 0, true), (2, 0, true), (1, 1, false)]);
    enter(&mut undo, 7);
    assert_eq!(all(&mut undo), [(7, 7, false), (5, 0, true), (2, 0, true), (1, 1, false)]);
    while newest(&mut undo).is_some() {
        pop(&mut undo);
    }
    undo.end(Csn::ZERO);
    drop(undo);
    assert_eq!(arena.used_bytes(), 0, "each was dropped once");
}

#[test]
fn repeated_rollbacks_to_a_savepoint_need_no_more_memory() {
    let arena = arena(1 << 20);
    let mut undo = Undo::new(arena.clone());
    let enter = |undo: &mut Undo, len: usize| {
        undo.reserve(len, false, ALL).expect("fits");
        undo.push(&change(1, &vec![1; len]), &Link::default())
    };
    let stays = enter(&mut undo, 100);
    for round in 0..1000 {
        let first = enter(&mut undo, 50 + round % 7);
        assert_eq!(first.bits(), stays.bits() + entry::words(100) as u64);
        enter(&mut undo, 1000);
        pop(&mut undo);
        pop(&mut undo);
        assert_eq!(undo.newest(), stays);
    }
    assert!(arena.used_bytes() <= 2 * CHUNK, "{}", arena.used_bytes());
    undo.end(Csn(5));
    drop(undo);
    let mut other = Undo::new(arena.clone());
    for _ in 0..(1 << 20) / CHUNK - 1 {
        other.reserve(CHUNK - 100, false, || Csn(4)).expect("a chunk");
        other.push(&change(1, &[0; CHUNK - 100]), &Link::default());
    }
    assert!(other.reserve(CHUNK - 100, false, || Csn(4)).is_err(), "what stays is counted rightly");
    other.reserve(CHUNK - 100, false, || Csn(5)).expect("and goes with its transaction");
}

/// Rolls back to a savepoint again and again, over more than a chunk. The first rollback keeps one entry.
fn goes_back_over_chunks(limit: usize) {
    let arena = arena(limit * CHUNK);
    let mut undo = Undo::new(arena.clone());
    let enter = |undo: &mut Undo, len: usize| {
        undo.reserve(len, false, ALL).expect("what was taken back is free");
        undo.push(&change(1, &vec![len as u8; len]), &Link::default());
        undo.release(true);
    };
    enter(&mut undo, 101);
    let mut place = undo.place();
    for round in 0..500 {
        (0..5).for_each(|n| enter(&mut undo, 3000 + (round + n) % 7));
        let mut back = undo.back();
        while back.at != place.newest {
            let stays = round == 0 && arena.entry(back.at).expect("an entry").previous() == place.newest;
            if stays { undo.keep_at(&mut back) } else { undo.drop_at(&mut back) }
        }
        undo.give_back(&place);
        place = undo.place();
    }
    for len in [3000, 101] {
        assert_eq!(newest(&mut undo).expect("it has stayed").body, vec![len as u8; len]);
        pop(&mut undo);
    }
    assert!(newest(&mut undo).is_none());
    undo.end(Csn::ZERO);
    drop(undo);
    let mut other = Undo::new(arena);
    for _ in 0..limit {
        other.reserve(CHUNK - 100, false, || Csn::ZERO).expect("each chunk came back once");
        other.push(&change(1, &[0; CHUNK - 100]), &Link::default());
    }
}

#[test]
fn chunks_of_what_is_taken_back_are_free_before_the_end() {
    goes_back_over_chunks(100);
    // Now with memory that is always short.
    goes_back_over_chunks(5);
}

/// Entries of other transactions in a chunk prevent its reuse, unless their transaction was rolled back.
#[test]
fn chunks_with_entries_of_others_are_left_to_them() {
    const LARGE: usize = CHUNK - 200;
    let arena = arena(6 * CHUNK);
    let (mut other, mut undo) = (Undo::new(arena.clone()), Undo::new(arena));
    for round in 0..100 {
        // Only the version that the newest commit has replaced is needed.
        let enter = |undo: &mut Undo, len: usize| {
            undo.reserve(len, false, || Csn(round)).expect("what is left in a chunk goes without this transaction");
            undo.push(&change(1, &vec![1; len]), &Link::default());
        };
        let place = undo.place();
        enter(&mut other, 100);
        other.end(Csn(round + 1));
        // Another session has taken the chunk, and it is full.
        assert!(undo.open[0].is_none(), "round {round}");
        undo.open[0] = other.open[0].take();
        enter(&mut undo, 100);
        enter(&mut undo, LARGE);
        enter(&mut undo, LARGE);
        (0..3).for_each(|_| pop(&mut undo));
        assert_eq!((undo.full.len(), undo.place().open[0] > 0), (2, true), "round {round}");
        undo.give_back(&place);
        assert!(undo.full.is_empty() && undo.shared.is_empty() && undo.place().open == [0, 0], "round {round}");
        undo.donate();
        assert!(undo.shared.is_empty(), "round {round}: nothing in what it donates is of this transaction");
    }
    undo.end(Csn::ZERO);
}

#[test]
fn chunks_are_kept_for_as_long_as_a_reader_may_need_an_entry() {
    let arena = arena(64 << 10);
    let mut undo = Undo::new(arena.clone());
    let body = [1; 3000];
    for csn in (1..=20).map(|n| Csn(10 * n)) {
        // The horizon is four commits old.
        undo.reserve(body.len(), false, || Csn(csn.0.saturating_sub(40))).expect("old ones go");
        undo.push(&change(1, &body), &Link::default());
        undo.end(csn);
    }
    assert!(arena.used_bytes() <= 5 * CHUNK);
    // Now the horizon stands still.
    let refused = (21..60).find(|&n| {
        let refused = undo.reserve(body.len(), false, || Csn(100)).is_err();
        if !refused {
            undo.push(&change(1, &body), &Link::default());
            undo.end(Csn(10 * n));
        }
        refused
    });
    assert!(refused.is_some_and(|n| n > 25), "{refused:?}");
    undo.reserve(body.len(), false, || Csn(600)).expect("they go when it moves");
}

#[test]
fn the_limit_is_shared_and_refuses_before_anything_is_entered() {
    let arena = arena(4 * CHUNK);
    let mut first = Undo::new(arena.clone());
    let mut second = Undo::new(arena.clone());
    let body = [0; CHUNK / 2];
    let fill = |undo: &mut Undo, entries| {
        for _ in 0..entries {
            undo.reserve(body.len(), false, ALL)?;
            undo.push(&change(1, &body), &Link::default());
        }
        Ok(())
    };
    fill(&mut first, 3).expect("three chunks");
    fill(&mut second, 1).expect("the last one");
    assert!(matches!(fill(&mut second, 1), Err(Error::TransactionTooLarge { max }) if max == 4 * CHUNK));
    first.end(Csn(9));
    fill(&mut second, 1).expect("given back");
}

#[test]
fn the_first_in_the_queue_gets_the_chunk_that_comes_free() {
    let arena = arena(2 * CHUNK);
    let [mut holder, mut first, mut late] = [0; 3].map(|_| Undo::new(arena.clone()));
    let body = [0; CHUNK / 2 + 100];
    for _ in 0..2 {
        holder.reserve(body.len(), false, ALL).expect("no other session has any");
        holder.push(&change(1, &body), &Link::default());
    }
    assert!(first.reserve(body.len(), false, ALL).is_err());
    first.join_queue();
    assert!(first.queued(body.len()).is_first && first.queued(body.len()).is_last);
    holder.end(Csn(1));
    assert!(late.reserve(body.len(), false, ALL).is_err(), "it came later");
    late.join_queue();
    assert!(late.reserve(body.len(), false, ALL).is_err(), "and stands behind");
    assert!(late.queued(body.len()).is_last && !late.queued(body.len()).is_first);
    first.reserve(body.len(), false, ALL).expect("its turn");
    first.leave_queue();
    assert!(late.queued(body.len()).is_first);
    late.reserve(body.len(), false, ALL).expect("the other chunk");
    late.leave_queue();
}

#[test]
fn a_session_with_free_space_needs_none_for_what_old_readers_keep() {
    let arena = arena(2 * CHUNK);
    let (mut first, mut second) = (Undo::new(arena.clone()), Undo::new(arena.clone()));
    first.reserve(100, false, ALL).expect("memory");
    first.push(&change(1, &[0; 100]), &Link::default());
    second.reserve(CHUNK / 2, false, ALL).expect("the last chunk");
    first.reserve(100, true, ALL).expect("beside the first entry");
    first.push(&change(1, &[0; 100]), &Link { kept: true, ..Link::default() });
    assert!(first.reserve(CHUNK - 200, true, ALL).is_err());
}

#[test]
fn many_small_transactions_share_few_chunks() {
    let arena = arena(8 * CHUNK);
    let mut running: Vec<Undo> = (0..100).map(|_| Undo::new(arena.clone())).collect();
    for round in 0..3_u8 {
        for (n, undo) in running.iter_mut().enumerate() {
            let body = [round, n as u8];
            undo.reserve(1000, false, ALL).expect("room for all");
            undo.push(&change(1, &body), &Link::default());
            undo.release(true);
        }
    }
    for (n, undo) in running.iter_mut().enumerate() {
        for round in (0..3_u8).rev() {
            assert_eq!(newest(undo).expect("an entry").body, [round, n as u8]);
            pop(undo);
        }
        assert!(newest(undo).is_none());
        undo.end(Csn::ZERO);
    }
    running.clear();
    let mut large = Undo::new(arena);
    for _ in 0..8 {
        large.reserve(CHUNK - 100, false, ALL).expect("all chunks are free again");
        large.push(&change(1, &[0; CHUNK - 100]), &Link::default());
    }
}

#[test]
fn a_chunk_that_others_fill_waits_for_all_of_them() {
    let arena = arena(2 * CHUNK);
    let mut first = Undo::new(arena.clone());
    let mut second = Undo::new(arena.clone());
    let mut third = Undo::new(arena);
    // Two chunks are in use, so memory is short, and the session releases its chunk with free space.
    third.reserve(CHUNK - 100, false, ALL).expect("a chunk");
    third.push(&change(3, &[3; CHUNK - 100]), &Link::default());
    first.reserve(100, false, ALL).expect("a chunk");
    first.push(&change(1, &[1; 100]), &Link::default());
    first.release(true);
    second.reserve(CHUNK - 500, false, ALL).expect("the rest of it");
    second.push(&change(2, &[2; CHUNK - 500]), &Link::default());
    second.end(Csn(5));
    assert!(second.reserve(CHUNK - 500, false, ALL).is_err(), "the first has not ended");
    assert_eq!(newest(&mut first).expect("an entry").body, [1; 100]);
    first.end(Csn(7));
    assert!(second.reserve(CHUNK - 500, false, || Csn(6)).is_err(), "somebody may need what the first replaced");
    second.reserve(CHUNK - 500, false, || Csn(7)).expect("it is free");
}

/// A row that commits 10, 20, 30 … change, one transaction each. Its value is the number of the commit.
struct Row {
    undo: Undo,
    header: (Csn, UndoPtr),
}

impl Row {
    fn new(arena: &Arc<Arena>) -> Self {
        Self { undo: Undo::new(arena.clone()), header: (Csn(10), UndoPtr::NULL) }
    }

    /// Makes the next change, by a session with this view. If `again`, the transaction changes the row twice.
    fn change(&mut self, arena: &Arena, view: &View, again: bool) {
        let (csn, first) = self.header;
        let kept = view.newest_reader().is_some();
        self.undo.reserve(100, kept, || view.horizon()).expect("what nobody needs goes");
        let kept = view.newest_reader().is_some_and(|newest| csn <= newest);
        if again {
            // A change of another transaction, which is rolled back.
            let link = Link { kept, ..arena.clear(first, csn, view.horizon(), view) };
            self.undo.push(&change(1, &[]), &link);
            let leads = [link.next, link.passed] != [UndoPtr::NULL; 2];
            let back = newest(&mut self.undo).expect("an entry").next;
            assert_eq!(back, if leads { first } else { UndoPtr::NULL });
            pop(&mut self.undo);
            self.undo.end(Csn::ZERO);
        }
        let mut link = Link { kept, ..arena.clear(first, csn, view.horizon(), view) };
        for _ in 0..=usize::from(again) {
            let value = csn.0.to_le_bytes();
            let before = Before { back: &value, ..Before::default() };
            self.undo.reserve(100, kept, || view.horizon()).expect("what nobody needs goes");
            let entry = self.undo.push(&Undoable { before: Some(before), ..change(1, &[]) }, &link);
            link = arena.behind_own(entry);
        }
        self.header = (Csn(csn.0 + 10), link.next);
        self.undo.end(self.header.0);
    }

    /// Finds what a snapshot sees.
    fn read(&self, arena: &Arena, at: Csn) -> Csn {
        let mut image = Vec::new();
        if self.header.0 <= at {
            return self.header.0;
        }
        match arena.older(self.header.1, at, &mut image, || true) {
            Older::Row(0, since) => {
                assert!(since <= at);
                Csn(u64::from_le_bytes(image[..].try_into().expect("a number")))
            }
            other => panic!("{other:?} at {at}"),
        }
    }

    fn versions(&self, arena: &Arena) -> usize {
        let mut next = self.header.1;
        let behind = || {
            let entry = arena.entry(next)?;
            next = entry.next();
            Some(())
        };
        std::iter::from_fn(behind).count()
    }
}

#[test]
fn old_readers_keep_what_they_see_and_nothing_else() {
    let (readers, pins) = (Readers::new(8), Pins::new(1));
    let arena = arena(16 * CHUNK);
    let mut row = Row::new(&arena);
    let take = |csn: u64| {
        let about = About::new("", Nanos::ZERO);
        readers.take(about, || Xid(1).into(), || Csn(csn), None::<fn() -> Csn>, || Xid(1))
    };
    let mut marks = Vec::new();
    for round in 0..20_000_u64 {
        if [3, 50, 51, 3000].contains(&round) {
            marks.push(take(row.header.0.0 + 5));
        }
        // The view is a few commits old.
        let floor = Csn(row.header.0.0.saturating_sub(70));
        let view = View::of(&readers, &pins, (Xid(1), [].into()), || floor.max(Csn(15)));
        row.change(&arena, &view, round % 3 == 0);
        if round % 100 == 0 {
            for mark in &marks {
                assert_eq!(row.read(&arena, mark.csn), Csn(mark.csn.0 - 5), "round {round}");
            }
            // A reader may still begin at the floor.
            assert_eq!(row.read(&arena, view.floor()), Csn(view.floor().0 / 10 * 10), "round {round}");
            assert!(row.versions(&arena) < 60, "round {round}: {}", row.versions(&arena));
        }
    }
    assert!(arena.used_bytes() <= 10 * CHUNK, "{}", arena.used_bytes());
    assert!(arena.pruned() > 15_000, "{}", arena.pruned());
}

/// The cost of a change does not depend on how many versions others see.
#[test]
fn a_second_change_of_a_row_checks_the_readers_as_seldom() {
    const CHANGES: usize = 1000;
    let (readers, pins) = (Readers::new(1), Pins::new(1));
    let arena = arena(16 * CHUNK);
    let mut row = Row::new(&arena);
    let about = About::new("", Nanos::ZERO);
    readers.take(about, || Xid(1).into(), || Csn(15), None::<fn() -> Csn>, || Xid(1));
    let countdowns = (0..CHANGES).map(|_| {
        let durable = row.header.0;
        row.change(&arena, &View::of(&readers, &pins, (Xid(1), [].into()), || durable), true);
        arena.entry(row.header.1).expect("of the last change").countdown()
    });
    let countdowns: Vec<u32> = countdowns.collect();
    let anew = countdowns.windows(2).filter(|pair| pair[1] + 1 != pair[0]).count();
    assert!(anew <= CHANGES / 15 + 2, "{anew} times: {:?}", &countdowns[..50]);
    assert_eq!(row.read(&arena, Csn(15)), Csn(10));
}

/// A row that is locked and then changed has one entry, like a row that is changed at once.
#[test]
fn a_change_takes_the_place_of_the_lock_of_its_row() {
    let arena = arena(1 << 20);
    let mut undo = Undo::new(arena.clone());
    let link = Link {
        since: Csn(30),
        next: UndoPtr::from_bits(7000),
        passed: UndoPtr::from_bits(8000),
        seen: true,
        countdown: 5,
        kept: true,
    };
    let before = Before { xid: Xid(9), flags: 3, back: &[9; 100], ..Before::default() };
    for kept in [false, true] {
        undo.reserve(300, kept, ALL).expect("fits");
        let first = undo.push(&change(1, &[1]), &Link { kept, ..Link::default() });
        assert!(undo.before_lock(first).is_none(), "of a row that was not there");
        undo.reserve(300, kept, ALL).expect("fits");
        let lock = undo.push(&Undoable { before: Some(before), ..change(2, &[2; 30]) }, &Link { kept, ..link });
        let found = undo.before_lock(lock).expect("the newest one is a lock");
        assert_eq!((found.xid, found.flags, found.undo, found.lock), (Xid(9), 3, UndoPtr::from_bits(8000), lock));
        assert!(undo.before_lock(first).is_none(), "not the newest one");
        let taken = undo.take_lock(lock);
        assert_eq!(taken, Link { kept, ..link });
        undo.reserve(300, kept, ALL).expect("fits");
        let entry = undo.push(&Undoable { before: Some(before), ..change(3, &[3; 20]) }, &taken);
        assert_eq!(entry, lock, "in its place");
        undo.stamp_newest(Lsn(1));
        assert!(undo.before_lock(entry).is_none(), "a change");
        let found = newest(&mut undo).expect("the change");
        assert_eq!((found.kind, found.next, found.body), (3, UndoPtr::from_bits(8000), &[3; 20][..]));
        let mut image = Vec::new();
        assert_eq!(arena.older(entry, Csn(30), &mut image, || true), Older::Row(3, Csn(30)));
        assert!(image == [9; 100]);
        pop(&mut undo);
        assert_eq!(newest(&mut undo).expect("the first").kind, 1);
        pop(&mut undo);
    }
    assert!(newest(&mut undo).is_none());
    undo.end(Csn::ZERO);
    drop(undo);
    assert_eq!(arena.used_bytes(), 0, "all was counted");
}

/// The entry of a lock is at the end of a chunk without space for the change.
#[test]
fn a_change_that_does_not_fit_in_the_place_of_the_lock_lies_elsewhere() {
    let arena = arena(1 << 20);
    for (kept, commits) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut undo = Undo::new(arena.clone());
        let before = Before { xid: Xid(9), flags: 3, back: &[9; 100], ..Before::default() };
        let link = Link {
            since: Csn(30),
            next: UndoPtr::from_bits(7000),
            passed: UndoPtr::from_bits(8000),
            kept,
            ..Link::default()
        };
        undo.reserve(CHUNK - 600, kept, ALL).expect("fits");
        let first = undo.push(&change(1, &[1; CHUNK - 600]), &Link { kept, ..Link::default() });
        undo.reserve(300, kept, ALL).expect("fits");
        let lock = undo.push(&Undoable { before: Some(before), ..change(2, &[2; 30]) }, &link);
        assert_eq!(lock.chunk(), first.chunk(), "behind the first");
        undo.reserve(1000, kept, ALL).expect("fits");
        assert!(undo.before_lock(lock).is_some());
        let taken = undo.take_lock(lock);
        assert_eq!((taken, undo.newest()), (link, first));
        let entry = undo.push(&Undoable { before: Some(before), ..change(3, &[3; 900]) }, &taken);
        assert_ne!(entry.chunk(), lock.chunk(), "elsewhere");
        undo.stamp_newest(Lsn(1));
        let mut image = Vec::new();
        assert_eq!(arena.older(entry, Csn(30), &mut image, || true), Older::Row(3, Csn(30)));
        assert!(image == [9; 100]);
        if commits {
            undo.end(Csn(40));
            // A writer has unlinked both entries.
            [first, entry].into_iter().for_each(|entry| arena.drop_entry(entry));
        } else {
            let found = newest(&mut undo).expect("the change");
            assert_eq!((found.kind, found.next, found.body), (3, UndoPtr::from_bits(8000), &[3; 900][..]));
            pop(&mut undo);
            assert_eq!(newest(&mut undo).expect("the first").body, [1; CHUNK - 600]);
            pop(&mut undo);
            assert!(newest(&mut undo).is_none());
            undo.end(Csn::ZERO);
        }
        drop(undo);
        let mut other = Undo::new(arena.clone());
        other.reserve(CHUNK - 100, false, || Csn::ZERO).expect("memory");
        drop(other);
        assert_eq!(arena.used_bytes(), 0, "all was counted, kept: {kept}, commits: {commits}");
    }
}

/// Enters changes until memory is spent. Each has a chunk of its own.
fn fill(undo: &mut Undo) -> usize {
    let fits = |undo: &mut Undo| undo.reserve(CHUNK - 100, false, || Csn::ZERO).is_ok();
    let mut entered = 0;
    while fits(undo) {
        undo.push(&change(5, &[5; CHUNK - 100]), &Link::default());
        entered += 1;
    }
    entered
}

/// The row that a snapshot sees, in memory or in the file.
fn row_at(arena: &Arena, header: UndoPtr, at: Csn) -> (Older, Vec<u8>) {
    let (mut image, mut fetched) = (Vec::new(), Fetched::default());
    loop {
        let mut older = arena.older(header, at, &mut image, || true);
        if let Older::Spilled(from) = older {
            older = fetched.answer(from, at, &mut image);
        }
        match older {
            Older::Spilled(_) => arena.fetch(&mut fetched, 1, &|| false).expect("what was written"),
            seen => return (seen, image),
        }
    }
}

/// The last holder's entry is spilled to the file while the change that skips it is not committed.
fn passes_what_goes_to_the_file(commits: bool) {
    const MEMORY: usize = 8;
    let file = Mem::null().create(Path::new("spill")).expect("a new file");
    let arena = Arc::new(Arena::new(MEMORY * CHUNK, Some(SpillFile::of(file, 1 << 20))).expect("memory"));
    let (readers, pins) = (Readers::new(1), Pins::new(1));
    let about = About::new("", Nanos::ZERO);
    let old = readers.take(about, || Xid(1).into(), || Csn(15), None::<fn() -> Csn>, || Xid(1));
    let enter = |since: u64, csn: u64, next: UndoPtr| {
        let mut undo = Undo::new(arena.clone());
        undo.reserve(CHUNK - 100, false, || Csn::ZERO).expect("memory");
        let before = Before { back: &[since as u8; CHUNK - 100], ..Before::default() };
        let link = Link { since: Csn(since), next, ..Link::default() };
        let entry = undo.push(&Undoable { before: Some(before), ..change(1, &[]) }, &link);
        undo.end(Csn(csn));
        entry
    };
    let seen = enter(10, 20, UndoPtr::NULL);
    let passed = enter(20, 30, seen);
    let view = View::of(&readers, &pins, (Xid(1), [].into()), || Csn(40));
    let mut undo = Undo::new(arena.clone());
    let row = |link: &Link, undo: &mut Undo| {
        undo.push(&Undoable { before: Some(Before::default()), ..change(2, &[2; CHUNK - 100]) }, link)
    };
    let link = arena.clear(passed, Csn(30), old.csn, &view);
    assert_eq!((link.since, link.next, link.passed), (Csn(20), seen, passed));
    undo.reserve(CHUNK - 100, false, || Csn::ZERO).expect("memory");
    let entry = row(&link, &mut undo);
    let mut entered = fill(&mut undo);
    assert!(arena.spill(Csn(40), || true).expect("written"));
    assert_eq!([seen, passed, entry].map(|entry| arena.is_leaving(entry)), [true, true, false]);
    let is_seen = |header: UndoPtr| {
        let (found, image) = row_at(&arena, header, old.csn);
        found == Older::Row(0, Csn(10)) && image == [10; CHUNK - 100]
    };
    assert!(is_seen(entry), "past the one, to the other, both in the file");
    if commits {
        undo.end(Csn(40));
        let link = arena.clear(entry, Csn(40), old.csn, &view);
        assert_eq!((link.since, link.next, link.passed), (Csn(20), seen, entry));
        assert_eq!(arena.pruned(), 1, "what is in the file is counted as gone");
        assert_eq!(arena.clear(entry, Csn(40), old.csn, &view).next, seen);
        assert_eq!(arena.pruned(), 1, "once");
        undo.reserve(CHUNK - 100, false, || Csn::ZERO).expect("what has moved made room");
        let next = row(&link, &mut undo);
        assert!(is_seen(next));
        assert_eq!(newest(&mut undo).expect("the next one").next, entry);
        pop(&mut undo);
        assert!(is_seen(entry));
    } else {
        entered += fill(&mut undo);
        undo.let_spill();
        assert!(arena.spill(Csn(40), || true).expect("written") && arena.is_leaving(entry));
        assert!(is_seen(entry), "from the file on");
        for _ in 0..entered {
            assert_eq!(newest(&mut undo).expect("an entry").body, [5; CHUNK - 100]);
            pop(&mut undo);
        }
        let found = newest(&mut undo).expect("the change");
        assert_eq!((found.kind, found.next), (2, passed), "what the header led to");
        pop(&mut undo);
        assert!(is_seen(passed));
    }
    assert!(newest(&mut undo).is_none());
    undo.end(Csn::ZERO);
    drop(undo);
    readers.release(&old);
    let mut last = Undo::new(arena.clone());
    for n in 0..MEMORY {
        last.reserve(CHUNK - 100, false, ALL).expect("each chunk came back once");
        last.push(&change(1, &[n as u8; CHUNK - 100]), &Link::default());
    }
    assert_eq!(arena.spilled().0, 0, "nothing stays in the file");
    for n in (0..MEMORY).rev() {
        assert_eq!(newest(&mut last).expect("an entry").body, [n as u8; CHUNK - 100]);
        pop(&mut last);
    }
    last.end(Csn::ZERO);
}

#[test]
fn a_rolled_back_change_links_to_what_it_has_passed_in_the_file() {
    passes_what_goes_to_the_file(false);
}

#[test]
fn a_skipped_entry_is_dropped_though_it_is_in_the_file() {
    passes_what_goes_to_the_file(true);
}

/// Entries that are kept for old readers are stored apart from the others.
#[test]
fn what_lies_in_two_chunks_in_turn_is_read_back_once() {
    let file = Mem::null().create(Path::new("spill")).expect("a new file");
    let spill = SpillFile::of(file, 1 << 20);
    let arena = Arc::new(Arena::new(64 * CHUNK, Some(spill)).expect("memory"));
    let (mut undo, mut other) = (Undo::new(arena.clone()), Undo::new(arena.clone()));
    for n in 0..400 {
        undo.reserve(300, true, ALL).expect("fits");
        undo.push(&change(1, &[n as u8; 300]), &Link { kept: n % 2 == 0, ..Link::default() });
    }
    undo.let_spill();
    while other.reserve(CHUNK - 100, false, || Csn::ZERO).is_ok() {
        other.push(&change(1, &[0; CHUNK - 100]), &Link::default());
    }
    assert!(arena.spill(Csn::ZERO, || true).expect("written"));
    for n in (0..400).rev() {
        assert_eq!(newest(&mut undo).expect("an entry").body, [n as u8; 300]);
        pop(&mut undo);
    }
    let (bytes, reads) = arena.spilled();
    assert!(bytes > 4 * CHUNK && reads <= (bytes / CHUNK) as u64, "{reads} reads of {bytes} bytes");
    undo.end(Csn::ZERO);
    other.end(Csn::ZERO);
}

/// A parked rollback and a prepared transaction may wait for long, so they keep no copies.
#[test]
fn copies_of_chunks_end_with_the_operation_that_made_them() {
    let file = Mem::null().create(Path::new("spill")).expect("a new file");
    let arena = Arc::new(Arena::new(64 * CHUNK, Some(SpillFile::of(file, 1 << 20))).expect("memory"));
    let mut undo = Undo::new(arena);
    for n in 0..100 {
        undo.reserve(CHUNK / 10, false, ALL).expect("fits");
        undo.push(&change(1, &[n; CHUNK / 10]), &Link::default());
    }
    assert!(undo.let_spill());
    for n in (10..100).rev() {
        assert_eq!(newest(&mut undo).expect("an entry").body, [n; CHUNK / 10]);
        pop(&mut undo);
    }
    assert!(undo.copies.count() > 1, "{} copies", undo.copies.count());
    undo.release(false);
    assert_eq!(undo.copies.count(), 0);
    for n in (0..10).rev() {
        assert_eq!(newest(&mut undo).expect("an entry").body, [n; CHUNK / 10], "copied again");
        pop(&mut undo);
    }
    undo.end(Csn::ZERO);
}
