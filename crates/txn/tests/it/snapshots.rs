//! Snapshots: their answers never change, and they include every commit that was acknowledged before.

use crate::toy::{Toy, small};
use foreshore_base::{Csn, Xid};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::Mem;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Snapshot, SnapshotKind, TxnManagerOptions};
use std::sync::Mutex;

fn snapshot(toy: &Toy, kind: SnapshotKind) -> Snapshot {
    toy.manager.snapshot(kind, "reader")
}

/// Commits one change and returns its xid and number.
fn commit_one(toy: &Toy, row: u64) -> (Xid, Csn) {
    let mut txn = toy.begin("writer");
    toy.add(&mut txn, row, 1).expect("free");
    let xid = txn.xid().expect("it wrote");
    (xid, txn.commit().expect("committed").csn())
}

fn sees(snapshot: &Snapshot, xid: Xid) -> bool {
    snapshot.sees(xid).is_some()
}

#[test]
fn a_latest_snapshot_sees_all_commits_and_a_durable_one_only_durable_ones() {
    let toy = Toy::lazy(&[0]);
    let (first, csn) = commit_one(&toy, 0);
    let (durable, latest) = (snapshot(&toy, SnapshotKind::Durable), snapshot(&toy, SnapshotKind::Latest));
    assert_eq!(latest.sees(first), Some(csn), "it depends on that commit");
    assert_eq!(durable.sees(first), None);
    toy.log.force(csn.lsn()).expect("durable");
    assert_eq!(durable.sees(first), None, "as before");
    assert!(sees(&snapshot(&toy, SnapshotKind::Durable), first));

    let mut running = toy.begin("running");
    toy.add(&mut running, 0, 1).expect("free");
    let xid = running.xid().expect("it wrote");
    let before = snapshot(&toy, SnapshotKind::Latest);
    assert!(!sees(&before, xid));
    drop(running.commit().expect("committed"));
    assert!(!sees(&before, xid) && !sees(&latest, xid), "a commit after the snapshot");
    assert!(sees(&snapshot(&toy, SnapshotKind::Latest), xid));
    assert!(sees(&before, Xid::ZERO), "a row without a writer is visible");
}

/// The window passes the xids of later commits while an old snapshot is in use. Its answers do not change.
#[test]
fn an_old_snapshot_stays_the_same_while_the_window_moves() {
    let options = TxnManagerOptions { status_capacity: 16, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0; 3], options);
    let (seen, csn) = commit_one(&toy, 0);
    toy.log.force(csn.lsn()).expect("durable");
    let mut running = toy.begin("runs when the snapshot is taken");
    toy.add(&mut running, 1, 1).expect("free");
    let late = running.xid().expect("it wrote");
    let old = snapshot(&toy, SnapshotKind::Latest);
    let (after, _) = commit_one(&toy, 0);
    drop(running.commit().expect("committed"));
    for n in 0..500 {
        let (xid, csn) = commit_one(&toy, 0);
        if n % 8 == 0 {
            toy.log.force(csn.lsn()).expect("durable");
        }
        assert!(!sees(&old, xid), "turn {n}");
        assert_eq!([seen, late, after].map(|xid| sees(&old, xid)), [true, false, false], "turn {n}");
    }
    assert!(toy.manager.checkpoint_view().window_lo > late);
    let mut observer = toy.begin("observer");
    assert!(observer.is_settled(seen) && !observer.is_settled(late) && !observer.is_settled(after));
    assert_eq!(observer.refresh_view().newest_reader(), Some(old.csn()));
    drop(old);
    assert!(observer.refresh_view().newest_reader().is_none());
    assert!(observer.is_settled(late) && observer.is_settled(after));
}

