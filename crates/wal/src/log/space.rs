//! What the owner of a log does about its space: how much is kept, what can be given up, and how fast it grows.

use crate::log::{Log, Shared};
use crate::requests::{SpaceRequest, SpaceServer};
use crate::returns::Returns;
use crate::throttle::LogLimits;
use foreshore_base::{GroupNo, Result};
use foreshore_sync::Signal;

impl Log {
    /// Bytes of the segments that [`Log::truncate`] before `group`, twice, would give up.
    #[must_use]
    pub fn truncatable(&self, group: GroupNo) -> u64 {
        let segments = self.shared().segments.as_ref();
        segments.map_or(0, |segments| segments.truncatable(group.min(self.shared().pipeline.durable_group())))
    }

    /// Names the function that takes from idle sessions what they were granted for compensations, by [`Session::take_idle_undo_log`], and
    /// returns how much that was. It is called by a session that the disk has refused space, without latches. The first call counts.
    ///
    /// [`Session::take_idle_undo_log`]: crate::Session::take_idle_undo_log
    pub fn on_shortage(&self, take: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.shared().idle.set(Box::new(take));
    }

    /// Names the server that gives up log on request of sessions that find no space on the disk.
    pub fn serve_space(&self, server: SpaceServer) {
        self.shared().requests.serve(server);
    }

    /// The newest request for space, if it has no answer yet. For the server; work for it begins after this call.
    #[must_use]
    pub fn space_requested(&self) -> Option<SpaceRequest> {
        self.shared().requests.requested()
    }

    /// Answers a request and all before it: whether log was given up.
    pub fn answer_space(&self, request: &SpaceRequest, freed: bool) {
        self.shared().requests.answer(request, freed);
    }

    /// Slows sessions down, at their reservations, while more log than `limits` stands behind the redo start; `None` ends that.
    /// The caller keeps on calling [`Log::redo_from`].
    pub fn limit_backlog(&self, limits: Option<LogLimits>) {
        self.shared().throttle.limit(limits);
    }

    /// Notes that a redo would begin at `group` by now.
    pub fn redo_from(&self, group: GroupNo) {
        let shared = self.shared();
        shared.throttle.redo_from(shared.totals.bytes().saturating_sub(self.bytes_since(group)));
    }

    /// The signal that [`Log::set_growth_mark`] has given.
    #[must_use]
    pub fn growth_signal(&self) -> Signal {
        self.shared().totals.growth().signal()
    }

    /// Has [`Log::growth_signal`] given once, when `mark` bytes are written (see [`Log::written_bytes`]). Returns false, and gives no
    /// signal, if they are already. The mark takes the place of the one before.
    #[must_use]
    pub fn set_growth_mark(&self, mark: u64) -> bool {
        self.shared().totals.growth().set_mark(mark)
    }

    /// Bytes of all groups kept.
    #[must_use]
    pub fn retained_bytes(&self) -> u64 {
        self.shared().segments.as_ref().map_or(0, |segments| segments.retained_bytes())
    }

    /// Bytes of the groups from `group` on, to the precision of a group and a sixty-fourth of a segment, at most 256 KiB.
    #[must_use]
    pub fn bytes_since(&self, group: GroupNo) -> u64 {
        self.shared().segments.as_ref().map_or(0, |segments| segments.bytes_since(group))
    }
}

impl Shared {
    /// Whether an ordinary reservation may go on: there is prepared space ahead. One that `frees` space may use the
    /// margin.
    #[inline]
    pub(crate) fn admit_space(&self, frees: bool) -> Result<()> {
        self.segments.as_ref().map_or(Ok(()), |segments| segments.admit(frees))
    }

    /// Whether sessions are slowed down just now.
    #[inline]
    pub(crate) fn is_slowed(&self) -> bool {
        self.throttle.slows(self.totals.bytes())
    }

    /// Whether a reservation of a rollback may go on: more space is prepared than what is in flight may take.
    #[inline]
    pub(crate) fn admit_rollback(&self) -> Result<()> {
        self.segments.as_ref().map_or(Ok(()), |segments| segments.admit_rollback())
    }

    /// Has log space prepared for `sessions` at once.
    pub(crate) fn expect_sessions(&self, sessions: usize) {
        if let Some(segments) = &self.segments {
            segments.expect_sessions(sessions);
        }
    }

    /// Keeps log space back for `sessions` at once, before the last of them appends. `frees`: for ordinary work that frees space or does
    /// not, which may be refused; `None` for what is never refused.
    pub(crate) fn count_session(&self, sessions: usize, frees: Option<bool>) -> Result<()> {
        self.segments.as_ref().map_or(Ok(()), |segments| segments.count_session(sessions, frees))
    }

    /// Where sessions wait for space that others give back. None of a log without files.
    pub(crate) fn returns(&self) -> Option<&Returns> {
        self.segments.as_ref().map(|segments| segments.returns())
    }

    /// Takes what idle sessions were granted.
    pub(crate) fn take_from_idle(&self) {
        if let (Some(segments), Some(take)) = (&self.segments, self.idle.get()) {
            segments.take_back(take());
        }
    }
}
