use super::*;
use crate::visibility::earlier::EarlierXids;
use crate::visibility::past::Past;
use crate::visibility::readers::{About, Mark, Readers};
use foreshore_sync::Nanos;

fn window(capacity: usize) -> StatusWindow {
    StatusWindow::new(capacity, 2, Xid(1)).expect("memory")
}

fn no_readers() -> Readers {
    Readers::new(1)
}

impl StatusWindow {
    /// Commits a transaction that no reader pushes.
    fn commit_at(&self, xid: Xid, csn: Csn) {
        self.enter(xid);
        self.end_at(xid, csn);
    }

    /// Commits a running transaction that no reader pushes.
    fn end_at(&self, xid: Xid, csn: Csn) {
        self.begin_commit(xid);
        assert_eq!(self.commit(xid, csn, |_| panic!("no reader pushes")), csn);
    }
}

/// A reader with a snapshot at `csn`, and `hi` as the first xid that came after it.
fn reader(readers: &Readers, window: &StatusWindow, csn: u64, hi: u64) -> Mark {
    let about = About::new("reader", Nanos::ZERO);
    let (frozen, durable, next) = (|| window.frozen(), || Csn(csn), || Xid(hi));
    let no_clock = None::<fn() -> Csn>;
    readers.take(about, frozen, durable, no_clock, next)
}

#[test]
fn a_status_goes_from_live_to_its_end() {
    let window = window(16);
    assert_eq!(window.get(Xid(1)), Status::Spare);
    (1..4).for_each(|xid| window.enter(Xid(xid)));
    assert_eq!(window.get(Xid(1)), Status::Live);
    window.begin_commit(Xid(1));
    assert_eq!(window.get(Xid(1)), Status::Live, "live until its number is final");
    window.commit(Xid(1), Csn(70), |_| panic!("no reader pushes"));
    window.abort(Xid(2));
    assert_eq!([1, 2, 3].map(|xid| window.get(Xid(xid))), [Status::Committed(Csn(70)), Status::Aborted, Status::Live]);
}

#[test]
#[should_panic(expected = "set once")]
fn a_status_is_set_once() {
    let window = window(16);
    window.commit_at(Xid(1), Csn(70));
    window.abort(Xid(1));
}

#[test]
fn a_snapshot_sees_what_is_not_above_it() {
    let window = window(16);
    window.commit_at(Xid(1), Csn(70));
    (2..4).for_each(|xid| window.enter(Xid(xid)));
    window.abort(Xid(2));
    assert_eq!(window.see(Xid(1), Csn(69)), Sight::Invisible);
    assert_eq!(window.see(Xid(1), Csn(70)), Sight::Visible(Csn(70)));
    assert_eq!(window.see(Xid(2), Csn(1)), Sight::Visible(Csn::ZERO), "its rows are as they were before it");
    assert_eq!(window.see(Xid(3), Csn(1000)), Sight::Invisible, "it runs");
}

#[test]
fn a_reader_pushes_a_commit_above_its_snapshot() {
    let window = window(16);
    window.enter(Xid(1));
    window.begin_commit(Xid(1));
    assert_eq!(window.see(Xid(1), Csn(80)), Sight::Invisible);
    assert_eq!(window.see(Xid(1), Csn(75)), Sight::Invisible, "it has been pushed further");
    let mut asked = Vec::new();
    let csn = window.commit(Xid(1), Csn(70), |least| {
        asked.push(least);
        // Another reader pushes while the clock is raised to the number.
        if asked.len() == 1 {
            assert_eq!(window.see(Xid(1), Csn(90)), Sight::Invisible);
        }
        least
    });
    assert_eq!((csn, asked), (Csn(91), vec![Csn(81), Csn(91)]));
    assert_eq!(window.see(Xid(1), Csn(90)), Sight::Invisible);
    assert_eq!(window.see(Xid(1), Csn(91)), Sight::Visible(Csn(91)));
}

#[test]
fn a_push_below_the_record_changes_nothing() {
    let window = window(16);
    window.enter(Xid(1));
    window.begin_commit(Xid(1));
    assert_eq!(window.see(Xid(1), Csn(60)), Sight::Invisible);
    assert_eq!(window.commit(Xid(1), Csn(70), |_| panic!("the record is above it")), Csn(70));
}

