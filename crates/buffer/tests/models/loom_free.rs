//! Models of the free list: no frame is taken twice, and none is lost.

use foreshore_buffer::model::{Frame, FrameNo, FreeList};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;

const FRAMES: usize = 3;

struct Store {
    frames: Vec<Frame>,
    list: FreeList,
    taken: Vec<AtomicBool>,
}

impl Store {
    fn new() -> Arc<Self> {
        let frames: Vec<_> = (0..FRAMES).map(|_| Frame::new()).collect();
        let list = FreeList::all(&frames);
        Arc::new(Self { frames, list, taken: (0..FRAMES).map(|_| AtomicBool::new(false)).collect() })
    }

    fn take(&self) -> Option<FrameNo> {
        let (no, left) = self.list.pop(&self.frames)?;
        assert!(left < FRAMES, "{left} left");
        assert!(!self.taken[no as usize].swap(true, Ordering::Relaxed), "frame {no} is taken twice");
        Some(no)
    }

    fn give(&self, no: FrameNo) {
        assert!(self.taken[no as usize].swap(false, Ordering::Relaxed), "frame {no} is given twice");
        self.list.push(&self.frames, no);
    }
}

/// One thread takes a frame while another takes two and pushes the first again: the top is the same frame, with another
/// one below it (ABA).
fn pop_against_pop_pop_push() {
    let store = Store::new();
    let threads: [Box<dyn FnOnce(&Store) -> usize + Send>; 2] = [
        Box::new(|store| usize::from(store.take().is_some())),
        Box::new(|store| {
            let (first, second) = (store.take(), store.take());
            if let Some(no) = first {
                store.give(no);
            }
            usize::from(second.is_some())
        }),
    ];
    let threads = threads.map(|work| {
        let store = store.clone();
        thread::spawn(move || work(&store))
    });
    let kept: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(kept, 2, "three frames were enough for both");
    let left = store.list.len(&store.frames);
    assert_eq!(std::iter::from_fn(|| store.take()).count(), left, "as many as the list says");
    assert_eq!(kept + left, FRAMES, "a frame is lost");
}

/// A pop of a frame that was just pushed on top of another finds that other one below.
fn push_against_pop_pop() {
    let store = Store::new();
    let [first, second] = [(); 2].map(|()| store.take().expect("three frames"));
    let threads = [first, second].map(|no| {
        let store = store.clone();
        thread::spawn(move || {
            store.give(no);
            usize::from(store.take().is_some())
        })
    });
    let kept: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!((kept, store.list.len(&store.frames)), (2, 1));
    assert!(store.take().is_some() && store.take().is_none());
}

#[test]
fn a_frame_is_taken_once() {
    check(pop_against_pop_pop_push);
}

#[test]
#[should_panic(expected = "frame")]
fn without_a_tag_a_frame_is_taken_twice() {
    mutated("free list: no tag", pop_against_pop_pop_push);
}

#[test]
fn frames_that_are_pushed_side_by_side_are_all_there() {
    check(push_against_pop_pop);
}

#[test]
#[should_panic]
fn a_push_that_publishes_nothing_loses_frames() {
    mutated("free list: relaxed push", push_against_pop_pop);
}
