//! Models of the `lanes` buffer: the theorem of its cut, whole records, and space that is reused only after it was
//! drained. A record that a cut has missed is found in the next cut, or in none.

use foreshore_base::Lsn;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::Record;
use foreshore_wal::flags::COMMIT;
use foreshore_wal::log_buffer::{LogBuffer, Slots, Staging};
use foreshore_wal::model::Lanes;
use std::sync::Arc;

/// Envelope and eight bytes of payload.
const SIZE: usize = 32;

/// Two lanes, each leased, with space for four records each.
fn lanes() -> Arc<Lanes> {
    let slots = Slots::new(2);
    for _ in 0..2 {
        slots.lease().expect("two slots");
    }
    Arc::new(Lanes::new(4 * SIZE, slots.len()..slots.len(), Arc::new(slots), Lsn(0)).expect("memory"))
}

fn append(log: &Lanes, slot: usize, flags: u8, dep: Lsn) -> Lsn {
    let payload = [slot as u8 + 1; 8];
    let parts = [&payload[..]];
    let lsn = log.append(slot, &Record { tag: 0, flags, parts: &parts }, dep);
    assert!(lsn > dep, "{lsn} does not follow {dep}");
    lsn
}

fn spawn(log: &Arc<Lanes>, body: impl Fn(&Lanes) + Send + 'static) -> JoinHandle<()> {
    let log = log.clone();
    thread::spawn(move || body(&log))
}

/// One cut behind `last`, and the stamps of what it copied.
fn cut(log: &Lanes, last: Lsn) -> (Lsn, Vec<Lsn>) {
    let mut staging = Staging::new(4096);
    let drained = log.drain(last, &mut staging).expect("no call is refused");
    assert!(!drained.more && drained.cut >= last, "a small cut is one group and never falls");
    let stamps = staging.data().chunks(SIZE).map(|record| {
        let stamp = Lsn(u64::from_le_bytes(record[8..16].try_into().expect("eight bytes")));
        assert!(record[24] != 0 && record[24..32] == [record[24]; 8], "a record that is not whole: {record:?}");
        stamp
    });
    (drained.cut, stamps.collect())
}

/// Makes `cuts` cuts behind `last`, and checks that each copies only records above all earlier cuts. Returns the last
/// cut, and how many records all of them copied.
fn cut_all(log: &Lanes, mut last: Lsn, cuts: usize) -> (Lsn, usize) {
    let mut copied = 0;
    for _ in 0..cuts {
        let (next, stamps) = cut(log, last);
        assert!(stamps.iter().all(|&stamp| stamp > last), "missed by the cut at {last}: {stamps:?}");
        (last, copied) = (next, copied + stamps.len());
    }
    (last, copied)
}

/// One cut beside `actors`, which append `records`. One more cut, when all is quiet, gets the rest.
fn cut_beside<const N: usize>(log: &Arc<Lanes>, actors: [JoinHandle<()>; N], records: usize) {
    let leader = log.clone();
    let leader = thread::spawn(move || cut_all(&leader, Lsn(0), 1));
    join(actors);
    let (last, copied) = leader.join().expect("a cut ends");
    let (end, rest) = cut_all(log, last, 1);
    assert!(copied + rest == records && end >= log.current(), "a quiet log is cut whole");
}

fn join(actors: impl IntoIterator<Item = JoinHandle<()>>) {
    actors.into_iter().for_each(|actor| actor.join().expect("an actor ends"));
}

/// One record in each lane and two cuts.
fn two_cuts() {
    let log = lanes();
    join([
        spawn(&log, |log| _ = append(log, 0, 0, Lsn(0))),
        spawn(&log, |log| _ = append(log, 1, 0, Lsn(0))),
        spawn(&log, |log| _ = cut_all(log, Lsn(0), 2)),
    ]);
}

/// Two records in one lane, and a commit in the other.
fn with_commits() {
    let log = lanes();
    let actors = [
        spawn(&log, |log| {
            let first = append(log, 0, 0, Lsn(0));
            append(log, 0, COMMIT, first);
        }),
        spawn(&log, |log| _ = append(log, 1, COMMIT, Lsn(0))),
    ];
    cut_beside(&log, actors, 3);
}

