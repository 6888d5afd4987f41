//! The backups that a database knows: an increment may continue these alone.
//!
//! A base is right only if the pages that it has are of the history of this database. The uuid does not show that. An
//! older copy of the files has it too, and goes on otherwise under the same LSNs. So each backup draws a random token.
//! The token is durable in the file `backups` before the backup ends, and behind everything that the backup has. So a
//! database that has the token has the history of the backup.
//!
//! The file is replaced as a whole. If it is missing, damaged, unreadable or of another database, no backup is known,
//! and the next one is a full one.

use crate::format::backups::{BackupHeader, KnownBackup, MAX_KNOWN, decode_known, encode_known};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Lsn, Result, Uuid};
use foreshore_io::{AlignedBuf, Fs};
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
    /// Reads the list at `path` of a database whose log ends at `end`. Forgets backups with log behind that: the other
    /// files were put back to an earlier state, or the medium has lost the end of the log. Called before the log grows.
    ///
    /// # Errors
    /// Those of replacing the file, if a backup is forgotten.
    pub(crate) fn open(fs: &Arc<dyn Fs>, path: &Path, uuid: Uuid, end: Lsn) -> Result<Self> {
        let found = read(&**fs, path, uuid).unwrap_or_default();
        let kept: Vec<_> = found.iter().copied().filter(|backup| backup.end <= end).collect();
        let (fs, path, is_shorter) = (Arc::clone(fs), path.to_owned(), kept.len() < found.len());
        let known = Self { fs, path, uuid, list: Mutex::new(LockRank::KnownBackups, kept) };
        if is_shorter {
            known.write(&known.list.lock())?;
        }
        Ok(known)
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
    use foreshore_io::Mem;

    fn backup(number: u8) -> KnownBackup {
        KnownBackup { token: Token([number; 16]), start: Lsn(u64::from(number)), end: Lsn(10 + u64::from(number)) }
    }

    fn header(uuid: Uuid, KnownBackup { token, start, end }: KnownBackup) -> BackupHeader {
        BackupHeader { uuid, token, base: None, start, end, pages: 9, stored: 9 }
    }

    #[test]
    fn the_newest_are_known_as_far_as_the_log_reaches() {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        fs.create_dir(Path::new("/db")).unwrap();
        let open = |uuid, end| KnownBackups::open(&fs, Path::new("/db/backups"), Uuid([uuid; 16]), Lsn(end)).unwrap();
        let numbers = |known: &KnownBackups| -> Vec<u8> {
            (0..30).filter(|&n| known.find(&header(known.uuid, backup(n))) == Some(backup(n))).collect()
        };
        let known = open(1, 0);
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
        assert_eq!(numbers(&open(1, 30)), (5..=20).collect::<Vec<u8>>());
        assert!(numbers(&open(2, 30)).is_empty(), "of another database");
        assert_eq!(numbers(&open(1, 17)), (5..=7).collect::<Vec<u8>>());
        assert_eq!(numbers(&open(1, 30)), (5..=7).collect::<Vec<u8>>(), "they are forgotten for good");
        fs.open(Path::new("/db/backups")).unwrap().write_at(&[1], 41).unwrap();
        assert!(numbers(&open(1, 30)).is_empty(), "a damaged list");
    }
}
