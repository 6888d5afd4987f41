//! Models of the status window: a reader of an old xid while its word is passed, reset and used again, and readers of a
//! commit that is under way.

use crate::visibility::EarlierXids;
use crate::visibility::readers::Readers;
use crate::visibility::status::{Sight, Status, StatusWindow};
use foreshore_base::{Csn, Xid};
use foreshore_sync::model::{check, mutant, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::ops::Range;
use std::sync::Arc;

fn window(capacity: usize) -> StatusWindow {
    StatusWindow::new(capacity, 1, Xid(1)).expect("memory")
}

fn commit(window: &StatusWindow, xid: Xid, csn: Csn) {
    window.enter(xid);
    window.begin_commit(xid);
    window.commit(xid, csn, |least| least);
}

/// Xid 1 has committed and is durable; xid 2 will have its word. A reader that asks for 1 must find it committed or
/// frozen, never live and never with the commit number of 2.
fn reader_and_slider() {
    let window = Arc::new(window(1));
    commit(&window, Xid(1), Csn(10));
    let slides = window.clone();
    let slider = thread::spawn(move || {
        slides.slide(Xid(2), Csn(10), 1, &Readers::new(1));
        assert_eq!(slides.cleared(), Xid(3));
        commit(&slides, Xid(2), Csn(20));
    });
    let reader = thread::spawn(move || {
        let status = window.get(Xid(1));
        assert!(matches!(status, Status::Committed(Csn(10)) | Status::Frozen), "another's status: {status:?}");
    });
    slider.join().expect("the slider ends");
    reader.join().expect("the reader ends");
}

/// As `reader_and_slider`, with a session that draws xid 2 from a third thread: neither the spare xid nor the
/// transaction that begins with it is taken for xid 1.
fn reader_and_next_owner() {
    let window = Arc::new(window(1));
    commit(&window, Xid(1), Csn(10));
    let (slides, draws) = (window.clone(), window.clone());
    let slider = thread::spawn(move || {
        slides.slide(Xid(2), Csn(10), 1, &Readers::new(1));
    });
    let session = thread::spawn(move || {
        if draws.cleared() > Xid(2) {
            draws.set_aside(2..3);
            assert!(draws.begin(Xid(2)), "it is not void");
        }
    });
    let reader = thread::spawn(move || {
        let status = window.get(Xid(1));
        assert!(matches!(status, Status::Committed(Csn(10)) | Status::Frozen), "another's status: {status:?}");
    });
    slider.join().expect("the slider ends");
    session.join().expect("the session ends");
    reader.join().expect("the reader ends");
}

/// Looks twice at xid 1, which is committing.
fn push_twice(window: &StatusWindow, durable: &AtomicU64) {
    // A snapshot below the commit pushes; one at or above it must see it.
    let csn = Csn(10);
    let sight = window.see(Xid(1), csn);
    let later = window.see(Xid(1), csn);
    match (sight, later) {
        (Sight::Invisible, Sight::Visible(_)) => panic!("another was pushed"),
        // Passed: its number is durable, and what this model's reader may not see is told by it.
        (Sight::Invisible, Sight::Frozen) => {
            assert!(durable.load(Ordering::Acquire) > csn.0, "another was pushed");
        }
        _ => {}
    }
}

/// As `reader_and_slider`, while xid 1 is committing: a snapshot that was taken when it was durable must not push xid 2
/// and call 1 invisible.
fn push_and_slider() {
    let window = Arc::new(window(1));
    window.enter(Xid(1));
    window.begin_commit(Xid(1));
    let durable = Arc::new(AtomicU64::new(0));
    let (slides, raises) = (window.clone(), durable.clone());
    let slider = thread::spawn(move || {
        let csn = slides.commit(Xid(1), Csn(10), |least| least);
        raises.store(csn.0, Ordering::Release);
        slides.slide(Xid(2), csn, 1, &Readers::new(1));
        slides.enter(Xid(2));
        slides.begin_commit(Xid(2));
    });
    let reader = thread::spawn(move || push_twice(&window, &durable));
    slider.join().expect("the slider ends");
    reader.join().expect("the reader ends");
}

/// A window of two words that has passed xid 1, which runs and is pinned: it has the word of xids 3 and 5, too.
fn with_pinned() -> Arc<StatusWindow> {
    let window = window(2);
    window.enter(Xid(1));
    assert_eq!(window.slide(Xid(2), Csn(1), 1, &Readers::new(1)), 1);
    assert_eq!((window.lo(), window.pinned()), (Xid(2), 1));
    Arc::new(window)
}

/// Draws xids as a session, and has each that is not void commit.
fn draw_and_commit(window: &StatusWindow, xids: Range<u64>, csn: Csn) {
    window.set_aside(xids.clone());
    for xid in xids.map(Xid).filter(|&xid| window.begin(xid)) {
        window.begin_commit(xid);
        window.commit(xid, csn, |least| least);
    }
}

/// Xid 1 runs while the window passes it, and while the next xids, one of them with its word, are drawn: a reader finds
/// it live.
fn reader_and_pinner() {
    let window = Arc::new(window(2));
    window.enter(Xid(1));
    let slides = window.clone();
    let slider = thread::spawn(move || {
        slides.slide(Xid(2), Csn(1), 1, &Readers::new(1));
        draw_and_commit(&slides, 2..slides.cleared().0, Csn(20));
    });
    let reader = thread::spawn(move || {
        let status = window.get(Xid(1));
        assert_eq!(status, Status::Live, "another's status");
    });
    slider.join().expect("the slider ends");
    reader.join().expect("the reader ends");
}

/// Xid 1 has committed and is unpinned, and xid 5 gets its word: a reader finds 1 committed, with its own number, or
/// frozen.
fn reader_and_unpinner() {
    let window = with_pinned();
    commit(&window, Xid(2), Csn(5));
    window.begin_commit(Xid(1));
    window.commit(Xid(1), Csn(10), |least| least);
    let slides = window.clone();
    let slider = thread::spawn(move || {
        slides.slide(Xid(4), Csn(10), 2, &Readers::new(1));
        assert_eq!((slides.cleared(), slides.pinned()), (Xid(6), 0));
        draw_and_commit(&slides, 5..6, Csn(20));
    });
    let reader = thread::spawn(move || {
        let status = window.get(Xid(1));
        assert!(matches!(status, Status::Committed(Csn(10)) | Status::Frozen), "another's status: {status:?}");
    });
    slider.join().expect("the slider ends");
    reader.join().expect("the reader ends");
}

/// As `push_and_slider`, with xid 1 pinned and its word used again by xid 5.
fn push_and_unpinner() {
    let window = with_pinned();
    commit(&window, Xid(2), Csn(5));
    window.begin_commit(Xid(1));
    let durable = Arc::new(AtomicU64::new(0));
    let (slides, raises) = (window.clone(), durable.clone());
    let slider = thread::spawn(move || {
        let csn = slides.commit(Xid(1), Csn(10), |least| least);
        raises.store(csn.0, Ordering::Release);
        slides.slide(Xid(4), csn, 2, &Readers::new(1));
        slides.enter(Xid(5));
        slides.begin_commit(Xid(5));
    });
    let reader = thread::spawn(move || push_twice(&window, &durable));
    slider.join().expect("the slider ends");
    reader.join().expect("the reader ends");
}

/// Xid 1 has ended, and a session has drawn xid 3, which is void, and stands still. Meanwhile the window passes both,
/// and another session draws xid 5, which has the same word: that one has it alone.
fn stalled_draw() {
    let window = with_pinned();
    commit(&window, Xid(2), Csn(5));
    window.abort(Xid(1));
    let (slides, draws) = (window.clone(), window.clone());
    let slider = thread::spawn(move || {
        slides.slide(Xid(4), Csn(10), 2, &Readers::new(1));
        slides.set_aside(5..6);
        assert!(slides.begin(Xid(5)), "two have the word");
        assert_eq!(slides.get(Xid(5)), Status::Live, "two have the word");
    });
    let session = thread::spawn(move || {
        draws.set_aside(3..4);
        assert!(!draws.begin(Xid(3)), "two have the word");
    });
    slider.join().expect("the slider ends");
    session.join().expect("the session ends");
    assert_eq!(window.get(Xid(5)), Status::Live, "two have the word");
}

/// A loser of the previous run is undone while a reader asks for it. If the reader finds that it has ended, it finds
/// its change undone. The reader finds it frozen by the bounds of the window, too.
fn reader_and_undo() {
    let window = StatusWindow::new(2, 1, Xid(65)).expect("memory");
    window.hold_earlier(EarlierXids { first: Xid(64), ended: vec![0] });
    let (window, row) = (Arc::new(window), Arc::new(AtomicU64::new(7)));
    let (ends, undoes) = (window.clone(), row.clone());
    let undo = thread::spawn(move || {
        undoes.store(0, Ordering::Relaxed);
        ends.end_earlier();
    });
    let reader = thread::spawn(move || {
        let has_ended = window.frozen().has(Xid(64)) || window.get(Xid(64)) == Status::Frozen;
        assert!(!has_ended || row.load(Ordering::Relaxed) == 0, "a row of a loser is seen");
    });
    undo.join().expect("the undo ends");
    reader.join().expect("the reader ends");
}

/// A reader that sees a commit sees what came before it.
fn commit_is_published() {
    let window = Arc::new(window(2));
    let clock = Arc::new(AtomicU64::new(0));
    let (sets, raises) = (window.clone(), clock.clone());
    let writer = thread::spawn(move || {
        raises.store(10, Ordering::Relaxed);
        commit(&sets, Xid(1), Csn(10));
    });
    let reader = thread::spawn(move || {
        if window.get(Xid(1)) == Status::Committed(Csn(10)) {
            assert_eq!(clock.load(Ordering::Relaxed), 10, "the clock is behind the status");
        }
    });
    writer.join().expect("the writer ends");
    reader.join().expect("the reader ends");
}

/// Two readers and a commit: each looks twice and finds the same; a thread that is told of the commit takes a snapshot
/// that sees it (T10). The log is a clock that commits are drawn from.
fn readers_and_commit() {
    let window = Arc::new(window(2));
    window.enter(Xid(1));
    let clock = Arc::new(AtomicU64::new(10));
    let told = Arc::new(AtomicU64::new(0));
    let (sets, draws, tells) = (window.clone(), clock.clone(), told.clone());
    let writer = thread::spawn(move || {
        let append = || Csn(draws.fetch_add(1, Ordering::AcqRel) + 1);
        let late = mutant("commit: under way after the record").then(append);
        sets.begin_commit(Xid(1));
        let csn = late.unwrap_or_else(append);
        let csn = sets.commit(Xid(1), csn, |least| {
            if !mutant("commit: no raise of the clock") {
                draws.fetch_max(least.0, Ordering::AcqRel);
            }
            least
        });
        tells.store(csn.0, Ordering::Release);
    });
    let read = |window: Arc<StatusWindow>, clock: Arc<AtomicU64>, told: Arc<AtomicU64>| {
        let acknowledged = told.load(Ordering::Acquire);
        let csn = Csn(clock.load(Ordering::Acquire));
        let first = window.see(Xid(1), csn);
        assert_eq!(first, window.see(Xid(1), csn), "a snapshot changes");
        assert!(acknowledged == 0 || first == Sight::Visible(Csn(acknowledged)), "told and not seen");
    };
    let readers = [(); 2].map(|()| {
        let (window, clock, told) = (window.clone(), clock.clone(), told.clone());
        thread::spawn(move || read(window, clock, told))
    });
    writer.join().expect("the writer ends");
    readers.into_iter().for_each(|reader| reader.join().expect("the reader ends"));
    // A reader that comes when all is over, with the log idle.
    let csn = Csn(clock.load(Ordering::Acquire));
    assert!(matches!(window.see(Xid(1), csn), Sight::Visible(_)), "told and not seen");
}

#[test]
fn a_reader_never_takes_another_xid_for_its_own() {
    check(reader_and_slider);
}

#[test]
fn a_reader_never_takes_a_spare_xid_for_its_own() {
    check(reader_and_next_owner);
}

#[test]
#[should_panic(expected = "another's status")]
fn xids_are_set_aside_after_the_window_has_moved() {
    mutated("status: relaxed spare xids", reader_and_next_owner);
}

#[test]
fn a_push_never_hits_another_xid_unnoticed() {
    check(push_and_slider);
}

#[test]
fn a_commit_publishes_what_came_before_it() {
    check(commit_is_published);
}

#[test]
fn a_snapshot_stays_as_it_is_and_a_reader_told_of_a_commit_sees_it() {
    check(readers_and_commit);
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

#[test]
#[should_panic(expected = "another was pushed")]
fn a_pusher_checks_the_window_again() {
    mutated("status: no look at the window after a push", push_and_slider);
}

#[test]
#[should_panic(expected = "told and not seen")]
fn a_pushed_commit_raises_the_clock() {
    mutated("commit: no raise of the clock", readers_and_commit);
}

#[test]
#[should_panic(expected = "a snapshot changes")]
fn a_commit_is_under_way_before_its_record() {
    mutated("commit: under way after the record", readers_and_commit);
}

#[test]
#[should_panic(expected = "a snapshot changes")]
fn a_reader_pushes_a_commit_out_of_its_way() {
    mutated("status: a commit is not pushed", readers_and_commit);
}

#[test]
#[should_panic(expected = "a snapshot changes")]
fn a_commit_that_was_pushed_takes_the_higher_number() {
    mutated("status: a pushed commit keeps its number", readers_and_commit);
}

#[test]
fn a_reader_that_finds_a_loser_over_finds_it_undone() {
    check(reader_and_undo);
}

#[test]
#[should_panic(expected = "a row of a loser is seen")]
fn the_end_of_a_loser_is_published() {
    mutated("earlier: the end of losers is not published", reader_and_undo);
}

#[test]
fn a_reader_finds_a_pinned_xid_live() {
    check(reader_and_pinner);
}

#[test]
#[should_panic(expected = "another's status")]
fn an_xid_is_pinned_before_the_window_passes_it() {
    mutated("status: the window moves before its xids are pinned", reader_and_pinner);
}

#[test]
#[should_panic(expected = "another's status")]
fn xids_with_the_word_of_a_pinned_one_are_void() {
    mutated("status: void xids are drawn", reader_and_pinner);
}

#[test]
fn a_reader_never_takes_the_word_of_an_unpinned_xid_for_its_own() {
    check(reader_and_unpinner);
}

#[test]
#[should_panic(expected = "another's status")]
fn a_reader_looks_at_the_pin_twice() {
    mutated("status: no second look at the pin", reader_and_unpinner);
}

#[test]
fn a_push_of_a_pinned_xid_never_hits_another_unnoticed() {
    check(push_and_unpinner);
}

#[test]
#[should_panic(expected = "another was pushed")]
fn a_reader_that_has_pushed_looks_at_the_pin_again() {
    mutated("status: no look at the window after a push", push_and_unpinner);
}

#[test]
fn a_session_that_stood_still_takes_no_word_from_another() {
    check(stalled_draw);
}

#[test]
#[should_panic(expected = "two have the word")]
fn a_session_looks_at_the_window_when_it_has_drawn() {
    mutated("status: no look at the window at a draw", stalled_draw);
}
