//! Models of the hand-off of a row: the holder ends while other transactions begin to wait. A lost wake-up shows as a
//! deadlock of the model.

use foreshore_base::{TableId, Xid};
use foreshore_lock::{LockManager, LockOptions, Patience};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

const TABLE: TableId = TableId(1);
const KEY: &[u8] = b"k";
const HOLDER: u64 = 1;
const EVER: Duration = Duration::MAX;

/// A header and the transactions that have ended. The waiters take the row one after the other.
struct Row {
    locks: Arc<LockManager>,
    header: AtomicU64,
    ended: [AtomicBool; 4],
}

impl Row {
    fn new() -> Self {
        Self {
            locks: Arc::new(LockManager::new(LockOptions { max_owners: 3, share_slots: 1, ..LockOptions::default() })),
            header: AtomicU64::new(HOLDER),
            ended: std::array::from_fn(|_| AtomicBool::new(false)),
        }
    }

    fn is_live(&self, xid: u64) -> bool {
        !self.ended[xid as usize].load(Ordering::Acquire)
    }

    fn end(&self, owner: &mut foreshore_lock::Owner, xid: u64) {
        self.ended[xid as usize].store(true, Ordering::Release);
        self.locks.finish(owner, None);
    }

    /// Takes the row as `xid`, which waits for its holder.
    fn take(&self, xid: u64) {
        let mut owner = self.locks.lease("waiter").expect("a slot");
        owner.set_xid(Xid(xid));
        let mut patience = Patience::new(EVER);
        loop {
            let header = self.header.load(Ordering::Acquire);
            if self.is_live(header) {
                let is_live = || self.is_live(header);
                self.locks.wait_xid(&mut owner, TABLE, KEY, Xid(header), &is_live, &mut patience).expect("no cycle");
            } else if self.header.compare_exchange(header, xid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break;
            }
        }
        self.end(&mut owner, xid);
    }

    /// Waits for the row as `xid`, does not take it, and never ends.
    fn wait_without_taking(&self, xid: u64) {
        let mut owner = self.locks.lease("leaves").expect("a slot");
        owner.set_xid(Xid(xid));
        let mut patience = Patience::new(EVER);
        let is_live = || self.is_live(HOLDER);
        while is_live() {
            self.locks.wait_xid(&mut owner, TABLE, KEY, Xid(HOLDER), &is_live, &mut patience).expect("no cycle");
        }
        if patience.has_waited() {
            self.locks.pass_on(TABLE, KEY);
        }
        std::mem::forget(owner);
    }
}

/// Two waiters, of which one does not take the row and never ends.
fn untaken() {
    let row = Arc::new(Row::new());
    let mut holder = row.locks.lease("holder").expect("a slot");
    holder.set_xid(Xid(HOLDER));
    let (ends, leaves) = (row.clone(), row.clone());
    let takes = row;
    let first = thread::spawn(move || ends.end(&mut holder, HOLDER));
    let second = thread::spawn(move || leaves.wait_without_taking(HOLDER + 1));
    let third = thread::spawn(move || takes.take(HOLDER + 2));
    first.join().expect("the holder ends");
    second.join().expect("a waiter leaves");
    third.join().expect("a waiter ends");
}

fn hand_off(waiters: u64) {
    let row = Arc::new(Row::new());
    let mut holder = row.locks.lease("holder").expect("a slot");
    holder.set_xid(Xid(HOLDER));
    let ends = row.clone();
    let first = thread::spawn(move || ends.end(&mut holder, HOLDER));
    let rest: Vec<_> = (0..waiters)
        .map(|n| {
            let row = row.clone();
            thread::spawn(move || row.take(HOLDER + 1 + n))
        })
        .collect();
    first.join().expect("the holder ends");
    rest.into_iter().for_each(|waiter| waiter.join().expect("a waiter ends"));
}

#[test]
fn a_waiter_is_woken_by_the_holder() {
    check(|| hand_off(1));
}

#[test]
fn a_waiter_is_woken_by_the_one_before_it() {
    check(|| hand_off(2));
}

#[test]
fn a_waiter_is_woken_by_one_that_goes_on_without_the_row() {
    check(untaken);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_that_goes_on_without_the_row_passes_it_on() {
    mutated("hand-off: a waiter that goes on without the row keeps it", untaken);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_enters_its_row_with_the_holder() {
    mutated("hand-off: row not entered with the holder", || hand_off(1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_woken_waiter_wakes_the_next() {
    mutated("hand-off: woken waiter owes nothing", || hand_off(2));
}
