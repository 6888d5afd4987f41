//! The status window and the xids of the previous run ([`crate::visibility::earlier`]). They have no words.

use super::StatusWindow;
use crate::visibility::earlier::EarlierXids;
use foreshore_base::Xid;
use foreshore_sync::model::mutant;

impl StatusWindow {
    /// Pins the xids of the previous run that may be live. Called once, before the first transaction begins.
    pub(crate) fn hold_earlier(&self, xids: EarlierXids) {
        let _slider = self.late.lock();
        if !mutant("sabotage: losers count as ended at once") {
            self.pinned.hold_earlier(xids, self.first);
        }
    }

    /// Notes that all xids of the previous run have ended.
    pub(crate) fn end_earlier(&self) {
        let _slider = self.late.lock();
        self.pinned.end_earlier();
    }

    /// Returns the first xid of this run.
    pub(crate) const fn first(&self) -> Xid {
        self.first
    }
}
