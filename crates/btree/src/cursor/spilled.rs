//! Old versions in the spill file. A scan fetches those of several leaves at once.
//!
//! The versions of one leaf are spread over as many chunks as it has writers, and those of the next leaves lie in the
//! same chunks. So a scan that misses versions in a leaf also requests those of the following leaves. It requests none
//! the first time, because most scans are short, and twice as many each time. If a row changes before the scan reaches
//! it, the scan misses its version and fetches it for that leaf alone.

use super::span::{End, Rest, Span};
use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::tree::{Structure, Tree};
use foreshore_base::Result;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_txn::{Fetched, Snapshot, Txn, UndoPtr};
use std::ops::Bound;

/// Most leaves whose versions are fetched at once. Their rows take 1 MiB, and so may the kept versions.
const MOST: usize = 128;
/// The leaves take at most one in `SHARE` frames, so that they stay in memory until the scan reaches them.
const SHARE: usize = 16;

/// The versions that were fetched for a scan, and the leaves that they cover.
#[derive(Debug, Default)]
pub(super) struct FetchedAhead {
    pub(super) fetched: Option<Box<Fetched>>,
    /// The end of the scan for which they were fetched.
    end: End,
    /// Number of leaves in the last request.
    window: usize,
    reach: Reach,
}

/// The extent to which versions were fetched, from one end of a scan.
#[derive(Debug, Default)]
enum Reach {
    #[default]
    Nowhere,
    /// Up to the leaf that begins with this key. For a backward scan, down to the leaf that ends with it.
    To(Vec<u8>),
    Everywhere,
}

impl Reach {
    /// Returns the reach that ends where `behind`, the part not fetched, begins.
    fn before(behind: Option<Span>, end: End) -> Self {
        match behind.map(|mut span| std::mem::replace(span.bound(end), Bound::Unbounded)) {
            None => Self::Everywhere,
            Some(Bound::Included(key) | Bound::Excluded(key)) => Self::To(key),
            Some(Bound::Unbounded) => Self::Nowhere,
        }
    }

    /// Returns whether the reach lies beyond the beginning of a span.
    fn is_beyond(&self, span: &Span, end: End) -> bool {
        match (self, end) {
            (Self::Nowhere, _) => false,
            (Self::Everywhere, _) => true,
            (Self::To(key), End::Front) => !span.begins_from(key),
            (Self::To(key), End::Back) => match &span.upper {
                Bound::Included(upper) | Bound::Excluded(upper) => upper > key,
                Bound::Unbounded => true,
            },
        }
    }
}

impl FetchedAhead {
    /// Moves on to the leaf at one end of a span. Returns whether the fetched versions are kept for it. They are not
    /// kept if `is_over` says that they take too much memory.
    pub(super) fn begin_leaf(&mut self, span: &Span, end: End, is_over: bool) -> bool {
        if self.end != end {
            (self.end, self.window) = (end, 0);
            self.reach = Reach::Nowhere;
        }
        if is_over || !self.reach.is_beyond(span, end) {
            self.reach = Reach::Nowhere;
        }
        !matches!(self.reach, Reach::Nowhere)
    }

    /// Requests the versions of the leaves after a step, unless they were fetched. The step ends with `rest` at one end
    /// of `span`. If the step takes only some rows of a leaf, the next step takes the others.
    pub(super) fn want_ahead<const ONCE: bool>(
        &mut self,
        tree: &Tree,
        txn: &mut Txn,
        snapshot: &Snapshot,
        (span, end): (&Span, End),
        rest: Rest,
    ) {
        if !matches!(self.reach, Reach::Nowhere) {
            return;
        }
        let most = MOST.min(tree.pool().frames() / SHARE);
        let window = (2 * self.window).clamp(1, most.max(1));
        let mut leaves = usize::from(matches!(rest, Rest::Leaf(_)));
        let mut behind = behind(span, end, rest);
        while leaves < window
            && txn.may_fetch_more()
            && let Some(span) = &behind
        {
            leaves += 1;
            let wanted = txn.wanted();
            let Ok(rest) = want_leaf::<ONCE>(tree, txn, snapshot, span, end) else {
                // An error is ignored, because the scan meets it itself if it gets there.
                txn.unwant(wanted);
                break;
            };
            behind = rest;
        }
        assert!(leaves <= window, "{leaves} leaves were asked for at once, {window} at most");
        (self.window, self.reach) = (window, Reach::before(behind, end));
    }
}

/// Requests the versions of the first leaf of a span. Returns the rest of the span.
fn want_leaf<const ONCE: bool>(
    tree: &Tree,
    txn: &mut Txn,
    snapshot: &Snapshot,
    span: &Span,
    end: End,
) -> Result<Option<Span>> {
    let (mut page, mut restarts, mut image) = ([0; PAGE_SIZE], Restarts::default(), Vec::new());
    let wanted = txn.wanted();
    loop {
        let leaf: ReadGuard<'_, ONCE> =
            tree.find_again(&mut Structure::of_reader(txn), span.goal(end), 0, 0, &mut restarts)?;
        leaf.page().copy_to(0..PAGE_SIZE, &mut page);
        if !leaf.holds() {
            tree.restart(&mut restarts);
            continue;
        }
        let damage = |why| tree.corrupted(leaf.pid(), why);
        let node = tree.parse(leaf.pid(), &page)?;
        let inside = span.entries(&node, end).map_err(damage)?;
        for at in inside.clone() {
            let header = node.row(at).map_err(damage)?.header;
            txn.want(snapshot, header.xid, UndoPtr::from_bits(header.undo), &mut image, || leaf.holds());
        }
        if !leaf.holds() {
            txn.unwant(wanted);
        }
        txn.check_snapshot(snapshot)?;
        let rest = span.rest_of(&node, &inside, end, &mut Vec::new()).map_err(damage)?;
        return Ok(behind(span, end, rest));
    }
}

/// Returns what a step leaves of a span.
fn behind(span: &Span, end: End, step: Rest) -> Option<Span> {
    let mut behind = span.clone();
    behind.rest(end, step, &mut Vec::new()).then_some(behind)
}
