//! The damaged pages of a closed database, and their new images in an overlay.

use crate::Result;
use crate::backup::read_header;
use crate::files::Files;
use crate::repair::report::{RepairRefusal, RepairSource, Repaired, RepairedPage, UnrepairedPage};
use crate::restore::Source;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, PageId, Place, TableId, TableRef, Uuid};
use foreshore_btree::Trees;
use foreshore_buffer::format::{Flaw, page_flags, page_lsn, page_table, page_type, verify_page};
use foreshore_buffer::{PageType, Pool, PoolOptions, Stamps, why_quarantined};
use foreshore_io::{AlignedBuf, File, Fs};
use foreshore_recovery::{PageRepair, RepairBase, check_restart};
use foreshore_space::{Growth, REGION_PAGES, Space, SpaceOptions, SuperBlock, map_of};
use foreshore_sync::model::mutant;
use foreshore_txn::ResourceManager;
use foreshore_wal::{Log, LogOptions};
use std::sync::Arc;

/// Pages read at once: 1 MiB.
const RUN: u64 = 128;
/// The first page that is none of a superblock.
const FIRST: u64 = 2;
/// Frames for the pages that are rebuilt. Others wait in the overlay.
const FRAMES: usize = 1024;

/// Most images in memory: 1 GiB.
const MAX_IMAGES: usize = 128 << 10;

/// A page whose home is refused. It may be free.
struct Suspect {
    pid: PageId,
    flaw: Flaw,
    why: &'static str,
    /// Its table, if its home tells.
    table: Option<TableId>,
    /// An LSN that its home has had.
    least: Lsn,
}

impl Suspect {
    /// Returns a suspect with what its home says. Its stamp is `least`.
    fn new(pid: PageId, home: &[u8], flaw: Flaw, least: Lsn) -> Self {
        let is_quarantined = flaw == Flaw::Content;
        let is_whole = is_quarantined || matches!(flaw, Flaw::Stale | Flaw::AheadOfLog);
        Self {
            pid,
            flaw,
            why: if is_quarantined { why_quarantined(page_flags(home)) } else { flaw.why() },
            table: is_whole.then(|| page_table(home)).filter(|&table| table != TableId::ZERO),
            least: if is_whole { least.max(page_lsn(home)) } else { least },
        }
    }
}

/// A closed database in an overlay, and its suspects.
pub(super) struct Pages {
    files: Files,
    overlay: Arc<dyn Fs>,
    data: Arc<dyn File>,
    superblock: SuperBlock,
    /// The end of the log.
    end: Lsn,
    pool: Pool,
    suspects: Vec<Suspect>,
}

impl Pages {
    /// Opens the files in the overlay.
    pub(super) fn open(files: &Files, overlay: &Arc<dyn Fs>, options: &LogOptions) -> Result<Self> {
        let data = overlay.open(&files.data)?;
        data.read_past_cache()?;
        let (superblock, older) = SuperBlock::read_newest(&*data)?;
        let stamps = Stamps::find(&**overlay, &files.stamps, superblock.uuid, superblock.seq)?;
        let (log, recovered) = Log::open(overlay, &files.log, superblock.uuid, options)?;
        check_restart(&recovered, &superblock)?;
        check_no_backup(files, overlay, older.is_some(), recovered.end())?;
        let (files, overlay) = (files.clone(), Arc::clone(overlay));
        let pool = open_pool(&files, &overlay, &data, &log, superblock.uuid)?;
        pool.restore_doublewrite(recovered.end())?;
        pool.stamps().open(stamps, &*overlay, &files.stamps, superblock.uuid, false);
        Ok(Self { files, overlay, data, superblock, end: recovered.end(), pool, suspects: Vec::new() })
    }

    /// Reads all pages, and notes those that are refused.
    pub(super) fn find(&mut self) -> Result<()> {
        self.read_all()?;
        // Without stamps: images are rebuilt from below them.
        let log = self.pool.log().clone();
        self.pool = open_pool(&self.files, &self.overlay, &self.data, &log, self.superblock.uuid)?;
        Ok(())
    }

    pub(super) fn uuid(&self) -> Uuid {
        self.superblock.uuid
    }

    /// Returns the end of the log.
    pub(super) fn end(&self) -> Lsn {
        self.end
    }

    /// Copies the new image of a page.
    pub(super) fn copy(&self, pid: PageId, page: &mut [u8]) -> Result<(), Error> {
        self.pool.copy_page(pid, page).map(drop)
    }

    fn count(&self) -> Result<u64, Error> {
        Ok(self.data.len()?.div_ceil(PAGE_SIZE as u64))
    }

