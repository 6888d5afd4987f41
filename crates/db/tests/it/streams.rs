//! Values that are written from readers and read in parts.

use crate::script::{Random, disk};
use crate::support::{DIR, small};
use foreshore::limits::{MAX_INLINE_VALUE, MAX_VALUE};
use foreshore::{Db, Error, Isolation, Options, TableDef, TxnOptions};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem};
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

const FILES: TableDef<u32, &[u8]> = TableDef::new("files");
/// Bytes of a value in one page.
const PAGE: usize = 8136;
/// Lengths around each change of shape: in the leaf, one page, a root with several, pieces, and index pages.
const LENGTHS: [usize; 11] = [
    0,
    1,
    MAX_INLINE_VALUE,
    MAX_INLINE_VALUE + 1,
    PAGE,
    PAGE + 1,
    16 * PAGE - 1,
    16 * PAGE,
    40 * PAGE + 7,
    1906 * PAGE,
    1907 * PAGE + 5,
];

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let words = (0..len.div_ceil(8)).flat_map(|_| random.below(u64::MAX).to_le_bytes());
    words.take(len).collect()
}

/// A reader that gives few bytes at a time, and calls a function before each.
struct Slow<'a, F> {
    left: &'a [u8],
    most: usize,
    before: F,
}

impl<F: FnMut(usize) -> io::Result<()>> Read for Slow<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.before)(self.left.len())?;
        let count = buffer.len().min(self.most).min(self.left.len());
        buffer[..count].copy_from_slice(&self.left[..count]);
        self.left = &self.left[count..];
        Ok(count)
    }
}

/// Options without threads: what is freed depends on the calls of a test alone.
fn on(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(Arc::clone(fs));
    })
}

fn in_memory() -> Db {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    on(&fs).open(DIR).unwrap()
}

fn put(db: &Db, key: u32, value: &[u8]) {
    db.run(|tx| tx.open(FILES)?.put(key, value)).unwrap();
}

/// Frees what can be freed, checks the database, and returns the pages in use.
fn used(db: &Db) -> u64 {
    db.vacuum().unwrap();
    db.check().unwrap();
    db.stats().space.used_pages
}

#[test]
fn what_a_reader_gives_is_what_is_read() {
    let db = in_memory();
    for (seed, &len) in (1..).zip(&LENGTHS) {
        let value = bytes(seed, len);
        let length = Some(len as u64).filter(|_| seed.is_multiple_of(2));
        let written = db.run(|tx| {
            let given = Slow { left: &value, most: 1 + len / 37, before: |_| Ok(()) };
            tx.open(FILES)?.insert_reader(1, given, length)
        });
        assert_eq!(written.unwrap(), len as u64);
        let tx = db.read();
        let files = tx.open(FILES).unwrap();
        assert!(files.get(1).unwrap().as_ref() == Some(&value), "{len} bytes, read whole");
        let mut reader = files.get_reader(1).unwrap().unwrap();
        assert_eq!((reader.len(), reader.is_empty()), (len as u64, len == 0));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == value, "{len} bytes, read in order");
        let mut random = Random(seed);
        for _ in 0..40 {
            let (at, count) = (random.below(len as u64 + 2), random.below(3 * PAGE as u64));
            let (start, end) = ((at as usize).min(len), ((at + count) as usize).min(len));
            assert!(
                files.get_range(1, at..at + count).unwrap().as_deref() == Some(&value[start..end]),
                "{at}, {count}"
            );
            reader.seek(SeekFrom::Start(at)).unwrap();
            let mut buffer = vec![0; count as usize];
            let filled = reader.read(&mut buffer).unwrap();
            assert!(buffer[..filled] == value[start..end], "bytes from {at}");
            assert_eq!(reader.read_at(at, &mut buffer).unwrap(), filled);
        }
        assert!(files.get_range(1, ..).unwrap().as_ref() == Some(&value), "{len} bytes, as a range");
        assert_eq!(files.get_range(1, len as u64 + 5..).unwrap(), Some(Vec::new()));
        assert_eq!((reader.seek(SeekFrom::End(-0)).unwrap(), reader.read(&mut [0; 9]).unwrap()), (len as u64, 0));
        assert!(reader.seek(SeekFrom::Current(-(len as i64) - 1)).is_err());
        assert_eq!((files.get_reader(2).unwrap().is_none(), files.get_range(2, ..).unwrap()), (true, None));
    }
    db.run(|tx| tx.open(FILES)?.clear()).unwrap();
    let empty = used(&db);
    put(&db, 1, &bytes(1, 100_000));
    db.run(|tx| tx.open(FILES)?.clear()).unwrap();
    assert_eq!(used(&db), empty);
}

