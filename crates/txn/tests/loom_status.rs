//! Models of the status window: a reader of an old xid while its word is passed, reset and used again.
#![cfg(foreshore_loom)]
#![allow(dead_code, reason = "the window is taken as a whole")]

#[path = "../src/status.rs"]
mod status;

use foreshore_base::{Csn, Lsn, Xid};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use status::{Status, StatusWindow};
use std::sync::Arc;

/// Xid 1 has committed and is durable; xid 2 will have its word. A reader that asks for 1 must find it committed or
/// frozen, never live and never with the commit number of 2.
fn reader_and_slider() {
    let window = StatusWindow::new(1, Xid(1)).expect("memory");
    window.commit(Xid(1), Csn(10));
    let window = Arc::new(window);
    let slides = window.clone();
    let slider = thread::spawn(move || {
        slides.slide(Xid(2), Lsn(10), 1);
        assert_eq!(slides.cleared(), Xid(3));
        slides.commit(Xid(2), Csn(20));
    });
    let reader = thread::spawn(move || {
        let status = window.get(Xid(1));
        assert!(matches!(status, Status::Committed(Csn(10)) | Status::Frozen), "another's status: {status:?}");
    });
    slider.join().expect("the slider ends");
    reader.join().expect("the reader ends");
}

/// Who sees a commit sees what came before it.
fn commit_is_published() {
    let window = Arc::new(StatusWindow::new(2, Xid(1)).expect("memory"));
    let clock = Arc::new(AtomicU64::new(0));
    let (sets, raises) = (window.clone(), clock.clone());
    let writer = thread::spawn(move || {
        raises.store(10, Ordering::Relaxed);
        sets.commit(Xid(1), Csn(10));
    });
    let reader = thread::spawn(move || {
        if window.get(Xid(1)) == Status::Committed(Csn(10)) {
            assert_eq!(clock.load(Ordering::Relaxed), 10, "the clock is behind the status");
        }
    });
    writer.join().expect("the writer ends");
    reader.join().expect("the reader ends");
}

#[test]
fn a_reader_never_takes_another_xid_for_its_own() {
    check(reader_and_slider);
}

#[test]
fn a_commit_publishes_what_came_before_it() {
    check(commit_is_published);
}

#[test]
#[should_panic(expected = "another's status")]
fn a_reader_looks_at_the_window_twice() {
    mutated("status: no second look at the window", reader_and_slider);
}

#[test]
#[should_panic(expected = "another's status")]
fn the_window_moves_before_its_words_are_reset() {
    mutated("status: words reset before the window moves", reader_and_slider);
}
