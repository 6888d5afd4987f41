//! An open loop: commits arrive at random times that do not depend on any progress. Latency counts from the arrival.

use super::commits::{Committer, nanoseconds};
use crate::{
    random::Random,
    terminal::{Phase, Tally},
};
use foreshore::Result;
use foreshore_wal::CommitTicket;
use hdrhistogram::Histogram;
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

/// Commits of all generators whose latency is taken each second, at most and about: more would measure the measuring.
pub(super) const SAMPLES_PER_S: f64 = 50_000.0;
/// Commits between two looks at the phase while a generator catches up.
const CATCH_UP: usize = 64;

/// Where latencies of all generators go.
pub(super) struct Sink(Mutex<Histogram<u32>>);

impl Sink {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Tally::new().latency))
    }

    /// The latencies so far.
    pub(super) fn latency(&self) -> Histogram<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, scheduled: Instant) {
        let ns = nanoseconds(scheduled.elapsed());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(ns);
    }
}

/// A commit whose latency is taken: by the thread that makes it durable, or by its generator if that one sees it first.
struct Taken {
    scheduled: Instant,
    is_done: AtomicBool,
    sink: Arc<Sink>,
}

impl Taken {
    fn done(&self) {
        // ORDERING: Relaxed, the flag decides which thread records and publishes nothing.
        if !self.is_done.swap(true, Ordering::Relaxed) {
            self.sink.record(self.scheduled);
        }
    }
}

impl Wake for Taken {
    fn wake(self: Arc<Self>) {
        self.done();
    }
}

/// Generates commits at random times that do not depend on any progress.
pub(super) struct Generator<'a> {
    committer: Committer<'a>,
    random: Random,
    /// Between two arrivals, on average.
    gap_ns: f64,
    /// One commit in so many has its latency taken.
    every: u64,
    sink: Arc<Sink>,
    /// Commits whose latency is being taken, oldest first. A ticket that goes takes its waker with it.
    taken: VecDeque<(CommitTicket, Arc<Taken>)>,
}

impl<'a> Generator<'a> {
    /// One that commits `load` times a second and has one of `every` commits timed.
    pub(super) fn new(committer: Committer<'a>, random: Random, load: f64, every: u64, sink: Arc<Sink>) -> Self {
        Self { committer, random, gap_ns: 1e9 / load, every, sink, taken: VecDeque::new() }
    }

    /// Issues what is due, sleeps until more is. Returns by how many nanoseconds the arrivals of the window were issued
    /// late, and their number. Latencies are taken of arrivals scheduled after the warm-up.
    pub(super) fn work(mut self, phase: &Phase, warm_up: Duration) -> Result<(u64, u64)> {
        let mut next = Instant::now();
        let from = next + warm_up;
        let (mut late_ns, mut issued) = (0, 0);
        while phase.get() != Phase::STOP {
            let now = Instant::now();
            for _ in 0..CATCH_UP {
                if next > now {
                    break;
                }
                let is_counted = next >= from;
                self.issue(next, is_counted)?;
                late_ns += if is_counted { nanoseconds(now - next) } else { 0 };
                issued += u64::from(is_counted);
                next += self.gap();
            }
            while self.taken.front().is_some_and(|(ticket, _)| ticket.is_durable()) {
                self.taken.pop_front().into_iter().for_each(|(_, taken)| taken.done());
            }
            // Sleeping leaves the core to the flusher; what falls due meanwhile is issued together, and late by what
            // the clock says.
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        for (ticket, taken) in &self.taken {
            ticket.wait()?;
            taken.done();
        }
        Ok((late_ns, issued))
    }

    fn issue(&mut self, scheduled: Instant, is_counted: bool) -> Result<()> {
        let mut ticket = self.committer.append()?;
        self.committer.flush_soon(&ticket);
        if is_counted && self.random.below(self.every) == 0 {
            let taken = Arc::new(Taken { scheduled, is_done: AtomicBool::new(false), sink: Arc::clone(&self.sink) });
            let waker = Waker::from(Arc::clone(&taken));
            match Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => self.taken.push_back((ticket, taken)),
                Poll::Ready(durable) => {
                    durable?;
                    taken.done();
                }
            }
        }
        Ok(())
    }

    /// Time to the next arrival: exponential, so that arrivals do not know of each other.
    fn gap(&mut self) -> Duration {
        Duration::from_nanos((-(1.0 - self.random.fraction()).ln() * self.gap_ns) as u64)
    }
}
