//! A log followed while it is written: in its own process, and from another one. The tests have a process of their own,
//! because a child that is about to start has the descriptors of its parent, and with them the locks of other tests.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

#[expect(dead_code, reason = "shared with other tests")]
mod common;

use common::*;
use foreshore_base::{Error, GroupNo, Lsn};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::{Disk, Fs, Mem, ReadOnly};
use foreshore_sync::primitive::thread;
use foreshore_wal::{Dep, Follower, Log, LogOptions, LoggedRecord, Record, flags};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CHILD_DIR: &str = "FORESHORE_TEST_FOLLOW_DIR";
const ROLE: &str = "FORESHORE_TEST_FOLLOW_ROLE";
const LONG: Duration = Duration::from_secs(60);

fn key(record: &LoggedRecord) -> (Lsn, u64) {
    (record.lsn, record.tag)
}

/// Reads until a record has the tag `last`.
fn read_until(follower: &mut Follower, last: u64) -> Vec<(Lsn, u64)> {
    let mut found = Vec::new();
    loop {
        while let Some(record) = follower.read().unwrap() {
            assert!(record.payload == payload(record.tag, record.payload.len()));
            found.push(key(&record));
            if record.tag == last {
                return found;
            }
        }
        assert!(follower.wait(LONG).unwrap(), "nothing came in a minute, {} records so far", found.len());
    }
}

#[test]
fn a_thread_follows_all_that_becomes_durable_and_nothing_else() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 400;
    for buffer in [BufferKind::Lanes, BufferKind::Faa] {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let options = LogOptions { buffer: buffer.maker(), background: true, ..small() };
        let log = fresh(&fs, &options);
        let mut follower = log.follow(GroupNo::ZERO).unwrap();
        assert!(follower.read().unwrap().is_none());
        assert!(!follower.wait(Duration::ZERO).unwrap());
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let log = log.clone();
                thread::spawn(move || {
                    let mut session = log.session().unwrap();
                    for i in 0..EACH {
                        let tag = writer << 32 | i;
                        let lsn = append(&mut session, tag, &payload(tag, (i as usize * 37) % 600)).unwrap();
                        log.flush_soon(&mut session, lsn);
                    }
                })
            })
            .collect();
        let mut found = Vec::new();
        while found.len() < (WRITERS * EACH) as usize {
            while let Some(record) = follower.read().unwrap() {
                assert!(record.lsn <= log.durable(), "{} was handed out before it was durable", record.lsn);
                found.push(key(&record));
            }
            if found.len() < (WRITERS * EACH) as usize {
                assert!(follower.wait(LONG).unwrap());
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        log.close().unwrap();
        drop(log);
        assert!(found.is_sorted_by_key(|&(lsn, _)| lsn));
        found.sort_unstable();
        let mut expected: Vec<_> = all(&open(&fs, &options).unwrap().1).iter().map(key).collect();
        expected.sort_unstable();
        assert!(found == expected, "{buffer}");
    }
}

#[test]
fn what_is_appended_and_not_durable_is_not_followed() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let log = fresh(&fs, &small());
    let mut follower = log.follow(GroupNo::ZERO).unwrap();
    let mut session = log.session().unwrap();
    let lsn = append(&mut session, 1, b"one").unwrap();
    assert!(follower.read().unwrap().is_none() && !follower.wait(Duration::from_millis(1)).unwrap());
    log.force(lsn).unwrap();
    assert!(follower.wait(Duration::ZERO).unwrap());
    assert_eq!(follower.read().unwrap().map(|record| record.lsn), Some(lsn));
    assert!(follower.read().unwrap().is_none());
    // A follower that only reads files waits for the next group, unless it reads unconfirmed records.
    let mut files = Follower::open(&fs, &dir(), UUID, GroupNo::ZERO).unwrap();
    assert!(files.read().unwrap().is_none());
    let mut hasty = Follower::open(&fs, &dir(), UUID, GroupNo::ZERO).unwrap().unconfirmed();
    assert_eq!(hasty.read().unwrap().map(|record| record.lsn), Some(lsn));
    let next = append(&mut session, 2, b"two").unwrap();
    log.force(next).unwrap();
    assert!(files.wait(Duration::ZERO).unwrap());
    assert_eq!(files.read().unwrap().map(|record| record.lsn), Some(lsn));
    assert_eq!(files.resume_at(), GroupNo(2));
    assert_eq!(log.follow(GroupNo(2)).unwrap().read().unwrap().map(|record| record.lsn), Some(next));
}

