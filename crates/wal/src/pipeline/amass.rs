//! A flusher's patience: a group that stops nobody is worth its write only when it has come to something.
//!
//! A thread that waits for its commit leads at once, whatever is said here. The flushers write for those who go on meanwhile,
//! and a group for each few of their commits takes a block of the log, a write and several switches of a processor that
//! they would rather have. So a flusher lets commits come until a group holds the *aim*, as long as they keep coming.
//!
//! At the pace since the last seal it is known when that will be. The flusher sleeps until then, though not
//! longer than [`WRITES`] writes or [`MOST`] after that seal, and not at all if the group would stay below [`LEAST_BYTES`].
//! What came in the meantime tells whether that was right:
//!
//! - They came on at half the pace at least: nobody is stopped, and the aim grows, up to [`MOST_BYTES`].
//! - They did not: those who come have stopped to wait, as futures do without saying so. The next groups are not waited for,
//!   twice as many each time, up to [`MOST_LEFT_OUT`]. A crowd may come at once and stop long before the end, so the first
//!   sleep after a failure, and one of [`UNTESTED`] after a success, is in two halves, and it is the second half that counts.
//! - A thread stopped and led: the aim was too high for what it may have in flight, and is halved.
//!
//! On two processors and a device of 100 us, two threads with 64 pipelined commits each make 1.25 times as many so, with half of
//! the switches and a fifth less log. The median latency is five writes instead of two, that of one commit in a hundred is half.

use super::{Leader, Pipeline};
use foreshore_base::{GroupNo, Lsn};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The longest time from a seal to the next in nanoseconds, and in times of a write.
const MOST: u64 = 500_000;
const WRITES: u64 = 5;
/// A shorter sleep ends too late.
const LEAST: u64 = 30_000;
/// The highest aim: padding to a block is a part in sixteen at most.
const MOST_BYTES: u64 = 32 << 10;
/// A smaller group is not worth waiting for.
const LEAST_BYTES: u64 = 12 << 10;
/// Most groups that are not waited for before another try.
const MOST_LEFT_OUT: u64 = 255;

/// Waits in one piece between two in halves.
const UNTESTED: u64 = 8;

/// What a flusher looks at: the time, what has come since the last seal at which time, the number of the next group, and what
/// is sealed.
#[derive(Clone, Copy, Debug)]
struct Sight {
    now: u64,
    sealed_at: u64,
    pending: u64,
    next: GroupNo,
    sealed: Lsn,
    write: u64,
}

/// What is known of commits that come while nobody waits. One flusher at a time has use for it; all of it are hints.
#[derive(Debug, Default)]
pub(super) struct Amass {
    /// A flusher sleeps until the end of a wait, and looks again then.
    sleeps: AtomicBool,
    /// Bytes of records that a group shall have.
    aim: AtomicU64,
    /// The wait: the group that it is for, zero for none, and what was sealed before; its end, and the end of its first half if
    /// that is to come; when it, or its second half, began, and how much had come since which time.
    group: AtomicU64,
    sealed: AtomicU64,
    end: AtomicU64,
    half: AtomicU64,
    begun: AtomicU64,
    before: AtomicU64,
    since: AtomicU64,
    /// Groups that are still not to be waited for, and after the last waits that were in vain.
    skip: AtomicU64,
    vain: AtomicU64,
    /// Waits before the next one in halves.
    untested: AtomicU64,
    /// Whether there is any patience.
    is_on: bool,
}

// ORDERING: Relaxed for all of these, hints: who misreads them writes a group a little early or late. `sleeps` alone keeps
// others from ringing, see `Pipeline::is_amassing`.
impl Amass {
    fn get(field: &AtomicU64) -> u64 {
        // ORDERING: Relaxed, see above.
        field.load(Ordering::Relaxed)
    }

    fn set(field: &AtomicU64, value: u64) {
        // ORDERING: Relaxed, see above.
        field.store(value, Ordering::Relaxed);
    }

    /// How long to let commits come; `None` if the group is to be written now.
    fn look(&self, sight: Sight) -> Option<u64> {
        let waited_for = Self::get(&self.group);
        if waited_for == sight.next.0 {
            if sight.pending < Self::get(&self.aim) && sight.now < Self::get(&self.end) {
                return Some(self.go_on(sight));
            }
            self.learn(sight);
            return None;
        }
        if waited_for != 0 {
            Self::set(&self.group, 0);
            if Self::get(&self.sealed) == sight.sealed.0 {
                // What was cut meanwhile made room, and what is waited for is still to be cut.
                return None;
            }
            // Somebody who stopped has led.
            Self::set(&self.aim, Self::get(&self.aim) / 2);
        }
        let skip = Self::get(&self.skip);
        if skip > 0 {
            Self::set(&self.skip, skip - 1);
            return None;
        }
        self.begin(sight)
    }

