//! Models of the `faa` buffer: a cut contains only copied records, and ring space is reused only after a cut took it.
//! The ring is made of cells that loom watches, so a read of unpublished bytes fails as a data race.

use foreshore_base::Lsn;
use foreshore_classics::log_buffers::{Faa, Ring};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_wal::Record;
use foreshore_wal::log_buffer::{LogBuffer, Slots, Staging};
use std::sync::Arc;

/// Envelope and eight bytes of payload.
const SIZE: u64 = 32;

fn log(records: u64) -> Arc<Faa> {
    let ring = Ring::new((records * SIZE) as usize, Lsn(0)).expect("memory");
    let slots = Slots::new(2);
    for _ in 0..2 {
        slots.lease().expect("two slots");
    }
    Arc::new(Faa::new(ring, Arc::new(slots)))
}

fn append(log: &Faa, slot: usize, mark: u8) -> Lsn {
    let payload = [mark; 8];
    let parts = [&payload[..]];
    log.append(slot, &Record { tag: u64::from(mark), flags: 0, parts: &parts }, Lsn(0))
}

fn spawn(log: &Arc<Faa>, body: impl Fn(&Faa) + Send + 'static) -> JoinHandle<()> {
    let log = log.clone();
    thread::spawn(move || body(&log))
}

/// Cuts `cuts` times; each cut yields whole records, and never falls.
fn cut(log: &Faa, cuts: usize) -> Lsn {
    let mut staging = Staging::new(4096);
    let mut last = Lsn(0);
    for _ in 0..cuts {
        staging.clear();
        let cut = log.drain(last, &mut staging).expect("no call is refused").cut;
        assert!(cut >= last, "the cut falls");
        assert_eq!(staging.data_len() as u64, cut.0 - last.0, "the cut is what was copied");
        for record in staging.data().chunks(SIZE as usize) {
            let mark = record[16];
            assert!(mark != 0 && record[24..32] == [mark; 8], "a record that is not whole: {record:?}");
        }
        last = cut;
    }
    last
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("an actor ends"));
}

/// One session with two records, another with one, a cut.
fn three_records() {
    let log = log(4);
    join([
        spawn(&log, |log| assert!(append(log, 0, 1) < append(log, 0, 2))),
        spawn(&log, |log| _ = append(log, 1, 3)),
        spawn(&log, |log| _ = cut(log, 1)),
    ]);
    assert_eq!(log.current(), Lsn(3 * SIZE));
}

/// Two sessions with one record each, two cuts.
fn two_cuts() {
    let log = log(4);
    join([
        spawn(&log, |log| _ = append(log, 0, 1)),
        spawn(&log, |log| _ = append(log, 1, 2)),
        spawn(&log, |log| _ = cut(log, 2)),
    ]);
}

/// Space for one record: the second waits for the drain of the first through its credit.
fn reuse() {
    let log = log(1);
    assert!(log.admit(0, SIZE).is_some());
    append(&log, 0, 1);
    join([
        spawn(&log, |log| _ = cut(log, 1)),
        spawn(&log, |log| {
            if log.admit(1, SIZE).is_some() {
                append(log, 1, 2);
            }
        }),
    ]);
}

#[test]
fn records_are_whole_in_every_cut() {
    check(three_records);
}

#[test]
fn cuts_never_fall() {
    check(two_cuts);
}

#[test]
fn space_is_used_again_only_after_it_was_drained() {
    check(reuse);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_announcement_is_noticed() {
    mutated("faa: relaxed slot", three_records);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_missing_announcement_is_noticed() {
    mutated("faa: no announcement", three_records);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn credit_given_without_order_is_noticed() {
    mutated("credits: relaxed give", reuse);
}
