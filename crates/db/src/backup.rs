//! Backups: copies of a database that is in use. A full one is a database itself, an incremental one has the pages that
//! have changed since another backup, its base.
//!
//! 1. *Target.* The new directory is locked and marked as unfinished ([`Target`]).
//! 2. *Checkpoint.* One is taken if much log has been written since the last, since the copy has all of that log. While
//!    pages wait for their redo, none is: the copy has what they need.
//! 3. *Retain.* The newest superblock is noted. The log that a restart from it needs is retained until the copy ends,
//!    and the data file is not truncated ([`RetainedLog`]).
//! 4. *Pages.* The data file is read up to its present length, each page whole ([`PageCopier`]). A full backup copies
//!    all, an incremental one those with an LSN above the start of its base, and quarantined ones.
//! 5. *Log.* The log is forced up to the largest LSN of these pages. It is copied from the scan start of the superblock
//!    up to its durable end.
//! 6. *Token.* The backup gets a name and a start, which this database remembers durably ([`KnownBackup`]).
//! 7. *Superblock.* The noted one is written, when everything else is durable. Then the marker is removed.
//!
//! **Why the copy is consistent.** A restart from a superblock needs two things: each page has every change from before
//! the redo start, and the log has all changes from there on. `crates/recovery/src/restart.rs` argues that this holds
//! whatever newer image of a page is home. So it holds although the images in the copy are from different moments: redo
//! looks at each page alone, and skips the changes that it has. The log ends behind the largest LSN of any page, so no
//! page is ahead of it. docs/decisions/0034 has the whole argument.
//!
//! **Why an increment suffices.** The *start* of a backup is an LSN below those of all records from its redo start on.
//! So its pages have each record up to the start. A page that is left out later has an LSN up to the start, so the base
//! has every record that it has. docs/decisions/0040 has the whole argument.
//!
//! No lock or latch is held from one page or group to the next. Steps 2, 4 and 5 rest while others commit ([`Pace`]).

mod increment;
mod pace;
mod pages;
mod target;

use crate::create::new_uuid;
use crate::engine::Engine;
use crate::files::Files;
use crate::format::backups::{BACKUP_VERSION, BackupHeader, BlockFlaw, KnownBackup, Token};
use crate::{Error, Result, UnknownBase, trace};
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Csn, Error as Storage, Lsn, PageId, Place};
use foreshore_buffer::format::{page_lsn, page_type};
use foreshore_buffer::{PageType, Pool};
use foreshore_io::{AlignedBuf, File, Fs, Kind};
use foreshore_recovery::RetainedLog;
use foreshore_space::{BackupMark, SuperBlock};
use foreshore_sync::model::mutant;
use foreshore_sync::{pause, wall_clock};
use foreshore_wal::{CopyTarget, Follower};
pub(crate) use increment::IncrementReader;
use increment::IncrementWriter;
use pace::Pace;
use pages::{Copied, PageCopier};
use std::path::Path;
use std::process;
pub(crate) use target::{Target, check_empty};

/// Bytes of log, from the scan start on, for which a backup takes a checkpoint; a segment if that is less.
const LITTLE_LOG: u64 = 1 << 20;

/// A finished backup: what the copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// All commits with a number up to this one are in the copy.
    pub csn: Csn,
    /// The end of the copied log. A commit is in the copy exactly if the LSN of its record is not above this.
    pub lsn: Lsn,
    /// Pages of the data file, superblocks and free ones among them.
    pub pages: u64,
    /// Pages with contents that were copied: all, or those that an incremental backup has.
    pub stored_pages: u64,
    /// Bytes of log groups.
    pub log_bytes: u64,
    /// Quarantined pages. The copy has them as this database does: what they held is lost in both.
    pub quarantined: u64,
    /// Whether an incremental backup may continue this one. Not if the database could not write that it was made.
    pub is_base: bool,
}

/// Refuses the directory of a backup that did not finish.
pub(crate) fn check_finished(files: &Files, fs: &dyn Fs) -> Result<()> {
    match fs.kind(&files.unfinished_backup)? {
        None => Ok(()),
        Some(_) => Err(Error::UnfinishedBackup { dir: files.dir.clone() }),
    }
}

/// Refuses to open the directory of a backup that did not finish, or of an incremental one.
pub(crate) fn check_no_backup(files: &Files, fs: &dyn Fs) -> Result<()> {
    check_finished(files, fs)?;
    if is_increment(files, fs)? {
        let why = "it is an incremental backup: restore it together with its base";
        return Err(Error::Foreign { path: files.increment.clone(), why });
    }
    Ok(())
}

/// Whether a directory holds an incremental backup. Where `data` exists, or no `token`, a stray file is none.
pub(crate) fn is_increment(files: &Files, fs: &dyn Fs) -> Result<bool> {
    let is_file = |path| matches!(fs.kind(path), Ok(Some(Kind::File)));
    Ok(fs.kind(&files.data)?.is_none() && is_file(&files.increment) && is_file(&files.token))
}