#[test]
fn the_window_passes_only_what_is_final_and_durable() {
    let (window, readers) = (window(16), no_readers());
    let slide = |durable, most| window.slide(Xid(7), Csn(durable), most, &readers);
    (1..7).for_each(|xid| window.enter(Xid(xid)));
    window.end_at(Xid(1), Csn(10));
    window.abort(Xid(2));
    window.end_at(Xid(3), Csn(30));
    window.begin_commit(Xid(5));
    window.end_at(Xid(6), Csn(20));
    assert_eq!(slide(9, 100), 0, "the first is not durable");
    assert_eq!(slide(25, 1), 1, "no more than asked for");
    assert_eq!(slide(25, 100), 1, "the third is not durable");
    assert_eq!((window.lo(), window.cleared()), (Xid(3), Xid(19)));
    assert_eq!(slide(30, 100), 1, "the fourth runs");
    assert_eq!(window.get(Xid(3)), Status::Frozen);
    window.abort(Xid(4));
    assert_eq!(slide(30, 100), 1, "the fifth has no number yet");
    window.commit(Xid(5), Csn(25), |_| panic!("no reader pushes"));
    assert_eq!(slide(30, 100), 2);
    assert_eq!(slide(30, 100), 0, "the seventh was not handed out");
    assert_eq!((window.lo(), window.cleared()), (Xid(7), Xid(23)));
}

#[test]
fn a_word_is_used_again_as_new() {
    let window = window(16);
    for xid in (1..200).map(Xid) {
        assert!(xid < window.cleared());
        window.enter(xid);
        assert_eq!(window.get(xid), Status::Live, "{xid}");
        window.end_at(xid, Csn(xid.0 * 10));
        assert_eq!(window.get(xid), Status::Committed(Csn(xid.0 * 10)));
        window.slide(Xid(xid.0 + 1), Csn(xid.0 * 10), 100, &no_readers());
        assert_eq!(window.get(xid), Status::Frozen);
    }
}

/// Readers do not stop the window. A commit above the snapshot of a reader is noted as late until that reader ends.
#[test]
fn the_window_passes_readers_and_notes_commits_above_their_snapshots() {
    let (window, readers) = (window(16), Readers::new(4));
    // 2 and 4 ran when the first snapshot was taken, 5 came after it.
    let first = reader(&readers, &window, 25, 5);
    window.commit_at(Xid(1), Csn(10));
    window.commit_at(Xid(2), Csn(40));
    window.enter(Xid(3));
    window.abort(Xid(3));
    window.commit_at(Xid(4), Csn(60));
    window.commit_at(Xid(5), Csn(30));
    let second = reader(&readers, &window, 50, 6);
    assert_eq!(window.slide(Xid(6), Csn(60), 100, &readers), 5);
    assert_eq!(*window.late().1, [(Xid(2), Some(Csn(40))), (Xid(4), Some(Csn(60)))]);
    assert_eq!(window.late_for(first.csn), (Xid(6), vec![Xid(2), Xid(4)], vec![]));
    assert_eq!(window.late_for(second.csn), (Xid(6), vec![Xid(4)], vec![]));
    readers.release(&first);
    window.commit_at(Xid(6), Csn(70));
    assert_eq!(window.slide(Xid(7), Csn(70), 100, &readers), 1);
    assert_eq!(*window.late().1, [(Xid(4), Some(Csn(60)))], "only the second reader still needs one");
    readers.release(&second);
    window.commit_at(Xid(7), Csn(80));
    assert_eq!(window.slide(Xid(8), Csn(80), 100, &readers), 1);
    assert_eq!(*window.late().1, []);
}

/// Draws `xid` as a session does and commits it, unless it is void.
fn draw_and_commit(window: &StatusWindow, xid: Xid) -> bool {
    window.set_aside(xid.0..xid.0 + 1);
    let has_begun = window.begin(xid);
    if has_begun {
        window.end_at(xid, Csn(xid.0 * 10));
    }
    has_begun
}

