//! The way behind a row is cleared of a version that nobody sees, while a session looks for memory to write its own entries
//! to: what an old reader sees stays where the way leads.
#![cfg(foreshore_shuttle)]
#![allow(dead_code, unreachable_pub, reason = "the parts are taken as a whole")]

#[path = "../src/past.rs"]
mod past;
#[path = "../src/pins.rs"]
mod pins;
#[path = "../src/readers.rs"]
mod readers;
#[path = "../src/status.rs"]
mod status;
#[path = "../src/undo/mod.rs"]
mod undo;
#[path = "../src/view.rs"]
mod view;

use foreshore_base::{Csn, TableId, Xid};
use foreshore_sync::Nanos;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use pins::Pins;
use readers::{About, Readers};
use std::sync::Arc;
use undo::{Arena, Before, Link, Older, Undo, UndoPtr, Undoable};
use view::View;

const ITERATIONS: usize = 200;
/// So large that each entry has a chunk of its own, and drops it when it goes.
const VALUE: usize = 5000;
/// The number of a commit that the row has nothing to do with.
const FOREIGN: u64 = 15;

/// Enters a change of a row whose value is made of bytes of its commit's number.
fn push(undo: &mut Undo, since: u64, next: UndoPtr) -> UndoPtr {
    undo.reserve(VALUE, false, || Csn::ZERO).expect("memory");
    let value = [since as u8; VALUE];
    let before = Before { back: &value, ..Before::default() };
    let change = Undoable { kind: 1, table: TableId(7), body: &[], before: Some(before) };
    undo.push(&change, &Link { since: Csn(since), next, ..Link::default() })
}

fn clear_beside_another_session() {
    let arena = Arc::new(Arena::new(64 << 10).expect("memory"));
    let (readers, pins) = (Readers::new(1), Pins::new(1));
    let about = About { label: "", since: Nanos::ZERO };
    let old = readers.take(about, || Xid(1), || Csn(15), None::<fn() -> Csn>, || Xid(1)).expect("a slot");
    // Commits 10, 20, 30 and 40 have changed the row. The reader sees that of 10, and nobody that of 20.
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
    assert!(arena.clear(header, Csn(40), view.horizon(), &view).is_some(), "the reader needs one");
    let mut image = Vec::new();
    assert_eq!(arena.older(header, old.csn, &mut image, || true), Older::Row(0, Csn(10)));
    assert!(image == [10; VALUE], "the version of commit 10");
    other.join().expect("the other session");
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
