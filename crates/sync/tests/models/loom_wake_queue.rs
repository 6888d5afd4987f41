//! Models of the wake queue under a list of waiters like that of the log. A forgotten thread shows as a deadlock.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering, fence};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex, Parker, Unparker, WakeQueue};
use std::sync::Arc;

struct Gate {
    open: AtomicBool,
    list: Mutex<Vec<(usize, Unparker)>>,
    queue: WakeQueue,
}

impl Gate {
    fn pass(&self, own: usize) {
        let parker = Parker::new();
        self.list.lock().push((own, parker.unparker()));
        fence(Ordering::SeqCst);
        while !self.open.load(Ordering::Acquire) {
            parker.park();
        }
        let before = {
            let mut list = self.list.lock();
            let before = list.len();
            list.retain(|(id, _)| *id != own);
            before - list.len()
        };
        if before == 0 {
            self.queue.help();
        }
    }

    fn open(&self) {
        self.open.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        {
            let mut list = self.list.lock();
            self.queue.put(list.drain(..).map(|(_, unparker)| unparker));
        }
        self.queue.start();
    }
}

fn two_pass() {
    let list = Mutex::new(LockRank::LogWaiters, Vec::new());
    let gate = Arc::new(Gate { open: AtomicBool::new(false), list, queue: WakeQueue::new(1) });
    let passers = [0, 1].map(|own| {
        let gate = gate.clone();
        thread::spawn(move || gate.pass(own))
    });
    let opener = {
        let gate = gate.clone();
        thread::spawn(move || gate.open())
    };
    for thread in passers.into_iter().chain([opener]) {
        thread.join().expect("an actor ends");
    }
}

#[test]
fn no_waiter_is_forgotten() {
    check(two_pass);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_help_of_the_woken() {
    mutated("wake queue: leave without helping", two_pass);
}
