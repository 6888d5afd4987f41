//! Groups that land in every order, under random schedules of the threads that write them and of those that wait. The
//! tests are those of `it/flights.rs`, which also checks the disk.

use crate::common::flights::{BUFFERS, ORDERS, fail_in, land_in};
use foreshore_sync::model::{shuttle, shuttle_mutated};

const SCHEDULES: usize = 100;

fn every_order() {
    for buffer in BUFFERS {
        ORDERS.into_iter().for_each(|order| land_in(buffer, order));
    }
}

/// The failing group is behind one that lands later, so that there is something to acknowledge.
fn every_late_landing() {
    for buffer in BUFFERS {
        for (order, failing) in [([1, 0, 2], 1), ([2, 0, 1], 2), ([0, 2, 1], 2), ([1, 2, 0], 2)] {
            fail_in(buffer, order, failing).0.end();
        }
    }
}

#[test]
fn durable_moves_in_the_order_of_groups_whatever_lands_first() {
    shuttle(SCHEDULES, every_order);
}

#[test]
#[should_panic(expected = "[0, 2, 1]")]
fn a_window_that_follows_the_order_of_landing_is_noticed() {
    shuttle_mutated("window: completes out of order", SCHEDULES, every_order);
}

#[test]
fn a_failed_write_ends_acknowledgement_whatever_lands_later() {
    shuttle(SCHEDULES, every_late_landing);
}

#[test]
#[should_panic(expected = "group 1 fails")]
fn an_acknowledgement_after_a_failure_is_noticed() {
    shuttle_mutated("pipeline: acknowledges though stopped", SCHEDULES, every_late_landing);
}
