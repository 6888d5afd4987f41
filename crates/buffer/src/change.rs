//! The logging of page changes: the one place that appends the record, marks the pages dirty and sets their LSNs.

use crate::format::{CLR, ChangeRecord, MAX_CHANGE_PAGES, SEVERAL, UNDOABLE, change_header_len};
use crate::guard::ExclusiveGuard;
use foreshore_base::{Lsn, PageId, TableId};
use foreshore_wal::{Dep, Record, Session};

/// The most pieces of the body of a record.
pub const MAX_BODY_PARTS: usize = 7;

/// A change of pages, to be logged.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The kind of the record: a number in the range of the layer that redoes it.
    pub kind: u8,
    /// [`crate::format::UNDOABLE`], [`crate::format::CLR`] and the layer's own.
    pub flags: u8,
    /// Bit `i` is set if the record initialises page `i` wholly.
    pub init_mask: u8,
    /// The table that the pages belong to.
    pub table: TableId,
    /// The rest of the record, in at most [`MAX_BODY_PARTS`] pieces.
    pub body: &'a [&'a [u8]],
}

/// Returns the log space to reserve for a change of so many pages with so many bytes of body.
#[must_use]
pub const fn change_cost(pages: usize, body_len: usize) -> usize {
    Session::cost(change_header_len(pages) + body_len)
}

/// Logs a change of `pages`, in the order that redo will see them. Sets their LSNs to that of the record and returns
/// it.
///
/// Recovery depends on this order:
///
/// 1. All pages are marked dirty **before** the append, so that no checkpoint misses the record.
/// 2. The LSN is above that of every page, so redo in the order of LSNs is redo in the order of each page's changes.
///
/// The caller changes the bytes before or after the call, under the latches that it holds over both.
///
/// Neither waits nor fails: `session` has [`change_cost`] reserved, from before the first latch. `dep` has the other
/// dependencies of the change. `tag` is the caller's, in practice the transaction.
pub fn change(
    session: &mut Session,
    dep: Dep,
    tag: u64,
    change: &Change<'_>,
    pages: &mut [&mut ExclusiveGuard<'_>],
) -> Lsn {
    assert!((1..=MAX_CHANGE_PAGES).contains(&pages.len()), "a change of {} pages", pages.len());
    let is_undone = change.flags & (UNDOABLE | SEVERAL) != 0;
    assert!(change.flags & CLR == 0 || !is_undone, "a compensation is to be undone: flags {:#x}", change.flags);
    assert!(change.body.len() <= MAX_BODY_PARTS, "a body in {} parts", change.body.len());
    let init = u32::from(change.init_mask);
    assert!(init >> pages.len() == 0, "a change of {} pages initialises {init:#b}", pages.len());
    let mut dep = dep;
    let mut pids = [PageId::ZERO; MAX_CHANGE_PAGES];
    for (page, pid) in pages.iter_mut().zip(&mut pids) {
        page.mark_dirty();
        dep = dep.page(page.lsn());
        *pid = page.pid();
    }
    let record = ChangeRecord::new(change.kind, change.flags, change.init_mask, change.table, &pids[..pages.len()]);
    let mut header = [0; change_header_len(MAX_CHANGE_PAGES)];
    let len = record.encode_header(&mut header);
    let mut parts: [&[u8]; MAX_BODY_PARTS + 1] = [&[]; MAX_BODY_PARTS + 1];
    parts[0] = &header[..len];
    parts[1..=change.body.len()].copy_from_slice(change.body);
    let lsn = session.append(Record { tag, flags: 0, parts: &parts[..=change.body.len()] }, dep);
    for page in pages {
        page.set_lsn(lsn);
    }
    lsn
}
