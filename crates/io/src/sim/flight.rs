//! Several durable writes in flight at once, which land in the order that a test chooses ([`Sim::hold`]).
//!
//! The record has one operation for the issue of a held write, and others for its sectors that reach the medium and for
//! its landing. So crash points lie between them, and the media know the writes in flight at each.

use super::{
    OpNo, Sim,
    fault::{Class, FaultKind},
    flights::{Flight, Held},
    media::{Bytes, Effect, Ino, Op},
    rng::Rng,
    state::{Machine, State, off},
};
use foreshore_base::limits::SECTOR;
use foreshore_sync::MutexGuard;
use std::{io, ops::Range, path::Path, sync::Arc, time::Duration};

/// How long [`Sim::wait_for_flights`] waits before it ends a test that would hang. A held write waits twice as long: a
/// test whose assertion fails may leave it behind.
const PATIENCE: Duration = Duration::from_secs(60);

impl Machine {
    /// Does a held durable write: waits until the test lets it land.
    ///
    /// `state` says that writes to the file are held. It stays locked from that check until the write is entered. So no
    /// write is entered after the holding has stopped, when no thread would let it land.
    pub(super) fn write_held<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        ino: Ino,
        path: &Path,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        let space = !state.live.content(ino).is_allocated(offset, buf.len());
        let effect = Effect::Write { ino, offset, bytes: Bytes::new(buf), grow: true, whole: false };
        let no = state.record.ops();
        let issued = state.operation(Class::Write { space }, |_, fault| Ok((fault, Op::Issue(no, effect.clone()))));
        self.notify_power_loss(&state);
        let flight = Flight { no, path: path.to_owned(), offset, len: buf.len() };
        state.flights.issue(Held { flight, effect, fault: issued?, result: None });
        self.notify();
        loop {
            let is_lost = state.need_power().is_err();
            match state.flights.take(no, is_lost) {
                Some(Some(result)) => return Ok(result?),
                Some(None) => return Err(off()),
                None => {}
            }
            // WAIT: park - until the test releases the write or power is lost.
            let (next, timed_out) = self.wait(state, 2 * PATIENCE);
            state = next;
            let open = state.flights.up().any(|flight| flight.no == no) && state.need_power().is_ok();
            assert!(!timed_out || !open, "nobody lets the held write {no} land");
        }
    }
}

impl Sim {
    /// Holds later durable writes to the files whose handles have a path that `which` selects.
    ///
    /// [`Sim::hold`] keeps the durable writes of the files that it names in flight: the threads that issue them park.
    /// The test finds them by [`Sim::wait_for_flights`], in the order of their issue, and
    ///
    /// - lets one return, before or after those issued earlier: [`Sim::release`];
    /// - lets one fail while the others succeed: [`Sim::fail`], or a [`Fault`](super::Fault) at the number of its
    ///   issue, which takes effect on release;
    /// - puts all or some sectors of one on the medium although it has not returned: [`Sim::reach`]. With
    ///   [`Persist::None`](super::Persist::None), a crash image holds what was reached and nothing else in flight: any
    ///   subset, whole or torn;
    /// - or leaves that to a policy: in a crash image, what is in flight fares like an unsynced write.
    ///   [`Persist::Whole`](super::Persist::Whole) keeps or loses each as a whole.
    ///
    /// The issue of a held write is one operation; reaching and landing are others. All of them are crash points. In
    /// the live image its bytes appear when it lands. A power loss ends all waits with an error.
    ///
    /// ```
    /// use foreshore_io::{Fs, Sim, sim::Persist};
    /// use foreshore_sync::primitive::thread;
    ///
    /// let sim = Sim::new(1);
    /// let log = sim.create("log".as_ref()).unwrap();
    /// sim.sync_dir("".as_ref()).unwrap();
    /// log.write_durable(&[1; 1024], 0).unwrap();
    /// sim.hold(|path| path.ends_with("log"));
    /// thread::scope(|scope| {
    ///     scope.spawn(|| log.write_durable(&[2; 512], 0));
    ///     let first = sim.wait_for_flights(1)[0].no;
    ///     scope.spawn(|| log.write_durable(&[3; 512], 512));
    ///     let second = sim.wait_for_flights(2)[1].no;
    ///     // The later write is durable, the earlier one is not.
    ///     sim.release(second);
    ///     let image = sim.crash_image(&Persist::None, 0).contents("log".as_ref()).unwrap();
    ///     assert_eq!((image[0], image[512]), (1, 3));
    ///     sim.release(first);
    /// });
    /// ```
    pub fn hold(&self, which: impl Fn(&Path) -> bool + Send + Sync + 'static) {
        self.state.lock().flights.hold(Some(Arc::new(which)));
    }

