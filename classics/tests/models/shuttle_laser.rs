//! The `laser` buffer with more sessions and groups than loom can explore. Members, helpers and a leader race while
//! the places of a small table and ring are reused. Which assertion finds a mutant first depends on the schedule;
//! `loom_laser.rs` names them.

use foreshore_base::Lsn;
use foreshore_classics::log_buffers::{Laser, Ring};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_wal::Record;
use foreshore_wal::log_buffer::{LogBuffer, Staging};
use std::sync::Arc;

/// Envelope and eight bytes of payload.
const SIZE: u64 = 32;
const SESSIONS: u64 = 4;
const RECORDS: u64 = 6;
/// Records in the ring; groups are full with one or two.
const RING: u64 = 4;
const PLACES: usize = 16;

/// Records of one session, each depending on the last.
fn session(log: &Laser, own: u64) {
    let mut last = Lsn(0);
    for at in 0..RECORDS {
        while log.admit(0, SIZE).is_none() {
            thread::yield_now();
        }
        let payload = (own << 32 | (at + 1)).to_le_bytes();
        let parts = [&payload[..]];
        last = log.append(0, &Record { tag: own, flags: 0, parts: &parts }, last);
        assert!(log.current() >= last, "a record above the tail");
    }
}

/// Cuts until all records have come: whole, once, and in the order of their sessions.
fn leader(log: &Laser) {
    let (mut last, mut seen) = (Lsn(0), [0; SESSIONS as usize]);
    let mut staging = Staging::new(4096);
    while last < Lsn(SESSIONS * RECORDS * SIZE) {
        staging.clear();
        let cut = log.drain(last, &mut staging).expect("no call is refused").cut;
        assert_eq!(staging.data_len() as u64, cut.0 - last.0, "the cut is what was copied");
        for record in staging.data().chunks(SIZE as usize) {
            let mark = u64::from_le_bytes(record[24..].try_into().expect("eight bytes"));
            let (own, at) = ((mark >> 32) as usize, mark & 0xffff_ffff);
            assert_eq!(at, seen[own] + 1, "not the next record of session {own}");
            seen[own] = at;
        }
        if cut == last {
            thread::yield_now();
        }
        last = cut;
    }
}

/// All sessions and the leader over groups of `limit` records.
fn storm(limit: u64) {
    let ring = Ring::new((RING * SIZE) as usize, Lsn(0)).expect("memory");
    let log = Arc::new(Laser::new(ring, limit * SIZE, PLACES));
    let sessions = (0..SESSIONS).map(|own| {
        let log = log.clone();
        thread::spawn(move || session(&log, own))
    });
    let mut actors: Vec<_> = sessions.collect();
    let leads = log.clone();
    actors.push(thread::spawn(move || leader(&leads)));
    actors.into_iter().for_each(|actor| actor.join().expect("an actor ends"));
    assert_eq!(log.current(), Lsn(SESSIONS * RECORDS * SIZE));
}

#[test]
fn groups_of_one_record_keep_all() {
    shuttle(4_000, || storm(1));
}

#[test]
fn groups_of_two_records_keep_all() {
    shuttle(4_000, || storm(2));
}

#[test]
#[should_panic]
fn a_count_in_two_steps_is_noticed() {
    shuttle_mutated("laser: count in two steps", 4_000, || storm(2));
}

#[test]
#[should_panic]
fn a_reset_in_open_is_noticed() {
    shuttle_mutated("laser: reset in open", 4_000, || storm(2));
}

#[test]
#[should_panic]
fn a_group_opened_out_of_order_is_noticed() {
    shuttle_mutated("laser: open out of order", 4_000, || storm(2));
}

#[test]
#[should_panic]
fn late_help_is_noticed() {
    shuttle_mutated("laser: help without a second look", 4_000, || storm(2));
}