#[test]
fn a_wait_ends_when_the_log_stops() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let log = fresh(&fs, &small());
    let mut follower = log.follow(GroupNo::ZERO).unwrap();
    assert!(follower.read().unwrap().is_none());
    let waiter = thread::spawn(move || follower.wait(LONG));
    log.poison(&Error::Closed);
    // No flusher runs that would call it.
    log.acknowledge_all();
    assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
    let log = Log::discarding(&small()).unwrap();
    assert!(matches!(log.follow(GroupNo::ZERO), Err(Error::InvalidOption { .. })));
}

#[test]
fn large_records_and_truncation_under_a_follower() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let log = fresh(&fs, &LogOptions { buffer: None, ..small() });
    let (mut follower, mut slow) = (log.follow(GroupNo::ZERO).unwrap(), log.follow(GroupNo::ZERO).unwrap());
    let mut session = log.session().unwrap();
    for tag in 0..8 {
        let group = log.next_group();
        let bytes = payload(tag, 50_000);
        let record = Record { tag, flags: flags::COMMIT, parts: &[&bytes] };
        let lsn = session.append_large(record, Dep::none()).unwrap();
        log.force(lsn).unwrap();
        let found = follower.read().unwrap().expect("durable");
        assert_eq!((found.lsn, found.tag, found.payload == bytes), (lsn, tag, true));
        assert!(follower.read().unwrap().is_none());
        log.truncate(group).unwrap();
        log.prepare_step();
    }
    let end = loop {
        match slow.read() {
            Ok(record) => assert!(record.is_some(), "the end of what is kept was read as the end of the log"),
            Err(error) => break error,
        }
    };
    assert!(matches!(end, Error::LogTruncated { .. }), "{end:?}");
    assert!(matches!(log.follow(GroupNo(1)), Err(Error::LogTruncated { wanted: GroupNo(1), .. })));
}

/// Two sessions append alternately, each with tags of its own, while the log is truncated close behind them. A run ends
/// with a close; the next one opens the log again. Returns how many records each session has appended. The last record
/// is alone in its group.
fn write_and_truncate(fs: &Arc<dyn Fs>, options: &LogOptions, runs: u64) -> u64 {
    let mut next = 0;
    for run in 0..runs {
        let (log, _) = open(fs, options).unwrap();
        let mut sessions = [log.session().unwrap(), log.session().unwrap()];
        for i in 0..600 {
            for (own, session) in sessions.iter_mut().enumerate() {
                let tag = (own as u64) << 32 | next;
                let lsn = append(session, tag, &payload(tag, (tag as usize * 131) % 2500)).unwrap();
                log.flush_soon(session, lsn);
            }
            next += 1;
            // Now and then the truncation is far enough behind for a follower to keep up.
            if i % (20 << (2 * (run % 3))) == 0 {
                log.truncate(log.next_group()).unwrap();
            }
        }
        log.close().unwrap();
        assert!(log.stats().segments_recycled > 2, "segments are used again");
    }
    let (log, _) = open(fs, options).unwrap();
    let mut sessions = [log.session().unwrap(), log.session().unwrap()];
    for tag in [next, 1 << 32 | next, next + 1, 1 << 32 | (next + 1)] {
        let lsn = append(&mut sessions[(tag >> 32) as usize], tag, &payload(tag, 10)).unwrap();
        log.force(lsn).unwrap();
    }
    next + 2
}

