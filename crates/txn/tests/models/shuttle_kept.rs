//! A reader keeps what it has fetched from the file, while transactions change its rows, roll back, and donate their
//! chunks. What it sees of a row is never what it has fetched for another one.

use crate::shuttle_undo::{VALUE, push, take_back};
use crate::undo::{Arena, Fetched, Link, Older, SpillFile, Undo, UndoPtr};
use crate::visibility::pins::Pins;
use foreshore_base::Csn;
use foreshore_io::{Fs, Mem};
use foreshore_sync::model::{choose, shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use std::path::Path;
use std::sync::Arc;

const ITERATIONS: usize = 200;
/// The commits whose versions the reader sees, one of each row. Commit 20 has changed both rows.
const SEEN: [u64; 2] = [10, 12];
const AT: Csn = Csn(15);
const READS: usize = 80;

/// One transaction after another changes one of two rows, fills memory and part of the file, and rolls back. The next
/// one has its entry where the one before had its own.
fn rows_change_while_answers_are_kept() {
    let file = Mem::null().create(Path::new("/spill")).expect("a file");
    let arena = Arc::new(Arena::new(32 << 10, Some(SpillFile::of(file, 64 << 10))).expect("memory"));
    let mut old = Undo::new(arena.clone());
    let rows = Arc::new(SEEN.map(|since| Mutex::new(LockRank::Database, push(&mut old, since, UndoPtr::NULL))));
    old.end(Csn(20));
    drop(old);
    let owner = {
        let (arena, rows) = (arena.clone(), rows.clone());
        thread::spawn(move || {
            let pins = Pins::new(1);
            let behind = |next| Link { since: Csn(20), next, ..Link::default() };
            for _ in 0..4 {
                take_back(&arena, &pins, &rows[choose(2) as usize], behind, false);
            }
        })
    };
    let (mut fetched, mut image) = (Fetched::default(), Vec::new());
    // A bounded number: schedules may be unfair.
    for _ in 0..READS {
        let row = choose(2) as usize;
        let leaf = rows[row].lock();
        let mut older = arena.older(*leaf, AT, &mut image, || true);
        drop(leaf);
        if let Older::Spilled(from) = older {
            older = fetched.answer(from, AT, &mut image);
        }
        if let Older::Spilled(_) = older {
            arena.fetch(&mut fetched, 1, &|| false).expect("what was written");
        } else {
            let is_right = older == Older::Row(0, Csn(SEEN[row])) && image == [SEEN[row] as u8; VALUE];
            assert!(is_right, "the version of row {row}");
        }
        thread::yield_now();
    }
    owner.join().expect("the owner");
}

#[test]
fn an_answer_that_is_kept_is_of_its_row() {
    shuttle(ITERATIONS, rows_change_while_answers_are_kept);
}

#[test]
#[should_panic(expected = "the version of row")]
fn an_answer_must_be_of_one_place() {
    shuttle_mutated(
        "undo: an answer is for any place of its entry",
        20 * ITERATIONS,
        rows_change_while_answers_are_kept,
    );
}