    /// In a model, which has no time: each group is waited for once, and nobody knows how long.
    fn look_once(&self, next: GroupNo) -> Option<u64> {
        let is_first = Self::get(&self.group) != next.0;
        Self::set(&self.group, next.0);
        is_first.then_some(LEAST)
    }

    /// Begins a wait for the group, if it is worth one.
    fn begin(&self, sight: Sight) -> Option<u64> {
        let aim = Self::get(&self.aim);
        if sight.pending >= aim {
            self.grow();
            return None;
        }
        let (pending, took) = (u128::from(sight.pending.max(1)), u128::from(sight.now.saturating_sub(sight.sealed_at)));
        let limit = MOST.min(WRITES * sight.write);
        if pending * u128::from(limit) < u128::from(LEAST_BYTES) * took {
            return None;
        }
        let reaches = u64::try_from(took * u128::from(aim) / pending).unwrap_or(u64::MAX);
        let left = (sight.sealed_at + reaches.min(limit)).saturating_sub(sight.now);
        if left < LEAST {
            return None;
        }
        let in_halves = Self::get(&self.untested) == 0;
        Self::set(&self.group, sight.next.0);
        Self::set(&self.sealed, sight.sealed.0);
        Self::set(&self.end, sight.now + left);
        Self::set(&self.half, if in_halves { sight.now + left / 2 } else { 0 });
        Self::set(&self.begun, sight.now);
        Self::set(&self.before, sight.pending);
        Self::set(&self.since, sight.sealed_at);
        Some(self.go_on(sight))
    }

    /// How long to sleep until the wait, or its first half, is over.
    fn go_on(&self, sight: Sight) -> u64 {
        let half = Self::get(&self.half);
        if sight.now < half {
            return half - sight.now;
        }
        if half != 0 {
            Self::set(&self.half, 0);
            Self::set(&self.begun, sight.now);
            Self::set(&self.before, sight.pending);
        }
        Self::get(&self.end) - sight.now
    }

    /// The wait for a group is over.
    fn learn(&self, sight: Sight) {
        let (before, begun) = (Self::get(&self.before), Self::get(&self.begun));
        let earlier = u128::from(begun.saturating_sub(Self::get(&self.since)));
        let waited = u128::from(sight.now.saturating_sub(begun));
        let came = u128::from(sight.pending.saturating_sub(before));
        Self::set(&self.group, 0);
        let vain = Self::get(&self.vain);
        if 2 * came * earlier >= u128::from(before) * waited {
            Self::set(&self.vain, vain / 2);
            Self::set(&self.untested, Self::get(&self.untested).checked_sub(1).unwrap_or(UNTESTED));
            self.grow();
        } else {
            let vain = (2 * vain + 1).min(MOST_LEFT_OUT);
            Self::set(&self.vain, vain);
            Self::set(&self.skip, vain);
            Self::set(&self.untested, 0);
        }
    }

    fn grow(&self) {
        let aim = Self::get(&self.aim);
        Self::set(&self.aim, (aim + aim / 8 + 1024).min(MOST_BYTES));
    }
}

impl<L: Leader> Pipeline<L> {
    /// Gives the flushers patience, which is for those that have a thread: one that is called in steps does what there is to do,
    /// whatever the clock says.
    pub fn amassing(mut self) -> Self {
        self.amass.is_on = true;
        self
    }

    /// How long a flusher that might begin a group lets commits come first; `None` if it shall begin.
    pub(super) fn amass(&self) -> Option<Duration> {
        if !self.amass.is_on {
            return None;
        }
        let next = self.window.next();
        let wait = if cfg!(foreshore_loom) {
            self.amass.look_once(next)
        } else if self.gathers() && !self.pace.left_some() {
            let pending = self.appended().saturating_sub(self.gather.sealed_bytes());
            let (now, sealed_at) = (self.pace.now().0, self.pace.sealed_at().0);
            self.amass.look(Sight { now, sealed_at, pending, next, sealed: self.sealed(), write: self.pace.write() })
        } else {
            None
        };
        // ORDERING: Relaxed, ordered by the fence in `Flushers::rest`, behind which the flusher looks again.
        self.amass.sleeps.store(wait.is_some(), Ordering::Relaxed);
        wait.map(Duration::from_nanos)
    }