#[test]
fn a_reader_that_fails_or_ends_early_changes_nothing() {
    let db = in_memory();
    put(&db, 1, &bytes(1, 50_000));
    let before = used(&db);
    let value = bytes(2, 700_000);
    let tx = db.begin();
    let files = tx.open(FILES).unwrap();
    let fails = |left| if left < 100_000 { Err(io::Error::other("the other side has gone")) } else { Ok(()) };
    for len in [None, Some(value.len() as u64)] {
        let error = files.insert_reader(1, Slow { left: &value, most: 5000, before: fails }, len).unwrap_err();
        assert!(matches!(&error, Error::ReaderFailed { source, .. } if source.kind() == io::ErrorKind::Other));
        assert!(error.to_string().contains("\"files\" key 1: the other side has gone"), "{error}");
        assert!(!error.is_retryable());
    }
    for short in [100, value.len()] {
        let error = files.insert_reader(2, &value[..short], Some(short as u64 + 1)).unwrap_err();
        let Error::ReaderFailed { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.kind(), io::ErrorKind::UnexpectedEof);
    }
    let over = files.insert_reader(1, &value[..], Some(MAX_VALUE as u64 + 1));
    assert!(matches!(over, Err(Error::ValueTooLarge { .. })), "{over:?}");
    // The transaction goes on, and no more is read than was announced.
    let mut left = &value[..];
    assert_eq!(files.insert_reader(3, &mut left, Some(500_000)).unwrap(), 500_000);
    assert_eq!(left.len(), 200_000);
    assert!(files.get(1).unwrap() == Some(bytes(1, 50_000)) && files.get(2).unwrap().is_none());
    drop(files);
    tx.commit().unwrap();
    db.check().unwrap();
    db.run(|tx| tx.open(FILES)?.remove(3)).unwrap();
    assert_eq!(used(&db), before);
}

#[test]
fn a_reader_may_use_the_transaction_and_even_the_row() {
    let db = in_memory();
    let (first, second) = (bytes(1, 300_000), bytes(2, 200_000));
    put(&db, 1, &first);
    let before = used(&db);
    db.run(|tx| {
        let files = tx.open(FILES)?;
        let source = files.get_reader(1)?.expect("it was put");
        assert_eq!(files.insert_reader(2, source, None)?, first.len() as u64);
        // A copy onto itself, with the row replaced, removed and rolled back meanwhile.
        let mut source = files.get_reader(1)?.expect("it was put");
        let savepoint = tx.savepoint()?;
        let mut calls = 0;
        let meddles = Slow {
            left: &second,
            most: 60_000,
            before: |_| {
                calls += 1;
                match calls {
                    1 => files.put(1, &second[..9000]),
                    2 => files.remove(1).map(drop),
                    _ => tx.rollback_to(&savepoint),
                }
                .map_err(io::Error::other)
            },
        };
        files.insert_reader(1, meddles, None)?;
        assert_eq!(files.get(1)?.as_ref(), Some(&second));
        let mut old = Vec::new();
        source.read_to_end(&mut old).unwrap();
        assert!(old == first, "a reader keeps the value that it was made of");
        Ok::<_, Error>(())
    })
    .unwrap();
    let tx = db.read();
    assert!(tx.open(FILES).unwrap().get(2).unwrap() == Some(first));
    drop(tx);
    db.run(|tx| tx.open(FILES)?.remove(2)).unwrap();
    assert!(used(&db) < before);
}

#[test]
fn an_error_of_the_database_in_a_reader_is_returned_as_it_is() {
    let db = in_memory();
    put(&db, 1, &bytes(1, 100_000));
    let ended = db.begin();
    let source = ended.open(FILES).unwrap().get_reader(1).unwrap().unwrap();
    let closed = db.begin();
    let files = closed.open(FILES).unwrap();
    let fails = Slow { left: &[1; 10], most: 10, before: |_| Err(io::Error::other(Error::NoSavepoint)) };
    assert!(matches!(files.insert_reader(2, fails, None), Err(Error::NoSavepoint)));
    assert_eq!(files.insert_reader(2, source, None).unwrap(), 100_000);
}

#[test]
fn an_error_that_ends_the_transaction_in_a_reader_is_returned_too() {
    let db = in_memory();
    put(&db, 1, &bytes(1, 10));
    let tx = db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
    let files = tx.open(FILES).unwrap();
    assert!(files.get(1).unwrap().is_some());
    put(&db, 1, &bytes(2, 10));
    let value = bytes(3, 300_000);
    let conflicts = Slow {
        left: &value,
        most: 60_000,
        before: |left| if left > 100_000 { Ok(()) } else { files.put(1, &[][..]).map_err(io::Error::other) },
    };
    let failed = files.insert_reader(2, conflicts, None);
    assert!(matches!(failed, Err(Error::Conflict { .. })), "{failed:?}");
    assert!(matches!(files.get(2), Err(Error::RolledBack)));
    drop(files);
    drop(tx);
    put(&db, 1, &[]);
    db.run(|tx| tx.open(FILES)?.remove(1)).unwrap();
    let empty = used(&db);
    put(&db, 2, &value);
    db.run(|tx| tx.open(FILES)?.remove(2)).unwrap();
    assert_eq!(used(&db), empty, "no page of the refused value is left");
}