#[test]
fn a_follower_reads_on_or_learns_that_it_is_too_late() {
    for (buffer, hasty) in [(BufferKind::Lanes, false), (BufferKind::Faa, false), (BufferKind::Lanes, true)] {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let options = LogOptions { buffer: buffer.maker(), in_flight: 3, background: true, ..small() };
        create(&fs, &options).unwrap();
        let follow = || {
            let follower = Follower::open(&fs, &dir(), UUID, GroupNo::ZERO).unwrap();
            if hasty { follower.unconfirmed() } else { follower }
        };
        let (mut follower, mut late) = (follow(), 0);
        let writer = {
            let (fs, options) = (fs.clone(), options.clone());
            thread::spawn(move || write_and_truncate(&fs, &options, 12))
        };
        // The next tag of each session, unless something was missed.
        let (mut next, mut last) = ([Some(0), Some(0)], Lsn::ZERO);
        let mut over = false;
        loop {
            match follower.read() {
                Ok(Some(record)) => {
                    assert!(record.lsn >= last, "{} after {last}", record.lsn);
                    assert!(record.payload == payload(record.tag, record.payload.len()), "{buffer}: wrong bytes");
                    let (own, tag) = ((record.tag >> 32) as usize, record.tag & 0xffff_ffff);
                    assert!(next[own].is_none_or(|next| next == tag), "{buffer}: {tag} in place of {:?}", next[own]);
                    (next[own], last) = (Some(tag + 1), record.lsn);
                }
                // Reads once more, for records that were written between the last read and the end.
                Ok(None) if over => break,
                Ok(None) => {
                    over = writer.is_finished();
                    // The next read returns the same error.
                    let _ = follower.wait(Duration::from_millis(1)).map_err(truncated);
                }
                Err(error) => {
                    truncated(error);
                    (follower, next, late) = (follow(), [None; 2], late + 1);
                }
            }
        }
        let written = writer.join().unwrap();
        // Without a later group the last one is not returned.
        let ends = [written, if hasty { written } else { written - 1 }].map(Some);
        assert_eq!(next, ends, "{buffer}, hasty {hasty}, late {late} times");
    }
}

/// Checks that the error is `LogTruncated`, the only one that a truncation may cause.
fn truncated(error: Error) {
    assert!(matches!(error, Error::LogTruncated { .. }), "{error:?}");
}

fn on_disk() -> LogOptions {
    LogOptions { segment_bytes: 256 << 10, background: true, ..small() }
}

/// A fresh directory for a log.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

