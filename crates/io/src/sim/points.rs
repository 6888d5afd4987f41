//! The crash points of a recorded run, in one walk.

use super::{
    Sim,
    fault::OpNo,
    media::{Media, Op},
    persist::{self, Persist},
    rng::Rng,
    state::State,
};

/// Walks over a record operation by operation and makes crash images on the way: N operations under P policies cost
/// one walk and N x P images.
///
/// At each point every operation before [`CrashPoints::op`] has returned, and that one is in flight. The last point
/// lies after the last operation, with nothing in flight.
///
/// ```
/// use foreshore_io::{Fs, Sim, sim::Persist};
///
/// let sim = Sim::new(1);
/// let file = sim.create("log".as_ref()).unwrap();
/// file.write_durable(&[7; 4096], 0).unwrap();
/// let mut points = sim.crash_points();
/// loop {
///     for policy in Persist::ALL {
///         let image = points.image(&policy, 1);
///         assert!(image.list("".as_ref()).unwrap().len() <= 1);
///     }
///     if !points.advance() {
///         break;
///     }
/// }
/// assert_eq!(points.op(), 2);
/// ```
#[derive(Clone)]
pub struct CrashPoints {
    seed: u64,
    media: Media,
    op: OpNo,
    /// The operations from `op` on, last first.
    rest: Vec<Op>,
}

impl CrashPoints {
    /// Returns the crash points of the record of a machine, or the present point if there is no record.
    pub(super) fn of_record(state: &State) -> Self {
        let (media, op, mut rest) = state.record.recorded();
        rest.reverse();
        Self { seed: state.seed(), media, op, rest }
    }

    /// Returns the crash point of this moment.
    pub(super) fn of_present(state: &State) -> Self {
        Self { seed: state.seed(), media: state.record.media().clone(), op: state.record.ops(), rest: Vec::new() }
    }

    /// Returns the number of the operation in flight.
    #[must_use]
    pub fn op(&self) -> OpNo {
        self.op
    }

    /// Lets the operation in flight return and puts the next one in flight. Returns false if there is none.
    pub fn advance(&mut self) -> bool {
        let Some(op) = self.rest.pop() else { return false };
        self.media.complete(op);
        self.op += 1;
        true
    }

    /// Returns the disk as the next start may find it.
    #[must_use]
    pub fn image(&self, policy: &Persist, seed: u64) -> Sim {
        let in_flight = self.rest.last().and_then(Op::effect);
        let rng = Rng::new(&[self.seed, self.op, seed]);
        let (names, files) = persist::image(&self.media, in_flight, *policy, seed, rng);
        Sim::from_state(State::new(self.seed, names, files))
    }
}

impl Sim {
    /// Returns the disk as the next start may find it if power is lost now, or was lost. Its live and durable images
    /// are equal.
    #[must_use]
    pub fn crash_image(&self, policy: &Persist, seed: u64) -> Self {
        CrashPoints::of_present(&self.state.lock()).image(policy, seed)
    }

    /// Returns all crash points of the record, from its start.
    #[must_use]
    pub fn crash_points(&self) -> CrashPoints {
        CrashPoints::of_record(&self.state.lock())
    }

    /// Returns the crash image with operation `op` in flight: every earlier operation has returned.
    ///
    /// One image costs a walk to `op`; [`Sim::crash_points`] makes those of all operations in one walk.
    ///
    /// # Panics
    /// If `op` is not in the record.
    #[must_use]
    pub fn image_at(&self, op: OpNo, policy: &Persist, seed: u64) -> Self {
        let mut points = self.crash_points();
        while points.op() < op && points.advance() {}
        assert_eq!(points.op(), op, "the record does not hold this operation");
        points.image(policy, seed)
    }
}

impl std::fmt::Debug for CrashPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CrashPoints").field("op", &self.op).field("ahead", &self.rest.len()).finish_non_exhaustive()
    }
}