    /// Whether a flusher looks by itself when it has let commits come, so that nobody needs to ring. Behind a `SeqCst` fence:
    /// one that looks already sees what came before.
    pub(super) fn is_amassing(&self) -> bool {
        if !self.amass.is_on {
            return false;
        }
        // ORDERING: Relaxed, ordered by the caller's fence and the one in `flush`.
        let sleeps = self.amass.sleeps.load(Ordering::Relaxed);
        sleeps && (self.flushers.is_timing() || mutant("pipeline: who has let commits come once is never rung"))
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const WRITE: u64 = 100 * US;

    fn sight(now: u64, pending: u64, next: u64) -> Sight {
        Sight { now: now * US, sealed_at: 0, pending, next: GroupNo(next), sealed: Lsn(next), write: WRITE }
    }

    /// With an aim of 16 KiB, and some waits in one piece to come.
    fn amass() -> Amass {
        let amass = Amass::default();
        Amass::set(&amass.aim, 16 << 10);
        Amass::set(&amass.untested, 3);
        amass
    }

    #[test]
    fn a_flusher_waits_until_a_group_has_what_it_shall_have() {
        let amass = amass();
        assert_eq!(amass.look(sight(100, 4 << 10, 1)), Some(300 * US), "at this pace it has after 400 us");
        assert_eq!(amass.look(sight(150, 6 << 10, 1)), Some(250 * US), "rung too early");
        assert_eq!(amass.look(sight(390, 16 << 10, 1)), None, "it has");
        assert_eq!(Amass::get(&amass.aim), (16 << 10) * 9 / 8 + 1024, "and the next one shall have more");
        assert_eq!(amass.look(sight(100, 32 << 10, 2)), None, "a group that has more is not waited for");
    }

    #[test]
    fn the_longest_wait_ends_so_many_writes_after_the_seal() {
        let amass = amass();
        Amass::set(&amass.aim, MOST_BYTES);
        assert_eq!(amass.look(sight(100, 4 << 10, 1)), Some(400 * US));
        let slow = Sight { write: 1000 * US, ..sight(100, 4 << 10, 2) };
        assert_eq!(Amass::default().look(slow), None, "there is no aim yet");
        Amass::set(&amass.group, 0);
        assert_eq!(amass.look(slow), Some(MOST - 100 * US));
    }

    #[test]
    fn few_commits_are_not_waited_for() {
        let amass = amass();
        assert_eq!(amass.look(sight(100, 2400, 1)), None, "12,000 bytes in 500 us");
        assert_eq!(amass.look(sight(100, 0, 1)), None);
        assert_eq!(amass.look(sight(400, 16_000, 1)), None, "10 us more are no sleep");
    }

    #[test]
    fn waits_in_vain_become_rare_and_come_back() {
        let amass = amass();
        let mut next = 0;
        // How many groups are written at once after a wait at whose end so much was there.
        let mut left_out = |pending: u64| {
            next += 1;
            Amass::set(&amass.aim, 16 << 10);
            Amass::set(&amass.untested, 3);
            assert!(amass.look(sight(100, 4 << 10, next)).is_some());
            assert_eq!(amass.look(sight(400, pending, next)), None);
            let skipped =
                (0..).find(|_| Amass::get(&amass.skip) == 0 || amass.look(sight(100, 4 << 10, next + 1)).is_some());
            Amass::set(&amass.group, 0);
            skipped.expect("a count") as u64
        };
        assert_eq!([4, 5, 9, 4].map(|kib| left_out(kib << 10)), [1, 3, 7, 15], "less than half as fast as before");
        assert_eq!(left_out(10 << 10), 0, "half as fast");
        assert_eq!(left_out(4 << 10), 15);
        assert_eq!([4 << 10; 5].map(&mut left_out)[4], MOST_LEFT_OUT);
    }

    #[test]
    fn who_stops_and_leads_halves_the_aim() {
        let amass = amass();
        assert!(amass.look(sight(100, 4 << 10, 1)).is_some());
        assert_eq!(amass.look(sight(100, 4 << 10, 2)), Some(100 * US), "until it has 8 KiB");
        assert_eq!(Amass::get(&amass.aim), 8 << 10);
    }

    #[test]
    fn a_cut_that_made_room_says_nothing() {
        let amass = amass();
        assert!(amass.look(sight(100, 4 << 10, 1)).is_some());
        assert_eq!(
            amass.look(Sight { sealed: Lsn(1), ..sight(100, 4 << 10, 2) }),
            None,
            "what was waited for goes now"
        );
        assert_eq!(Amass::get(&amass.aim), 16 << 10);
    }

    #[test]
    fn a_crowd_that_has_come_at_once_and_stopped_is_found_out_by_the_second_half() {
        let amass = amass();
        Amass::set(&amass.aim, MOST_BYTES);
        let crowd = |next: u64| {
            let first = amass.look(sight(130, 6 << 10, next));
            let second = amass.look(sight(315, 25 << 10, next));
            (first, second, amass.look(sight(500, 25 << 10, next)), Amass::get(&amass.skip))
        };
        for next in 1..=3 {
            assert_eq!(crowd(next), (Some(370 * US), Some(185 * US), None, 0), "in one piece");
        }
        assert_eq!(crowd(4), (Some(185 * US), Some(185 * US), None, 1), "in halves");
        Amass::set(&amass.skip, 0);
        assert_eq!(crowd(5).3, 3, "and in halves again while that fails");
        Amass::set(&amass.skip, 0);
        let steady = [130, 315, 500].map(|now| amass.look(sight(now, now * 50, 6)));
        assert_eq!(steady, [Some(185 * US), Some(185 * US), None]);
        assert_eq!([&amass.skip, &amass.untested].map(Amass::get), [0, UNTESTED], "then not for a while");
    }
}
