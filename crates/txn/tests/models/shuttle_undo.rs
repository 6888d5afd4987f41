//! A purge unlinks a version that no reader sees, while another session searches for undo memory. If that session finds
//! none, it spills old entries to the file. The version that an old reader sees stays reachable.

use crate::undo::{Arena, Before, Fetched, Link, Older, SpillFile, Undo, UndoPtr, Undoable};
use crate::visibility::pins::Pins;
use crate::visibility::readers::{About, Readers};
use crate::visibility::view::View;
use foreshore_base::{Csn, TableId, Xid};
use foreshore_io::{Fs, Mem};
use foreshore_sync::model::{choose, shuttle, shuttle_mutated};
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex, Nanos};
use std::path::Path;
use std::sync::Arc;

const ITERATIONS: usize = 200;
/// So large that each entry has a chunk of its own, and drops it when it goes.
pub(crate) const VALUE: usize = 5000;
/// The number of a commit that the row has nothing to do with.
const FOREIGN: u64 = 15;

/// Enters a change of a row whose value is made of bytes of its commit's number.
pub(crate) fn push(undo: &mut Undo, since: u64, next: UndoPtr) -> UndoPtr {
    push_linked(undo, since, &Link { since: Csn(since), next, ..Link::default() })
}

fn push_linked(undo: &mut Undo, csn: u64, link: &Link) -> UndoPtr {
    undo.reserve(VALUE, false, || Csn::ZERO).expect("memory");
    let value = [csn as u8; VALUE];
    let before = Before { back: &value, ..Before::default() };
    let change = Undoable { kind: 1, table: TableId(7), body: &[], before: Some(before), structure: 0 };
    undo.push(&change, link)
}

fn clear_beside_another_session() {
    let arena = Arc::new(Arena::new(64 << 10, None).expect("memory"));
    let (readers, pins) = (Readers::new(1), Pins::new(1));
    let about = About::new("", Nanos::ZERO);
    let old = readers.take(about, || Xid(1).into(), || Csn(15), None::<fn() -> Csn>, || Xid(1));
    // Commits 10, 20, 30 and 40 have changed the row. The reader sees that of 10, and no reader that of 20.
    let mut undo = Undo::new(arena.clone());
    let mut header = UndoPtr::NULL;
    for since in [10, 20, 30] {
        header = push(&mut undo, since, header);
        undo.end(Csn(since + 10));
    }
    let view = View::of(&readers, &pins, (Xid(1), [].into()), || Csn(40));
    assert_eq!(view.horizon(), old.csn);
    let other = {
        let arena = arena.clone();
        thread::spawn(move || {
            let mut undo = Undo::new(arena);
            for _ in 0..2 {
                push(&mut undo, FOREIGN, UndoPtr::NULL);
            }
            undo.end(Csn::ZERO);
        })
    };
    assert_ne!(arena.clear(header, Csn(40), view.horizon(), &view).next, UndoPtr::NULL, "the reader needs one");
    let mut image = Vec::new();
    assert_eq!(arena.older(header, old.csn, &mut image, || true), Older::Row(0, Csn(10)));
    assert!(image == [10; VALUE], "the version of commit 10");
    other.join().expect("the other session");
}

