//! Backups of a run, the archive of its log, and what is restored from them.
//!
//! Some lives make a backup beside their sessions, full or since that of an earlier life, and some runs have an
//! archive. After the next start they are restored on a copy of the disk, and each result is checked and compared:
//!
//! | restored | compared with |
//! |---|---|
//! | the backup of the last life | the commits whose records are not behind its end |
//! | the same and the archive, to a drawn position | the commits whose records are not behind that position |
//! | the oldest backup and the archive, to the end | what was found in the database |
//!
//! The archive lacks log, which is then named, only after the disk has failed. In some runs it has a limit. Then the
//! oldest backup may lie before its first file.

use super::check::{Asked, Found, Prepared, check_recovered};
use super::history::{NEVER, Outcome, Rows, Txn};
use super::inspect::{checked, names, read};
use super::numbers;
use super::part::{Parts, Place};
use super::plan::{self, Trouble, one_in, one_of};
use super::shared::{Shared, Stop};
use crate::Random;
use foreshore::{Db, Error, Lsn, Options, RestoreRefusal, Until};
use foreshore_io::{Fs, Sim};
use foreshore_sync::{LockRank, Mutex, schedule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const ARCHIVE: &str = "archive";
const TARGET: &str = "restored";
/// The part of a run that decides whether it has an archive.
const IS_ARCHIVED: u32 = 1_000;

/// Commits that may be restored or not, at most: each set of them is tried.
const DOUBTFUL: usize = 6;

/// A finished backup.
#[derive(Clone, Debug)]
struct Copy {
    /// That of a full backup, and those of its increments.
    dirs: Vec<String>,
    /// Its end.
    lsn: Lsn,
}

/// The backup that a life makes.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    made: Arc<Mutex<Made>>,
    /// Whether a read may have failed, so that the database may have forgotten its backups.
    may_forget: bool,
}

#[derive(Debug, Default)]
struct Made {
    /// Not restored yet.
    new: Option<Copy>,
    last: Option<Copy>,
}

impl Slot {
    /// Makes a backup beside the sessions, and has the end of the log archived now and then.
    pub(super) fn fill(&self, shared: &Shared, dir: String, mut random: Random) {
        let most = one_of(&mut random, &[100, 3_000, 30_000, 200_000]);
        super::device::pause(Duration::from_micros(random.below(most)));
        let base = self.made.lock().last.clone().filter(|_| one_in(&mut random, 2));
        let made = match base.as_ref().and_then(|base| base.dirs.last()) {
            Some(base) => shared.db.backup_since(&dir, base),
            None => shared.db.backup(&dir),
        };
        match made {
            Ok(backup) => {
                let dirs = base.map_or_else(Vec::new, |base| base.dirs).into_iter().chain([dir]).collect();
                let copy = Some(Copy { dirs, lsn: backup.lsn });
                *self.made.lock() = Made { new: copy.clone(), last: copy.filter(|_| backup.is_base) };
            }
            Err(Error::UnknownBase(_)) if self.may_forget => self.made.lock().last = None,
            Err(error) => _ = shared.goes_on(Stop::Error(error)),
        }
        schedule::progress();
        for _ in 0..random.below(4) {
            super::device::pause(Duration::from_micros(random.below(most)));
            if shared.has_failed() || shared.db.archive().is_err_and(|error| !shared.goes_on(Stop::Error(error))) {
                return;
            }
        }
    }
}

/// What a life has left.
pub(super) struct Left<'l> {
    pub(super) base: &'l Rows,
    pub(super) txns: &'l [Txn],
    pub(super) prepared: &'l BTreeMap<String, Prepared>,
    /// What was found after it.
    pub(super) found: &'l Found,
}