/// Runs this program again, as one of the children below.
fn child(role: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_of_another_test", "--nocapture"])
        .env(ROLE, role)
        .env(CHILD_DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs in the children of the next tests. On its own it tests nothing.
#[test]
fn child_of_another_test() {
    let (Some(dir), Ok(role)) = (std::env::var_os(CHILD_DIR), std::env::var(ROLE)) else { return };
    match &*role {
        "reader" => read_for_the_parent(Path::new(&dir)),
        _ => write_until_killed(Path::new(&dir)),
    }
}

/// Follows the log and prints what it reads, to the record that says it is the last.
fn read_for_the_parent(dir: &Path) {
    let fs: Arc<dyn Fs> = Arc::new(ReadOnly::new(dir).unwrap());
    let mut follower = Follower::open(&fs, dir, UUID, GroupNo::ZERO).unwrap();
    for (lsn, tag) in read_until(&mut follower, u64::from(u32::MAX)) {
        println!("\nread:{} {tag}", lsn.0);
    }
}

/// Appends, forces and prints what is acknowledged, until it is killed.
fn write_until_killed(dir: &Path) {
    let fs: Arc<dyn Fs> = Arc::new(Disk::auto(dir).unwrap());
    let (log, recovered) = Log::open(&fs, dir, UUID, &on_disk()).unwrap();
    let first = recovered.max_lsn().0;
    let mut session = log.session().unwrap();
    for i in 1.. {
        let tag = first << 24 | i;
        let lsn = append(&mut session, tag, &payload(tag, (i as usize * 91) % 3000)).unwrap();
        log.force(lsn).unwrap();
        println!("\nacked:{} {tag}", lsn.0);
        std::io::stdout().flush().unwrap();
    }
}

/// The pairs of numbers in lines that begin with `mark`.
fn pairs(output: impl Read, mark: &'static str) -> impl Iterator<Item = (Lsn, u64)> {
    // A killed child may leave half a line.
    BufReader::new(output).lines().map_while(Result::ok).filter_map(move |line| {
        let (lsn, tag) = line.strip_prefix(mark)?.split_once(' ')?;
        Some((Lsn(lsn.parse().ok()?), tag.parse().ok()?))
    })
}

#[test]
fn another_process_reads_what_this_one_writes() {
    let dir = scratch("follow-reader");
    let fs: Arc<dyn Fs> = Arc::new(Disk::auto(&dir).unwrap());
    Log::create(&fs, &dir, UUID, &on_disk()).unwrap();
    let (log, _) = Log::open(&fs, &dir, UUID, &on_disk()).unwrap();
    let mut reader = child("reader", &dir);
    let mut session = log.session().unwrap();
    let mut written = Vec::new();
    for tag in (0..300).chain([u64::from(u32::MAX)]) {
        let lsn = append(&mut session, tag, &payload(tag, (tag as usize % 97) * 31)).unwrap();
        written.push((lsn, tag));
        if tag % 3 == 0 {
            log.force(lsn).unwrap();
        }
    }
    log.force(log.current()).unwrap();
    // A group that confirms the last one.
    append(&mut session, 0, b"").unwrap();
    log.force(log.current()).unwrap();
    let read: Vec<_> = pairs(reader.stdout.take().unwrap(), "read:").collect();
    assert!(reader.wait().unwrap().success());
    assert!(read == written, "{} records of {}", read.len(), written.len());
    drop((session, log));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_follower_outlives_writers_that_are_killed() {
    const ROUNDS: usize = 5;
    let dir = scratch("follow-killed");
    let fs: Arc<dyn Fs> = Arc::new(Disk::auto(&dir).unwrap());
    Log::create(&fs, &dir, UUID, &on_disk()).unwrap();
    let only: Arc<dyn Fs> = Arc::new(ReadOnly::new(&dir).unwrap());
    let mut follower = Follower::open(&only, &dir, UUID, GroupNo::ZERO).unwrap();
    let (mut followed, mut acked) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut writer = child("writer", &dir);
        let output = writer.stdout.take().unwrap();
        let listener = thread::spawn(move || pairs(output, "acked:").collect::<Vec<_>>());
        let due = followed.len() + 40 + 17 * round;
        while followed.len() < due {
            match follower.read().unwrap() {
                Some(record) => followed.push(key(&record)),
                None => assert!(follower.wait(LONG).unwrap(), "the writer of round {round} writes nothing"),
            }
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        acked.extend(listener.join().unwrap());
    }
    let (log, recovered) = Log::open(&fs, &dir, UUID, &on_disk()).unwrap();
    let found: Vec<_> = all(&recovered).iter().map(key).collect();
    assert!(acked.iter().all(|pair| found.contains(pair)), "an acknowledged record is lost");
    let last = append(&mut log.session().unwrap(), 1, b"").unwrap();
    log.force(last).unwrap();
    while let Some(record) = follower.read().unwrap() {
        followed.push(key(&record));
    }
    assert!(found == followed, "{} followed, {} found", followed.len(), found.len());
    drop(log);
    std::fs::remove_dir_all(&dir).unwrap();
}