/// Transactions change a row whose versions but one are dead, and some are taken back.
fn change_beside_another_session() {
    let arena = Arc::new(Arena::new(80 << 10, None).expect("memory"));
    let (readers, pins) = (Readers::new(1), Pins::new(1));
    let about = About::new("", Nanos::ZERO);
    let old = readers.take(about, || Xid(1).into(), || Csn(15), None::<fn() -> Csn>, || Xid(1));
    let other = {
        let arena = arena.clone();
        thread::spawn(move || {
            let mut undo = Undo::new(arena);
            for _ in 0..16 {
                push(&mut undo, FOREIGN, UndoPtr::NULL);
                undo.end(Csn::ZERO);
                thread::yield_now();
            }
        })
    };
    let mut undo = Undo::new(arena.clone());
    let (mut header, mut csn) = (UndoPtr::NULL, Csn(10));
    for _ in 0..16 {
        let view = View::of(&readers, &pins, (Xid(1), [].into()), || csn.max(old.csn));
        let link = if header == UndoPtr::NULL {
            Link { since: csn, ..Link::default() }
        } else {
            arena.clear(header, csn, view.horizon(), &view)
        };
        let entry = push_linked(&mut undo, csn.0, &link);
        (0..choose(4)).for_each(|_| thread::yield_now());
        let mut image = Vec::new();
        let mut sees = |header, at| {
            assert!(matches!(arena.older(header, at, &mut image, || true), Older::Row(0, since) if since <= at));
            u64::from(image[0])
        };
        assert_eq!((sees(entry, old.csn), sees(entry, csn)), (10, csn.0));
        if csn > old.csn && choose(2) == 0 {
            let mut back = undo.back();
            assert_eq!(undo.entry(&back).expect("in memory").0.next, header, "what the header led to");
            undo.drop_at(&mut back);
            undo.end(Csn::ZERO);
        } else {
            (header, csn) = (entry, Csn(csn.0 + 10));
            undo.end(csn);
        }
        (0..choose(4)).for_each(|_| thread::yield_now());
        assert_eq!(sees(header, old.csn), 10, "behind {csn}");
    }
    other.join().expect("the other session");
}

/// Changes a row that commits 50 and 60 have changed before, each in a chunk of its own, and that commit 110 has led
/// past the version of the former. Of two readers then the older one ends, and no reader needs the first two any more.
fn change_when_the_older_reader_has_ended() {
    let arena = Arc::new(Arena::new(80 << 10, None).expect("memory"));
    let (readers, pins) = (Readers::new(2), Pins::new(1));
    let take = |csn| {
        let about = About::new("", Nanos::ZERO);
        readers.take(about, || Xid(1).into(), || Csn(csn), None::<fn() -> Csn>, || Xid(1))
    };
    let (old, young) = (take(15), take(100));
    let mut header = UndoPtr::NULL;
    for (since, csn) in [(10, 50), (50, 60)] {
        let mut undo = Undo::new(arena.clone());
        header = push(&mut undo, since, header);
        undo.end(Csn(csn));
        // So it is full.
        push(&mut undo, FOREIGN, UndoPtr::NULL);
        undo.end(Csn::ZERO);
    }
    let view = View::of(&readers, &pins, (Xid(1), [].into()), || Csn(100));
    let link = arena.clear(header, Csn(60), view.horizon(), &view);
    assert_eq!((link.passed, link.since), (header, Csn(50)), "nobody sees the version of commit 50");
    let mut undo = Undo::new(arena.clone());
    let header = push_linked(&mut undo, 60, &link);
    undo.end(Csn(110));
    let mut image = Vec::new();
    assert!(matches!(arena.older(header, old.csn, &mut image, || true), Older::Row(0, Csn(10))));
    readers.release(&old);
    let view = View::of(&readers, &pins, (Xid(1), [].into()), || Csn(110));
    assert_eq!(view.horizon(), young.csn);
    let horizon = view.horizon();
    let other = {
        let arena = arena.clone();
        thread::spawn(move || {
            let mut undo = Undo::new(arena.clone());
            let mut enter = |value: u64| {
                undo.reserve(VALUE, false, || horizon).expect("memory");
                let entry = push_linked(&mut undo, value, &Link { since: Csn(90), ..Link::default() });
                undo.end(Csn(120));
                thread::yield_now();
                (entry, value)
            };
            let entered: Vec<(UndoPtr, u64)> = (201..206).map(&mut enter).collect();
            let mut image = Vec::new();
            for (entry, value) in entered {
                assert_eq!(arena.older(entry, horizon, &mut image, || true), Older::Row(0, Csn(90)));
                assert!(image == [value as u8; VALUE], "the version before {value}");
            }
        })
    };
    (0..choose(8)).for_each(|_| thread::yield_now());
    assert_eq!(arena.clear(header, Csn(110), horizon, &view).next, header, "the younger reader sees it");
    assert_eq!(arena.older(header, young.csn, &mut image, || true), Older::Row(0, Csn(50)));
    assert!(image == [60; VALUE], "the version of commit 60");
    other.join().expect("the other session");
}