impl Left<'_> {
    /// Checks rows that were restored to a position. Finds nothing if too many commits may be there or not.
    fn check(&self, position: Lsn, rows: Rows) -> Result<(), String> {
        // What begins when a record behind the position is durable has a record behind it, too.
        let behind = self.txns.iter().filter(|txn| txn.record.is_some_and(|record| record >= position.0));
        let passed = behind.map(|txn| txn.durable).min().unwrap_or(NEVER);
        let mut txns: Vec<Txn> = self.txns.iter().filter_map(|txn| at(txn, position, passed)).collect();
        let asked = self.prepared.values().filter(|entry| entry.asked == Asked::Commit);
        txns.extend(asked.map(|entry| Txn { outcome: Outcome::Unknown, ..entry.txn.clone() }));
        if txns.iter().filter(|txn| txn.outcome == Outcome::Unknown && !txn.changes().is_empty()).count() > DOUBTFUL {
            return Ok(());
        }
        let found = Found { rows, prepared: BTreeSet::new() };
        check_recovered(self.base, &txns, &BTreeMap::new(), &found)
    }

    /// The end of a backup, or a place at or just before the record of a durable commit behind it.
    fn draw(&self, end: Lsn, random: &mut Random) -> Lsn {
        let durable = self.txns.iter().filter(|txn| txn.durable != NEVER);
        let mut positions: Vec<u64> = durable.filter_map(|txn| txn.record).filter(|&record| record > end.0).collect();
        positions.push(end.0);
        Lsn(one_of(random, &positions) - random.below(2)).max(end)
    }
}

/// What a restore to a position, which the log has passed at a moment, has of a transaction. `None` if its record lies
/// behind it.
fn at(txn: &Txn, position: Lsn, passed: u64) -> Option<Txn> {
    let Outcome::Committed(csn) = txn.outcome else { return Some(txn.clone()) };
    match txn.record {
        None if csn > position.0 && txn.begin > passed => None,
        // Its record is nowhere behind its number.
        None if csn > position.0 => Some(Txn { outcome: Outcome::Unknown, ..txn.clone() }),
        Some(record) if record > position.0 => None,
        _ => Some(txn.clone()),
    }
}

/// The backups of a run, and its archive.
pub(super) struct Copies {
    is_archived: bool,
    /// The most bytes of the archive; 0 for no limit.
    limit: u64,
    /// Whether the disk has failed, so that the archive may have a gap.
    may_lack: bool,
    made: Arc<Mutex<Made>>,
    /// The oldest that the archive continues.
    oldest: Option<Copy>,
}

impl Copies {
    pub(super) fn new(parts: &Parts) -> Self {
        let place = Place::default().part(IS_ARCHIVED);
        let mut random = parts.random(&place);
        let is_archived = parts.has(&place) && one_in(&mut random, 2);
        let limit = one_of(&mut random, &[0, 0, 128 << 10]);
        let made = Arc::new(Mutex::new(LockRank::Leaf, Made::default()));
        Self { is_archived, limit, may_lack: false, made, oldest: None }
    }

    pub(super) fn with_archive(&self, options: Options) -> Options {
        if self.is_archived { options.archive(ARCHIVE).archive_limit(self.limit) } else { options }
    }

    pub(super) fn slot(&self) -> Slot {
        Slot { made: Arc::clone(&self.made), may_forget: self.may_lack }
    }

    /// Notes what goes wrong in a life.
    pub(super) fn note(&mut self, trouble: Trouble) {
        self.may_lack |= matches!(trouble, Trouble::Fault { .. } | Trouble::Read(_));
    }

    /// Notes that the disk fails.
    pub(super) fn note_failure(&mut self) {
        self.may_lack = true;
    }

