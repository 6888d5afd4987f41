//! Groups with a delay, before a buffer that often has nothing to cut: when the delay of a group ends, a thread that
//! waits for it checks again.

use crate::common::policies::delay;
use foreshore_base::{GroupNo, Lsn, Result};
use foreshore_sync::model::{choose, shuttle};
use foreshore_sync::primitive::thread;
use foreshore_wal::log_buffer::Slots;
use foreshore_wal::model::{Calls, Cut, Group, GroupCommit, Leader, Order, Pipeline};
use std::sync::Arc;
use std::time::Duration;

/// The greatest LSN there is.
const LAST: u64 = 3;

/// A buffer whose appenders stop in their copies at random.
struct Fickle;

impl Leader for Fickle {
    type Group = Fickle;

    fn seal(&mut self, _group: &mut Fickle, order: Order) -> Result<Option<Cut>> {
        let cut = |upto| Some(Cut { upto, more: false, bytes: 8 });
        Ok(match order.space_in {
            Some(_) => cut(order.sealed),
            None => Some(Lsn(choose(LAST + 1))).filter(|&upto| upto > order.sealed).and_then(cut),
        })
    }
}

impl Group for Fickle {
    fn write(&mut self) -> Result<()> {
        thread::yield_now();
        Ok(())
    }
}

/// Threads that wait for durability, two of them for the same LSN, beside one that needs space.
fn waiters() {
    let width = 1 + choose(3) as usize;
    let groups = (0..width).map(|_| Fickle).collect();
    let (slots, delay) = (Arc::new(Slots::new(1)), delay(Duration::from_micros(200)));
    let policy = (GroupCommit::Greedy, delay.as_ref());
    let pipeline = Arc::new(Pipeline::new(Fickle, groups, Lsn(0), GroupNo(1), slots, policy));
    let wait = |lsn| {
        let pipeline = pipeline.clone();
        thread::spawn(move || pipeline.force(Lsn(lsn), Calls::Elsewhere).expect("every write succeeds"))
    };
    let mut actors: Vec<_> = [1, 2, 2, LAST].map(wait).into();
    let space = pipeline.clone();
    actors.push(thread::spawn(move || (0..3).for_each(|_| _ = space.lead_for_space(0))));
    actors.into_iter().for_each(|actor| actor.join().expect("an actor ends"));
    assert_eq!(pipeline.progress().durable(), Lsn(LAST));
}

#[test]
fn a_timed_group_has_a_timer() {
    shuttle(5_000, waiters);
}
