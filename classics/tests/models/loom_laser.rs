//! Models of the `laser` buffer. A group is published only when all its members have copied. No member and no group is
//! lost when members, closers and helpers race, and places of the table are reused. The ring is made of cells that
//! loom watches, so a read of unpublished bytes, or two members in one place, fail as a data race.

use foreshore_base::Lsn;
use foreshore_classics::log_buffers::{Laser, Ring};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_wal::Record;
use foreshore_wal::log_buffer::{LogBuffer, Staging};
use std::sync::Arc;

/// Envelope and eight bytes of payload.
const SIZE: u64 = 32;

/// A ring of `records` and a table of `groups` that are full with `limit` records.
fn laser(records: u64, limit: u64, groups: usize) -> Arc<Laser> {
    let ring = Ring::new((records * SIZE) as usize, Lsn(0)).expect("memory");
    Arc::new(Laser::new(ring, limit * SIZE, groups))
}

fn append(log: &Laser, mark: u8, dep: Lsn) -> Lsn {
    let payload = [mark; 8];
    let parts = [&payload[..]];
    log.append(0, &Record { tag: u64::from(mark), flags: 0, parts: &parts }, dep)
}

/// Cuts once behind `last`; whole records come out, and the cut never falls.
fn cut(log: &Laser, last: Lsn) -> Lsn {
    let mut staging = Staging::new(4096);
    let cut = log.drain(last, &mut staging).expect("no call is refused").cut;
    assert!(cut >= last, "the cut falls");
    assert_eq!(staging.data_len() as u64, cut.0 - last.0, "the cut is what was copied");
    for record in staging.data().chunks(SIZE as usize) {
        let mark = record[24];
        assert!(mark != 0 && record[24..32] == [mark; 8], "a record that is not whole: {record:?}");
    }
    cut
}

fn spawn(log: &Arc<Laser>, body: impl Fn(&Laser) -> Lsn + Send + 'static) -> JoinHandle<Lsn> {
    let log = log.clone();
    thread::spawn(move || body(&log))
}

/// Waits for all actors and returns the greatest LSN or cut of them.
fn join(actors: impl IntoIterator<Item = JoinHandle<Lsn>>) -> Lsn {
    actors.into_iter().map(|actor| actor.join().expect("an actor ends")).max().expect("an actor")
}

/// What one more cut, after all actors, has to reach: every record of the model.
fn ends(log: &Laser, from: Lsn, records: u64) {
    assert_eq!(log.current(), Lsn(records * SIZE), "everything drawn is below the tail");
    assert_eq!(cut(log, from), Lsn(records * SIZE), "the last cut misses records");
}

/// Two members of groups that only the leader closes, two cuts. The table has two places.
fn closed_by_the_leader() {
    let log = laser(4, 8, 2);
    let first = spawn(&log, |log| append(log, 1, Lsn(0)));
    let second = spawn(&log, |log| append(log, 2, Lsn(0)));
    let leader = spawn(&log, |log| cut(log, cut(log, Lsn(0))));
    let cut = leader.join().expect("the leader ends");
    join([first, second]);
    ends(&log, cut, 2);
}

/// Groups of one record: each member closes the group before it, and both may help.
fn closed_by_members() {
    let log = laser(4, 1, 16);
    let before = append(&log, 1, Lsn(0));
    let members = [spawn(&log, move |log| append(log, 2, before)), spawn(&log, move |log| append(log, 3, before))];
    let last = join(members);
    let after = append(&log, 4, last);
    assert_eq!(after, Lsn(4 * SIZE));
    ends(&log, Lsn(0), 4);
}

/// A member that closes and a leader that closes.
fn closed_by_both() {
    let log = laser(4, 1, 16);
    let before = append(&log, 1, Lsn(0));
    let leader = spawn(&log, |log| cut(log, cut(log, Lsn(0))));
    let member = spawn(&log, move |log| append(log, 3, append(log, 2, before)));
    let cut = leader.join().expect("the leader ends");
    join([member]);
    ends(&log, cut, 3);
}

/// A member that may help late: the word is frozen, and moves on twice, in a table of two places.
fn late_help() {
    let log = laser(4, 8, 2);
    append(&log, 1, Lsn(0));
    let members = [spawn(&log, |log| append(log, 2, Lsn(0))), spawn(&log, |log| append(log, 3, Lsn(0)))];
    let leader = spawn(&log, |log| cut(log, cut(log, Lsn(0))));
    let cut = leader.join().expect("the leader ends");
    join(members);
    ends(&log, cut, 3);
}

/// A ring of two records: the third member uses a place of the ring, and of the table, again.
fn reuse() {
    let log = laser(2, 4, 2);
    for mark in 1..=2 {
        log.admit(0, SIZE).expect("an empty ring");
        append(&log, mark, Lsn(0));
    }
    let leader = spawn(&log, |log| cut(log, cut(log, Lsn(0))));
    let member = spawn(&log, |log| match log.admit(0, SIZE) {
        Some(_) => append(log, 3, Lsn(2 * SIZE)),
        None => Lsn(2 * SIZE),
    });
    let cut = leader.join().expect("the leader ends");
    let last = join([member]);
    ends(&log, cut, last.0 / SIZE);
}

/// A late read of the tail while the group changes.
fn tail() {
    let log = laser(4, 1, 16);
    let before = append(&log, 1, Lsn(0));
    let actors = [
        spawn(&log, move |log| append(log, 2, before)),
        spawn(&log, move |log| {
            let current = log.current();
            assert!(current >= before && current <= Lsn(2 * SIZE), "the tail is {current}");
            current
        }),
        spawn(&log, |log| cut(log, Lsn(0))),
    ];
    join(actors);
}

#[test]
fn a_group_is_published_when_all_its_members_have_copied() {
    check(closed_by_the_leader);
}

#[test]
fn members_that_close_lose_nothing() {
    check(closed_by_members);
}

#[test]
fn members_and_the_leader_may_close_at_once() {
    check(closed_by_both);
}

#[test]
fn a_late_helper_changes_nothing() {
    check(late_help);
}

#[test]
fn places_are_used_again_only_after_they_were_drained() {
    check(reuse);
}

#[test]
fn the_tail_is_a_bound_while_groups_change() {
    check(tail);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_count_in_two_steps_is_noticed() {
    mutated("laser: count in two steps", closed_by_the_leader);
}

#[test]
#[should_panic(expected = "the last cut misses records")]
fn a_reset_in_open_is_noticed() {
    mutated("laser: reset in open", closed_by_members);
}

#[test]
#[should_panic(expected = "does not follow")]
fn a_group_opened_out_of_order_is_noticed() {
    mutated("laser: open out of order", closed_by_members);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_copy_published_without_order_is_noticed() {
    mutated("laser: relaxed completion", closed_by_the_leader);
}

#[test]
#[should_panic(expected = "is in use")]
fn late_help_is_noticed() {
    mutated("laser: help without a second look", late_help);
}
