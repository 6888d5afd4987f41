//! Requests for space: a writer that the disk has refused requests that the server truncates the log.
//!
//! 1. The writer takes a number, signals the server's thread, and parks. It holds no latch, no lane and no ring space.
//! 2. The server reads the newest number, tries to truncate the log, and answers that number.
//! 3. The answer covers all numbers up to it and says whether log was truncated. The writer then retries or fails.
//!
//! If the server has no thread, the writer runs the server's step itself. A server that cannot answer yet keeps the
//! request, and its step runs again soon.
//!
//! **Invariant:** the work behind the answer to a request began after the request was made.
//! **Invariant:** a writer parks for at most [`MAX_WAIT`] in all, and not at all without a server.

use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, Condvar, LockRank, Mutex, Nanos, Signal, Step, SystemClock};
use std::fmt;
use std::sync::Weak;
use std::time::Duration;

/// The longest wait of one writer for all its requests. A checkpoint that writes a large pool home takes seconds.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// The pause between checks of a waiting writer. It checks whether the log has stopped, which sends no signal here, and
/// repeats the step of a server without a thread.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The server that truncates log on request.
#[derive(Clone, Default)]
pub enum SpaceServer {
    /// No server. Requests are refused at once.
    #[default]
    None,
    /// A thread that this signal wakes.
    Thread(Signal),
    /// A step that the writer runs itself.
    Inline(Weak<dyn Step>),
}

impl fmt::Debug for SpaceServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Thread(_) => "Thread",
            Self::Inline(_) => "Inline",
        })
    }
}

/// The requests that the server has to answer, returned by [`crate::Log::space_requested`].
#[must_use = "a waiting writer needs the answer"]
#[derive(Debug)]
pub struct SpaceRequest {
    number: u64,
}

/// The time that one writer has for its requests.
#[derive(Debug)]
pub struct SpaceWait {
    clock: SystemClock,
    end: Nanos,
}

impl Default for SpaceWait {
    fn default() -> Self {
        Self::within(None)
    }
}

impl SpaceWait {
    /// Returns the time of a writer that may wait for at most `max_wait`, if its waits are limited.
    #[must_use]
    pub fn within(max_wait: Option<Duration>) -> Self {
        let clock = SystemClock::new();
        Self { end: clock.now() + max_wait.map_or(MAX_WAIT, |max_wait| max_wait.min(MAX_WAIT)), clock }
    }

    pub(crate) fn time_left(&self) -> Duration {
        self.end.since(self.clock.now())
    }
}

#[derive(Debug, Default)]
struct State {
    /// The number of the newest request, and that of the newest answered one.
    newest: u64,
    answered: u64,
    /// The number of the newest request whose answer truncated log.
    freed: u64,
    server: SpaceServer,
}

/// The requests of one log.
#[derive(Debug)]
pub struct SpaceRequests {
    state: Mutex<State>,
    answered: Condvar,
}

impl Default for SpaceRequests {
    fn default() -> Self {
        Self { state: Mutex::new(LockRank::Leaf, State::default()), answered: Condvar::new() }
    }
}

impl SpaceRequests {
    /// Sets the server. Without one, waiting requests are refused.
    pub fn set_server(&self, server: SpaceServer) {
        self.state.lock().server = server;
        self.answered.notify_all();
    }

    /// Makes a request, waits for its answer, and returns whether log was truncated. Returns false, too, without a
    /// server, when `stopped` returns true, and when the time is over.
    pub fn request(&self, wait: &SpaceWait, stopped: impl Fn() -> bool) -> bool {
        let (number, server) = {
            let mut state = self.state.lock();
            if matches!(state.server, SpaceServer::None) {
                return false;
            }
            state.newest += 1;
            (state.newest, state.server.clone())
        };
        if let SpaceServer::Thread(signal) = &server {
            signal.notify();
        }
        loop {
            if let SpaceServer::Inline(step) = &server {
                let Some(step) = step.upgrade() else { return false };
                // WAIT: help - the writer does the server's work.
                step.step();
            }
            // Called without the lock here, because it takes the locks of the log.
            let has_stopped = stopped();
            let state = self.state.lock();
            if state.answered >= number {
                return state.freed >= number;
            }
            let left = wait.time_left();
            if left.is_zero() || matches!(state.server, SpaceServer::None) || has_stopped {
                return false;
            }
            // WAIT: park - until the answer notifies, or for one pause between checks.
            drop(self.answered.wait_timeout(state, left.min(CHECK_INTERVAL)));
        }
    }

