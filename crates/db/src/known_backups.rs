//! The backups that a database knows: an increment may continue these alone.
//!
//! A base is right only if the pages that it has are of the history of this database. The uuid does not show that. An
//! older copy of the files has it too, and goes on otherwise under the same LSNs. So each backup draws a random token.
//! The token is durable in the file `backups` before the backup ends, and behind everything that the backup has. So a
//! database that has the token has the history of the backup.
//!
//! The other files may be put back, and go on otherwise, while the file stays. So the superblock names the newest
//! backup that was known when its checkpoint was taken, and the run that took it. Backups behind that one count only if
//! they were made by this run behind a superblock of its own.
//!
//! The file is replaced as a whole. If it is missing, damaged, unreadable or of another database, no backup is known,
//! and the next one is a full one.

use crate::create::new_uuid;
use crate::format::backups::{BackupHeader, KnownBackup, MAX_KNOWN, decode_known, encode_known};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Lsn, Result, Uuid};
use foreshore_io::{AlignedBuf, Fs};
use foreshore_space::BackupMark;
use foreshore_sync::model::mutant;
use foreshore_sync::{LockRank, Mutex, pause};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The newest backups of a database, oldest first.
pub(crate) struct KnownBackups {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    uuid: Uuid,
    /// Held while the file is replaced, which only backups do, at their ends.
    list: Mutex<Vec<KnownBackup>>,
}

impl KnownBackups {
    /// Reads the list at `path` of a database whose log ends at `end`. `id` is what the superblock says. Forgets
    /// backups of another history.
    ///
    /// Forgets those with log behind the end, too: the other files were put back to an earlier state, or the medium has
    /// lost the end of the log. Called before the log grows.
    ///
    /// # Errors
    /// Those of removing the file, if a backup is forgotten and the file cannot be replaced.
    pub(crate) fn open(fs: &Arc<dyn Fs>, path: &Path, id: (Uuid, BackupMark), end: Lsn) -> Result<Self> {
        let (uuid, BackupMark { last, run }) = id;
        let found = read(&**fs, path, uuid).unwrap_or_default();
        let named = found.iter().rposition(|backup| backup.token.0 == last && last != [0; 16]);
        let named = named.map_or(0, |at| at + 1);
        let knows_all = mutant("sabotage: files that are put back know later backups");
        let is_ours =
            |at: usize, backup: &KnownBackup| at < named || (backup.run == run && run != [0; 16]) || knows_all;
        let kept = found.iter().enumerate().filter(|&(at, backup)| is_ours(at, backup) && backup.end <= end);
        let kept: Vec<_> = kept.map(|(_, backup)| *backup).collect();
        let (fs, path, is_shorter) = (Arc::clone(fs), path.to_owned(), kept.len() < found.len());
        let known = Self { fs, path, uuid, list: Mutex::new(LockRank::KnownBackups, kept) };
        if is_shorter && known.write(&known.list.lock()).is_err() {
            // A full disk keeps no database from its open.
            known.list.lock().clear();
            known.fs.remove(&known.path)?;
            known.fs.sync_dir(known.path.parent().expect("a file has a directory"))?;
        }
        Ok(known)
    }

    /// Returns what the next superblock says: the newest backup, and a new run.
    pub(crate) fn mark(&self) -> BackupMark {
        let last = self.list.lock().last().map_or([0; 16], |backup| backup.token.0);
        BackupMark { last, run: new_uuid().0 }
    }

    /// Returns the backup with this header.
    pub(crate) fn find(&self, header: &BackupHeader) -> Option<KnownBackup> {
        let BackupHeader { uuid, token, start, end, .. } = *header;
        let is_it = |known: &&KnownBackup| (known.token, known.start, known.end) == (token, start, end);
        self.list.lock().iter().find(is_it).filter(|_| uuid == self.uuid).copied()
    }

    /// Adds a backup, durably. The oldest one is forgotten if there are too many.
    pub(crate) fn add(&self, backup: KnownBackup) -> Result<()> {
        let mut list = self.list.lock();
        let oldest = (list.len() + 1).saturating_sub(MAX_KNOWN);
        let longer: Vec<_> = list[oldest..].iter().copied().chain([backup]).collect();
        self.write(&longer)?;
        *list = longer;
        Ok(())
    }

    fn write(&self, list: &[KnownBackup]) -> Result<()> {
        let prepared = self.path.with_extension("tmp");
        if self.fs.kind(&prepared)?.is_some() {
            self.fs.remove(&prepared)?;
        }
        let mut block = AlignedBuf::new(BLOCK);
        encode_known(&mut block, self.uuid, list);
        let file = self.fs.create(&prepared)?;
        file.write_at(&block, 0)?;
        file.sync()?;
        pause::point("backup: the list of backups is prepared");
        self.fs.rename(&prepared, &self.path)?;
        self.fs.sync_dir(self.path.parent().expect("a file has a directory"))
    }
}

