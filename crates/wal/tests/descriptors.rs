//! A log of any length opens, and is read, with few descriptors: segments are opened one after the other. The test has
//! a process of its own, because it lowers the limit of descriptors.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

#[expect(dead_code, reason = "shared with other tests")]
mod common;

use common::*;
use foreshore_base::{GroupNo, Result};
use foreshore_io::{Disk, File, FileLayer, Fs, FsLayer};
use foreshore_wal::{Follower, Log, LogOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::sync::Arc;

/// Segments with log that counts.
const SEGMENTS: u64 = 1000;
const DESCRIPTORS: u64 = 256;

/// Files of a disk, without the time that it takes to make them durable.
#[derive(Debug)]
struct Quick(Disk);

#[derive(Debug)]
struct QuickFile(Arc<dyn File>);

impl FsLayer for Quick {
    fn below(&self) -> &dyn Fs {
        &self.0
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(QuickFile(file))
    }

    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }
}

impl FileLayer for QuickFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn write_durable(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(bytes, offset)
    }
}

#[test]
fn a_log_of_a_thousand_segments_opens_with_256_descriptors() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("descriptors-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let disk: Arc<dyn Fs> = Arc::new(Quick(Disk::buffered(&dir).expect("a disk")));
    let (place, options) = (dir.join("log"), LogOptions { ring_bytes: 1 << 20, ..small() });
    Log::create(&disk, &place, UUID, &options).expect("an empty directory takes a log");
    let (log, _) = Log::open(&disk, &place, UUID, &options).expect("a new log opens");
    let mut session = log.session().expect("one session");
    // Of such groups a segment takes two.
    let (bytes, many) = (payload(1, log.max_record()), 2 * SEGMENTS);
    for tag in 0..many {
        let lsn = append(&mut session, tag, &bytes).expect("there is space");
        log.force(lsn).expect("durable");
    }
    drop((session, log));
    let limit = Rlimit { current: Some(DESCRIPTORS), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("a lower limit is allowed");

    let (log, recovered) = Log::open(&disk, &place, UUID, &options).expect("it opens");
    let segments = std::fs::read_dir(&place).expect("a directory").count() as u64;
    assert!(segments >= SEGMENTS, "{segments} files");
    let tags: Vec<u64> = all(&recovered).iter().map(|record| record.tag).collect();
    assert_eq!(tags, (0..many).collect::<Vec<_>>());
    let mut follower = Follower::open(&disk, &place, UUID, GroupNo::ZERO).expect("a reader in another process");
    let mut followed = 0;
    while let Some(record) = follower.read().expect("sound") {
        assert_eq!(record.tag, followed);
        followed += 1;
    }
    // The last group is confirmed by the next one.
    assert!(followed + 1 >= many, "{followed}");
    drop((follower, recovered, log));
    std::fs::remove_dir_all(&dir).expect("its own directory");
}
