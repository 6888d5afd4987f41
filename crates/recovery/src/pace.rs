//! The pace of checkpoints and of the writing between them, measured in bytes of log.

use foreshore_base::GroupNo;
use foreshore_wal::LogLimits;
use std::collections::VecDeque;

/// Portions in which the dirty pages are written while the log grows by the lag.
pub(crate) const PORTIONS: usize = 16;

/// When writers are slowed for pages that are not home: from five eighths of the budget on, and up to three quarters.
///
/// Pages are written when they have been dirty for half the budget. They are home within three portions of the log,
/// three thirty-seconds of the budget, as long as the disk keeps up. So no writer is slowed then. With the quarter
/// between two checkpoints redo begins within the budget, apart from log that is appended while a checkpoint is being
/// written.
pub(crate) const fn limits(budget: u64) -> LogLimits {
    LogLimits { soft: budget / 8 * 5, hard: budget / 4 * 3 }
}

/// Log that the two checkpoints take that truncate other log.
const TWO_CHECKPOINTS: u64 = 16 << 10;

/// Returns whether a full disk gains log when `let_go` bytes of segments are truncated for `copies` bytes of parked
/// rollbacks.
pub(crate) const fn gains_log(let_go: u64, copies: u64) -> bool {
    let_go > copies + TWO_CHECKPOINTS
}

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Bytes written before it. The number does not change while nothing is appended, nor by truncation.
    pub(crate) at: u64,
    /// The next group at that moment.
    pub(crate) group: GroupNo,
}

/// When a checkpoint is due, and which pages are old.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Log between two checkpoints.
    interval: u64,
    /// Log that may pass before a changed page is written.
    lag: u64,
    /// Where the next checkpoint is due.
    due: u64,
    /// Places at least a portion of the lag apart, the oldest first. Only the oldest is as far back as the lag, so
    /// there are hardly more of them than portions.
    trail: VecDeque<Mark>,
}

impl Pace {
    /// For a log of `budget` bytes that has grown by `grown` since the newest checkpoint began, and has had `at`
    /// written.
    pub(crate) fn new(budget: u64, at: u64, grown: u64) -> Self {
        let (interval, lag) = (budget / 4, budget / 2);
        Self { interval, lag, due: at + interval.saturating_sub(grown), trail: VecDeque::with_capacity(PORTIONS + 2) }
    }

    /// Changes the budget when `at` bytes are written.
    pub(crate) fn resize(&mut self, budget: u64, at: u64) {
        (self.interval, self.lag) = (budget / 4, budget / 2);
        self.due = self.due.min(at + self.interval);
        assert!(self.portion() <= self.lag && self.due <= at + self.interval, "due at {}, from {at}", self.due);
    }

    /// Notes that a checkpoint has been taken that began at `at`.
    pub(crate) fn taken(&mut self, at: u64) {
        self.due = at + self.interval;
    }

    /// Returns whether a checkpoint is due at `now`.
    pub(crate) fn is_due(&self, now: Mark) -> bool {
        now.at >= self.due
    }

    /// Returns when the log will have grown by a portion, or a checkpoint is due.
    pub(crate) fn next_look(&self) -> u64 {
        let grown = self.trail.back().map_or(0, |newest| newest.at + self.portion());
        grown.min(self.due)
    }

    const fn portion(&self) -> u64 {
        self.lag / PORTIONS as u64
    }

    /// Returns whether parked rollbacks are copied forward although the disk is not full: `copies` bytes, which let
    /// `let_go` bytes of segments be truncated. All copies together are then at most half of the log. The log kept for
    /// the rollbacks is at most twice their remaining changes, and the log between two checkpoints.
    pub(crate) const fn lets_go(&self, let_go: u64, copies: u64) -> bool {
        let_go > 2 * copies + self.interval
    }

    /// Advances to `now`. Returns true if the log has grown by a portion of the lag since it last returned true.
    pub(crate) fn has_grown(&mut self, now: Mark) -> bool {
        let newest = self.trail.back().copied();
        assert!(newest.is_none_or(|newest| newest.at <= now.at), "the log shrinks from {newest:?} to {now:?}");
        if newest.is_some_and(|newest| now.at - newest.at < self.portion()) {
            return false;
        }
        self.trail.push_back(now);
        while self.trail.get(1).is_some_and(|second| now.at - second.at >= self.lag) {
            self.trail.pop_front();
        }
        newest.is_some()
    }

