//! A system that refuses the fence of a cut: that cut covers nothing, and the log stops.

use super::*;
use crate::group::{GroupMemory, Sealer};
use crate::group_commit::Group;
use crate::options::LogOptions;
use crate::pipeline::{Calls, Pipeline};
use crate::segment::Segments;
use crate::watch::GrowthWatch;
use foreshore_base::GroupNo;

const PAYLOAD: [u8; 1000] = [7; 1000];

/// Returns one lane whose cuts are refused their fences once there are enough records between them.
fn refused() -> (Arc<Lanes>, Arc<Slots>) {
    let slots = Arc::new(Slots::new(1));
    slots.lease().expect("one slot");
    let fence = AsymmetricFence::by(Some(|| Err(io::ErrorKind::PermissionDenied.into())));
    let lanes = Lanes::with_fence(1 << 20, slots.len()..slots.len(), slots.clone(), Lsn(0), fence).expect("memory");
    (Arc::new(lanes), slots)
}

/// Appends so much that the next cut but one spares the fences of appends.
fn fill(lanes: &Lanes) -> Lsn {
    let count = SPARING as usize / PAYLOAD.len() + 1;
    lanes.admit(0, (count * record_size(PAYLOAD.len())) as u64).expect("an empty lane");
    let append = |_| lanes.append(0, &Record { tag: 1, flags: 0, parts: &[&PAYLOAD] }, Lsn(0));
    (0..count).map(append).last().expect("more than none")
}

#[test]
fn a_cut_without_its_fence_is_an_error() {
    let (lanes, _) = refused();
    let mut staging = Staging::new(1 << 20);
    let last = fill(&lanes);
    let cut = lanes.drain(Lsn(0), &mut staging).expect("no thread is spared yet").cut;
    assert!(cut >= last);
    fill(&lanes);
    staging.clear();
    let error = lanes.drain(cut, &mut staging).expect_err("the fence is refused");
    assert!(matches!(error, Error::Io { op: "use membarrier for", .. }), "{error:?}");
    assert_eq!(staging.data_len(), 0, "nothing is copied by a cut that says nothing");
}

#[test]
fn what_was_copied_for_space_counts_as_appended() {
    let (lanes, _) = refused();
    let mut staging = Staging::new(1 << 20);
    fill(&lanes);
    let made = lanes.drain_for(0, Lsn(0), &mut staging).expect("no cut");
    assert!(made.cut == Lsn(0) && staging.data_len() as u64 >= SPARING);
    staging.clear();
    let cut = lanes.drain(Lsn(0), &mut staging).expect("no thread is spared yet").cut;
    assert_eq!(staging.data_len(), 0, "all was copied before");
    assert!(lanes.drain(cut, &mut staging).is_err(), "the cut before covered enough to spare the next appends");
}

#[test]
fn a_refused_fence_stops_the_log() {
    let (lanes, slots) = refused();
    let memory = GroupMemory::new(1 << 20, &Arc::new(GrowthWatch::default()));
    let segments = Arc::new(Segments::none(&LogOptions::default()));
    let sealer = Sealer { buffer: lanes.clone(), segments, tail: None };
    let pipeline = Pipeline::new(sealer, vec![memory], Lsn(0), GroupNo(1), slots, (Group::Greedy, None));
    pipeline.force(fill(&lanes), Calls::Elsewhere).expect("no thread is spared yet");
    let (durable, lost) = (pipeline.progress().durable(), fill(&lanes));
    let error = pipeline.force(lost, Calls::Elsewhere).expect_err("the fence is refused");
    assert!(matches!(error, Error::Poisoned { .. }), "{error:?}");
    assert_eq!(pipeline.progress().durable(), durable);
}