/// Lets a copy be made, if one is about to be, and holds up the thread that has made it.
fn wait_for_a_copy() {
    let is_made = Arc::new(AtomicBool::new(false));
    let made = is_made.clone();
    pause::set("undo: written to the file", move || {
        // ORDERING: SeqCst, in a model.
        made.store(true, Ordering::SeqCst);
        (0..choose(20)).for_each(|_| thread::yield_now());
    });
    for _ in 0..choose(200) {
        // ORDERING: SeqCst, in a model.
        if is_made.load(Ordering::SeqCst) {
            return;
        }
        thread::yield_now();
    }
}

/// Lets a wait go on for so many turns.
fn patience(mut turns: u32) -> impl FnMut() -> bool {
    move || {
        turns = turns.saturating_sub(1);
        turns > 0
    }
}

/// Makes room for one more entry; false if there is none.
fn make_room(arena: &Arena, pins: &Pins, undo: &mut Undo) -> bool {
    while undo.reserve(VALUE, false, || Csn::ZERO).is_err() {
        undo.return_unneeded(true);
        if !arena.spill(Csn(40), || pins.have_all_been_off(patience(1000))).expect("a file") {
            return false;
        }
    }
    true
}

/// A row has three chunks, of commits 20, 30 and 40; one is free, and a transaction that runs has all others.
fn clear_beside_a_move_to_the_file() {
    let file = Mem::null().create(Path::new("/spill")).expect("a file");
    let arena = Arc::new(Arena::new(80 << 10, Some(SpillFile::of(file, 32 << 10))).expect("memory"));
    let (readers, pins) = (Readers::new(1), Arc::new(Pins::new(1)));
    let about = About::new("", Nanos::ZERO);
    let old = readers.take(about, || Xid(1).into(), || Csn(15), None::<fn() -> Csn>, || Xid(1));
    let mut sessions = Vec::new();
    let mut header = UndoPtr::NULL;
    for since in [10, 20, 30] {
        let mut undo = Undo::new(arena.clone());
        header = push(&mut undo, since, header);
        undo.end(Csn(since + 10));
        sessions.push(undo);
    }
    // The entry that is cleared away leaves last.
    [2, 0, 0].into_iter().for_each(|at| drop(sessions.remove(at)));
    let mut running = Undo::new(arena.clone());
    for _ in 0..6 {
        push(&mut running, FOREIGN, UndoPtr::NULL);
    }
    let view = Arc::new(View::of(&readers, &pins, (Xid(1), [].into()), || Csn(40)));
    let leaf = Arc::new(Mutex::new(LockRank::Database, ()));
    let writer = {
        let (arena, pins, view, leaf) = (arena.clone(), pins.clone(), view.clone(), leaf.clone());
        thread::spawn(move || {
            let _latched = leaf.lock();
            pause::set("undo: about to look behind an entry", wait_for_a_copy);
            let pinned = pins.pin(0, view.horizon());
            assert_ne!(arena.clear(header, Csn(40), pinned, &view).next, UndoPtr::NULL, "the reader needs one");
            pins.unpin(0);
        })
    };
    let other = {
        let arena = arena.clone();
        thread::spawn(move || {
            let mut undo = Undo::new(arena.clone());
            for _ in 0..3 {
                if !make_room(&arena, &pins, &mut undo) {
                    return;
                }
                push(&mut undo, FOREIGN, UndoPtr::NULL);
            }
        })
    };
    let read = || {
        let (mut image, mut fetched) = (Vec::new(), Fetched::default());
        let seen = loop {
            let latched = leaf.lock();
            let mut older = arena.older(header, old.csn, &mut image, || true);
            drop(latched);
            if let Older::Spilled(from) = older {
                older = fetched.answer(from, old.csn, &mut image);
            }
            match older {
                Older::Spilled(_) => arena.fetch(&mut fetched, 1, &|| false).expect("what was written"),
                seen => break seen,
            }
        };
        assert_eq!(seen, Older::Row(0, Csn(10)));
        assert!(image == [10; VALUE], "the version of commit 10");
    };
    read();
    writer.join().expect("the writer");
    other.join().expect("the other session");
    read();
}