    /// Holds no further writes, and lets those in flight land in the order of their issue.
    pub fn stop_holding(&self) {
        let mut state = self.state.lock();
        state.flights.hold(None);
        let up: Vec<_> = state.flights.up().map(|flight| flight.no).collect();
        for no in up {
            state.land(no, None);
        }
        self.state.notify();
    }

    /// The writes in flight, in the order of their issue.
    #[must_use]
    pub fn flights(&self) -> Vec<Flight> {
        self.state.lock().flights.up().cloned().collect()
    }

    /// Waits until at least `n` writes are in flight and returns all of them, in the order of their issue. Returns at
    /// once, with fewer, when power is lost.
    ///
    /// # Panics
    /// If they do not come within a minute: the test would hang.
    #[must_use]
    pub fn wait_for_flights(&self, n: usize) -> Vec<Flight> {
        let mut state = self.state.lock();
        while state.flights.up().count() < n && state.need_power().is_ok() {
            // WAIT: park - until another thread issues a write, or this test has failed.
            let (next, timed_out) = self.state.wait(state, PATIENCE);
            state = next;
            let up = state.flights.up().count();
            assert!(!timed_out || up >= n, "{up} of {n} writes are in flight after {PATIENCE:?}");
        }
        state.flights.up().cloned().collect()
    }

    /// Waits until a write is in flight. Returns early when the holding has stopped or power is lost.
    pub fn wait_for_flight(&self) {
        let mut state = self.state.lock();
        while state.flights.is_holding() && state.flights.up().next().is_none() && state.need_power().is_ok() {
            // WAIT: park - until another thread issues a write or stops the holding.
            (state, _) = self.state.wait(state, PATIENCE);
        }
    }

    /// Lets a write in flight land: it is durable, and its thread goes on.
    ///
    /// # Panics
    /// If no write of this number is in flight.
    pub fn release(&self, no: OpNo) {
        self.land(no, None);
    }

    /// Lets a write in flight fail with `EIO`. Any part of it may be on the medium.
    ///
    /// # Panics
    /// If no write of this number is in flight.
    pub fn fail(&self, no: OpNo) {
        self.land(no, Some(FaultKind::Eio));
    }

    /// Lets one of the writes in flight land, chosen by `seed`. `None` if there is none.
    pub fn release_any(&self, seed: u64) -> Option<Flight> {
        let mut state = self.state.lock();
        let count = state.flights.up().count() as u64;
        let chosen = Rng::new(&[seed]).below(count) as usize;
        let flight = state.flights.up().nth(chosen).cloned()?;
        state.land(flight.no, None);
        self.state.notify();
        Some(flight)
    }

    /// Puts sectors of a write in flight on the medium, counted from the first sector that it touches. The write stays
    /// in flight, and its writer still waits.
    ///
    /// # Panics
    /// If no write of this number is in flight.
    pub fn reach(&self, no: OpNo, sectors: Range<usize>) {
        let mut state = self.state.lock();
        if state.need_power().is_err() {
            return;
        }
        let effect = state.flights.find(no).effect.clone();
        let Effect::Write { offset, .. } = effect else { unreachable!("writes are held") };
        // Bytes before the sector that follows sector number `n` of the write.
        let bytes_below = |n: usize| (n * SECTOR).saturating_sub((offset % SECTOR as u64) as usize);
        let part = effect.part(bytes_below(sectors.start), bytes_below(sectors.end));
        state.record.note(part.map_or(Op::Nothing, Op::Reach));
    }

    fn land(&self, no: OpNo, fault: Option<FaultKind>) {
        self.state.lock().land(no, fault);
        self.state.notify();
    }
}

#[cfg(test)]
mod tests;
