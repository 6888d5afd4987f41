//! Cuts of the `lanes` buffer that take several groups, beside sessions that free space in their lanes meanwhile.

use foreshore_base::Lsn;
use foreshore_sync::model::{choose, shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::log_buffer::{Drained, LogBuffer, Slots, Staging};
use foreshore_wal::model::Lanes;
use foreshore_wal::{Record, flags};
use std::sync::Arc;

/// A group takes one record, a lane four.
const GROUP: usize = 4096;
const LANE: usize = 2 * GROUP;
const PAYLOAD: usize = 2000;
const SIZE: usize = 24 + PAYLOAD;

const SESSIONS: usize = 3;
const RECORDS: u64 = 6;

/// The state that leaders pass on through their lock.
#[derive(Default)]
struct Lead {
    cut: Lsn,
    /// Whether a cut is in progress.
    more: bool,
    /// How many records of each session were copied.
    seen: [u64; SESSIONS],
    /// How often a session came for space in the middle of a cut.
    met: u64,
}

impl Lead {
    /// Seals one group, for the session that needs `space` or for waiters.
    fn take(&mut self, log: &Lanes, space: Option<usize>) {
        self.met += u64::from(self.more && space.is_some());
        let mut staging = Staging::new(GROUP);
        let drained = match space {
            Some(slot) => log.drain_for(slot, self.cut, &mut staging),
            None => log.drain(self.cut, &mut staging),
        };
        let Drained { cut, more } = drained.expect("no call is refused");
        for record in staging.data().chunks(SIZE) {
            let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
            let (stamp, mark) = (Lsn(word(8)), word(24));
            assert!(stamp > self.cut, "{stamp} was missed by the cut at {}", self.cut);
            let (own, at) = ((mark >> 32) as usize, mark & 0xffff_ffff);
            assert_eq!(at, self.seen[own] + 1, "not the next record of session {own}");
            assert!(record[32..].iter().all(|&byte| u64::from(byte) == at), "a record that is not whole");
            self.seen[own] = at;
        }
        assert!(cut >= self.cut, "a cut never falls");
        (self.cut, self.more) = (cut, more);
    }

    fn is_done(&self) -> bool {
        self.seen == [RECORDS; SESSIONS]
    }
}

/// Appends all records of the session of `slot`, each dependent on the one before.
fn session(log: &Lanes, lead: &Mutex<Lead>, slot: usize) {
    let mut last = Lsn(0);
    for at in 1..=RECORDS {
        while log.admit(slot, SIZE as u64).is_none() {
            lead.lock().take(log, Some(slot));
        }
        let (mark, filler) = (((slot as u64) << 32 | at).to_le_bytes(), [at as u8; PAYLOAD - 8]);
        let commit = if choose(3) == 0 { flags::COMMIT } else { 0 };
        last = log.append(slot, &Record { tag: 0, flags: commit, parts: &[&mark, &filler] }, last);
    }
}

/// All sessions beside a leader; returns how often a session came for space in the middle of a cut.
fn meet() -> u64 {
    let slots = Slots::new(SESSIONS);
    (0..SESSIONS).for_each(|_| _ = slots.lease().expect("a slot for each"));
    let log = Arc::new(Lanes::new(LANE, slots.len()..slots.len(), Arc::new(slots), Lsn(0)).expect("memory"));
    let lead = Arc::new(Mutex::new(LockRank::LogDrain, Lead::default()));
    let spawn = |slot| {
        let (log, lead) = (log.clone(), lead.clone());
        thread::spawn(move || session(&log, &lead, slot))
    };
    let sessions: Vec<_> = (0..SESSIONS).map(spawn).collect();
    while !lead.lock().is_done() {
        lead.lock().take(&log, None);
        thread::yield_now();
    }
    sessions.into_iter().for_each(|session| session.join().expect("a session ends"));
    let mut lead = lead.lock();
    lead.take(&log, None);
    assert!(!lead.more && lead.cut >= log.current(), "a quiet log is cut whole");
    lead.met
}

#[test]
fn a_cut_of_several_groups_covers_all_up_to_its_stamp() {
    static MET: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
    shuttle(2_000, || *MET.lock().unwrap() += meet());
    assert!(*MET.lock().unwrap() > 0, "no session came for space in the middle of a cut");
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn a_cut_that_rises_before_its_last_group_is_noticed() {
    shuttle_mutated("lanes: rises before its end", 2_000, || _ = meet());
}

#[test]
#[should_panic(expected = "missed by the cut")]
fn a_cut_above_a_drawing_session_is_noticed() {
    shuttle_mutated("lanes: drawing ignored", 2_000, || _ = meet());
}
