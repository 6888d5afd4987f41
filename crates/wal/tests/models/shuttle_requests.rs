//! Promise: a writer that requests space is answered by work that began after its request, and is never forgotten.
//!
//! A lost wake-up shows as a deadlock: the stopped log ends the wait only when all other writers are through.

use foreshore_sync::Signal;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_wal::model::SpaceRequests;
use foreshore_wal::{SpaceServer, SpaceWait};
use std::sync::Arc;

const WRITERS: u64 = 3;
const REQUESTS: u64 = 2;
const SCHEDULES: usize = 2000;

#[derive(Default)]
struct Shared {
    requests: SpaceRequests,
    /// The count of needs of writers so far, and how many the server had seen when its newest answered work began.
    needed: AtomicU64,
    known: AtomicU64,
    ends: AtomicBool,
}

fn write(shared: &Shared) {
    for _ in 0..REQUESTS {
        // ORDERING: Relaxed, shuttle takes every access as SeqCst; here and below.
        let need = shared.needed.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(shared.requests.request(&SpaceWait::default(), || false), "the server frees log each time");
        assert!(shared.known.load(Ordering::Relaxed) >= need, "answered by work that did not know of the request");
    }
}

fn serve(shared: &Shared, signal: &Signal) {
    while !shared.ends.load(Ordering::Relaxed) {
        signal.wait(None);
        if let Some(request) = shared.requests.newest_unanswered() {
            let known = shared.needed.load(Ordering::Relaxed);
            thread::yield_now();
            shared.known.store(known, Ordering::Relaxed);
            shared.requests.answer(&request, true);
        }
    }
}

fn storm() {
    let (shared, signal) = (Arc::new(Shared::default()), Signal::new());
    shared.requests.set_server(SpaceServer::Thread(signal.clone()));
    let server = {
        let (shared, signal) = (Arc::clone(&shared), signal.clone());
        thread::spawn(move || serve(&shared, &signal))
    };
    let writer = |_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || write(&shared))
    };
    let writers: Vec<_> = (0..WRITERS).map(writer).collect();
    writers.into_iter().for_each(|writer| writer.join().expect("a writer ends"));
    shared.ends.store(true, Ordering::Relaxed);
    signal.notify();
    server.join().expect("the server ends");
}

#[test]
fn each_request_is_answered_by_work_that_began_after_it() {
    shuttle(SCHEDULES, storm);
}

#[test]
#[should_panic]
fn an_answer_to_requests_made_during_the_work_is_noticed() {
    shuttle_mutated("requests: the answer covers later requests", SCHEDULES, storm);
}
