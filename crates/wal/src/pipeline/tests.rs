//! Waits while an appender is stopped in its copy: something is wanted, and nothing can be cut.

use super::*;
use foreshore_sync::NextWake;

/// Nothing can be cut.
struct Stopped;

impl Leader for Stopped {
    type Group = Self;

    fn seal(&mut self, _group: &mut Self, _order: Order) -> Result<Option<Cut>> {
        Ok(None)
    }
}

impl Group for Stopped {
    fn write(&mut self) -> Result<()> {
        unreachable!("nothing was sealed")
    }
}

fn stopped() -> Pipeline<Stopped> {
    let slots = Slots::new(1);
    slots.lease().expect("one slot");
    Pipeline::new(Stopped, vec![Stopped], Lsn(0), GroupNo(1), Arc::new(slots), GroupPolicy::Greedy)
}

fn rung(pipeline: &Pipeline<Stopped>) -> bool {
    pipeline.flusher_signal(0).wait(Some(Duration::ZERO))
}

#[test]
fn a_flusher_that_can_cut_nothing_pauses() {
    let pipeline = stopped();
    pipeline.flush_soon(0, Lsn(8));
    assert!(rung(&pipeline), "a commit rings");
    assert_eq!(pipeline.flush_step(0), NextWake::After(STALL));
    assert!(!rung(&pipeline), "a flusher that rings itself would not pause");
    assert_eq!(pipeline.lead_for_space(0), Led::Nothing);
    assert!(rung(&pipeline), "the flusher may have found the lead taken");
}

#[test]
fn waiters_for_space_that_can_cut_nothing_do_not_wake_each_other() {
    let pipeline = stopped();
    let key = pipeline.space().prepare();
    assert_eq!(pipeline.lead_for_space(0), Led::Nothing);
    assert!(!pipeline.space().wait(key, Some(Duration::ZERO)));
}

#[test]
fn a_limited_wait_ends_though_nothing_can_be_cut() {
    let pipeline = stopped();
    let mut pauses = 0;
    let durable = pipeline.force_while(Lsn(8), |_, pause| {
        assert_eq!(pause, Some(STALL));
        pauses += 1;
        pauses < 3
    });
    assert!(!durable.expect("no error"));
    assert_eq!(pauses, 3);
}
