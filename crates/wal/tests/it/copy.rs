//! A copy of a log in use is a log with the same records, up to what was durable, wherever the original has its groups.

use crate::common::*;
use foreshore_base::{Error, GroupNo, Lsn};
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Mem, Sim};
use foreshore_wal::{ArchiveOptions, CopyTarget, Log, LogOptions, LoggedRecord};
use std::path::Path;
use std::sync::Arc;

const COPY: &str = "/copy";

fn copy(log: &Log, from: GroupNo, fs: &Arc<dyn Fs>) -> foreshore_base::Result<Lsn> {
    log.copy(from, &CopyTarget { fs, dir: Path::new(COPY), is_opened: true }, &mut || Ok(()))
        .map(|copied| copied.durable)
}

/// The records of the copy.
fn copied(fs: &Arc<dyn Fs>, from: GroupNo, options: &LogOptions) -> (Lsn, Vec<LoggedRecord>) {
    let (log, recovered) = Log::open(fs, Path::new(COPY), UUID, options).unwrap();
    assert_eq!(recovered.first_group(), from, "the copy begins there");
    let found = (recovered.end(), all(&recovered));
    // It goes on like any log.
    let mut session = log.session().unwrap();
    let lsn = append(&mut session, 99, &payload(99, 100)).unwrap();
    assert!(lsn > found.0);
    log.force(lsn).unwrap();
    found
}

/// Each run ends with a power loss, so the original has repeated groups and holes.
#[test]
fn a_copy_has_the_records_of_the_original_from_a_group_on() {
    for buffer in KINDS {
        for seed in 0..4 {
            let options = LogOptions { buffer: buffer.maker(), ..small() };
            let mut sim = Sim::new(seed);
            create(&(Arc::new(sim.clone()) as Arc<dyn Fs>), &options).unwrap();
            sim.sync_dir(Path::new("/")).unwrap();
            let mut tag = 0;
            for run in 0..5 {
                let fs: Arc<dyn Fs> = Arc::new(sim.clone());
                let (log, _) = open(&fs, &options).unwrap();
                let mut session = log.session().unwrap();
                let mut durable = Lsn::ZERO;
                for len in [10, 3000, 200, 9000, 50, 7000, 12_000, 1] {
                    let lsn = append(&mut session, tag, &payload(tag, len.min(log.max_record()))).unwrap();
                    tag += 1;
                    if tag % 3 != 0 {
                        log.force(lsn).unwrap();
                        durable = lsn;
                    }
                }
                let first = Log::FIRST_GROUP;
                let newest = GroupNo(log.next_group().0 - 1);
                for from in [first, GroupNo(newest.0.div_ceil(2)), newest] {
                    let to: Arc<dyn Fs> = Arc::new(Mem::null());
                    assert_eq!(copy(&log, from, &to).unwrap(), log.durable(), "{buffer:?} run {run}");
                    let (end, records) = copied(&to, from, &options);
                    assert!(end >= durable);
                    let (_, recovered) = open(&(Arc::new(sim.crash_image(&Persist::All, 1)) as _), &options).unwrap();
                    let mut expected = crate::common::from(&recovered, from);
                    expected.retain(|record| record.lsn <= end);
                    let same = records.iter().map(|record| (record.lsn, record.tag, &record.payload));
                    assert!(
                        same.eq(expected.iter().map(|record| (record.lsn, record.tag, &record.payload))),
                        "{buffer:?} run {run} from {from}: {} records of {}",
                        records.len(),
                        expected.len()
                    );
                }
                sim = sim.crash_image(&[Persist::None, Persist::All, Persist::Torn][run % 3], run as u64);
            }
        }
    }
}

/// The sync of a group fails, and the next start does not find it on the medium. Copies, the archive and followers read
/// the page cache, which may still have it. The start cannot repeat the group before it in its place, since that is too
/// long for the rest of the segment.
#[test]
fn a_group_that_only_the_page_cache_has_is_in_no_copy_no_archive_and_no_follower() {
    const FAILED: u64 = 7;
    let archive = Path::new("/archive");
    let mut dropped = 0;
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        fs.create_dir(archive).unwrap();
        let archived = |log: &Log| {
            log.archive_to(ArchiveOptions { fs: fs.clone(), dir: archive.to_owned(), limit: 0, budget: 1 << 20 })?;
            log.archive_all()
        };
        let log = fresh(&fs, &small());
        let mut session = log.session().unwrap();
        for tag in 0..FAILED {
            let lsn = append(&mut session, tag, &payload(tag, 8000)).unwrap();
            log.force(lsn).unwrap();
        }
        sim.set_buffered(true);
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::LateEio, sticky: true });
        let lsn = append(&mut session, FAILED, &payload(FAILED, 100)).unwrap();
        assert!(matches!(log.force(lsn), Err(Error::Poisoned { .. })));
        assert_eq!(sim.faults_met(), 1, "the group goes into the segment of those before");
        drop((session, log));
        sim.clear_faults();

        let (log, recovered) = open(&fs, &small()).unwrap();
        let mut expected = tags(&recovered);
        dropped += u32::from(expected.len() as u64 == FAILED);
        let mut session = log.session().unwrap();
        let lsn = append(&mut session, 8, &payload(8, 100)).unwrap();
        log.force(lsn).unwrap();
        expected.push(8);
        let to: Arc<dyn Fs> = Arc::new(Mem::null());
        copy(&log, Log::FIRST_GROUP, &to).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        let copied = copied(&to, Log::FIRST_GROUP, &small()).1;
        assert_eq!(copied.iter().map(|record| record.tag).collect::<Vec<_>>(), expected, "seed {seed}: the copy");
        let mut follower = log.follow(Log::FIRST_GROUP).unwrap();
        let followed: Vec<_> = std::iter::from_fn(|| follower.read().unwrap()).map(|record| record.tag).collect();
        assert_eq!(followed, expected, "seed {seed}: the follower");
        archived(&log).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        drop((follower, session, log));
        let (log, _) = open(&fs, &small()).unwrap();
        archived(&log).unwrap_or_else(|error| panic!("seed {seed}: the archive is of another log: {error:?}"));
    }
    assert!(dropped > 10, "the group was on the medium in all but {dropped} runs");
}

#[test]
fn a_copy_that_fails_is_no_log() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    for tag in 0..10 {
        let lsn = append(&mut session, tag, &payload(tag, 5000)).unwrap();
        log.force(lsn).unwrap();
    }
    let mut left = 5;
    let to = CopyTarget { fs: &fs, dir: Path::new(COPY), is_opened: true };
    let ended = log.copy(Log::FIRST_GROUP, &to, &mut || {
        left -= 1;
        if left > 0 { Ok(()) } else { Err(Error::Closed) }
    });
    assert!(matches!(ended, Err(Error::Closed)));
    assert_eq!(fs.kind(&Path::new(COPY).join("ctl")).unwrap(), None);
    let discarding = Log::discarding(&small()).unwrap();
    assert!(matches!(copy(&discarding, Log::FIRST_GROUP, &fs), Err(Error::InvalidOption(_))));
}