/// Reads the header of a backup; `None` if it has none.
pub(crate) fn read_header(files: &Files, fs: &dyn Fs) -> Result<Option<BackupHeader>> {
    let path = &files.token;
    if fs.kind(path)?.is_none() {
        return Ok(None);
    }
    let mut block = AlignedBuf::new(BLOCK);
    let len = fs.open(path)?.read_at(&mut block, 0)?;
    match BackupHeader::decode(&block[..len]) {
        Ok(header) => Ok(Some(header)),
        Err(BlockFlaw::Newer(found)) => Err(Error::Newer { path: path.clone(), found, supported: BACKUP_VERSION }),
        Err(BlockFlaw::Damaged) => {
            Err(Storage::corrupted(path, Place::File, "the name of the backup is damaged").into())
        }
    }
}

/// Reads the superblock of a backup, from its file `data`. It has one, and no stamps: an open creates the stamps before
/// it changes a page, and writes a second superblock.
pub(crate) fn read_superblock(files: &Files, fs: &dyn Fs, data: &dyn File) -> Result<SuperBlock> {
    let (superblock, second) = SuperBlock::read_newest(data)?;
    if second.is_some() || fs.kind(&files.stamps)?.is_some() {
        // Its log has gone on, so no archive continues it; and a start may need its images of pages.
        let why = "it was opened as a database since the backup was made";
        return Err(Error::Foreign { path: data.path().to_owned(), why });
    }
    Ok(superblock)
}

/// Copies the database to `dir`: all of it, or what has changed since the backup in directory `base`.
pub(crate) fn backup(engine: &Engine, dir: &Path, base: Option<&Path>) -> Result<Backup> {
    engine.admission.check_open()?;
    let base = base.map(|base| find_base(engine, base)).transpose()?;
    let target = Target::create(engine.options.backup_file_system(dir)?, dir)?;
    shorten_log(engine)?;
    let retained = engine.storage.checkpointer().retain_log();
    let source = Source { engine, pace: Pace::new(engine), retained, base };
    let copied = source.copy_to(&target).map_err(|error| source.explain(error));
    let backup = copied.and_then(|backup| target.finish().map(|()| backup));
    trace::ended("backup", &backup);
    let backup = backup?;
    pause::point("backup: the marker is removed");
    Ok(backup)
}

/// Takes a checkpoint, unless the log since the last one is not worth the page writes, or pages would have to be redone
/// first. One that fails makes the copy larger, and does not prevent it.
fn shorten_log(engine: &Engine) -> Result<()> {
    let (log, checkpointer) = (engine.storage.log(), engine.storage.checkpointer());
    let most = LITTLE_LOG.min(engine.options.segment_bytes());
    let is_redone = engine.storage.pool().pending_from().is_none();
    if is_redone && log.bytes_since(checkpointer.stats().scan_start) >= most {
        pause::point("backup: its checkpoint begins");
        let pace = Pace::new(engine);
        let _ = checkpointer.checkpoint_paced(&mut || pace.rest(|| engine.admission.check_open()));
    }
    Ok(engine.admission.check_open()?)
}

/// Returns what the database knows of the backup in directory `base`.
fn find_base(engine: &Engine, base: &Path) -> Result<KnownBackup> {
    let (files, fs) = (Files::of(base), engine.options.reader(base)?);
    check_finished(&files, &*fs)?;
    let header = read_header(&files, &*fs)?;
    let known = header.and_then(|header| engine.storage.backups().find(&header));
    let Some(known) = known else {
        let dir = engine.storage.files().dir.clone();
        return Err(Error::UnknownBase(UnknownBase::new(base, dir)));
    };
    let data = if is_increment(&files, &*fs)? { &files.increment } else { &files.data };
    read_superblock(&files, &*fs, &*fs.open(data)?)?;
    Ok(known)
}

/// The database as it is copied.
struct Source<'e> {
    engine: &'e Engine,
    pace: Pace<'e>,
    retained: RetainedLog,
    base: Option<KnownBackup>,
}