/// An old transaction that the window has passed, and has pinned, ends while snapshots from before and after that are
/// in use.
#[test]
fn snapshots_see_the_end_of_a_pinned_transaction_as_any_other() {
    for commits in [true, false] {
        let (toy, _) = Toy::new(Mem::null(), &[0; 3], TxnManagerOptions { status_capacity: 16, ..small() });
        let early = snapshot(&toy, SnapshotKind::Latest);
        let mut idle = toy.begin("idle");
        toy.add(&mut idle, 1, 1).expect("free");
        let pinned = idle.xid().expect("it wrote");
        let middle = snapshot(&toy, SnapshotKind::Latest);
        let some: Vec<Xid> = (0..100).map(|_| commit_one(&toy, 0).0).collect();
        assert!(toy.manager.checkpoint_view().window_lo > some[50], "the window has passed it");
        let mut other = toy.begin("other");
        toy.add(&mut other, 2, 1).expect("free");
        let passed = other.xid().expect("it wrote");
        let late = snapshot(&toy, SnapshotKind::Latest);
        // For `early`, the xid of the change is not drawn yet. To the others a rolled-back change shows the state
        // before it: hence [false, true, true] below.
        let all = [&early, &middle, &late];
        let look = |turn| {
            assert_eq!(all.map(|one| sees(one, pinned)), [false; 3], "{turn}");
            assert_eq!(all.map(|one| sees(one, some[5])), [false, false, true], "{turn}");
            assert_eq!(all.map(|one| sees(one, some[99])), [false, false, true], "{turn}");
        };
        look("while it runs");
        drop(other.commit().expect("committed"));
        (0..100).for_each(|_| _ = commit_one(&toy, 0));
        assert!(!sees(&late, passed), "what it knows of the past it has learned while the old one is pinned");
        let mut observer = toy.begin("observer");
        assert!(!observer.is_settled(pinned), "it runs");
        if commits {
            drop(idle.commit().expect("committed"));
            look("when it has committed");
        } else {
            idle.rollback().expect("undone");
            assert_eq!(all.map(|one| sees(one, pinned)), [false, true, true], "what it left is what was before");
        }
        (0..100).for_each(|_| _ = commit_one(&toy, 0));
        assert_eq!(toy.manager.stats().status_pinned, 0);
        if commits {
            look("when it is not pinned any more");
            assert!(!observer.is_settled(pinned), "a reader needs what was before");
        } else {
            assert_eq!(all.map(|one| sees(one, pinned)), [false, true, true], "what it left is what was before");
        }
        assert!(sees(&snapshot(&toy, SnapshotKind::Durable), pinned));
        drop((early, middle, late));
        observer.refresh_view();
        assert!(observer.is_settled(pinned));
    }
}

/// The window has passed xids that committed after the snapshot.
#[test]
fn a_snapshot_sees_no_later_commit_when_the_window_has_passed_it() {
    let (toy, _) = Toy::new(Mem::null(), &[0], TxnManagerOptions { status_capacity: 16, ..small() });
    let (seen, _) = commit_one(&toy, 0);
    let old = snapshot(&toy, SnapshotKind::Latest);
    let mut first_after = None;
    while first_after.is_none_or(|first| toy.manager.checkpoint_view().window_lo <= first) {
        let (xid, csn) = commit_one(&toy, 0);
        toy.log.force(csn.lsn()).expect("durable");
        first_after.get_or_insert(xid);
    }
    assert!(sees(&old, seen), "asked of the past for the first time");
    assert!(!sees(&old, first_after.expect("a commit after the snapshot")));
}

/// Sessions draw xids in blocks, so a transaction may begin after a snapshot with an xid that was drawn before it.
#[test]
fn a_snapshot_does_not_see_a_later_transaction_with_an_earlier_xid() {
    let options = TxnManagerOptions { status_capacity: 1 << 10, max_sessions: 4, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0; 2], options);
    let two = || {
        let both = [0, 1].map(|row| {
            let mut txn = toy.begin("writer");
            toy.add(&mut txn, row, 1).expect("free");
            txn
        });
        let xids = both.each_ref().map(|txn| txn.xid().expect("it wrote"));
        both.into_iter().for_each(|txn| drop(txn.commit().expect("committed")));
        xids
    };
    let before = two();
    let old = snapshot(&toy, SnapshotKind::Latest);
    let first = two();
    assert!(first.iter().min() < before.iter().max(), "{first:?} after {before:?}");
    let mut later = first.to_vec();
    for turn in 0..600 {
        later.extend(two());
        assert!(later.iter().rev().take(8).chain(&first).all(|&xid| !sees(&old, xid)), "turn {turn}");
    }
    toy.log.force(toy.log.current()).expect("durable");
    assert!(toy.manager.checkpoint_view().window_lo > later[64], "it has passed those");
    later.iter().for_each(|&xid| assert!(!sees(&old, xid), "{xid} has begun later"));
    assert!(before.iter().all(|&xid| sees(&old, xid)));
    assert!(first.iter().all(|&xid| sees(&snapshot(&toy, SnapshotKind::Latest), xid)));
}

/// A row lock that was not logged stands on a change that a reader does not see, and must not show it.
#[test]
fn the_end_of_a_row_lock_restores_the_writer_in_the_header() {
    let options = TxnManagerOptions { status_capacity: 16, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0; 3], options);
    let mut locker = toy.begin("locker");
    toy.lock(&mut locker, 1).expect("free");
    let xid = locker.xid().expect("it locked");
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 2, 1).expect("free");
    let old = snapshot(&toy, SnapshotKind::Latest);
    let written = writer.xid().expect("it wrote");
    writer.commit().expect("committed").wait().expect("durable");
    toy.lock(&mut locker, 2).expect("free again");
    assert_eq!([toy.header(1), toy.header(2)], [xid; 2]);
    assert!(!sees(&old, xid), "it runs");
    drop(locker.commit().expect("committed"));
    assert_eq!([toy.header(1), toy.header(2)], [Xid::ZERO, written]);
    assert!(!sees(&old, written));
}

