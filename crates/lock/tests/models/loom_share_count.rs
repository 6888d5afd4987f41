//! Models of readers against a writer of the same row: header and counter, without the help of a latch.

#[path = "../../src/share_count.rs"]
mod share_count;

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{Arc, thread};
use share_count::ShareCounts;

const ROW: u64 = 0;
const WRITER: u64 = 9;

struct Row {
    counts: ShareCounts,
    header: AtomicU64,
    clock: AtomicU64,
}

fn row() -> Arc<Row> {
    Arc::new(Row { counts: ShareCounts::new(1), header: AtomicU64::new(0), clock: AtomicU64::new(0) })
}

/// Whether the reader may go on.
fn read(row: &Row) -> bool {
    row.counts.announce(ROW);
    row.header.load(Ordering::Relaxed) != WRITER
}

/// Whether the writer may go on.
fn write(row: &Row) -> bool {
    row.header.store(WRITER, Ordering::Relaxed);
    row.counts.is_zero(ROW)
}

fn reader_and_writer() {
    let row = row();
    let (reads, writes) = (row.clone(), row.clone());
    let reader = thread::spawn(move || read(&reads));
    let writer = thread::spawn(move || write(&writes));
    let (read, written) = (reader.join().expect("the reader ends"), writer.join().expect("the writer ends"));
    assert!(!(read && written), "both have the row");
}

fn two_readers_and_a_writer() {
    let row = row();
    let readers = [row.clone(), row.clone()].map(|row| thread::spawn(move || read(&row)));
    let writes = row.clone();
    let writer = thread::spawn(move || write(&writes));
    let read = readers.map(|reader| reader.join().expect("a reader ends"));
    let written = writer.join().expect("the writer ends");
    assert!(!(written && read != [false; 2]), "both have the row");
}

/// A reader that was there and has gone raised the clock first; the writer draws above it.
fn a_writer_comes_after_the_readers_that_left() {
    let row = row();
    let (reads, writes) = (row.clone(), row.clone());
    let reader = thread::spawn(move || {
        if read(&reads) {
            reads.clock.store(5, Ordering::Relaxed);
            reads.counts.retire(ROW);
            return true;
        }
        false
    });
    let writer = thread::spawn(move || write(&writes).then(|| writes.clock.load(Ordering::Relaxed)));
    let (read, written) = (reader.join().expect("the reader ends"), writer.join().expect("the writer ends"));
    if read && let Some(clock) = written {
        assert_eq!(clock, 5, "the writer does not see the reader's commit");
    }
}

#[test]
fn one_of_reader_and_writer_sees_the_other() {
    check(reader_and_writer);
    check(two_readers_and_a_writer);
}

#[test]
fn a_writer_that_finds_no_sharer_sees_the_commits_of_earlier_ones() {
    check(a_writer_comes_after_the_readers_that_left);
}

#[test]
#[should_panic(expected = "both have the row")]
fn a_reader_needs_its_fence() {
    mutated("share count: no fence after announcing", reader_and_writer);
}

#[test]
#[should_panic(expected = "both have the row")]
fn a_writer_needs_its_fence() {
    mutated("share count: no fence before looking", reader_and_writer);
}

#[test]
#[should_panic(expected = "does not see the reader's commit")]
fn a_reader_releases_its_count_with_its_commit() {
    mutated("share count: relaxed retirement", a_writer_comes_after_the_readers_that_left);
}
