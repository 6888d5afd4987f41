//! A second reservation includes the first one, even if it had to wait and the first was returned meanwhile.

use crate::common::*;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Sim};
use foreshore_sync::{NextWake, Step};
use foreshore_wal::{Dep, Log, LogLimits, Record, Session, SpaceServer};
use std::sync::Arc;

/// Sizes that together exceed the credit that a session keeps.
const RECORDS: usize = 8;

/// A server that frees space on the disk on request.
struct Owner(Sim, Log);

impl Step for Owner {
    fn step(&self) -> NextWake {
        self.0.clear_faults();
        self.1.answer_space(&self.1.space_requested().expect("a session has asked"), true);
        NextWake::OnSignal
    }
}

/// The waits for the throttle and for the full disk each return the reservation, one after the other.
#[test]
fn a_reservation_outlasts_a_wait_for_the_budget_and_one_for_the_disk() {
    let sim = Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    while log.prepare_step() == NextWake::Now {}
    let mut session = log.session().unwrap();
    // Begun before, because a session that begins on a full disk would be refused.
    let mut other = log.session().unwrap();
    append(&mut other, 0, b"small").unwrap();
    // Now there are bytes to pay the throttle for, and much is reserved.
    append(&mut session, 1, b"small").unwrap();
    log.force(log.current()).unwrap();
    session.reserve_rollback(RECORDS * Session::cost(6000)).unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    while let Ok(lsn) = append(&mut other, 1, &payload(1, 3000)) {
        log.force(lsn).unwrap();
    }
    drop(other);
    log.limit_backlog(Some(LogLimits { soft: 0, hard: 1 << 40 }));
    let owner: Arc<dyn Step> = Arc::new(Owner(sim, log.clone()));
    log.serve_space(SpaceServer::Inline(Arc::downgrade(&owner)));
    session.reserve(Session::cost(100)).unwrap();
    assert!(log.space_requested().is_none() && log.stats().slowed_nanos > 0, "it has waited for both");
    for tag in 0..RECORDS as u64 {
        session.append(Record { tag, flags: 0, parts: &[&payload(tag, 6000)] }, Dep::none());
    }
    log.force(log.current()).unwrap();
}