/// A session leased while the leader cuts.
fn late_lease() {
    let slots = Arc::new(Slots::new(2));
    slots.lease().expect("two slots");
    let log = Arc::new(Lanes::new(4 * SIZE, slots.len()..slots.len(), slots.clone(), Lsn(5)).expect("memory"));
    let actors = [
        spawn(&log, |log| _ = append(log, 0, 0, Lsn(0))),
        spawn(&log, move |log| _ = append(log, slots.lease().expect("two slots"), 0, Lsn(0))),
    ];
    cut_beside(&log, actors, 2);
}

/// A lane that is full: the fifth record takes the space of the first.
fn reuse() {
    let log = lanes();
    for _ in 0..4 {
        log.admit(0, SIZE as u64);
        append(&log, 0, 0, Lsn(0));
    }
    join([
        spawn(&log, |log| _ = cut_all(log, Lsn(0), 1)),
        spawn(&log, |log| {
            if log.admit(0, SIZE as u64).is_some() {
                append(log, 0, 0, Lsn(0));
            }
        }),
    ]);
}

/// The state that leaders pass on through their lock.
#[derive(Default)]
struct Lead {
    cut: Lsn,
    copied: usize,
}

impl Lead {
    fn take(&mut self, log: &Lanes, space: Option<usize>) {
        let mut staging = Staging::new(4096);
        let drained = match space {
            Some(slot) => log.drain_for(slot, self.cut, &mut staging),
            None => log.drain(self.cut, &mut staging),
        };
        let drained = drained.expect("no call is refused");
        for record in staging.data().chunks(SIZE) {
            let stamp = Lsn(u64::from_le_bytes(record[8..16].try_into().expect("eight bytes")));
            assert!(stamp > self.cut, "{stamp} was missed by the cut at {}", self.cut);
            self.copied += 1;
        }
        assert!(drained.cut >= self.cut, "a cut never falls");
        self.cut = drained.cut;
    }
}

/// A session that frees space in its lane between two records, beside another session and a cut.
fn space() {
    let log = lanes();
    let lead = Arc::new(Mutex::new(LockRank::LogDrain, Lead::default()));
    let (one, two) = (lead.clone(), lead.clone());
    join([
        spawn(&log, move |log| {
            append(log, 0, 0, Lsn(0));
            one.lock().take(log, Some(0));
            append(log, 0, 0, Lsn(0));
        }),
        spawn(&log, |log| _ = append(log, 1, 0, Lsn(0))),
        spawn(&log, move |log| two.lock().take(log, None)),
    ]);
    let mut lead = lead.lock();
    lead.take(&log, None);
    assert!(lead.copied == 3 && lead.cut >= log.current(), "a quiet log is cut whole");
}

#[test]
fn a_cut_misses_no_record_up_to_its_stamp() {
    check(two_cuts);
}

#[test]
fn a_cut_misses_no_commit() {
    check(with_commits);
}

#[test]
fn a_cut_need_not_know_a_lane_that_is_leased_meanwhile() {
    check(late_lease);
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn a_draw_in_a_new_lane_without_a_fence_is_noticed() {
    mutated("lanes: no fence in the draw", late_lease);
}

#[test]
fn space_is_made_without_a_cut() {
    check(space);
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn an_ignored_drawing_is_noticed_where_space_is_made() {
    mutated("lanes: drawing ignored", space);
}

#[test]
fn space_is_used_again_only_after_it_was_drained() {
    check(reuse);
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn a_draw_without_a_fence_is_noticed() {
    mutated("lanes: no fence in the draw", two_cuts);
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn a_cut_without_a_fence_is_noticed() {
    mutated("lanes: no fence in the cut", two_cuts);
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn an_ignored_drawing_is_noticed() {
    mutated("lanes: drawing ignored", two_cuts);
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn an_ignored_drawing_of_a_commit_is_noticed() {
    mutated("lanes: drawing ignored", with_commits);
}

#[test]
#[should_panic(expected = "never falls")]
fn a_cut_that_falls_is_noticed() {
    mutated("lanes: cut falls", two_cuts);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn drained_without_order_is_noticed() {
    mutated("lanes: relaxed drained", reuse);
}
