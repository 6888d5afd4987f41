//! What the owner of a log does about its space: how much is kept, what can be given up, and how fast it grows.

use crate::log::Log;
use crate::requests::{SpaceRequest, SpaceServer};
use crate::throttle::LogLimits;
use foreshore_base::GroupNo;
use foreshore_sync::Signal;

impl Log {
    /// Bytes of the segments that [`Log::truncate`] before `group`, twice, would give up.
    #[must_use]
    pub fn truncatable(&self, group: GroupNo) -> u64 {
        self.core().segments.list().truncatable(group.min(self.progress().durable_group()))
    }

    /// Names the function that takes from idle sessions what they were granted for compensations, by
    /// [`Session::take_idle_undo_log`], and returns how much that was. It is called by a session that the disk has
    /// refused space, without latches. The first call counts.
    ///
    /// [`Session::take_idle_undo_log`]: crate::Session::take_idle_undo_log
    pub fn on_shortage(&self, take: impl Fn() -> u64 + Send + Sync + 'static) {
        self.core().segments.on_shortage(Box::new(take));
    }

    /// Names the server that gives up log on request of sessions that find no space on the disk.
    pub fn serve_space(&self, server: SpaceServer) {
        self.core().requests.serve(server);
    }

    /// The newest request for space, if it has no answer yet. For the server; work for it begins after this call.
    #[must_use]
    pub fn space_requested(&self) -> Option<SpaceRequest> {
        self.core().requests.requested()
    }

    /// Answers a request and all before it: whether log was given up.
    pub fn answer_space(&self, request: &SpaceRequest, freed: bool) {
        self.core().requests.answer(request, freed);
    }

    /// Slows sessions down, at their reservations, while more log than `limits` stands behind the redo start; `None`
    /// ends that. The caller keeps on calling [`Log::redo_from`].
    pub fn limit_backlog(&self, limits: Option<LogLimits>) {
        self.core().throttle.limit(limits);
    }

    /// Notes that a redo would begin at `group` by now.
    pub fn redo_from(&self, group: GroupNo) {
        self.core().throttle.redo_from(self.written_bytes().saturating_sub(self.bytes_since(group)));
    }

    /// The signal that [`Log::set_growth_mark`] has given.
    #[must_use]
    pub fn growth_signal(&self) -> Signal {
        self.core().growth.signal()
    }

    /// Has [`Log::growth_signal`] given once, when `mark` bytes are written (see [`Log::written_bytes`]). Returns
    /// false, and gives no signal, if they are already. The mark takes the place of the one before.
    #[must_use]
    pub fn set_growth_mark(&self, mark: u64) -> bool {
        self.core().growth.set_mark(mark)
    }

    /// Bytes of all groups kept.
    #[must_use]
    pub fn retained_bytes(&self) -> u64 {
        self.core().segments.list().retained_bytes()
    }

    /// Bytes of the groups from `group` on, to the precision of a group and a sixty-fourth of a segment, at most 256
    /// KiB.
    #[must_use]
    pub fn bytes_since(&self, group: GroupNo) -> u64 {
        self.core().segments.list().bytes_since(group)
    }
}