/// Xid 1 runs while far more xids are drawn than the window has words.
#[test]
fn an_old_xid_is_pinned_and_those_with_its_word_are_void() {
    let (window, readers) = (window(16), Readers::new(4));
    window.enter(Xid(1));
    let slide = |xid: u64| window.slide(Xid(xid), Csn(xid * 10), 100, &readers);
    for xid in 2..200 {
        assert!(Xid(xid) < window.cleared(), "{xid}");
        assert_eq!(draw_and_commit(&window, Xid(xid)), xid % 16 != 1, "{xid}");
        slide(xid + 1);
        // Xid 1 is pinned, and passed, once half a window of later xids was drawn.
        assert_eq!(window.lo() > Xid(1), xid >= 8, "{xid}");
        assert_eq!(window.get(Xid(1)), Status::Live);
        assert_eq!(window.see(Xid(1), Csn(u64::MAX >> 2)), Sight::Invisible);
    }
    assert_eq!((window.lo(), window.pinned()), (Xid(200), 1));
    assert_eq!(window.frozen(), FrozenXids { below: Xid(1), above: Xid(1), lo: Xid(200) });
    assert_eq!([17, 33, 199].map(|xid| window.get(Xid(xid))), [Status::Frozen; 3]);
    assert_eq!(window.late_for(Csn(1)).2, [Xid(1)]);
    assert_eq!(*window.late().1, [(Xid(1), None)]);

    let reader = reader(&readers, &window, 1990, 200);
    window.end_at(Xid(1), Csn(2000));
    assert_eq!(window.get(Xid(1)), Status::Committed(Csn(2000)));
    assert_eq!(slide(199), 0, "it is not durable");
    assert_eq!((window.get(Xid(1)), window.pinned()), (Status::Committed(Csn(2000)), 1));
    slide(200);
    assert_eq!((window.get(Xid(1)), window.pinned()), (Status::Frozen, 0));
    assert_eq!(*window.late().1, [(Xid(1), Some(Csn(2000)))], "the reader needs it");
    readers.release(&reader);
    // Xid 209 shares the word of xid 1, which is being unpinned, so it is still void. The next such xid is not.
    for xid in 200..300 {
        assert_eq!(draw_and_commit(&window, Xid(xid)), xid != 209, "{xid}");
        slide(xid + 1);
    }
    assert_eq!((window.lo(), window.late().1.len()), (Xid(300), 0));
}

#[test]
fn a_pinned_commit_is_pushed_and_a_pinned_rollback_is_seen() {
    let (window, readers) = (window(16), no_readers());
    (1..3).for_each(|xid| window.enter(Xid(xid)));
    (3..11).for_each(|xid| window.commit_at(Xid(xid), Csn(xid)));
    window.begin_commit(Xid(1));
    assert_eq!(window.slide(Xid(11), Csn(20), 100, &readers), 10);
    assert_eq!(window.pinned(), 2);
    assert_eq!(window.see(Xid(1), Csn(30)), Sight::Invisible);
    assert_eq!(window.commit(Xid(1), Csn(25), |least| least), Csn(31));
    assert_eq!(window.see(Xid(1), Csn(31)), Sight::Visible(Csn(31)));
    window.abort(Xid(2));
    assert_eq!(window.see(Xid(2), Csn(1)), Sight::Visible(Csn::ZERO));
    assert_eq!(window.get(Xid(2)), Status::Aborted);
    window.slide(Xid(11), Csn(20), 100, &readers);
    assert_eq!([1, 2].map(|xid| window.get(Xid(xid))), [Status::Committed(Csn(31)), Status::Frozen]);
}

/// One more transaction runs than can be pinned.
#[test]
fn more_running_transactions_than_can_be_pinned_stop_the_window() {
    let (window, readers) = (window(16), no_readers());
    (1..4).for_each(|xid| window.enter(Xid(xid)));
    (4..17).for_each(|xid| window.commit_at(Xid(xid), Csn(xid)));
    assert_eq!(window.slide(Xid(17), Csn(20), 100, &readers), 2);
    assert_eq!(window.slide(Xid(17), Csn(20), 100, &readers), 0);
    window.abort(Xid(1));
    // The window goes on: xid 3 is pinned in place of xid 1, which has ended.
    assert_eq!(window.slide(Xid(17), Csn(20), 100, &readers), 14);
    assert_eq!((window.pinned(), window.cleared()), (2, Xid(33)));
}