    /// Restores, and returns how often.
    ///
    /// # Errors
    /// Says what is wrong.
    pub(super) fn check(&mut self, db: &Db, disk: &Sim, left: &Left<'_>, random: &mut Random) -> Result<u32, String> {
        let end = if self.is_archived { self.archive_end(db)? } else { Lsn::ZERO };
        let newest = self.made.lock().new.take();
        let mut restores = 0;
        if let Some(copy) = &newest {
            let rows = Self::restored(disk, copy, None, left)?.map(|(rows, _)| left.check(copy.lsn, rows));
            restores += self.verdict(rows, || format!("restored from {copy:?} alone"))?;
            if self.is_archived {
                let position = left.draw(copy.lsn, random);
                let restored = Self::restored(disk, copy, Some(Until::Lsn(position)), left)?;
                let rows = restored.map(|(rows, _)| left.check(position, rows));
                restores += self.verdict(rows, || format!("restored from {copy:?} to {position}, of {end}"))?;
            }
        }
        if self.is_archived {
            self.oldest = self.oldest.take().or(newest);
        }
        if let Some(copy) = self.oldest.clone() {
            let restored = Self::restored(disk, &copy, Some(Until::End), left)?;
            let is_there = restored.is_some();
            let same = restored.map(|(rows, prepared)| {
                let is_same = rows == left.found.rows && prepared == left.found.prepared;
                is_same.then_some(()).ok_or_else(|| format!("{} rows and {prepared:?} are there", rows.len()))
            });
            restores += self.verdict(same, || format!("restored from {copy:?} to the end, {end}"))?;
            if !is_there {
                self.oldest = None;
            }
        }
        Ok(restores)
    }

    /// Archives the end of the log, and checks what the archive says. Returns its end.
    fn archive_end(&self, db: &Db) -> Result<Lsn, String> {
        db.sync().map_err(|error| format!("sync to archive: {error}"))?;
        let end = db.archive().map_err(|error| format!("archive the end: {error} ({error:?})"))?;
        schedule::progress();
        let stats = db.stats();
        let archive = stats.archive.ok_or("the database has no archive")?;
        if !self.may_lack && (archive.lost_groups > 0 || archive.unsound_files > 0) {
            return Err(format!("the archive lacks what no fault explains: {archive:?}, {:?}", stats.archive_damage));
        }
        Ok(end)
    }

    /// Returns 1 for a result that is right, and 0 for none.
    fn verdict(&self, result: Option<Result<(), String>>, what: impl Fn() -> String) -> Result<u32, String> {
        match result {
            Some(Ok(())) => Ok(1),
            Some(Err(why)) => Err(format!("{}: {why}", what())),
            None if self.may_lack || self.limit > 0 => Ok(0),
            None => Err(format!("{}: a gap that nothing explains", what())),
        }
    }

    /// Restores a backup on a copy of the disk. Returns the rows and the names of prepared transactions; `None` if the
    /// archive has a gap, or what is prepared needs other options.
    fn restored(
        disk: &Sim,
        copy: &Copy,
        until: Option<Until>,
        left: &Left<'_>,
    ) -> Result<Option<(Rows, BTreeSet<String>)>, String> {
        let fork = disk.fork();
        let fs: Arc<dyn Fs> = Arc::new(fork.clone());
        let (full, increments) = copy.dirs.split_first().expect("a copy has a directory");
        let restore = foreshore::restore(full, TARGET).lab(fs, 64 << 10);
        let mut restore = increments.iter().fold(restore, foreshore::Restore::increment);
        if let Some(until) = until {
            restore = restore.archive(ARCHIVE).until(until);
        }
        match restore.run() {
            Ok(_) => {}
            Err(Error::Restore(RestoreRefusal::Gap { .. })) if until.is_some() => return Ok(None),
            Err(error) => return Err(format!("restore {copy:?} to {until:?}: {error} ({error:?})")),
        }
        schedule::progress();
        let options = plan::options(None, &fork, left.prepared.len()).lab(|lab| lab.background = false);
        let db = options.open(TARGET).map_err(|error| format!("open what was restored: {error} ({error:?})"))?;
        schedule::progress();
        let (rows, prepared) = (read(&db)?, names(&db)?);
        numbers::check_restored(&db)?;
        if prepared.is_empty() {
            checked(&db)?;
        }
        db.close(Duration::ZERO).map_err(|error| format!("close what was restored: {error}"))?;
        Ok(Some((rows, prepared)))
    }
}
