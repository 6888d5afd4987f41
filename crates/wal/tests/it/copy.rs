//! A copy of a log in use is a log with the same records, up to what was durable, wherever the original has its groups.

use crate::common::*;
use foreshore_base::{Error, GroupNo, Lsn};
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Mem, Sim};
use foreshore_wal::{CopyTarget, Log, LogOptions, LoggedRecord};
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
