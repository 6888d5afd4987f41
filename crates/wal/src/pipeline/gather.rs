//! A leader's look around before it cuts: those who have just been answered may be about to come again.
//!
//! Threads that commit in a loop fall into two halves: while the records of one are on their way, the other half waits for the
//! next group, so that a commit takes almost two writes and each group carries half of what it could. But the half that is
//! answered is there again a few microseconds after. A leader that lets it append first carries both with one write, and
//! from then on they are answered together.
//!
//! Who comes again is a guess, so it is learnt. A *window* is open for half the time of a write after a group has completed,
//! at most [`MOST`], and only if nothing is in flight and the last cut took everything: one that goes on where the last
//! one stopped takes nothing that comes meanwhile. It closes early when as many bytes have come as the last group held. It
//! has paid if what waits for the cut has grown by a greater part than the time to its completion has. Each window that has
//! not paid doubles the number of groups that are left out before the next try, up to [`MOST_LEFT_OUT`]; one that has paid is
//! followed by the next. Nothing is summed up for groups that are left out.
//!
//! A window ends by the clock, but a thread that lends its processor gets it back when the others let go of it. Where many
//! compute that takes longer than any write, so a window that took the time of several writes in vain leaves out
//! as many times more groups: what is lost stays the same part of the time.
//!
//! The leader keeps the lead meanwhile, so no rule about who waits and who wakes whom knows of the window: it is as if the cut
//! took longer.
//!
//! On two processors and a device of 70 us, two threads make 1.8 times as many blocking commits so, two with 64 pipelined
//! commits each 1.3 times, and eight blocking threads 1.25 times as many. Threads that do 20 us of work a commit, or 32
//! that keep both processors busy with waking each other, make as many as without.

use super::lead::Caller;
use super::{Leader, Pipeline};
use foreshore_sync::Nanos;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{MODEL, thread};

/// A shorter write is over before anybody is awake.
const LEAST_WRITE: u64 = 16_000;

/// The longest window in nanoseconds, but for the yield that goes on past its end: a thread does not need longer to wake up
/// because the device is slow.
const MOST: u64 = 50_000;

/// Most groups that are left out before another try.
const MOST_LEFT_OUT: u64 = 255;

/// What is known of those who come again.
#[derive(Debug, Default)]
pub(super) struct Gather {
    /// Bytes of the records of all groups; those up to the last group that raised the cut; and what that one added to them.
    sealed: AtomicU64,
    covered: AtomicU64,
    group: AtomicU64,
    /// When the last group completed, and what will have been appended when as much has come again as it held.
    completed: AtomicU64,
    expected: AtomicU64,
    /// Groups that are still to be left out, and after the last windows that were in vain.
    skip: AtomicU64,
    vain: AtomicU64,
}

impl Gather {
    /// A group with `bytes` of records was sealed. Nobody is answered by one that does not raise the cut: it is counted with
    /// the next that does. Under the lead.
    pub(super) fn sealed(&self, bytes: usize, raises: bool) {
        // ORDERING: Relaxed for all of these, hints, written under the lead alone.
        let sealed = self.sealed.load(Ordering::Relaxed) + bytes as u64;
        self.sealed.store(sealed, Ordering::Relaxed);
        if raises {
            // ORDERING: as above.
            let covered = self.covered.load(Ordering::Relaxed);
            assert!(covered <= sealed, "groups that were answered have {covered} of {sealed} bytes");
            self.group.store(sealed - covered, Ordering::Relaxed);
            self.covered.store(sealed, Ordering::Relaxed);
        }
    }

    /// Bytes of the records of all groups.
    pub(super) fn sealed_bytes(&self) -> u64 {
        // ORDERING: Relaxed, a hint.
        self.sealed.load(Ordering::Relaxed)
    }

    /// The last group is durable. The sum of what was `appended` is asked for only if a window may follow.
    fn completed(&self, appended: impl FnOnce() -> u64, now: Nanos) {
        // ORDERING: Relaxed for all of these, hints.
        if self.skip.load(Ordering::Relaxed) == 0 {
            self.expected.store(appended() + self.group.load(Ordering::Relaxed), Ordering::Relaxed);
            self.completed.store(now.0, Ordering::Relaxed);
        }
    }

    /// When the window closes where a write takes `write`, unless this group is to be left out. Under the lead.
    fn closes(&self, write: u64) -> Option<Nanos> {
        // ORDERING: Relaxed for all of these, hints.
        let skip = self.skip.load(Ordering::Relaxed);
        self.skip.store(skip.saturating_sub(1), Ordering::Relaxed);
        (skip == 0).then(|| Nanos(self.completed.load(Ordering::Relaxed) + (write / 2).min(MOST)))
    }

    /// A window of `limit` was open for `waited`, and what was appended grew from `before` to `after`. Under the lead.
    fn learn(&self, write: u64, (before, after): (u64, u64), waited: u64, limit: u64) {
        // ORDERING: Relaxed for all of these, written under the lead alone.
        let covered = self.covered.load(Ordering::Relaxed);
        let held = |appended: u64, time: u64| u128::from(appended.saturating_sub(covered)) * u128::from(time);
        // By an eighth at least, so that what comes evenly does not count. A yield that takes very long has shown that others
        // have better use for the processor.
        let paid = 8 * held(after, write) > 9 * held(before, write + waited) && waited <= limit + limit / 2;
        // ORDERING: as above.
        let vain = self.vain.load(Ordering::Relaxed);
        let vain = if paid { vain / 2 } else { (2 * vain + 1).min(MOST_LEFT_OUT) };
        let skip = if paid { 0 } else { vain.saturating_mul((waited / write.max(1)).max(1)) };
        // ORDERING: as above.
        self.vain.store(vain, Ordering::Relaxed);
        self.skip.store(skip, Ordering::Relaxed);
    }
}