    fn read_all(&mut self) -> Result<(), Error> {
        let (count, mut buf) = (self.count()?, AlignedBuf::new(RUN as usize * PAGE_SIZE));
        for first in (FIRST..count).step_by(RUN as usize) {
            let run = &mut buf[..RUN.min(count - first) as usize * PAGE_SIZE];
            let read = self.data.read_at(run, PageId(first).offset());
            for (pid, page) in (first..).map(PageId).zip(run.chunks_exact_mut(PAGE_SIZE)) {
                let at = (pid.0 - first) as usize * PAGE_SIZE;
                // If the read of a run fails, each page is read alone.
                let len = match &read {
                    Ok(read) => Ok(read.saturating_sub(at).min(PAGE_SIZE)),
                    Err(_) => self.data.read_at(page, pid.offset()),
                };
                self.suspects.extend(self.suspect(pid, page, len.ok()));
            }
        }
        Ok(())
    }

    /// Returns why a page is refused that was read into `page`, if it could be read.
    fn suspect(&self, pid: PageId, page: &[u8], len: Option<usize>) -> Option<Suspect> {
        let least = self.pool.stamps().least(pid, self.end);
        let Some(len) = len else {
            let unread = Suspect::new(pid, page, Flaw::Checksum, least);
            return Some(Suspect { why: "the page cannot be read", ..unread });
        };
        let flaw = match verify_page(&page[..len], pid, self.end) {
            Err(flaw) => flaw,
            Ok(()) if page_type(page) == Some(PageType::Quarantined) => Flaw::Content,
            Ok(()) if Stamps::is_stale(page, least) => Flaw::Stale,
            Ok(()) => return None,
        };
        Some(Suspect::new(pid, page, flaw, least))
    }

    /// Rebuilds the suspects in the overlay, and judges them. `fs` has the files below the overlay.
    pub(super) fn rebuild(&self, source: &Source, fs: &Arc<dyn Fs>) -> Result<Repaired> {
        let mut repaired = Repaired { pages: self.count()?, repaired: Vec::new(), unrepaired: Vec::new() };
        if self.suspects.is_empty() {
            return Ok(repaired);
        }
        let options = SpaceOptions { growth: Growth::AHEAD, background: false };
        let space = Arc::new(Space::new(self.pool.clone(), Arc::clone(&self.data), options));
        let trees = Trees::new(self.pool.clone(), Arc::clone(&space));
        let redo_start = source.superblock().redo_start;
        let mut repair = PageRepair::new(&self.files.log, &self.pool, &trees as &dyn ResourceManager, redo_start);
        (0..self.count()?)
            .step_by(REGION_PAGES as usize)
            .for_each(|pid| repair.add(map_of(PageId(pid)), RepairBase::Home));
        let mut images = 0;
        for suspect in &self.suspects {
            let (base, is_put) = self.put_base(suspect, source)?;
            repair.add(suspect.pid, base);
            images += usize::from(is_put);
            self.check_memory(images)?;
        }
        Log::read_history(source.log(), (fs, self.files.log.as_path()), &mut |event| {
            repair.apply(&event)?;
            self.check_memory(images + repair.begun())
        })?;
        let judged = self.suspects.iter().map(|suspect| self.judge(suspect, &repair)).collect::<Result<Vec<_>, _>>()?;
        for (suspect, _) in self.suspects.iter().zip(&judged).filter(|(_, judged)| judged.is_err()) {
            if suspect.pid == map_of(suspect.pid) {
                // Its image is that of an earlier moment.
                let mut map = self.pool.exclusive_or_quarantined(suspect.pid)?;
                map.quarantine(Flaw::Content, TableId::ZERO);
                map.mark_dirty();
            }
        }
        // In the overlay, as at a start. A map that is not repaired is made anew there: all pages are in use.
        space.load()?;
        for (suspect, judged) in self.suspects.iter().zip(judged) {
            match judged {
                Ok(page) if self.is_damaged(suspect, &repair, &space, None)? => repaired.repaired.push(page),
                Err(page) if self.is_damaged(suspect, &repair, &space, Some(&page.why))? => {
                    repaired.unrepaired.push(page);
                }
                _ => {}
            }
        }
        Ok(repaired)
    }

    /// Puts the image of a page in the backup in the place of its home, or zeros if there is no sound one. Also returns
    /// whether that takes memory.
    fn put_base(&self, suspect: &Suspect, source: &Source) -> Result<(RepairBase, bool), Error> {
        let (pid, mut page) = (suspect.pid, AlignedBuf::new(PAGE_SIZE));
        // A page that cannot be read has no image, either.
        let base = match source.data().read_at(&mut page, pid.offset()) {
            // A page behind the end of the file was not in use.
            Ok(_) => match verify_page(&page, pid, self.end) {
                // Its LSN tells the records that it has, so a later one may initialise it.
                Ok(()) if page_type(&page) == Some(PageType::Quarantined) => RepairBase::Nothing,
                Ok(()) => RepairBase::Backup,
                Err(Flaw::NeverWritten) => RepairBase::Nothing,
                Err(_) => RepairBase::Damaged,
            },
            Err(_) => RepairBase::Damaged,
        };
        if base == RepairBase::Damaged {
            page.fill(0);
        }
        // Zeros replace no zeros, which would take memory.
        let is_put = suspect.flaw != Flaw::NeverWritten || page.iter().any(|&byte| byte != 0);
        if is_put {
            self.data.write_at(&page, pid.offset())?;
        }
        Ok((base, is_put))
    }

