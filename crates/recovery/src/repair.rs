//! Repair of single pages: the changes of the log are applied to older images of them, up to the end of the log.
//!
//! **Why the result is the page of that moment.** An image in a backup has every change from before the redo start of
//! the backup's superblock, and redo brings it forward like any page at a restart (`restart.rs`). Compensations are
//! changes, too, so what was rolled back is rolled back in the result. Locks in row headers are not logged. A restart
//! copes with any of them, since their transactions ended before it.
//!
//! **A page that was not in use** has no image. It begins with the next record that initialises it, as at a restart.
//! All of its records are at the redo start or later (`restart.rs`, step 4).
//!
//! **If the image is damaged, or log is missing,** the page is not repaired, even if a later record initialises it.
//! Records of one page need not lie in groups in the order of their LSNs. So where reading begins, a change that
//! follows this record may lie in an earlier group.
//!
//! **A transaction whose undo was skipped.** A restart that finds a damaged page on the path to a row skips the undo of
//! changes to that row, and logs that. The page would show them as committed once it is repaired. So [`is_passed`]
//! tells the tables of such transactions.
//!
//! [`is_passed`]: PageRepair::is_passed

use crate::redo::{Redoer, without_clr};
use crate::restart::check_log;
use foreshore_base::{Error, GroupNo, Lsn, PageId, Place, Result, TableId, Xid};
use foreshore_buffer::{ChangeRecord, Pool};
use foreshore_space::SuperBlock;
use foreshore_txn::ResourceManager;
use foreshore_txn::format::{COMMIT, END, PASS, decode_pass};
use foreshore_wal::{HistoryEvent, LoggedRecord, Recovered};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// What a page is repaired from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairBase {
    /// The image in the database itself, which is sound.
    Home,
    /// The image in the backup.
    Backup,
    /// A log record that initialises the page.
    Log,
    /// Nothing so far: the page was not in use, or quarantined, and there was no such record.
    Nothing,
    /// Nothing: the image in the backup is damaged.
    Damaged,
    /// Nothing, since these groups of the log are missing: the first one, and the next that is there.
    Gap(GroupNo, GroupNo),
}

/// A page that is repaired.
#[derive(Clone, Copy, Debug)]
pub struct PageProgress {
    /// What the page is repaired from.
    pub base: RepairBase,
    /// Changes that were applied to it.
    pub changes: u64,
    /// The group of the last record that initialises the page, whether it was applied or not.
    pub initialised: GroupNo,
    /// The group of the last record of the page.
    pub last: GroupNo,
}

/// The changes of a running transaction.
#[derive(Debug, Default)]
struct Changes {
    first: Option<Lsn>,
    tables: BTreeSet<TableId>,
}

/// A repair of pages.
pub struct PageRepair<'a> {
    log_dir: &'a Path,
    redoer: Redoer<'a>,
    /// The redo start of the backup.
    from: GroupNo,
    pages: BTreeMap<PageId, PageProgress>,
    begun: usize,
    running: HashMap<Xid, Changes>,
    /// Tables of skipped changes; `None`: of any table.
    passed: Option<BTreeSet<TableId>>,
}

impl<'a> PageRepair<'a> {
    /// Returns a repair of pages in `pool`. Their images are those of a backup that is redone from group `from` on.
    pub fn new(log_dir: &'a Path, pool: &'a Pool, manager: &'a dyn ResourceManager, from: GroupNo) -> Self {
        let (redoer, passed) = (Redoer::new(pool, manager), Some(BTreeSet::new()));
        Self { log_dir, redoer, from, pages: BTreeMap::new(), begun: 0, running: HashMap::new(), passed }
    }

    /// Adds a page whose image is home in the data file of the pool.
    pub fn add(&mut self, pid: PageId, base: RepairBase) {
        self.pages.insert(pid, PageProgress { base, changes: 0, initialised: GroupNo::ZERO, last: GroupNo::ZERO });
    }

