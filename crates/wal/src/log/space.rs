//! The owner's view of log space: how much is kept, what can be truncated, and how fast the log grows.

use crate::log::Log;
use crate::log_core::Core;
use crate::pace::Pace;
use crate::requests::{SpaceRequest, SpaceServer};
use crate::throttle::LogLimits;
use foreshore_base::GroupNo;
use foreshore_sync::Signal;

impl Log {
    /// Returns the bytes of the segments that two calls of [`Log::truncate`] before `group` would free.
    #[must_use]
    pub fn truncatable(&self, group: GroupNo) -> u64 {
        self.core().segments.list().truncatable(self.archive_bound(group, false).min(self.progress().durable_group()))
    }

    /// Sets the function that takes the space granted for compensations from idle sessions, by
    /// [`Session::take_idle_undo_log`], and returns how much. A session that finds the disk full calls it, without
    /// latches. Only the first call of this method has an effect.
    ///
    /// [`Session::take_idle_undo_log`]: crate::Session::take_idle_undo_log
    pub fn on_shortage(&self, take: impl Fn() -> u64 + Send + Sync + 'static) {
        self.core().segments.on_shortage(Box::new(take));
    }

    /// Sets the server that truncates log on request of sessions that find the disk full.
    pub fn serve_space(&self, server: SpaceServer) {
        self.core().requests.set_server(server);
    }

    /// Returns the newest unanswered request for space. The server calls it, and begins the work for the request after
    /// this call.
    #[must_use]
    pub fn space_requested(&self) -> Option<SpaceRequest> {
        self.core().requests.newest_unanswered()
    }

    /// Answers a request and all before it: whether log was truncated.
    pub fn answer_space(&self, request: &SpaceRequest, freed: bool) {
        self.core().requests.answer(request, freed);
    }

    /// Slows sessions down at their reservations while the log behind the redo start exceeds `limits`. `None` ends
    /// that. The caller continues to call [`Log::redo_from`].
    pub fn limit_backlog(&self, limits: Option<LogLimits>) {
        self.core().throttle.limit(limits);
    }

    /// Returns whether the log behind the redo start exceeds the limit from which writers are slowed:
    /// [`Log::limit_backlog`].
    #[must_use]
    pub fn slows_writers(&self) -> bool {
        let Core { throttle, growth, .. } = self.core();
        throttle.slows(growth.written())
    }

    /// Returns the pace of work beside sessions. Its first slice begins.
    #[must_use]
    pub fn pace(&self) -> Pace<'_> {
        Pace::new(self.core())
    }

    /// Notes that a redo would now begin at `group`.
    pub fn redo_from(&self, group: GroupNo) {
        let [written, since] = [self.written_bytes(), self.bytes_since(group)].map(u64::cast_signed);
        self.core().throttle.redo_from(written - since);
    }

    /// Returns the signal that [`Log::set_growth_mark`] sends.
    #[must_use]
    pub fn growth_signal(&self) -> Signal {
        self.core().growth.signal()
    }

    /// Sends [`Log::growth_signal`] once, when [`Log::written_bytes`] reaches `mark`. Returns false and sends no signal
    /// if it has reached the mark already. The mark replaces an earlier one.
    #[must_use]
    pub fn set_growth_mark(&self, mark: u64) -> bool {
        self.core().growth.set_mark(mark)
    }

    /// Returns the bytes of all groups that were not truncated.
    #[must_use]
    pub fn retained_bytes(&self) -> u64 {
        self.core().segments.list().retained_bytes()
    }

    /// Returns the bytes of the groups from `group` on. The error is at most one group and a sixty-fourth of a segment,
    /// or 256 KiB. It is up to a segment if the open has passed over that of `group`, and nothing has read it since.
    #[must_use]
    pub fn bytes_since(&self, group: GroupNo) -> u64 {
        self.core().segments.list().bytes_since(group)
    }
}
