//! What of the prepared space is set aside for sessions: what they have in flight, and what they were granted for compensations.

use super::Segments;
use crate::returns::Returns;
use crate::undo_log::GRANT;
use foreshore_base::Result;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::rmw;

impl Segments {
    /// Has space prepared for `sessions` at once. It is kept back once they are at work.
    pub(crate) fn expect_sessions(&self, sessions: usize) {
        let expected = self.options.kept_back(sessions);
        // ORDERING: Relaxed, a bound that each look compares anew.
        if self.expected.load(Ordering::Relaxed) < expected {
            // ORDERING: as above.
            self.expected.fetch_max(expected, Ordering::Relaxed);
            self.preparer.notify();
        }
    }

    /// Keeps space back for `sessions` at once: for ordinary work only if it is there, which is refused otherwise and tried again. So
    /// sessions that begin on a full disk take nothing from rollbacks and checkpoints.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    #[cold]
    pub(crate) fn count_session(&self, sessions: usize, frees: Option<bool>) -> Result<()> {
        let kept_back = self.options.kept_back(sessions);
        // ORDERING: Relaxed, as in `expect_sessions`.
        let more = kept_back.saturating_sub(self.kept_back.load(Ordering::Relaxed));
        if more == 0 {
            return Ok(());
        }
        // Counted as granted before the look, as in `grant`.
        // ORDERING: Relaxed, as in `grant_again`.
        self.granted.fetch_add(more, Ordering::Relaxed);
        let admitted = frees.map_or(Ok(()), |frees| self.admit(frees));
        if admitted.is_ok() {
            // ORDERING: Relaxed, as in `expect_sessions`.
            self.kept_back.fetch_max(kept_back, Ordering::Relaxed);
        }
        // ORDERING: Relaxed, as in `grant_again`.
        let before = self.granted.fetch_sub(more, Ordering::Relaxed);
        assert!(before >= more, "{more} bytes for a session are counted back, of {before}");
        admitted
    }

    /// Grants space for compensations, in blocks of [`GRANT`] bytes.
    ///
    /// # Errors
    /// As [`admit`](Self::admit): nothing is granted then.
    pub(crate) fn grant(&self, blocks: u64, frees: bool) -> Result<()> {
        self.grant_again(blocks);
        // Counted before the look, so that of two sessions that ask for the last block none overlooks the other's.
        self.admit(frees).inspect_err(|_| self.count_back(blocks))
    }

    /// Grants what had been granted in the run before.
    pub(crate) fn grant_again(&self, blocks: u64) {
        assert!(blocks > 0, "a session is granted nothing");
        rmw::contended(1);
        // ORDERING: Relaxed, a sum that each look compares anew; the space itself is handed over by `ready_bytes` and
        // the list.
        self.granted.fetch_add(blocks * self.options.prepared_for(GRANT), Ordering::Relaxed);
        if self.is_short() {
            self.preparer.notify();
        }
    }

    /// Takes granted blocks back. Sessions that wait for them try again.
    pub(crate) fn take_back(&self, blocks: u64) {
        self.count_back(blocks);
        self.returns.notify();
    }

    /// Where sessions wait for space that others give back.
    pub(crate) fn returns(&self) -> &Returns {
        &self.returns
    }

    fn count_back(&self, blocks: u64) {
        rmw::contended(1);
        let bytes = blocks * self.options.prepared_for(GRANT);
        // ORDERING: Relaxed, as in `grant_again`.
        let before = self.granted.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "no more is taken back than was granted");
    }

    /// Whether `bytes` may be logged at the expense of `own` granted blocks, so that all that others may use stays.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) fn admit_copy(&self, own: u64, bytes: u64) -> Result<()> {
        let own = own * self.options.prepared_for(GRANT) + self.options.margin();
        let needed = self.options.prepared_for(bytes);
        self.prepare_while(|segments| segments.ahead() + own < segments.set_aside() + needed)
    }
}
