//! The source of xids. It hands out each xid once in the life of a database.
//!
//! An xid also reaches the disk in tuple headers that were never logged (row locks). So a restart cannot learn from the
//! log which xids were used. It continues at the **ceiling** instead: xids are handed out only below a ceiling that is
//! logged and durable. The ceiling moves up in blocks, half a block ahead of need, so sessions rarely wait for it.

use crate::format::{CEILING_LEN, XID_CEILING, encode_mark};
use foreshore_base::limits::MAX_XID;
use foreshore_base::{Error, Lsn, Result, Xid};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, MutexGuard};
use foreshore_wal::{Dep, Log, Record, Session};
use std::ops::Range;

/// Bytes of log that raising the ceiling reserves.
pub(super) const RAISE_COST: usize = Session::cost(CEILING_LEN);

/// The source of xids.
#[derive(Debug)]
pub(super) struct XidSource {
    /// The next xid that no session has drawn. Sessions raise it when they draw.
    next: CachePadded<AtomicU64>,
    /// The limit: xids below it may be drawn. They are below the durable ceiling and have a word in the status window.
    /// It never falls.
    limit: AtomicU64,
    /// A session that draws this xid or a later one raises the ceiling.
    raise_at: AtomicU64,
    ceiling: Mutex<Ceiling>,
    block: u64,
}

/// The logged and the durable ceiling.
#[derive(Debug)]
struct Ceiling {
    /// The newest ceiling that was logged.
    logged: u64,
    /// LSN of its record.
    lsn: Lsn,
    /// The newest ceiling known to be durable.
    durable: u64,
}

/// The bound that stops the next xid from being handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Nothing.
    None,
    /// The durable ceiling.
    Ceiling,
    /// The status window.
    Window,
}

impl XidSource {
    /// Returns a source of xids from `first` on, the durable ceiling of the previous run. The ceiling moves up by
    /// `block` xids.
    pub(super) fn new(first: Xid, block: u64) -> Self {
        assert!(first > Xid::ZERO && block > 1, "xid zero means no transaction");
        let ceiling = Ceiling { logged: first.0, lsn: Lsn::ZERO, durable: first.0 };
        Self {
            next: CachePadded::new(AtomicU64::new(first.0)),
            limit: AtomicU64::new(first.0),
            raise_at: AtomicU64::new(first.0 + block / 2),
            ceiling: Mutex::new(LockRank::XidCeiling, ceiling),
            block,
        }
    }

    /// Returns the first xid that was not drawn.
    pub(super) fn next(&self) -> Xid {
        // ORDERING: Acquire, pairs with `draw`: a checkpointer that sees an xid drawn sees that its slot was locked.
        Xid(self.next.load(Ordering::Acquire))
    }

    /// Returns the newest ceiling in the log. No xid at or above it was handed out.
    pub(super) fn ceiling(&self) -> Xid {
        Xid(self.ceiling.lock().logged)
    }

    /// Draws the xids up to the next multiple of `most`; `None` at the limit.
    pub(super) fn draw(&self, most: u64) -> Option<Range<u64>> {
        // ORDERING: Acquire, pairs with `raise_limit`: below the limit the ceiling is durable and the status words read
        // zero.
        let limit = self.limit.load(Ordering::Acquire);
        let end = |next: u64| ((next / most + 1) * most).min(limit);
        let below = |next: u64| (next < limit).then(|| end(next));
        // ORDERING: AcqRel, the order of draws; pairs with `next`.
        let first = self.next.fetch_update(Ordering::AcqRel, Ordering::Relaxed, below).ok()?;
        Some(first..end(first))
    }

    /// Returns whether the ceiling should move up although `xid` is below it.
    pub(super) fn is_near(&self, xid: Xid) -> bool {
        // ORDERING: hint; a stale value costs a check under the lock.
        xid.0 >= self.raise_at.load(Ordering::Relaxed)
    }

    /// Logs a higher ceiling if less than half a block is left and no higher one is being written. Returns the LSN of a
    /// ceiling that is not durable yet. The session has reserved [`RAISE_COST`].
    ///
    /// # Errors
    /// `XidsUsedUp` if the last xid was drawn.
    pub(super) fn raise(&self, session: &mut Session, log: &Log) -> Result<Option<Lsn>> {
        let mut ceiling = self.lock_ceiling(log);
        let next = self.next().0;
        if ceiling.logged > ceiling.durable {
            return Ok(Some(ceiling.lsn));
        }
        if next >= MAX_XID {
            return Err(Error::XidsUsedUp { max: MAX_XID - 1 });
        }
        if ceiling.logged == MAX_XID || ceiling.logged.saturating_sub(next) > self.block / 2 {
            return Ok(None);
        }
        // The ceiling is set before its record is appended, under the lock. So a checkpoint that does not find it here
        // precedes the record.
        let before = (ceiling.logged, ceiling.lsn);
        ceiling.logged = (next + self.block).min(MAX_XID);
        assert!(before.0 <= ceiling.logged, "the ceiling falls from {} to {}", before.0, ceiling.logged);
        let body = ceiling.logged.to_le_bytes();
        let record = Record { tag: 0, flags: 0, parts: &[&encode_mark(XID_CEILING), &body] };
        ceiling.lsn = session.append(record, Dep::none());
        assert!(before.1 < ceiling.lsn, "the ceiling at {} comes before the last one at {}", ceiling.lsn, before.1);
        // ORDERING: hint, see `is_near`.
        self.raise_at.store(ceiling.logged - self.block / 2, Ordering::Relaxed);
        Ok(Some(ceiling.lsn))
    }

    /// Raises the limit to the durable ceiling, or to the first xid without a status word, which `cleared` reads.
    /// Returns what stops the next xid.
    pub(super) fn raise_limit(&self, log: &Log, cleared: impl FnOnce() -> Xid) -> Bound {
        let ceiling = self.lock_ceiling(log);
        let (durable, Xid(cleared)) = (ceiling.durable, cleared());
        // ORDERING: publish, pairs with `draw`.
        self.limit.fetch_max(durable.min(cleared), Ordering::Release);
        match self.next().0 {
            next if next >= durable => Bound::Ceiling,
            next if next >= cleared => Bound::Window,
            _ => Bound::None,
        }
    }

    fn lock_ceiling(&self, log: &Log) -> MutexGuard<'_, Ceiling> {
        let mut ceiling = self.ceiling.lock();
        if ceiling.lsn <= log.durable() {
            ceiling.durable = ceiling.logged;
        }
        ceiling
    }
}