    /// Applies what was read next of the log.
    ///
    /// # Errors
    /// `Corrupted` for a record that no engine writes, or that does not fit a page without which no database opens;
    /// errors of the pool.
    pub fn apply(&mut self, event: &HistoryEvent) -> Result<()> {
        match event {
            HistoryEvent::Record(record) => self.redo(record),
            &HistoryEvent::Gap { missing, next } => {
                assert!(missing < next, "log groups from {missing} to {next} are missing");
                self.running.clear();
                for page in self.pages.values_mut().filter(|page| page.base != RepairBase::Home) {
                    page.base = RepairBase::Gap(missing, next);
                }
                Ok(())
            }
        }
    }

    /// Returns the state of a page that was added.
    #[must_use]
    pub fn page(&self, pid: PageId) -> Option<&PageProgress> {
        self.pages.get(&pid)
    }

    /// Returns how many pages have begun with a log record.
    #[must_use]
    pub const fn begun(&self) -> usize {
        self.begun
    }

    /// Whether the undo of a transaction that changed `table` has skipped a change.
    #[must_use]
    pub fn is_passed(&self, table: TableId) -> bool {
        self.passed.as_ref().is_none_or(|tables| tables.contains(&table))
    }

    fn redo(&mut self, record: &LoggedRecord) -> Result<()> {
        if record.group < self.from {
            return Ok(());
        }
        let log_dir = self.log_dir;
        let malformed = |why| Error::corrupted(log_dir, Place::File, why);
        let change = ChangeRecord::decode(&record.payload).map_err(malformed)?;
        self.note_transaction(record, &change).map_err(malformed)?;
        let change = without_clr(&change).map_err(malformed)?;
        for (index, pid) in change.pages().iter().enumerate() {
            let Some(page) = self.pages.get_mut(pid) else { continue };
            let initialises = change.initialises(index);
            page.last = record.group;
            if initialises {
                page.initialised = record.group;
            }
            match page.base {
                RepairBase::Damaged | RepairBase::Gap(..) => continue,
                RepairBase::Nothing if !initialises => continue,
                _ => {}
            }
            let before = self.redoer.changes();
            self.redoer.redo_page((record.lsn, record.group), &change, index)?;
            page.changes += self.redoer.changes() - before;
            if initialises && self.redoer.changes() > before && page.base != RepairBase::Home {
                self.begun += usize::from(page.base == RepairBase::Nothing);
                (page.base, page.changes) = (RepairBase::Log, 1);
            }
        }
        Ok(())
    }

    /// Notes what a record says of its transaction.
    fn note_transaction(&mut self, record: &LoggedRecord, change: &ChangeRecord<'_>) -> Result<(), &'static str> {
        let xid = Xid(record.tag);
        match change.kind {
            COMMIT | END => drop(self.running.remove(&xid)),
            PASS => {
                let mut skipped = decode_pass(change.body).ok_or("a record of changes passed over is malformed")?;
                let changes = self.running.get(&xid);
                // A change from before the first one that was read is of any table.
                let first = changes.and_then(|changes| changes.first).filter(|&first| skipped.all(|lsn| lsn >= first));
                match (&mut self.passed, changes) {
                    (Some(tables), Some(changes)) if first.is_some() => tables.extend(&changes.tables),
                    (passed, _) => *passed = None,
                }
            }
            _ if xid > Xid::ZERO => {
                let lsns = change.undoable(record.lsn)?;
                if !lsns.is_empty() {
                    let changes = self.running.entry(xid).or_default();
                    changes.first.get_or_insert(Lsn(*lsns.start()));
                    changes.tables.insert(change.table);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Refuses a log that lacks what the superblock of its database names.
///
/// # Errors
/// `LostLog`.
pub fn check_restart(recovered: &Recovered, superblock: &SuperBlock) -> Result<()> {
    check_log(recovered, superblock)
}