    /// Returns the group before which a page that has been dirty since is old at `now`; zero while no page can be.
    pub(crate) fn old(&self, now: Mark) -> GroupNo {
        // Until the trail is as long as the lag, its first place is not old.
        let first = self.trail.front().filter(|first| now.at - first.at >= self.lag);
        first.map_or(GroupNo::ZERO, |first| first.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 32 << 10;
    const LAG: u64 = BUDGET / 2;
    const PORTION: u64 = LAG / PORTIONS as u64;

    fn mark(at: u64) -> Mark {
        Mark { at, group: GroupNo(1 + at / 100) }
    }

    #[test]
    fn writers_are_slowed_after_the_pages_are_written_and_before_the_budget_is_spent() {
        let limits = limits(BUDGET);
        assert!(limits.soft > LAG + 3 * PORTION, "pages that are written in time slow no writer");
        assert!(limits.hard + BUDGET / 4 <= BUDGET, "what is logged until the next checkpoint comes on top");
    }

    #[test]
    fn a_log_at_rest_asks_for_nothing() {
        let mut pace = Pace::new(BUDGET, 0, 0);
        pace.has_grown(mark(0));
        let rest = mark(BUDGET);
        assert!(pace.has_grown(rest) && pace.is_due(rest));
        pace.taken(rest.at);
        for _ in 0..1000 {
            assert!(!pace.has_grown(rest) && !pace.is_due(rest) && pace.next_look() > rest.at);
        }
        assert_eq!(pace.trail.len(), 2);
    }

    #[test]
    fn a_log_that_grows_is_followed_a_portion_at_a_time_and_never_by_a_long_trail() {
        let mut pace = Pace::new(BUDGET, 0, 0);
        let (mut grown, mut taken) = (0, 0);
        for at in (0..10 * BUDGET).step_by(100) {
            let now = mark(at);
            let looks = pace.next_look() <= at;
            let (grows, due) = (pace.has_grown(now), pace.is_due(now));
            assert_eq!(looks, grows || due || at == 0, "{at}");
            grown += u64::from(grows);
            assert!(pace.trail.len() <= PORTIONS + 2, "{}", pace.trail.len());
            let old = pace.old(now);
            assert_eq!(old == GroupNo::ZERO, at < LAG, "{at}");
            // Old is what is as far back as the lag, and at most two portions and a round more.
            let back = mark(at).group.0 - old.0;
            assert!(at < LAG || (LAG / 100..=(LAG + 2 * PORTION) / 100 + 1).contains(&back), "{at} {back}");
            // A checkpoint whenever one is due, and others in between.
            if pace.is_due(now) || at % 1700 == 0 {
                pace.taken(at);
                taken += 1;
            }
        }
        let most = 10 * BUDGET / PORTION;
        assert!((most * 9 / 10..most).contains(&grown) && taken > 40, "{grown} {taken}");
    }

    #[test]
    fn a_smaller_budget_makes_the_next_checkpoint_due_earlier_and_pages_old_sooner() {
        let mut pace = Pace::new(BUDGET, 0, 0);
        for at in (0..BUDGET / 8).step_by(100) {
            pace.has_grown(mark(at));
        }
        let now = mark(BUDGET / 8);
        assert!(!pace.is_due(now) && pace.old(now) == GroupNo::ZERO);
        pace.resize(BUDGET / 8, now.at);
        assert!(!pace.is_due(mark(now.at + BUDGET / 32 - 1)) && pace.is_due(mark(now.at + BUDGET / 32)));
        assert!(pace.old(now) > GroupNo::ZERO, "the trail stays");
        pace.resize(BUDGET, now.at);
        assert!(pace.is_due(mark(now.at + BUDGET / 32)), "it is due no later than before");
    }

    #[test]
    fn rollbacks_are_copied_where_that_gives_more_log_than_it_takes() {
        let pace = Pace::new(BUDGET, 0, 0);
        for (let_go, copies, on_request, when_due) in [
            (0, 0, false, false),
            (BUDGET / 4, 0, false, false),
            (TWO_CHECKPOINTS + 1, 0, true, true),
            (1 << 20, 1 << 20, false, false),
            ((1 << 20) + TWO_CHECKPOINTS, 1 << 20, false, false),
            ((1 << 20) + TWO_CHECKPOINTS + 1, 1 << 20, true, false),
            ((2 << 20) + BUDGET / 4, 1 << 20, true, false),
            ((2 << 20) + BUDGET / 4 + 1, 1 << 20, true, true),
        ] {
            assert_eq!(gains_log(let_go, copies), on_request, "{let_go} for {copies}");
            assert_eq!(pace.lets_go(let_go, copies), when_due, "{let_go} for {copies}");
        }
    }

    #[test]
    fn what_the_log_had_grown_by_counts_for_the_first_checkpoint() {
        let due = |grown, at| Pace::new(BUDGET, 500, grown).is_due(mark(at));
        assert!(due(BUDGET, 500) && !due(0, 500));
        assert!(due(BUDGET / 8, 500 + BUDGET / 8) && !due(BUDGET / 8, 499 + BUDGET / 8));
    }
}
