//! Copying forward: the remaining changes of parked rollbacks are copied to the end of the log, so that old log can be
//! truncated.
//!
//! A restart completes a parked rollback from its log records. So these are kept, with all later log, while it is
//! parked. On a full disk that could be the whole log. Therefore the remaining changes are logged again, and the
//! transaction then needs no earlier record (see [`crate::format`]):
//!
//! 1. The rollbacks leave the list of parked ones, as for a retry.
//! 2. The number of the next group is loaded.
//! 3. Records of kind [`COPY`] carry the undo entries, the oldest first. The last one completes the set.
//! 4. The first group of the transaction moves up to the loaded group. A checkpoint that sees this depends on a clock
//!    at or above the LSN of the last copy. So the copies are durable before its superblock names a scan start behind
//!    the old records.
//!
//! After a crash before the last copy is durable, the set is ignored. The old records are then still there.
//!
//! **Space.** A copy takes less log than the compensation for which the change is charged. So the copy is taken from
//! the charge of its own transaction. The log that is truncated after the next two checkpoints replaces it.
//!
//! **Invariant:** a set is logged only between two tries of a rollback. So no compensation of its transaction lies
//! among the set's records.

use super::TxnManager;
use crate::format::{COPY, COPY_FIRST, COPY_HEADER, COPY_LAST, CopiedChange, MARK_LEN, encode_copied, encode_mark};
use crate::parked::{Parked, Rollback};
use crate::sessions::Lease;
use foreshore_base::{GroupNo, Lsn, Result, Xid};
use foreshore_wal::{Dep, Record, Session, undo_log_cost};

/// Bytes of copied changes at which a record is logged.
const BATCH: usize = 8 << 10;

/// The result of [`TxnManager::copy_forward`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// No parked rollback keeps log that copies would free.
    Nothing,
    /// A rollback may keep such log, but it is being retried now.
    Busy,
    /// Parked rollbacks no longer need the log before the copies.
    Done,
}

/// The records of one set.
struct Copies<'a> {
    session: &'a mut Session,
    tag: Xid,
    last_lsn: Lsn,
    /// The body of the next record.
    body: Vec<u8>,
}

impl Copies<'_> {
    fn add(&mut self, change: &CopiedChange<'_>) -> Result<()> {
        if self.body.len() >= BATCH {
            self.log()?;
            self.body.push(0);
        }
        encode_copied(change, &mut self.body);
        Ok(())
    }

    fn log(&mut self) -> Result<()> {
        self.session.reserve_rollback(Session::cost(MARK_LEN + self.body.len()))?;
        let record = Record { tag: self.tag.0, flags: 0, parts: &[&encode_mark(COPY), &self.body] };
        self.last_lsn = self.session.append(record, Dep::none().transaction(self.last_lsn));
        self.body.clear();
        Ok(())
    }
}

impl TxnManager {
    /// Copies forward the parked rollbacks that keep log which no other transaction needs. `is_worth` decides; its
    /// arguments are the group before which that log lies and the bytes of the copies. It is called with zero bytes
    /// first. The checkpoint thread calls this method.
    pub fn copy_forward(&self, is_worth: impl Fn(GroupNo, u64) -> bool) -> Forward {
        if self.parked.count() == 0 {
            return Forward::Nothing;
        }
        // Transactions that start later need only later log.
        let next = self.log.next_group();
        let (movable, is_any_tried) = self.parked.movable();
        let (mut from, mut limit) = (next, next);
        for (index, active) in self.xids.active().all() {
            let least = if movable.contains(&index) { &mut from } else { &mut limit };
            *least = active.first_group.map_or(*least, |group| group.min(*least));
        }
        if from >= limit || !is_worth(limit, 0) {
            return if is_any_tried { Forward::Busy } else { Forward::Nothing };
        }
        let first_of =
            |parked: &Parked| self.xids.active().first_group(parked.rollback.lease.owner.index()).unwrap_or(next);
        let mut taken = self.parked.take_all(|parked| parked.rollback.lost.is_none() && first_of(parked) < limit);
        taken.sort_by_key(first_of);
        // The oldest rollbacks are copied, as many as are worth it together.
        let (mut cost, mut count) = (0, 0);
        for at in 0..taken.len() {
            let Ok(more) = copy_cost(&mut taken[at].rollback) else { break };
            cost += more;
            if is_worth(taken.get(at + 1).map_or(limit, first_of), cost) {
                count = at + 1;
            }
        }
        let is_copied = taken[..count].iter_mut().all(|parked| self.copy(&mut parked.rollback).is_ok());
        for parked in taken {
            self.put_into_list(parked);
            self.parked.end_try();
        }
        if is_copied && count > 0 { Forward::Done } else { Forward::Nothing }
    }

    fn copy(&self, rollback: &mut Rollback) -> Result<()> {
        let cost = copy_cost(rollback)?;
        let Rollback { lease, xid, logged_as, last_lsn, .. } = rollback;
        let (xid, logged_as, index) = (*xid, *logged_as, lease.owner.index());
        let Lease { session, undo, .. } = &mut **lease;
        session.admit_copy(cost)?;
        let first_group = self.log.next_group();
        let mut copies = Copies { session, tag: logged_as, last_lsn: *last_lsn, body: vec![COPY_FIRST] };
        let logged = undo.logged(|lsn, kind, table, body| match xid == logged_as {
            true => copies.add(&CopiedChange { lsn, kind, table, body }),
            false => {
                let body = &*self.resources().rename(kind, body, xid, logged_as)?;
                copies.add(&CopiedChange { lsn, kind, table, body })
            }
        });
        let copied = logged.and_then(|()| {
            copies.body[0] |= COPY_LAST;
            copies.log()
        });
        // The records of a failed set are in the log, too. The next set must follow them, whichever lane it is logged
        // in.
        *last_lsn = copies.last_lsn;
        copied?;
        self.xids.active().move_on(index, first_group);
        Ok(())
    }
}

/// Returns how much log the copies of a rollback's remaining changes take.
fn copy_cost(rollback: &mut Rollback) -> Result<u64> {
    if let Some(cost) = rollback.copy_cost {
        return Ok(cost);
    }
    let bytes = rollback.lease.undo.logged_bytes(COPY_HEADER)?;
    // A record ends with the change that reaches the batch size, so none is much longer than a page.
    let records = bytes / BATCH as u64 + 1;
    let cost = bytes + records * undo_log_cost(Session::cost(MARK_LEN + 1)) + bytes / 8;
    rollback.copy_cost = Some(cost);
    Ok(cost)
}