/// At read committed the transaction has no snapshot that lasts, so the reader has one of its own.
#[test]
fn a_reader_keeps_its_value_at_every_isolation_level() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let db = in_memory();
        let (first, second) = (bytes(1, 300_000), bytes(2, 300_000));
        put(&db, 1, &first);
        let options = TxnOptions::new().isolation(isolation).lock_timeout(Duration::from_millis(20));
        let tx = db.begin_with(options);
        let files = tx.open(FILES).unwrap();
        let mut reader = files.get_reader(1).unwrap().unwrap();
        let mut start = vec![0; 100];
        reader.read_exact(&mut start).unwrap();
        assert_eq!(start, first[..100]);
        let other = db.begin_with(options);
        let replaced = other.open(FILES).unwrap().put(1, &second[..]);
        if isolation == Isolation::Serializable {
            assert!(replaced.is_err(), "the row is locked");
        } else {
            replaced.unwrap();
            other.commit().unwrap();
        }
        db.vacuum().unwrap();
        put(&db, 2, &second);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest == first[100..], "{isolation:?}");
        drop((reader, files));
        tx.commit().unwrap();
        used(&db);
    }
}

#[test]
fn a_reader_of_a_cancelled_snapshot_says_so() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = on(&fs).snapshot_max_age(Duration::from_millis(1)).open(DIR).unwrap();
    put(&db, 1, &bytes(1, 300_000));
    let tx = db.read();
    let mut reader = tx.open(FILES).unwrap().get_reader(1).unwrap().unwrap();
    let mut read = Vec::new();
    let error = (2..).find_map(|seed| {
        put(&db, 1, &bytes(seed, 300_000));
        db.vacuum().unwrap();
        (0..20).for_each(|_| db.step());
        read.clear();
        reader.rewind().unwrap();
        match reader.read_to_end(&mut read) {
            Ok(_) => {
                assert!(read == bytes(1, 300_000), "another value");
                None
            }
            Err(error) => Some(error),
        }
    });
    let error = error.unwrap();
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    assert!(matches!(inner, Some(Error::SnapshotTooOld { .. })), "{error:?}");
}

#[test]
fn a_value_larger_than_memory_passes_through_it() {
    const LEN: usize = 100 << 20;
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = Options::new().memory_limit(16 << 20).lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap();
    let chunk = bytes(1, 1 << 20);
    for round in 0..2 {
        let written = db.run(|tx| {
            let given = (0..LEN / chunk.len()).map(|_| &chunk[..]);
            tx.open(FILES)?.insert_reader(1, Chunks(given.collect()), Some(LEN as u64))
        });
        assert_eq!(written.unwrap(), LEN as u64, "round {round}");
    }
    let tx = db.read();
    let mut reader = tx.open(FILES).unwrap().get_reader(1).unwrap().unwrap();
    let mut buffer = vec![0; chunk.len()];
    for _ in 0..LEN / chunk.len() {
        reader.read_exact(&mut buffer).unwrap();
        assert!(buffer == chunk);
    }
    assert_eq!(reader.read(&mut buffer).unwrap(), 0);
    drop(tx);
    db.vacuum().unwrap();
    assert!(db.stats().space.used_pages < (LEN / PAGE) as u64 * 11 / 10, "the first value is free");
}

/// Parts of a value, one after the other.
struct Chunks<'a>(std::collections::VecDeque<&'a [u8]>);

impl Read for Chunks<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(chunk) = self.0.front_mut() else { return Ok(0) };
        let count = chunk.read(buffer)?;
        if chunk.is_empty() {
            self.0.pop_front();
        }
        Ok(count)
    }
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_value_leaves_no_page_of_it() {
    let sim = disk(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = on(&fs).open(DIR).unwrap();
    put(&db, 1, &bytes(1, 30_000));
    let before = used(&db);
    let value = bytes(2, 40 << 20);
    let mut pieces = 0;
    let tx = db.begin();
    let files = tx.open(FILES).unwrap();
    let refused = files.insert_reader(
        1,
        Slow {
            left: &value,
            most: usize::MAX,
            before: |_| {
                pieces += 1;
                if pieces == 3 {
                    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
                }
                db.checkpoint().map_err(io::Error::other)
            },
        },
        None,
    );
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    assert!(pieces > 3, "{pieces} pieces");
    drop(files);
    drop(tx);
    // Freed before any pass over the table of chains.
    db.check().unwrap();
    assert_eq!(db.stats().space.used_pages, before);
    assert_eq!(db.stats().tree.chains_freed, 1);
    assert!(db.read().open(FILES).unwrap().get(1).unwrap() == Some(bytes(1, 30_000)));
    sim.clear_faults();
    put(&db, 1, &bytes(3, 1_000_000));
    used(&db);
}