    /// Refuses more new images than the overlay may hold.
    fn check_memory(&self, images: usize) -> Result<(), Error> {
        let why = "more than 131072 pages need new images, which a repair holds in memory: restore the database";
        match images <= MAX_IMAGES {
            true => Ok(()),
            false => Err(Error::corrupted(&self.files.data, Place::File, why)),
        }
    }

    /// Whether a suspect is in use, and not just without its first write. `why` tells why it cannot be repaired. A free
    /// page that redo would meet counts, too, if it can be: redo would quarantine it.
    fn is_damaged(
        &self,
        at: &Suspect,
        repair: &PageRepair<'_>,
        space: &Space,
        why: Option<&RepairRefusal>,
    ) -> Result<bool, Error> {
        let (pid, redo_start) = (at.pid, self.superblock.redo_start);
        let progress = repair.page(pid).expect("each suspect was added");
        let has_no_flaw = matches!(why, None | Some(RepairRefusal::NoImage | RepairRefusal::Gap { .. }));
        if at.flaw == Flaw::NeverWritten && progress.initialised >= redo_start && has_no_flaw {
            // A restart makes it anew.
            return Ok(false);
        }
        if !space.is_in_use(pid)? {
            return Ok(why.is_none() && progress.last >= redo_start);
        }
        // Of a region whose map was damaged once, as for a check. Without its map a page may be in use.
        let has_image = |pid| {
            let base = repair.page(pid).map(|page| page.base);
            !matches!(base, Some(RepairBase::Nothing | RepairBase::Damaged | RepairBase::Gap(..)))
        };
        let is_blank = at.flaw == Flaw::NeverWritten && !has_image(pid) && has_image(map_of(pid));
        Ok(!(is_blank && space.may_be_unused(pid)?))
    }

    /// Returns a suspect as repaired, or why it is not.
    fn judge(&self, suspect: &Suspect, repair: &PageRepair<'_>) -> Result<Result<RepairedPage, UnrepairedPage>, Error> {
        let &Suspect { pid: page, why: damage, table, least, .. } = suspect;
        let refused = |table: Option<TableId>, why| {
            Ok(Err(UnrepairedPage { page, table: table.map(TableRef::from), damage, why }))
        };
        let progress = *repair.page(page).expect("each suspect was added");
        let source = match progress.base {
            RepairBase::Nothing | RepairBase::Damaged => return refused(table, RepairRefusal::NoImage),
            RepairBase::Gap(missing, next) if !mutant("sabotage: a repair passes over missing log") => {
                return refused(table, RepairRefusal::Gap { missing, next });
            }
            RepairBase::Backup | RepairBase::Gap(..) => RepairSource::Backup,
            RepairBase::Home | RepairBase::Log => RepairSource::Log,
        };
        let mut image = AlignedBuf::new(PAGE_SIZE);
        let lsn = match self.pool.copy_page(page, &mut image) {
            Err(Error::Corrupted { .. }) => return refused(table, RepairRefusal::Contradiction),
            lsn => lsn?,
        };
        let table = Some(page_table(&image)).filter(|&table| table != TableId::ZERO);
        if page_type(&image) == Some(PageType::Quarantined) {
            return refused(table, RepairRefusal::Contradiction);
        }
        if lsn < least && !mutant("sabotage: a repair takes a page below its stamp") {
            return refused(table, RepairRefusal::LostLog { end: lsn, wanted: least });
        }
        if table.is_some_and(|table| repair.is_passed(table)) {
            return refused(table, RepairRefusal::SkippedUndo);
        }
        let (table, changes) = (table.map(TableRef::from), progress.changes);
        Ok(Ok(RepairedPage { page, table, damage, source, changes, lsn }))
    }
}

/// Refuses a backup that was never opened: it has the name of one, a single superblock, and no log behind its end.
fn check_no_backup(files: &Files, fs: &Arc<dyn Fs>, has_older: bool, end: Lsn) -> Result<()> {
    let header = read_header(files, &**fs).ok().flatten();
    // An open makes the stamps.
    let was_opened = has_older || fs.kind(&files.stamps)?.is_some();
    if header.is_some_and(|header| header.end == end) && !was_opened {
        let why = "it is a backup: repair the database that it was restored to";
        return Err(crate::Error::Foreign { path: files.token.clone(), why });
    }
    Ok(())
}

/// Opens a pool over the files in the overlay.
fn open_pool(files: &Files, overlay: &Arc<dyn Fs>, data: &Arc<dyn File>, log: &Log, uuid: Uuid) -> Result<Pool, Error> {
    let options = PoolOptions { frames: FRAMES, background: false, ..PoolOptions::default() };
    Pool::open(Arc::clone(data), overlay.open(&files.doublewrite)?, uuid, log.clone(), &options)
}