/// A transaction enters changes until memory and file are spent or it has enough; its first one is of the row that
/// `header` leads to, linked as `behind` says. Then it takes all of them back, or commits, if it `may_stay`. Whether it
/// has committed.
pub(crate) fn take_back(
    arena: &Arc<Arena>,
    pins: &Pins,
    header: &Mutex<UndoPtr>,
    behind: impl Fn(UndoPtr) -> Link,
    may_stay: bool,
) -> bool {
    let mut undo = Undo::new(arena.clone());
    let (mut entered, mut before_it) = (0, UndoPtr::NULL);
    while entered < 5 && make_room(arena, pins, &mut undo) {
        let mut leaf = header.lock();
        let before = Before { undo: *leaf, ..Before::default() };
        let change =
            Undoable { kind: 1, table: TableId(7), body: &[entered; VALUE], before: Some(before), structure: 0 };
        let link = if entered == 0 { behind(*leaf) } else { Link::default() };
        let entry = undo.push(&change, &link);
        if entered == 0 {
            before_it = *leaf;
            *leaf = entry;
        }
        drop(leaf);
        undo.release(choose(2) == 0);
        entered += 1;
    }
    if may_stay && entered > 0 && choose(2) == 0 {
        undo.end(Csn(40));
        return true;
    }
    let mut back = undo.back();
    for n in (0..entered).rev() {
        let (entry, _) = undo.entry(&back).expect("what was written");
        assert!(entry.body == [n; VALUE], "entry {n}");
        if n == 0 {
            assert_eq!(entry.next, before_it, "what the header led to");
            *header.lock() = entry.next;
        }
        undo.drop_at(&mut back);
    }
    undo.end(Csn::ZERO);
    false
}

/// Two sessions, of which one owns changes of the row that `header` leads to and the other needs room, while readers
/// look for the version of commit 10.
fn beside_a_move_to_the_file(
    arena: &Arc<Arena>,
    pins: &Arc<Pins>,
    header: &Arc<Mutex<UndoPtr>>,
    owner: impl FnOnce() + Send + 'static,
) {
    let owner = thread::spawn(owner);
    let other = {
        let (arena, pins) = (arena.clone(), pins.clone());
        thread::spawn(move || {
            let mut undo = Undo::new(arena.clone());
            for _ in 0..3 {
                if make_room(&arena, &pins, &mut undo) {
                    push(&mut undo, FOREIGN, UndoPtr::NULL);
                }
                undo.release(true);
            }
            undo.end(Csn(50));
        })
    };
    let read = || {
        let (mut image, mut fetched) = (Vec::new(), Fetched::default());
        let seen = loop {
            let leaf = header.lock();
            let mut older = arena.older(*leaf, Csn(15), &mut image, || true);
            drop(leaf);
            if let Older::Spilled(from) = older {
                older = fetched.answer(from, Csn(15), &mut image);
            }
            match older {
                Older::Spilled(_) => arena.fetch(&mut fetched, 1, &|| false).expect("what was written"),
                seen => break seen,
            }
        };
        assert_eq!(seen, Older::Row(0, Csn(10)));
        assert!(image == [10; VALUE], "the version of commit 10");
    };
    (0..2).for_each(|_| read());
    owner.join().expect("the owner");
    other.join().expect("the other session");
    read();
}

/// The version that a reader sees lies behind that of a transaction that runs, which leads past a dead one between.
fn pass_beside_a_move_to_the_file() {
    let file = Mem::null().create(Path::new("/spill")).expect("a file");
    let arena = Arc::new(Arena::new(48 << 10, Some(SpillFile::of(file, 64 << 10))).expect("memory"));
    let (readers, pins) = (Readers::new(1), Arc::new(Pins::new(1)));
    let about = About::new("", Nanos::ZERO);
    readers.take(about, || Xid(1).into(), || Csn(15), None::<fn() -> Csn>, || Xid(1));
    let mut first = UndoPtr::NULL;
    for since in [10, 20] {
        let mut undo = Undo::new(arena.clone());
        first = push(&mut undo, since, first);
        undo.end(Csn(since + 10));
    }
    let header = Arc::new(Mutex::new(LockRank::Database, first));
    let view = View::of(&readers, &pins, (Xid(1), [].into()), || Csn(40));
    let owner = {
        let (arena, pins, header) = (arena.clone(), pins.clone(), header.clone());
        move || {
            let clear = |first: UndoPtr, csn: u64| {
                let pinned = pins.pin(0, view.horizon());
                let link = arena.clear(first, Csn(csn), pinned, &view);
                pins.unpin(0);
                link
            };
            if take_back(&arena, &pins, &header, |first| clear(first, 30), true) {
                let leaf = header.lock();
                assert_ne!(clear(*leaf, 40).next, UndoPtr::NULL, "the reader needs one");
            } else {
                assert_eq!(*header.lock(), first);
            }
        }
    };
    beside_a_move_to_the_file(&arena, &pins, &header, owner);
}

