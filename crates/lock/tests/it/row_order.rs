//! Waiters for a row go on in the order in which they came, however long they wait.

use crate::toy::{PATIENCE, Toy};
use foreshore_base::Error;
use foreshore_sync::primitive::thread;
use std::sync::mpsc::channel;
use std::time::Duration;

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

/// One of many waiters for a row is the victim of a deadlock. The others go on waiting where they were.
#[test]
fn a_victim_that_waits_for_a_row_is_woken_alone() {
    const OTHERS: u64 = 8;
    let toy = Toy::new(&[0; 2], 16, PATIENCE);
    let (mut holder, mut victim) = (toy.begin("holder"), toy.begin("victim"));
    holder.lock(0).expect("free");
    holder.owner.set_undo_bytes(1);
    victim.lock(1).expect("free");
    let (order, gone_on) = channel();
    thread::scope(|scope| {
        let toy = &toy;
        for at in 0..OTHERS {
            let order = order.clone();
            scope.spawn(move || {
                let mut txn = toy.begin("other");
                txn.lock(0).expect("the holder ends");
                order.send(at).expect("received");
                txn.commit();
            });
            parked(toy, at + 1);
        }
        let victim = scope.spawn(move || victim.lock(0).map(drop));
        parked(toy, OTHERS + 1);
        holder.lock(1).expect("the victim ends");
        let refused = victim.join().expect("no panic");
        assert!(matches!(refused, Err(Error::Deadlock { .. })), "{refused:?}");
        parked(toy, OTHERS + 2);
        assert_eq!(toy.locks.stats().waits, OTHERS + 2, "no other was woken");
        holder.commit();
    });
    drop(order);
    assert_eq!(gone_on.iter().collect::<Vec<_>>(), (0..OTHERS).collect::<Vec<_>>());
}

/// Until so many waits have begun, and a little longer, so that the last waiter sleeps.
fn parked(toy: &Toy, waits: u64) {
    while toy.locks.stats().waits < waits {
        thread::yield_now();
    }
    let (_hold, never) = channel::<()>();
    never.recv_timeout(Duration::from_millis(10)).expect_err("nothing is sent");
}