    /// Returns the newest request, if it has no answer yet.
    pub fn newest_unanswered(&self) -> Option<SpaceRequest> {
        let state = self.state.lock();
        let State { newest, answered, .. } = *state;
        assert!(answered <= newest, "{answered} of {newest} requests for space are answered");
        (newest > answered).then_some(SpaceRequest { number: newest })
    }

    /// Answers `request` and all before it.
    pub fn answer(&self, request: &SpaceRequest, freed: bool) {
        let mut state = self.state.lock();
        let number = if mutant("requests: the answer covers later requests") { state.newest } else { request.number };
        state.answered = state.answered.max(number);
        if freed {
            state.freed = state.freed.max(number);
        }
        let State { newest, answered, freed, .. } = *state;
        assert!(freed <= answered && answered <= newest, "of {newest} requests {answered} are answered, {freed} freed");
        drop(state);
        self.answered.notify_all();
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use foreshore_sync::NextWake;
    use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
    use foreshore_sync::primitive::thread;
    use std::sync::Arc;

    #[test]
    fn without_a_server_a_request_is_refused_at_once() {
        let requests = SpaceRequests::default();
        let wait = SpaceWait::default();
        assert!(!requests.request(&wait, || false));
        assert!(wait.time_left() > MAX_WAIT / 2, "it has not waited");
        assert!(requests.newest_unanswered().is_none(), "a later server has nothing to do");
    }

    #[test]
    fn an_answer_covers_the_requests_before_it_and_none_after() {
        let requests = SpaceRequests::default();
        let signal = Signal::new();
        requests.set_server(SpaceServer::Thread(signal.clone()));
        thread::scope(|scope| {
            let first = scope.spawn(|| requests.request(&SpaceWait::default(), || false));
            assert!(signal.wait(None));
            let request = requests.newest_unanswered().expect("the request that signalled");
            let second = scope.spawn(|| requests.request(&SpaceWait::default(), || false));
            assert!(signal.wait(None));
            requests.answer(&request, true);
            assert!(first.join().expect("no panic"));
            let request = requests.newest_unanswered().expect("the second request has no answer");
            requests.answer(&request, false);
            assert!(!second.join().expect("no panic"));
        });
        assert!(requests.newest_unanswered().is_none());
    }

    #[test]
    fn a_writer_stops_waiting_when_the_server_is_removed_or_the_log_has_stopped() {
        let requests = SpaceRequests::default();
        let signal = Signal::new();
        requests.set_server(SpaceServer::Thread(signal.clone()));
        // Why the log has stopped is behind a lock that ranks below the one of the requests.
        let cause = Mutex::new(LockRank::LogWaiters, true);
        assert!(!requests.request(&SpaceWait::default(), || *cause.lock()));
        assert!(signal.wait(None));
        thread::scope(|scope| {
            let writer = scope.spawn(|| requests.request(&SpaceWait::default(), || false));
            assert!(signal.wait(None));
            requests.set_server(SpaceServer::None);
            assert!(!writer.join().expect("no panic"));
        });
    }

    #[test]
    fn a_server_without_a_thread_is_run_by_the_writer() {
        struct Server(Arc<SpaceRequests>);
        impl Step for Server {
            fn step(&self) -> NextWake {
                let request = self.0.newest_unanswered().expect("the writer has asked");
                self.0.answer(&request, true);
                NextWake::OnSignal
            }
        }
        /// Answers every third step.
        struct Hesitant {
            requests: Arc<SpaceRequests>,
            steps: AtomicU64,
        }
        impl Step for Hesitant {
            fn step(&self) -> NextWake {
                // ORDERING: Relaxed, one thread.
                if (self.steps.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(3) {
                    let request = self.requests.newest_unanswered().expect("the writer has asked");
                    self.requests.answer(&request, true);
                }
                NextWake::OnSignal
            }
        }
        let requests = Arc::new(SpaceRequests::default());
        let server: Arc<dyn Step> = Arc::new(Server(Arc::clone(&requests)));
        requests.set_server(SpaceServer::Inline(Arc::downgrade(&server)));
        assert!(requests.request(&SpaceWait::default(), || false));
        let hesitant = Hesitant { requests: Arc::clone(&requests), steps: AtomicU64::new(0) };
        let hesitant: Arc<dyn Step> = Arc::new(hesitant);
        requests.set_server(SpaceServer::Inline(Arc::downgrade(&hesitant)));
        assert!(requests.request(&SpaceWait::default(), || false), "answered at the third step");
        assert!(!requests.request(&SpaceWait::within(Some(Duration::ZERO)), || false), "no time is left");
        requests.set_server(SpaceServer::Inline(Arc::downgrade(&server)));
        drop(server);
        assert!(!requests.request(&SpaceWait::default(), || false), "the server is dropped");
    }
}
