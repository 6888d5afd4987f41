//! Completions of a ring, reaped by the threads that wait for them.
//!
//! A ring has one queue of completions and no thread of its own. Every operation has a *place*; its thread waits until
//! the place holds a result. One waiting thread at a time is the *reaper*. It sleeps in the kernel until an operation
//! has completed, and puts every result in its place. The other threads park.
//!
//! Why no wake-up is lost, all under one lock:
//!
//! 1. Only the reaper takes completions from the queue. So it never sleeps in the kernel for one that another thread
//!    has already taken. While it sleeps, its own operation is in flight, so it will wake.
//! 2. A thread parks only after it has seen, in one hold of the lock, that its place has no result and that there is a
//!    reaper. Its place has shown its unparker since before the operation was issued.
//! 3. The reaper fills a place and then unparks its owner.
//! 4. A thread that returns while there is no reaper unparks one thread whose place has no result, if there is one.
//!    That thread becomes the reaper, or finds that another one has. If it finds its own result and returns instead, it
//!    does the same. So threads without a result never all park.

use foreshore_sync::{Condvar, LockRank, Mutex, MutexGuard, Parker, Unparker, model::mutant};

/// A source of completions.
pub trait Completions {
    /// Waits until there is at least one completion. May return without one.
    fn wait(&self);

    /// Takes the completions that are there, each a place and a result. Called under the lock, by one thread at a time.
    fn take(&self, each: &mut dyn FnMut(usize, i32));
}

/// The places of a ring.
#[derive(Debug)]
pub struct Places {
    state: Mutex<State>,
    /// Threads that wait for a place.
    free: Condvar,
}

#[derive(Debug)]
struct State {
    places: Vec<Place>,
    /// Whether a thread is the reaper.
    is_reaping: bool,
}

#[derive(Debug)]
enum Place {
    Free,
    /// An operation that is about to be issued or is in flight, and the unparker of the thread that waits for it.
    Taken(Unparker),
    Done(i32),
}

impl Places {
    /// Creates `places` places, all free.
    pub fn new(places: usize) -> Self {
        let places = (0..places).map(|_| Place::Free).collect();
        let state = Mutex::new(LockRank::Leaf, State { places, is_reaping: false });
        Self { state, free: Condvar::new() }
    }

    /// Takes a place for an operation of the thread that owns `parker`. Waits while all places are taken: their
    /// operations are in flight and end by themselves.
    pub fn enter(&self, parker: &Parker) -> usize {
        let mut state = self.state.lock();
        loop {
            if let Some(at) = state.places.iter().position(|place| matches!(place, Place::Free)) {
                state.places[at] = Place::Taken(parker.unparker());
                return at;
            }
            // WAIT: park - until a place is released.
            state = self.free.wait(state);
        }
    }

    /// Releases a place whose operation was not issued.
    pub fn cancel(&self, place: usize) {
        self.release(self.state.lock(), place);
    }

    /// Waits until the operation of `place` has completed, releases the place and returns the result.
    pub fn wait(&self, place: usize, parker: &Parker, completions: &impl Completions) -> i32 {
        let mut state = self.state.lock();
        loop {
            if let Place::Done(result) = state.places[place] {
                self.release(state, place);
                return result;
            }
            if state.is_reaping {
                drop(state);
                // WAIT: park - until the reaper has this thread's result, or passes its role on.
                parker.park();
            } else {
                state.is_reaping = true;
                drop(state);
                completions.wait();
                self.fill(place, completions);
            }
            state = self.state.lock();
        }
    }

    /// Puts all results in their places and ends the role of the reaper, whose own place is `own`.
    fn fill(&self, own: usize, completions: &impl Completions) {
        let mut woken = Vec::new();
        let mut state = self.state.lock();
        completions.take(&mut |at, result| {
            let before = std::mem::replace(&mut state.places[at], Place::Done(result));
            debug_assert!(matches!(before, Place::Taken(_)), "a completion of no operation");
            if let Place::Taken(owner) = before
                && at != own
            {
                woken.push(owner);
            }
        });
        state.is_reaping = false;
        drop(state);
        if !mutant("reap: owners are not woken") {
            woken.iter().for_each(Unparker::unpark);
        }
    }

    /// Releases a place and passes the role of the reaper on.
    fn release(&self, mut state: MutexGuard<'_, State>, place: usize) {
        state.places[place] = Place::Free;
        let next = state.places.iter().find_map(|place| match place {
            Place::Taken(owner) if !state.is_reaping => Some(owner.clone()),
            _ => None,
        });
        drop(state);
        self.free.notify_one();
        if let Some(next) = next
            && !mutant("reap: no hand-off")
        {
            next.unpark();
        }
    }
}
