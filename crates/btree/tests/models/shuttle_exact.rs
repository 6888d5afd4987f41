//! A scan step that finds the leaf changed has returned nothing. It must release the interval that it entered, as the
//! next try may return fewer rows.

use crate::common::Bed;
use foreshore_sync::model::shuttle;
use foreshore_sync::primitive::thread::{self, JoinHandle};
use std::ops::Bound::Unbounded;
use std::sync::Arc;
use std::time::Duration;

/// Inserts b, and c behind it, in a thread. Neither insert may be refused.
fn write_two(bed: &Arc<Bed>) -> JoinHandle<()> {
    let bed = bed.clone();
    thread::spawn(move || {
        let mut txn = bed.begin_as("writer", Duration::MAX);
        bed.tree.insert_new(&mut txn, b"b", b"").expect("free, or behind its readers");
        bed.tree.insert_new(&mut txn, b"c", b"").expect("the reader waits for b, and has read nothing");
        drop(txn.commit().expect("a commit"));
    })
}

/// Takes the first row of a scan of the whole table.
fn read_first(bed: &Bed) {
    let mut reader = bed.begin_as("reader", Duration::MAX);
    let mut cursor = bed.tree.range(&mut reader, Unbounded, Unbounded).expect("a cursor");
    let first = cursor.next(&mut reader).map(|row| row.map(|(key, _)| key.to_vec()));
    assert!(first.is_ok(), "{first:?}");
}

fn first_of_an_empty_table() {
    let bed = Arc::new(Bed::new(32));
    let writer = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = bed.begin_as("writer", Duration::MAX);
            if bed.tree.insert_new(&mut txn, b"b", b"").is_ok() {
                drop(txn.commit().expect("a commit"));
            }
        }
    });
    let mut reader = bed.begin_as("reader", Duration::MAX);
    let mut cursor = bed.tree.range(&mut reader, Unbounded, Unbounded).expect("a cursor");
    let first = cursor.next(&mut reader).expect("a row").map(|(key, _)| key.to_vec());
    if first.is_some() {
        // It has handed out one row, and nothing behind it.
        let mut other = bed.begin_as("other", Duration::ZERO);
        bed.tree.insert_new(&mut other, b"z", b"").expect("no scan has read that far");
        drop(other.commit().expect("a commit"));
    }
    drop(reader);
    writer.join().expect("a writer");
}

#[test]
fn a_step_that_is_done_again_covers_what_it_hands_out() {
    shuttle(600, first_of_an_empty_table);
}

/// The interval grows over a row when the row is free, and not while the scan waits for its holder. The holder inserts
/// another row behind it: no scan has read that far, so there is no cycle.
fn the_holder_first() {
    let bed = Arc::new(Bed::new(32));
    let writer = write_two(&bed);
    read_first(&bed);
    writer.join().expect("a writer");
}

#[test]
fn a_scan_that_waits_for_a_holder_covers_nothing_in_its_way() {
    shuttle(5_000, the_holder_first);
}

/// The same for a scan that has waited behind a queued writer: it covers no key that it would have passed before that
/// writer wrote.
fn behind_a_writer() {
    let bed = Arc::new(Bed::new(32));
    let mut first = bed.begin_as("first", Duration::MAX);
    assert!(!bed.tree.get(&mut first, b"b", &mut Vec::new()).expect("free"));
    let waits = |bed: &Bed, n| {
        while bed.txns.stats().locks.waits < n {
            thread::yield_now();
        }
    };
    let writer = write_two(&bed);
    waits(&bed, 1);
    let reader = thread::spawn({
        let bed = bed.clone();
        move || read_first(&bed)
    });
    waits(&bed, 2);
    drop(first.commit().expect("a commit"));
    reader.join().expect("a reader");
    writer.join().expect("a writer");
}

#[test]
fn a_scan_that_has_waited_behind_a_writer_covers_what_it_hands_out() {
    shuttle(300, behind_a_writer);
}