/// A session draws a void xid and stalls while the window goes round. It finds that the xid is not its own.
#[test]
fn a_void_xid_that_was_drawn_long_ago_is_void_still() {
    let (window, readers) = (window(16), no_readers());
    window.enter(Xid(1));
    (2..17).for_each(|xid| window.commit_at(Xid(xid), Csn(xid)));
    window.slide(Xid(17), Csn(20), 100, &readers);
    window.abort(Xid(1));
    // 17 is void and drawn, and the window passes it.
    window.slide(Xid(18), Csn(20), 100, &readers);
    assert_eq!(window.lo(), Xid(18));
    window.set_aside(17..18);
    assert!(!window.begin(Xid(17)));
    window.void(Xid(17));
    (18..33).for_each(|xid| window.commit_at(Xid(xid), Csn(xid)));
    window.set_aside(33..34);
    assert!(!window.begin(Xid(17)), "the word is that of 33");
    assert!(window.begin(Xid(33)));
}

/// A window whose run begins at xid 200. Of the previous run, 130, 131 and 190 may be live.
fn with_earlier() -> StatusWindow {
    let window = StatusWindow::new(16, 2, Xid(200)).expect("memory");
    let mut ended = vec![u64::MAX; 2];
    [130, 131, 190].into_iter().for_each(|xid: usize| ended[(xid - 128) / 64] &= !(1 << (xid % 64)));
    window.hold_earlier(EarlierXids { first: Xid(128), ended });
    window
}

#[test]
fn earlier_xids_are_live_until_they_end_and_visible_from_then_on() {
    let (window, readers) = (with_earlier(), Readers::new(4));
    let live = |window: &StatusWindow| (1..200).filter(|&xid| window.get(Xid(xid)) == Status::Live).collect::<Vec<_>>();
    assert_eq!(live(&window), [130, 131, 190]);
    assert_eq!(window.frozen(), FrozenXids { below: Xid(128), above: Xid(199), lo: Xid(200) });
    let snapshot = reader(&readers, &window, 500, 200);
    let past = Past::new(&snapshot);
    assert_eq!([130, 190].map(|xid| past.sees(&window, &snapshot, Xid(xid))), [None; 2]);
    assert_eq!([1, 127, 128, 150].map(|xid| past.sees(&window, &snapshot, Xid(xid))), [Some(Csn::ZERO); 4]);
    window.end_earlier();
    assert!(live(&window).is_empty());
    let seen = [130, 190].map(|xid| past.sees(&window, &snapshot, Xid(xid)));
    assert_eq!(seen, [Some(Csn::ZERO); 2], "their rows are as they were before them");
    assert_eq!(window.frozen(), FrozenXids { below: Xid(200), above: Xid::ZERO, lo: Xid(200) });
}

/// The window goes round, and pins and unpins xids of this run, while earlier ones are live. A snapshot that has asked
/// for late commits still finds them live.
#[test]
fn the_window_moves_beside_earlier_xids() {
    let (window, readers) = (with_earlier(), Readers::new(4));
    let snapshot = reader(&readers, &window, 2005, 202);
    let past = Past::new(&snapshot);
    (200..202).for_each(|xid| window.enter(Xid(xid)));
    for xid in 202..300 {
        draw_and_commit(&window, Xid(xid));
        window.slide(Xid(xid + 1), Csn(xid * 10), 100, &readers);
    }
    assert_eq!((window.pinned(), window.lo()), (2, Xid(300)));
    window.end_at(Xid(201), Csn(3000));
    window.slide(Xid(300), Csn(3000), 100, &readers);
    assert_eq!(past.sees(&window, &snapshot, Xid(201)), None, "a late commit");
    assert_eq!([130, 190].map(|xid| past.sees(&window, &snapshot, Xid(xid))), [None; 2]);
    window.abort(Xid(200));
    window.slide(Xid(300), Csn(3000), 100, &readers);
    assert_eq!([131, 190].map(|xid| window.get(Xid(xid))), [Status::Live; 2]);
    assert_eq!([131, 190].map(|xid| past.sees(&window, &snapshot, Xid(xid))), [None; 2]);
    window.end_earlier();
    assert_eq!([131, 190].map(|xid| past.sees(&window, &snapshot, Xid(xid))), [Some(Csn::ZERO); 2]);
}

#[test]
#[should_panic(expected = "ends once")]
fn the_previous_run_ends_once() {
    let window = with_earlier();
    window.end_earlier();
    window.end_earlier();
}
