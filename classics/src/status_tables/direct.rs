//! Two bits an xid in one array, found by the xid.

use super::bits::{ABORTED, COMMITTED};
use foreshore_base::{Error, Result, Xid};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, LazyArray, LockRank, Mutex, rmw};
use foreshore_txn::StatusTable;

/// Xids that the array distinguishes; for older ones it says that they have committed.
const XIDS: u64 = 1 << 31;
/// Xids to a word.
const PER_WORD: u64 = 32;
/// Xids whose words are prepared at once.
const CHUNK: u64 = 1 << 17;
/// How many xids are prepared ahead of the newest.
const AHEAD: u64 = 1 << 20;

/// The table. Xid x has two bits of word x / 32, in a circular array. Words of xids at or above `ready` still hold
/// their content of a round ago. The thread that prepares them stores zero, which also makes the system find memory
/// for them, and raises `ready`.
#[derive(Debug)]
pub struct Direct {
    words: LazyArray<AtomicU64>,
    /// Xids below it were before the table began.
    first: Xid,
    ready: CachePadded<AtomicU64>,
    preparing: Mutex<()>,
}

impl Direct {
    /// Makes a table that begins at `first`.
    ///
    /// # Errors
    /// `Io` if the array cannot be mapped.
    pub fn new(first: Xid) -> Result<Self> {
        let words = LazyArray::new((XIDS / PER_WORD) as usize)
            .map_err(|e| Error::io("map memory for", "the status table", e))?;
        // From the start of a word on, since whole words are prepared.
        let ready = CachePadded::new(AtomicU64::new(first.0 / PER_WORD * PER_WORD));
        let table = Self { words, first, ready, preparing: Mutex::new(LockRank::Leaf, ()) };
        table.prepare(first)?;
        Ok(table)
    }

    fn place(&self, xid: Xid) -> (&AtomicU64, u32) {
        (&self.words[(xid.0 / PER_WORD % (XIDS / PER_WORD)) as usize], 2 * (xid.0 % PER_WORD) as u32)
    }

    fn ready(&self) -> u64 {
        // ORDERING: Acquire, the words below were reset; pairs with `prepare`.
        self.ready.load(Ordering::Acquire)
    }
}

impl StatusTable for Direct {
    fn prepare(&self, xid: Xid) -> Result<()> {
        while self.ready() < xid.0 + AHEAD {
            let _preparing = self.preparing.lock();
            let ready = self.ready();
            if ready >= xid.0 + AHEAD {
                break;
            }
            let upto = (ready + CHUNK) / CHUNK * CHUNK;
            for at in (ready..upto).step_by(PER_WORD as usize) {
                // ORDERING: Relaxed, published by `ready`.
                self.place(Xid(at)).0.store(0, Ordering::Relaxed);
            }
            // ORDERING: publish, pairs with `ready`.
            self.ready.store(upto, Ordering::Release);
        }
        Ok(())
    }

    fn set(&self, xid: Xid, committed: bool) -> Result<()> {
        assert!(xid >= self.first, "{xid} is from before the table began, at {}", self.first);
        if xid.0 >= self.ready() {
            self.prepare(xid)?;
        } else if xid.0 + XIDS < self.ready() {
            // It ran while the array went round, and its words are those of later xids.
            return Ok(());
        }
        let (word, shift) = self.place(xid);
        let bits = if committed { COMMITTED } else { ABORTED };
        rmw::contended(1);
        // ORDERING: AcqRel, pairs with `has_committed`; the other xids of the word set theirs.
        let before = word.fetch_or(u64::from(bits) << shift, Ordering::AcqRel);
        assert_eq!(before >> shift & 3, 0, "the status of {xid} is set once");
        Ok(())
    }

    fn has_committed(&self, xid: Xid) -> Result<bool> {
        let (word, shift) = self.place(xid);
        // ORDERING: Acquire, pairs with `set`.
        let bits = word.load(Ordering::Acquire) >> shift & 3;
        let ready = self.ready();
        if xid < self.first || xid.0 + XIDS < ready {
            return Ok(true);
        }
        Ok(xid.0 < ready && bits == u64::from(COMMITTED))
    }
}
