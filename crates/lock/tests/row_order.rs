//! Waiters for a row go on in the order in which they came, however long they wait.
#![cfg(not(foreshore_loom))]

#[expect(dead_code, reason = "shared with other tests")]
mod toy;

use foreshore_sync::primitive::thread;
use std::sync::mpsc::channel;
use std::time::Duration;
use toy::{PATIENCE, Toy};

#[test]
fn a_waiter_for_a_row_keeps_its_place_while_it_looks_for_its_own_thread() {
    let toy = Toy::new(&[0], 8, PATIENCE);
    let mut holder = toy.begin("holder");
    holder.lock(0).expect("free");
    let ((order, gone_on), (_hold, never)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let toy = &toy;
        for (at, label) in ["first", "second"].into_iter().enumerate() {
            let order = order.clone();
            scope.spawn(move || {
                let mut txn = toy.begin(label);
                txn.lock(0).expect("the holder ends");
                order.send(label).expect("received");
                txn.commit();
            });
            while toy.locks.stats().waits < at as u64 + 1 {
                thread::yield_now();
            }
            never.recv_timeout(Duration::from_millis(70)).expect_err("nothing is sent");
        }
        // The first one has waited for 140 ms, the second one for 70.
        holder.commit();
    });
    drop(order);
    assert_eq!(gone_on.iter().collect::<Vec<_>>(), ["first", "second"]);
}
