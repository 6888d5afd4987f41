//! The account of prepared log space: how much is ahead of the log, and how much of that is set aside.
//!
//! ```text
//! ahead      =  prepared segments  +  the rest of the segment being filled
//! set aside  =  kept back for the sessions at work  +  granted to sessions for compensations
//! ```
//!
//! | state | when | then |
//! |---|---|---|
//! | short | ahead < set aside | another segment is prepared; on a full disk ordinary work is refused |
//! | spent | ahead + margin < set aside | ordinary work is refused, work that frees space too |
//! | at its end | ahead < bytes in flight | a rollback is refused |
//!
//! **Invariant:** a session counts its request before it compares. So two sessions that request the last space see each
//! other.

use crate::options::LogOptions;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::rmw;

/// The bytes of a block, the unit of grants. An idle session keeps one unless space is short. One block is enough for a
/// small transaction with a change of any size.
pub(crate) const GRANT: u64 = 32 << 10;

/// The account. All numbers are bytes. They are measures that each comparison reads anew; locks protect the segments
/// themselves.
#[derive(Debug)]
pub(super) struct Budget {
    options: LogOptions,
    /// Bytes of prepared segments, and the rest of the one being filled.
    ready: AtomicU64,
    left: AtomicU64,
    /// Bytes set aside for the records that sessions have in flight. Grows with the most sessions at work at once.
    kept_back: AtomicU64,
    /// The `kept_back` for the most sessions ever leased at once.
    expected: AtomicU64,
    /// Bytes granted to sessions for compensations, in whole blocks.
    granted: AtomicU64,
}

impl Budget {
    /// Creates the account of a log with `ready` bytes of prepared segments and `left` bytes of the one being filled.
    pub(super) fn new(options: &LogOptions, ready: u64, left: u64) -> Self {
        let kept_back = options.kept_back(0);
        Self {
            options: options.clone(),
            ready: AtomicU64::new(ready),
            left: AtomicU64::new(left),
            kept_back: AtomicU64::new(kept_back),
            expected: AtomicU64::new(kept_back),
            granted: AtomicU64::new(0),
        }
    }

    fn ahead(&self) -> u64 {
        // ORDERING: Relaxed, measures.
        self.ready.load(Ordering::Relaxed) + self.left.load(Ordering::Relaxed)
    }

    fn kept_back(&self) -> u64 {
        // ORDERING: Relaxed, a measure.
        self.kept_back.load(Ordering::Relaxed)
    }

    fn granted(&self) -> u64 {
        // ORDERING: Relaxed, a measure.
        self.granted.load(Ordering::Relaxed)
    }

    fn set_aside(&self) -> u64 {
        self.kept_back() + self.granted()
    }

    /// Whether less is ahead than is set aside.
    pub(super) fn is_short(&self) -> bool {
        self.ahead() < self.set_aside()
    }

    /// Whether ordinary work would use space that rollbacks or a restart need.
    pub(super) fn is_spent(&self) -> bool {
        self.ahead() + self.options.margin() < self.set_aside()
    }

    /// Whether no more is ahead than records in flight may take.
    pub(super) fn is_at_end(&self) -> bool {
        self.ahead() + self.options.margin() + self.options.for_restart() < self.kept_back()
    }

    /// Whether there is too little space to log `bytes` from `own` granted blocks, without using space of others.
    pub(super) fn lacks_copy(&self, own: u64, bytes: u64) -> bool {
        let own = self.blocks(own) + self.options.margin();
        self.ahead() + own < self.set_aside() + self.options.prepared_for(bytes)
    }

    /// Returns the number of segments to keep ready.
    pub(super) fn ready_target(&self) -> usize {
        // ORDERING: Relaxed, a measure.
        let expected = self.expected.load(Ordering::Relaxed) + self.granted();
        self.options.ready_target(self.set_aside().max(expected))
    }

    /// Notes that `sessions` may be at work at once. Returns whether more segments have to be prepared for that.
    pub(super) fn expect_sessions(&self, sessions: usize) -> bool {
        let expected = self.options.kept_back(sessions);
        // ORDERING: Relaxed on both, a bound that each comparison reads anew.
        self.expected.load(Ordering::Relaxed) < expected
            && self.expected.fetch_max(expected, Ordering::Relaxed) < expected
    }

    /// Sets aside the bytes that `sessions` at once may have in flight, if `admit` succeeds. During that call they
    /// count as granted.
    pub(super) fn count_session<E>(&self, sessions: usize, admit: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let kept_back = self.options.kept_back(sessions);
        let more = kept_back.saturating_sub(self.kept_back());
        if more == 0 {
            return Ok(());
        }
        self.add_granted(more);
        let admitted = admit();
        if admitted.is_ok() {
            // ORDERING: Relaxed, a measure.
            self.kept_back.fetch_max(kept_back, Ordering::Relaxed);
        }
        self.remove_granted(more);
        admitted
    }

    /// Counts `blocks` of [`GRANT`] bytes as granted.
    pub(super) fn grant(&self, blocks: u64) {
        assert!(blocks > 0, "a session is granted nothing");
        self.add_granted(self.blocks(blocks));
    }

    /// Counts granted blocks as returned.
    pub(super) fn take_back(&self, blocks: u64) {
        self.remove_granted(self.blocks(blocks));
    }

    fn blocks(&self, blocks: u64) -> u64 {
        blocks * self.options.prepared_for(GRANT)
    }

    fn add_granted(&self, bytes: u64) {
        rmw::contended(1);
        // ORDERING: Relaxed, a sum that each comparison reads anew.
        self.granted.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove_granted(&self, bytes: u64) {
        rmw::contended(1);
        // ORDERING: Relaxed, as in `add_granted`.
        let before = self.granted.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} bytes are counted back, and {before} were granted");
    }

    /// Counts a ready segment with space for `bytes`.
    pub(super) fn add_ready(&self, bytes: u64) {
        // ORDERING: Relaxed, a measure.
        self.ready.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Begins to fill a ready segment with space for `bytes`.
    pub(super) fn begin_segment(&self, bytes: u64) {
        self.set_left(bytes);
        // ORDERING: Relaxed, a measure.
        let before = self.ready.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "a segment for {bytes} bytes is filled, and {before} were ready");
    }

    /// Sets the bytes that are left of the segment being filled.
    pub(super) fn set_left(&self, bytes: u64) {
        // ORDERING: Relaxed, a measure.
        self.left.store(bytes, Ordering::Relaxed);
    }
}