/// The version that a reader sees lies behind the change of a transaction that runs.
fn take_back_beside_a_move_to_the_file() {
    let file = Mem::null().create(Path::new("/spill")).expect("a file");
    let arena = Arc::new(Arena::new(48 << 10, Some(SpillFile::of(file, 64 << 10))).expect("memory"));
    let pins = Arc::new(Pins::new(1));
    let mut old = Undo::new(arena.clone());
    let header = Arc::new(Mutex::new(LockRank::Database, push(&mut old, 10, UndoPtr::NULL)));
    old.end(Csn(20));
    drop(old);
    let owner = {
        let (arena, pins, header) = (arena.clone(), pins.clone(), header.clone());
        let behind = |next| Link { since: Csn(20), next, ..Link::default() };
        move || assert!(!take_back(&arena, &pins, &header, behind, false))
    };
    beside_a_move_to_the_file(&arena, &pins, &header, owner);
}

#[test]
fn what_is_passed_may_go_to_the_file() {
    shuttle(ITERATIONS, pass_beside_a_move_to_the_file);
}

#[test]
fn a_transaction_takes_back_what_is_moved() {
    shuttle(ITERATIONS, take_back_beside_a_move_to_the_file);
}

#[test]
#[should_panic]
fn a_rollback_checks_behind_the_copy() {
    shuttle_mutated("undo: no look behind the copy", ITERATIONS, take_back_beside_a_move_to_the_file);
}

#[test]
#[should_panic]
fn a_session_without_agreement_keeps_its_chunks() {
    shuttle_mutated("undo: a chunk leaves unasked", ITERATIONS, take_back_beside_a_move_to_the_file);
}

#[test]
fn an_old_version_is_read_from_the_file() {
    shuttle(ITERATIONS, clear_beside_a_move_to_the_file);
}

#[test]
#[should_panic]
fn the_spill_of_a_chunk_must_wait_for_the_pins() {
    shuttle_mutated("undo: a chunk leaves under a pin", ITERATIONS, clear_beside_a_move_to_the_file);
}

#[test]
#[should_panic]
fn a_reader_looks_behind_what_it_has_read() {
    shuttle_mutated("undo: a reader looks only before it reads", ITERATIONS, clear_beside_a_move_to_the_file);
}

#[test]
fn an_old_version_stays_in_reach() {
    shuttle(ITERATIONS, clear_beside_another_session);
}

#[test]
#[should_panic]
fn an_entry_must_be_read_before_it_is_dropped() {
    shuttle_mutated("undo: an entry is dropped before it is read", ITERATIONS, clear_beside_another_session);
}

#[test]
fn an_old_version_stays_behind_changes_that_are_taken_back() {
    shuttle(ITERATIONS, change_beside_another_session);
}

#[test]
#[should_panic]
fn what_is_passed_must_stay_while_the_change_may_be_taken_back() {
    shuttle_mutated("undo: what is passed goes before the change is sure", ITERATIONS, change_beside_another_session);
}

#[test]
#[should_panic]
fn what_is_passed_must_go_once() {
    shuttle_mutated("undo: what is passed goes again and again", ITERATIONS, change_beside_another_session);
}

#[test]
fn what_is_passed_goes_with_its_chunk_when_the_older_reader_has_ended() {
    shuttle(ITERATIONS, change_when_the_older_reader_has_ended);
}

#[test]
#[should_panic(expected = "the version before")]
fn what_is_passed_must_not_go_twice_when_the_older_reader_has_ended() {
    let mutant = "undo: what is passed goes without a look at the pin";
    shuttle_mutated(mutant, ITERATIONS, change_when_the_older_reader_has_ended);
}