impl Source<'_> {
    fn copy_to(&self, target: &Target) -> Result<Backup, Storage> {
        let (storage, superblock) = (&self.engine.storage, self.retained.superblock());
        let (files, fs) = (target.files(), target.fs());
        // A page beyond this length was never home, or was cut off. Its next use begins with a record for redo.
        let pages = (storage.data().len()? / PAGE_SIZE as u64).max(superblock.data_pages);
        let token = self.draw_token();
        let data = fs.create(if self.base.is_some() { &files.increment } else { &files.data })?;
        let copied = self.copy_pages(&*data, pages, token)?;
        pause::point("backup: the pages are copied");
        storage.log().force(copied.lsn)?;
        let to = CopyTarget { fs, dir: &files.log, is_opened: self.base.is_none() };
        let log = storage.log().copy(superblock.scan_start, &to, &mut || self.rest())?;
        assert!(copied.lsn <= log.durable, "a page at {} is ahead of the copied log at {}", copied.lsn, log.durable);
        assert!(superblock.checkpoint_lsn <= log.durable, "the log of a copy ends before its checkpoint");
        // Everything was read from the open database, and from log that was retained.
        self.go_on()?;
        pause::point("backup: the log is copied");
        if self.base.is_none() {
            Pool::create_files(&*fs.create(&files.doublewrite)?, superblock.uuid)?;
        }
        let (start, end) = (self.start(target, log.durable)?, log.durable);
        let (uuid, base, stored) = (superblock.uuid, self.base.map(|base| base.token), copied.stored);
        let mut block = AlignedBuf::new(BLOCK);
        BackupHeader { uuid, token, base, start, end, pages, stored }.encode(&mut block);
        fs.create(&files.token)?.write_durable(&block, 0)?;
        fs.sync_dir(&files.dir)?;
        // Last of all that is read: a copy of this database that knows the token has all that the backup has.
        // That the database cannot remember it is no reason to have no backup. This one is no base.
        let run = storage.checkpointer().run();
        let is_base = storage.backups().add(KnownBackup { token, run, start, end }).is_ok();
        if is_base {
            storage.checkpointer().note_backup(token.0);
        } else {
            self.go_on()?;
        }
        pause::point("backup: the database knows it");
        // Another machine may redo the log more slowly. The file of an increment is shorter than `data`.
        let data_pages = if self.base.is_some() { 0 } else { superblock.data_pages };
        let backups = BackupMark::default();
        SuperBlock { restart_speed: 0, data_pages, backups, ..superblock.clone() }.write_next(&*data)?;
        pause::point("backup: all files are there");
        let (csn, lsn, log_bytes, quarantined) = (end.csn(), end, log.bytes, copied.quarantined);
        Ok(Backup { csn, lsn, pages, stored_pages: stored, log_bytes, quarantined, is_base })
    }

    /// Returns a new token. The random numbers of a copied machine may be the same, time and place hardly are.
    fn draw_token(&self) -> Token {
        let now = wall_clock().0;
        let place = (u64::from(process::id()) << 32) ^ self.engine.storage.log().current().0;
        let mut bytes = new_uuid().0;
        let mixed = bytes.iter_mut().zip(now.to_le_bytes().into_iter().chain(place.to_le_bytes()));
        mixed.for_each(|(byte, with)| *byte ^= with);
        Token(bytes)
    }

    /// Copies the pages to `data`, those that the base does not have already.
    fn copy_pages(&self, data: &dyn File, pages: u64, token: Token) -> Result<Copied, Storage> {
        let (mut stored, copier, rest) = (0, PageCopier::new(&self.engine.storage), || self.rest());
        let copied = if let Some(base) = self.base {
            let mut writer = IncrementWriter::new(data, token);
            let from_end = mutant("sabotage: an increment begins at the end of its base");
            let start = if from_end { base.end } else { base.start };
            // The LSN of a quarantined page may be older than its damage.
            let has_changed = |page: &[u8]| page_lsn(page) > start || page_type(page) == Some(PageType::Quarantined);
            let copied = copier.copy(pages, &rest, &mut |first, run| {
                let changed = (first.0..).zip(run.chunks_exact(PAGE_SIZE)).filter(|(_, page)| has_changed(page));
                for (number, page) in changed {
                    stored += 1;
                    writer.push(PageId(number), page)?;
                }
                Ok(())
            })?;
            writer.finish()?;
            copied
        } else {
            // The engine never writes a page home without space for it, so free pages need theirs too.
            data.allocate(0, pages * PAGE_SIZE as u64)?;
            copier.copy(pages, &rest, &mut |first, run| {
                let contents =
                    run.chunks_exact(PAGE_SIZE).filter(|page| page.iter().any(|&byte| byte != 0)).count() as u64;
                stored += contents;
                if contents > 0 { data.write_at(run, first.offset()) } else { Ok(()) }
            })?
        };
        Ok(Copied { stored, ..copied })
    }

    /// Returns the start of the copy, whose log ends at `end`: each page of it has all of its records up to there. By
    /// the argument of `crates/recovery/src/restart.rs` it has all from before the redo start. The first record from
    /// there on has the least LSN of these, since records are read in the order of their LSNs.
    fn start(&self, target: &Target, end: Lsn) -> Result<Lsn, Storage> {
        let SuperBlock { uuid, redo_start, .. } = *self.retained.superblock();
        let mut records = Follower::open(target.fs(), &target.files().log, uuid, redo_start)?.unconfirmed();
        Ok(records.read()?.map_or(end, |first| Lsn(first.lsn.0 - 1)))
    }

    /// Rests if others commit, and fails like [`go_on`](Self::go_on).
    fn rest(&self) -> Result<(), Storage> {
        self.pace.rest(|| self.go_on())
    }

    /// Fails if the database is no longer open, or the log is no longer retained.
    fn go_on(&self) -> Result<(), Storage> {
        self.engine.admission.check_open()?;
        if self.retained.is_complete() {
            return Ok(());
        }
        Err(Storage::DiskFull { path: self.engine.storage.files().log.clone(), held_by: None })
    }

    /// Returns the error of a backup. If the database was closed meanwhile, or its log truncated, the files have
    /// changed below the copy, which may cause any error. A damaged page is noted for the statistics.
    fn explain(&self, error: Storage) -> Error {
        let error = self.go_on().err().unwrap_or(error).into();
        self.engine.damage.note(&error);
        error
    }
}