/// Returns the list of the database `uuid`, if it is there and sound.
fn read(fs: &dyn Fs, path: &Path, uuid: Uuid) -> Option<Vec<KnownBackup>> {
    fs.kind(path).ok()??;
    let mut block = AlignedBuf::new(BLOCK);
    let len = fs.open(path).ok()?.read_at(&mut block, 0).ok()?;
    decode_known(&block[..len]).ok().filter(|(of, _)| *of == uuid).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::backups::Token;
    use foreshore_io::sim::{Fault, FaultKind};
    use foreshore_io::{Mem, Sim};

    fn backup(number: u8) -> KnownBackup {
        let (start, end) = (Lsn(u64::from(number)), Lsn(10 + u64::from(number)));
        KnownBackup { token: Token([number; 16]), run: [number / 10; 16], start, end }
    }

    /// Opens the list of a database whose superblock names a backup and a run.
    fn open(fs: &Arc<dyn Fs>, (uuid, last, run): (u8, u8, u8), end: u64) -> KnownBackups {
        let mark = BackupMark { last: [last; 16], run: [run; 16] };
        KnownBackups::open(fs, Path::new("/db/backups"), (Uuid([uuid; 16]), mark), Lsn(end)).unwrap()
    }

    fn numbers(known: &KnownBackups) -> Vec<u8> {
        (0..30).filter(|&n| known.find(&header(known.uuid, backup(n))) == Some(backup(n))).collect()
    }

    fn header(uuid: Uuid, KnownBackup { token, start, end, .. }: KnownBackup) -> BackupHeader {
        BackupHeader { uuid, token, base: None, start, end, pages: 9, stored: 9 }
    }

    #[test]
    fn the_newest_are_known_as_far_as_the_log_reaches() {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        fs.create_dir(Path::new("/db")).unwrap();
        let known = open(&fs, (1, 0, 0), 0);
        known.add(backup(1)).unwrap();
        let it = header(known.uuid, backup(1));
        assert_eq!(known.find(&it), Some(backup(1)));
        for other in [
            BackupHeader { uuid: Uuid([2; 16]), ..it },
            BackupHeader { token: Token([2; 16]), ..it },
            BackupHeader { start: Lsn(2), ..it },
            BackupHeader { end: Lsn(12), ..it },
        ] {
            assert_eq!(known.find(&other), None, "{other:?}");
        }
        (1..=20).for_each(|n| known.add(backup(n)).unwrap());
        assert_eq!(numbers(&known), (5..=20).collect::<Vec<u8>>());
        assert_eq!(known.mark().last, [20; 16]);
        assert_ne!(known.mark().run, known.mark().run);
        assert_eq!(numbers(&open(&fs, (1, 20, 9), 30)), (5..=20).collect::<Vec<u8>>());
        assert!(numbers(&open(&fs, (2, 20, 9), 30)).is_empty(), "of another database");
        assert_eq!(numbers(&open(&fs, (1, 20, 9), 17)), (5..=7).collect::<Vec<u8>>());
        assert_eq!(numbers(&open(&fs, (1, 7, 9), 30)), (5..=7).collect::<Vec<u8>>(), "they are forgotten for good");
        fs.open(Path::new("/db/backups")).unwrap().write_at(&[1], 41).unwrap();
        assert!(numbers(&open(&fs, (1, 7, 9), 30)).is_empty(), "a damaged list");
    }

    /// Of those behind the one that the superblock names, only those of its run are.
    #[test]
    fn those_of_another_history_are_forgotten() {
        for (last, run, (first, count)) in [
            (20, 9, (5, 16)),
            (20, 2, (5, 16)),
            (14, 9, (5, 10)),
            (14, 1, (5, 15)),
            (9, 1, (5, 15)),
            (4, 2, (20, 1)),
            (0, 2, (20, 1)),
            (0, 0, (1, 0)),
            (0, 9, (1, 0)),
        ] {
            let fs: Arc<dyn Fs> = Arc::new(Mem::null());
            fs.create_dir(Path::new("/db")).unwrap();
            let known = open(&fs, (1, 0, 0), 0);
            (5..=20).for_each(|n| known.add(backup(n)).unwrap());
            let known = numbers(&open(&fs, (1, last, run), 30));
            assert_eq!(known, (first..).take(count).collect::<Vec<u8>>(), "behind {last}, in run {run}");
        }
    }

    /// If a list cannot be replaced by a shorter one, it is removed.
    #[test]
    fn a_full_disk_keeps_no_database_from_its_open() {
        let sim = Sim::new(1);
        sim.create_dir(Path::new("/db")).unwrap();
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        (1..=3).for_each(|n| open(&fs, (1, n - 1, 0), 30).add(backup(n)).unwrap());
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
        assert!(numbers(&open(&fs, (1, 3, 0), 12)).is_empty());
        assert!(sim.faults_met() > 0);
        sim.clear_faults();
        assert!(numbers(&open(&fs, (1, 3, 0), 30)).is_empty(), "they are forgotten for good");
    }
}
