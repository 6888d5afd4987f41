//! The xid of a transaction, which it draws before it changes or locks its first row.

use crate::manager::Lease;
use crate::txn::Txn;
use foreshore_base::{GroupNo, Result, Xid};

impl Txn {
    /// The transaction's xid; draws one the first time. Without latches: it may wait for the log.
    ///
    /// # Errors
    /// `TooManyTransactions` when more run than the status window has words for; `DiskFull`; `LogSpace`; `Poisoned`.
    pub fn ensure_xid(&mut self) -> Result<Xid> {
        if let Some(xid) = self.xid {
            return Ok(xid);
        }
        let xid = self.draw_xid(None)?;
        let (manager, lease) = self.manager_and_lease();
        manager.keep_ahead(xid, &mut lease.session)?;
        self.reserve_again()?;
        Ok(xid)
    }

    /// The transaction's xid, which is drawn if that needs no wait; otherwise `None`. Latches may be held, and what is reserved stays.
    /// When they are free again the caller calls [`after_xid`](Self::after_xid).
    ///
    /// For operations that may find that they change and lock nothing: they need no xid then.
    pub fn try_xid(&mut self) -> Option<Xid> {
        if self.xid.is_none() {
            self.enter_xid(None);
            self.is_new_xid = self.xid.is_some();
        }
        self.xid
    }

    /// What the draw of an xid by [`try_xid`](Self::try_xid) has left to do. Without latches. Reservations end.
    ///
    /// # Errors
    /// As [`ensure_xid`](Self::ensure_xid).
    pub fn after_xid(&mut self) -> Result<()> {
        match self.xid {
            Some(xid) if std::mem::take(&mut self.is_new_xid) => {
                let (manager, lease) = self.manager_and_lease();
                manager.keep_ahead(xid, &mut lease.session)
            }
            _ => Ok(()),
        }
    }

    /// Draws the xid, and shows it to checkpoints. `logged`: the xid that the log has a transaction of the run before under, and the
    /// group of its first record.
    pub(crate) fn draw_xid(&mut self, logged: Option<(Xid, GroupNo)>) -> Result<Xid> {
        loop {
            if let Some(xid) = self.enter_xid(logged) {
                return Ok(xid);
            }
            let (manager, lease) = self.manager_and_lease();
            manager.raise_limit(&mut lease.session, logged.is_some())?;
        }
    }

    /// Draws the xid if one is left.
    fn enter_xid(&mut self, logged: Option<(Xid, GroupNo)>) -> Option<Xid> {
        assert!(self.xid.is_none(), "{:?} draws a second xid", self.xid);
        let (logged_as, first_group) = logged.unzip();
        let (manager, Lease { owner, .. }) = self.manager_and_lease();
        let (draw, begin) = (|| manager.draw_block(), |xid| manager.window.begin(xid));
        let xid = manager.active.enter(owner.index(), first_group, draw, begin, logged_as)?;
        owner.set_xid(xid);
        self.xid = Some(xid);
        self.xid
    }
}