#[test]
fn a_cancelled_snapshot_is_marked_and_the_next_one_is_the_oldest() {
    let (toy, _) = Toy::new(Mem::null(), &[0], small());
    assert_eq!(toy.manager.visibility().oldest_snapshot(), None);
    let first = toy.manager.snapshot(SnapshotKind::Latest, "first");
    let (_, csn) = commit_one(&toy, 0);
    let second = toy.manager.snapshot(SnapshotKind::Latest, "second");
    assert!(second.csn() >= csn && first.csn() < csn);
    let cancelled = toy.manager.visibility().cancel_oldest().expect("two are in use");
    assert_eq!((cancelled.label, cancelled.csn), ("first", first.csn()));
    assert!(first.is_cancelled() && !second.is_cancelled());
    assert_eq!(toy.manager.visibility().oldest_snapshot().map(|oldest| oldest.label), Some("second"));
}

/// More snapshots than fixed slots, each with a row's version that it alone needs.
#[test]
fn snapshots_may_outnumber_the_fixed_slots() {
    let (toy, _) = Toy::new(Mem::null(), &[0], TxnManagerOptions { snapshot_slots: 2, ..small() });
    for _ in 0..3 {
        let mut held: Vec<_> = (0..40).map(|_| (snapshot(&toy, SnapshotKind::Latest), commit_one(&toy, 0))).collect();
        let oldest = held[0].0.csn();
        assert_eq!(toy.manager.visibility().oldest_snapshot().map(|oldest| oldest.csn), Some(oldest));
        for (snapshot, (xid, csn)) in &held {
            assert!(snapshot.csn() < *csn && !sees(snapshot, *xid));
        }
        let newest = held.pop().expect("forty").0;
        drop(held);
        assert_eq!(
            toy.manager.visibility().oldest_snapshot().map(|oldest| oldest.csn),
            Some(newest.csn()),
            "in an extra slot"
        );
        assert_eq!(toy.manager.visibility().cancel_oldest().map(|cancelled| cancelled.csn), Some(newest.csn()));
        assert!(newest.is_cancelled());
    }
    assert_eq!(toy.manager.visibility().oldest_snapshot(), None);
}

/// Writers commit while readers push their status words. Each answer stays and agrees with the number of the commit,
/// and every later snapshot has each commit whose number was returned before.
fn writers_and_readers(buffer: BufferKind) {
    let toy = Toy::with_buffer(buffer, &[0; 2]);
    let committed = Mutex::new(Vec::<(Xid, Csn)>::new());
    // Whatever their transactions do meanwhile. Rows have no other xids.
    let drawn = Mutex::new(Vec::<Xid>::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers = [0, 1].map(|row| {
            let (toy, committed, drawn) = (&toy, &committed, &drawn);
            scope.spawn(move || {
                for n in 0..300 {
                    let mut txn = toy.begin("writer");
                    toy.add(&mut txn, row, 1).expect("its own row");
                    let xid = txn.xid().expect("it wrote");
                    drawn.lock().expect("no panics").push(xid);
                    let ticket = txn.commit_pipelined().expect("committed");
                    committed.lock().expect("no panics").push((xid, ticket.csn()));
                    if n % 16 == 0 {
                        let csn = ticket.csn();
                        ticket.wait().expect("durable");
                        assert!(snapshot(toy, SnapshotKind::Durable).csn() >= csn, "acknowledged and not seen");
                    }
                }
            })
        });
        for _ in 0..2 {
            let (toy, committed, drawn, stop) = (&toy, &committed, &drawn, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let known = committed.lock().expect("no panics").last().copied();
                    let snapshot = snapshot(toy, SnapshotKind::Latest);
                    if let Some((xid, csn)) = known {
                        assert!(csn <= snapshot.csn() && sees(&snapshot, xid), "committed and not seen");
                    }
                    // Those that no transaction has had until now come after the snapshot, if ever.
                    let next = toy.manager.checkpoint_view().next_xid.0;
                    let mut xids = vec![Xid(next), Xid(next + 1)];
                    xids.extend(drawn.lock().expect("no panics").iter().rev().take(8));
                    let looks: [Vec<bool>; 2] =
                        [(), ()].map(|()| xids.iter().map(|&xid| sees(&snapshot, xid)).collect());
                    assert_eq!(looks[0], looks[1], "a snapshot changes");
                    for &(xid, csn) in committed.lock().expect("no panics").iter().rev().take(16) {
                        assert_eq!(sees(&snapshot, xid), csn <= snapshot.csn(), "{xid} committed as {csn:?}");
                    }
                }
            });
        }
        let ends = writers.map(|writer| writer.join());
        // Before a writer's panic is passed on: the readers end, too.
        stop.store(true, Ordering::Relaxed);
        ends.into_iter().for_each(|end| end.expect("writers end"));
    });
}

#[test]
fn snapshots_agree_with_commit_numbers_for_every_log_buffer() {
    BufferKind::ALL.into_iter().for_each(writers_and_readers);
}