impl<L: Leader> Pipeline<L> {
    /// Lets those append who are about to, and returns whether that took time. Under the lead.
    pub(super) fn gather(&self, caller: Caller) -> bool {
        // Who wants room waits for a cut, not for more records.
        let at_once = matches!(caller, Caller::Space(_)) || self.pace.left_some() || self.window.in_flight() > 0;
        if at_once || !self.gathers() {
            return false;
        }
        let (gather, write, begun) = (&self.gather, self.pace.write(), self.pace.now());
        let Some(end) = gather.closes(write).filter(|&end| end > begun) else { return false };
        // ORDERING: Relaxed, a hint.
        let expected = gather.expected.load(Ordering::Relaxed);
        let before = self.appended();
        let (mut after, mut now) = (before, begun);
        while after < expected && now < end {
            // WAIT: window - to its end. The threads that are waited for may need this processor.
            thread::yield_now();
            (after, now) = (self.appended(), self.pace.now());
        }
        if now > begun {
            gather.learn(write, (before, after), now.0 - begun.0, end.0 - begun.0);
        }
        now > begun
    }

    /// A group is durable whose cut answers somebody, and nobody has been woken.
    pub(super) fn note_completion(&self, now: Nanos) {
        if self.gathers() {
            self.gather.completed(|| self.appended(), now);
        }
    }

    /// Bytes of all records.
    pub(super) fn appended(&self) -> u64 {
        self.slots.totals().1
    }

    /// Whether a window may pay: with a timer those who come again have time enough, and a model has no time.
    pub(super) fn gathers(&self) -> bool {
        !MODEL && self.pace.is_greedy() && self.pace.write() >= LEAST_WRITE
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    const WRITE: u64 = 80_000;

    /// A group of 100 bytes completes at 1000 when 300 more have been appended.
    fn answered() -> Gather {
        let gather = Gather::default();
        gather.sealed(500, true);
        gather.sealed(100, true);
        gather.completed(|| 900, Nanos(1000));
        gather
    }

    /// How many groups are left out next.
    fn left_out(gather: &Gather) -> usize {
        std::iter::from_fn(|| gather.closes(WRITE).is_none().then_some(())).count()
    }

    #[test]
    fn a_window_is_for_as_much_as_was_answered() {
        let gather = answered();
        assert_eq!(gather.expected.load(Ordering::Relaxed), 1000);
        assert_eq!(gather.closes(WRITE), Some(Nanos(41_000)), "half the time of a write");
        assert_eq!(gather.closes(1000 * WRITE), Some(Nanos(1000 + MOST)));
    }

    #[test]
    fn groups_that_answer_nobody_count_with_the_next_that_does() {
        let gather = answered();
        for bytes in [30, 20] {
            gather.sealed(bytes, false);
            assert_eq!([&gather.covered, &gather.group].map(|sum| sum.load(Ordering::Relaxed)), [600, 100]);
        }
        gather.sealed(7, true);
        assert_eq!([&gather.covered, &gather.group].map(|sum| sum.load(Ordering::Relaxed)), [657, 57]);
    }

    #[test]
    fn nothing_is_summed_up_for_a_group_that_is_left_out() {
        let gather = answered();
        gather.learn(WRITE, (900, 900), WRITE / 2, WRITE / 2);
        gather.completed(|| unreachable!("the next group is left out"), Nanos(2000));
        assert_eq!(left_out(&gather), 1);
        gather.completed(|| 950, Nanos(3000));
        assert_eq!(gather.closes(WRITE), Some(Nanos(43_000)));
    }

    #[test]
    fn windows_in_vain_become_rare_and_come_back() {
        let gather = answered();
        // How many groups are left out after a window in which 300 bytes became so many.
        let left_out = |bytes: u64, waited: u64| {
            gather.learn(WRITE, (900, 600 + bytes), waited, WRITE / 2);
            left_out(&gather)
        };
        assert_eq!([301, 300, 450].map(|bytes| left_out(bytes, WRITE / 2)), [1, 3, 7], "half more in half more time");
        assert_eq!(left_out(600, WRITE), 15, "the processor was away for long");
        assert_eq!(left_out(600, 10 * WRITE), 310, "and for ten times as long");
        assert_eq!([0; 8].map(|_| left_out(300, WRITE / 2))[5..], [MOST_LEFT_OUT as usize; 3]);
        assert_eq!(left_out(600, WRITE / 2), 0, "twice as much in half more time");
        assert_eq!(left_out(300, WRITE / 2), MOST_LEFT_OUT as usize, "one that paid makes up for one in vain");
        assert_eq!([600; 8].map(|bytes| left_out(bytes, WRITE / 2)), [0; 8]);
        assert_eq!(left_out(300, WRITE / 2), 1);
    }
}
