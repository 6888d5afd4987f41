//! The transactions that the log knows to have committed, and the xids that may be live when losers are undone beside
//! new transactions.

use crate::format::CheckpointBody;
use foreshore_base::Xid;
use foreshore_txn::EarlierXids;
use std::collections::BTreeMap;

/// Words of a chunk.
const WORDS: usize = 64;
/// Bits of a chunk.
const BITS: u64 = 64 * WORDS as u64;
/// Most memory for the xids that may be live, in words. The bits of more are not worth it.
const MOST: u64 = 1 << 20;

/// A set of xids that lie close together, and come about in order.
#[derive(Debug)]
pub(crate) struct XidSet {
    /// The chunk of the newest one, with its number. It is not among the others.
    newest: (u64, Box<[u64; WORDS]>),
    others: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl Default for XidSet {
    fn default() -> Self {
        Self { newest: (0, Box::new([0; WORDS])), others: BTreeMap::new() }
    }
}

impl XidSet {
    pub(crate) fn insert(&mut self, xid: Xid) {
        let chunk = xid.0 / BITS;
        if chunk != self.newest.0 {
            let words = self.others.remove(&chunk).unwrap_or_else(|| Box::new([0; WORDS]));
            let (before, words) = std::mem::replace(&mut self.newest, (chunk, words));
            self.others.insert(before, words);
        }
        self.newest.1[(xid.0 % BITS / 64) as usize] |= 1 << (xid.0 % 64);
    }

    /// Returns the bits of `xid` and the 63 xids behind it. It is a multiple of 64.
    fn word(&self, xid: u64) -> u64 {
        let chunk = xid / BITS;
        let words = if chunk == self.newest.0 { Some(&self.newest.1) } else { self.others.get(&chunk) };
        words.map_or(0, |words| words[(xid % BITS / 64) as usize])
    }

    fn has(&self, xid: Xid) -> bool {
        self.word(xid.0 / 64 * 64) & 1 << (xid.0 % 64) != 0
    }
}

/// What the log tells of the ends of transactions.
#[derive(Debug)]
pub(crate) struct KnownEnds {
    pub(crate) checkpoint: Option<CheckpointBody>,
    /// Those whose commit the log has, behind the checkpoint.
    pub(crate) committed: XidSet,
    /// The first xid that was not drawn.
    pub(crate) next: Xid,
}

impl KnownEnds {
    /// Returns the xids that may be live; `None` if they are too many.
    ///
    /// A transaction has ended if the checkpoint knows that, or its commit is in the log. An END record does not tell:
    /// a page may have a lock of that transaction on top of a change whose commit was lost.
    pub(crate) fn maybe_live(&self) -> Option<EarlierXids> {
        let Self { checkpoint, committed, next } = self;
        let behind = checkpoint.as_ref().map_or(Xid(1), |checkpoint| checkpoint.next_xid);
        let active = checkpoint.iter().flat_map(|checkpoint| &checkpoint.active).map(|&(xid, _)| xid);
        let live: Vec<Xid> = active.filter(|&xid| xid < behind.min(*next) && !committed.has(xid)).collect();
        // The words of both are aligned.
        let first = Xid(live.iter().copied().fold(behind, Xid::min).0 / 64 * 64);
        assert!(first <= behind, "xids from {first} on, and those behind {behind} are unknown");
        let count = next.0.checked_sub(first.0)?.div_ceil(64);
        if count > MOST {
            return None;
        }
        let word = |at: u64| match behind.0.saturating_sub(at) {
            over @ 0..64 => committed.word(at) | ((1 << over) - 1),
            _ => u64::MAX,
        };
        let mut ended: Vec<u64> = (0..count).map(|n| word(first.0 + 64 * n)).collect();
        for xid in live {
            ended[((xid.0 - first.0) / 64) as usize] &= !(1 << (xid.0 % 64));
        }
        Some(EarlierXids { first, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_base::{Csn, GroupNo};

    #[test]
    fn an_xid_may_be_live_unless_the_checkpoint_or_a_commit_tells_otherwise() {
        let active = vec![(Xid(70), GroupNo(1)), (Xid(90), GroupNo(1)), (Xid(210), GroupNo(2))];
        let checkpoint = CheckpointBody { next_xid: Xid(200), ceiling: Xid(5_000), clock: Csn(1), active };
        let mut committed = XidSet::default();
        [90, 201, 4_999].into_iter().for_each(|xid| committed.insert(Xid(xid)));
        let ends = |checkpoint, committed, next| KnownEnds { checkpoint, committed, next: Xid(next) };
        let EarlierXids { first, ended } = ends(Some(checkpoint), committed, 5_000).maybe_live().unwrap();
        assert_eq!(first, Xid(64));
        let is_live = |xid: u64| ended[(xid - 64) as usize / 64] & 1 << (xid % 64) == 0;
        for xid in 64..5_000 {
            let expected = xid == 70 || (xid >= 200 && !matches!(xid, 201 | 4_999));
            assert_eq!(is_live(xid), expected, "{xid}");
        }
        let EarlierXids { first, ended } = ends(None, XidSet::default(), 3).maybe_live().unwrap();
        assert_eq!((first, ended), (Xid(0), vec![1]));
        assert_eq!(ends(None, XidSet::default(), 1 << 40).maybe_live(), None);
        // A checkpoint that no engine writes.
        let active = vec![(Xid(70), GroupNo(1)), (Xid(500), GroupNo(1))];
        let checkpoint = CheckpointBody { next_xid: Xid(1_000), ceiling: Xid(90), clock: Csn(1), active };
        assert_eq!(ends(Some(checkpoint), XidSet::default(), 90).maybe_live().unwrap().ended, [!(1 << 6)]);
    }
}
