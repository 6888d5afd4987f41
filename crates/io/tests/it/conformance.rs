//! Every backend keeps the contract of `Fs` and `File`: one suite runs on all of them.

use foreshore_base::{Error, InvalidOption, limits::BLOCK};
use foreshore_io::{AlignedBuf, Device, Disk, File, Fs, Kind, Mem, Sim};
use foreshore_sync::primitive::thread;
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const BLOCK_U64: u64 = BLOCK as u64;

/// A directory of this test, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        // Left by a test that was killed; its process id may come again.
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs the suite on every backend that exists here.
fn on_every_backend(name: &str, suite: impl Fn(&dyn Fs, &Path)) {
    for device in [
        Device::Direct,
        Device::Uring,
        Device::Buffered,
        Device::Auto,
        Device::Null,
        Device::Delay(Duration::from_micros(1)),
    ] {
        let dir = Dir::new(&format!("{name}-{}", device.to_string().replace(':', "-")));
        match device.open(&dir.0) {
            Ok(fs) => suite(&*fs, &dir.0),
            Err(Error::InvalidOption(InvalidOption { expected, .. }))
                if matches!(device, Device::Direct | Device::Uring) =>
            {
                eprintln!("{device} is not tested in {}: only {expected}", dir.0.display());
            }
            Err(e) => panic!("{device}: {e:?}"),
        }
    }
    let dir = Path::new("db");
    suite(&Sim::new(0), dir);
}

fn io_kind<T: std::fmt::Debug>(result: foreshore_base::Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { source, .. }) => source.kind(),
        other => panic!("expected an I/O error, got {other:?}"),
    }
}

fn filled(len: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::new(len);
    buf.fill(byte);
    buf
}

/// The whole file.
fn read_all(file: &dyn File) -> Vec<u8> {
    let len = file.len().unwrap();
    let mut buf = AlignedBuf::new((len as usize).next_multiple_of(BLOCK) + BLOCK);
    let n = file.read_at(&mut buf, 0).unwrap();
    assert_eq!(n as u64, len);
    buf[..n].to_vec()
}

#[test]
fn names() {
    on_every_backend("names", |fs, dir| {
        assert_eq!(fs.kind(dir).unwrap(), None);
        fs.create_dir(dir).unwrap();
        fs.create_dir(dir).unwrap();
        assert_eq!(fs.kind(dir).unwrap(), Some(Kind::Dir));
        let (a, b, sub) = (dir.join("a"), dir.join("b"), dir.join("sub"));
        assert_eq!(io_kind(fs.open(&a)), ErrorKind::NotFound);
        let file = fs.create(&a).unwrap();
        assert_eq!(file.path(), a);
        assert!(file.is_empty().unwrap());
        assert_eq!(io_kind(fs.create(&a)), ErrorKind::AlreadyExists);
        assert_eq!(fs.kind(&a).unwrap(), Some(Kind::File));
        assert_eq!(io_kind(fs.create_dir(&a)), ErrorKind::NotADirectory);
        fs.create_dir(&sub).unwrap();
        fs.create(&sub.join("inner")).unwrap();
        fs.create(&b).unwrap().write_at(&filled(BLOCK, 2), 0).unwrap();
        assert_eq!(fs.list(dir).unwrap(), ["a", "b", "sub"]);

        file.write_at(&filled(BLOCK, 1), 0).unwrap();
        fs.rename(&a, &b).unwrap();
        assert_eq!(fs.list(dir).unwrap(), ["b", "sub"]);
        assert_eq!(read_all(&*fs.open(&b).unwrap()), [1; BLOCK]);
        fs.remove(&b).unwrap();
        assert_eq!(read_all(&*file), [1; BLOCK], "an open file outlives its name");
        assert_eq!(io_kind(fs.remove(&b)), ErrorKind::NotFound);
        assert_eq!(io_kind(fs.rename(&b, &a)), ErrorKind::NotFound);
        assert_eq!(io_kind(fs.list(&b)), ErrorKind::NotFound);
        assert_eq!(io_kind(fs.create(&dir.join("missing").join("x"))), ErrorKind::NotFound);
        fs.sync_dir(dir).unwrap();
        assert_eq!(io_kind(fs.sync_dir(&b)), ErrorKind::NotFound);
        assert_eq!(fs.list(dir).unwrap(), ["sub"]);
    });
}

#[test]
fn bytes() {
    on_every_backend("bytes", |fs, dir| {
        fs.create_dir(dir).unwrap();
        let file = fs.create(&dir.join("file")).unwrap();
        let mut buf = filled(2 * BLOCK, 9);
        assert_eq!(file.read_at(&mut buf, 0).unwrap(), 0);
        assert_eq!(file.read_at(&mut buf, 8 * BLOCK_U64).unwrap(), 0);
        assert!(buf.iter().all(|&b| b == 9), "nothing read, nothing touched");

        file.write_at(&filled(BLOCK, 3), 2 * BLOCK_U64).unwrap();
        file.write_durable(&filled(BLOCK, 1), 0).unwrap();
        file.sync().unwrap();
        let expected = [[1; BLOCK], [0; BLOCK], [3; BLOCK]].concat();
        assert_eq!(read_all(&*file), expected);
        assert_eq!(file.read_at(&mut buf, 2 * BLOCK_U64).unwrap(), BLOCK, "short at the end only");
        assert_eq!(read_all(&*fs.open(&dir.join("file")).unwrap()), expected, "all handles see one file");

        file.write_durable(&[], 0).unwrap();
        assert_eq!(read_all(&*file), expected);
        assert_eq!(io_kind(file.write_at(&filled(BLOCK, 1), i64::MAX as u64 - BLOCK_U64 + 2)), ErrorKind::InvalidInput);
        assert_eq!(io_kind(file.read_at(&mut buf, u64::MAX)), ErrorKind::InvalidInput);
    });
}

#[test]
fn lengths() {
    on_every_backend("lengths", |fs, dir| {
        fs.create_dir(dir).unwrap();
        let file = fs.create(&dir.join("file")).unwrap();
        file.write_at(&filled(2 * BLOCK, 7), 0).unwrap();
        file.set_len(100).unwrap();
        assert_eq!(read_all(&*file), [7; 100]);
        file.set_len(2 * BLOCK_U64).unwrap();
        let mut expected = vec![0; 2 * BLOCK];
        expected[..100].fill(7);
        assert_eq!(read_all(&*file), expected, "what was cut off does not come back");

        file.allocate(BLOCK_U64, 3 * BLOCK_U64).unwrap();
        expected.resize(4 * BLOCK, 0);
        assert_eq!(read_all(&*file), expected, "allocating keeps bytes and adds zeros");
        file.allocate(0, BLOCK_U64).unwrap();
        file.allocate(0, 0).unwrap();
        assert_eq!(file.len().unwrap(), 4 * BLOCK_U64, "allocating inside a file does not cut it");
        assert_eq!(io_kind(file.allocate(u64::MAX, 2)), ErrorKind::InvalidInput);
        assert_eq!(io_kind(file.set_len(u64::MAX)), ErrorKind::InvalidInput);
    });
}

#[test]
fn threads_write_side_by_side() {
    const THREADS: u8 = 4;
    const BLOCKS: u64 = 40;
    on_every_backend("threads", |fs, dir| {
        fs.create_dir(dir).unwrap();
        let file: &Arc<dyn File> = &fs.create(&dir.join("file")).unwrap();
        // Interleaved blocks 32 KiB apart, so that in memory they share chunks and cross their borders.
        let place = |thread: u8, block: u64| (block * 8 + u64::from(thread) * 2) * BLOCK_U64;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for block in 0..BLOCKS {
                        file.write_at(&filled(BLOCK, thread + 1), place(thread, block)).unwrap();
                    }
                    file.sync().unwrap();
                });
            }
        });
        let bytes = read_all(&**file);
        for block in 0..BLOCKS {
            for thread in 0..THREADS {
                let at = place(thread, block) as usize;
                assert_eq!(bytes[at..at + BLOCK], [thread + 1; BLOCK]);
            }
        }
        assert_eq!(bytes.iter().filter(|&&b| b != 0).count(), BLOCKS as usize * usize::from(THREADS) * BLOCK);
    });
}

#[test]
fn more_threads_than_a_device_has_places_write_durably() {
    const THREADS: u8 = 80;
    const BLOCKS: u64 = 3;
    on_every_backend("durable", |fs, dir| {
        fs.create_dir(dir).unwrap();
        let file: &Arc<dyn File> = &fs.create(&dir.join("file")).unwrap();
        file.write_at(&filled(usize::from(THREADS) * BLOCKS as usize * BLOCK, 0xFF), 0).unwrap();
        let place = |thread: u8, block: u64| (block * u64::from(THREADS) + u64::from(thread)) * BLOCK_U64;
        thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    for block in 0..BLOCKS {
                        file.write_durable(&filled(BLOCK, thread), place(thread, block)).unwrap();
                    }
                });
            }
        });
        let bytes = read_all(&**file);
        for (i, block) in bytes.chunks(BLOCK).enumerate() {
            assert_eq!(block, [(i % usize::from(THREADS)) as u8; BLOCK]);
        }
    });
}

#[test]
fn one_lock_a_directory() {
    on_every_backend("lock", |fs, dir| {
        let other = dir.join("other");
        fs.create_dir(dir).unwrap();
        fs.create_dir(&other).unwrap();
        let lock = fs.lock(&dir.join("LOCK")).unwrap();
        assert!(matches!(fs.lock(&dir.join("LOCK")), Err(Error::Locked { path }) if path == dir));
        let unrelated = fs.lock(&other.join("LOCK")).unwrap();
        // Closing another handle of the file does not drop the lock.
        drop(fs.open(&dir.join("LOCK")).unwrap());
        assert!(matches!(fs.lock(&dir.join("LOCK")), Err(Error::Locked { .. })));
        drop(lock);
        drop(fs.lock(&dir.join("LOCK")).unwrap());
        drop(unrelated);
        assert_eq!(fs.list(dir).unwrap(), ["LOCK", "other"]);
    });
}

#[test]
fn backends_say_what_they_are() {
    let dir = Dir::new("backends");
    let names = |device: Device| device.open(&dir.0).unwrap().backend();
    let buffered = names(Device::Buffered);
    assert_eq!((buffered.name.as_str(), buffered.needs_alignment), ("buffered", false));
    assert_eq!(buffered.durable, foreshore_io::syncs(&dir.0).unwrap());
    let auto = names(Device::Auto);
    assert_eq!(auto.needs_alignment, auto.name == "direct");
    let delay = names(Device::Delay(Duration::from_micros(300)));
    assert_eq!((delay.name.as_str(), delay.durable), ("delay:300us", false));
    assert_eq!(names(Device::Null).name, "null");
    assert!(!foreshore_io::filesystem_name(&dir.0).unwrap().is_empty());
    assert!(!dir.0.exists(), "looking at a place creates nothing there");
}

#[test]
fn memory_lives_as_long_as_a_clone_of_it() {
    let mem = Mem::null();
    let again = mem.clone();
    mem.create(Path::new("file")).unwrap().write_at(&[5; 10], 0).unwrap();
    drop(mem);
    assert_eq!(read_all(&*again.open(Path::new("/file")).unwrap()), [5; 10]);
    assert!(Mem::null().open(Path::new("file")).is_err(), "another store is another disk");
}

#[test]
fn direct_files_refuse_unaligned_transfers() {
    let dir = Dir::new("unaligned");
    let Ok(fs) = Disk::direct(&dir.0) else { return eprintln!("direct I/O is not possible here") };
    fs.create_dir(&dir.0).unwrap();
    let file = fs.create(&dir.0.join("file")).unwrap();
    file.write_at(&filled(2 * BLOCK, 1), 0).unwrap();
    let mut buf = filled(2 * BLOCK, 2);
    for (range, offset) in [(1..BLOCK + 1, 0), (0..512, 0), (0..BLOCK, 512)] {
        assert_eq!(io_kind(file.write_at(&buf[range.clone()], offset)), ErrorKind::InvalidInput);
        assert_eq!(io_kind(file.write_durable(&buf[range.clone()], offset)), ErrorKind::InvalidInput);
        assert_eq!(io_kind(file.read_at(&mut buf[range], offset)), ErrorKind::InvalidInput);
    }
    assert_eq!(read_all(&*file), [1; 2 * BLOCK]);
}

#[test]
fn a_batch_is_written_whole_and_a_refused_part_fails_it() {
    on_every_backend("batch", |fs, dir| {
        fs.create_dir(dir).unwrap();
        let file = fs.create(&dir.join("f")).unwrap();
        let parts: Vec<_> = (0..40_u8).map(|n| filled(BLOCK * (1 + usize::from(n % 3)), n)).collect();
        // Last in the file first, with gaps between.
        let parts: Vec<(&[u8], u64)> =
            parts.iter().enumerate().map(|(n, part)| (&part[..], (40 - n as u64) * 4 * BLOCK_U64)).collect();
        file.write_many(&[]).unwrap();
        file.write_many(&parts[..1]).unwrap();
        file.write_many(&parts).unwrap();
        file.sync().unwrap();
        let bytes = read_all(&*file);
        for &(part, offset) in &parts {
            assert!(bytes[offset as usize..].starts_with(part), "the part at {offset}");
        }
        let beyond = u64::MAX - u64::MAX % BLOCK_U64;
        assert_eq!(io_kind(file.write_many(&[parts[0], (parts[1].0, beyond)])), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_batch_is_read_and_a_refused_part_fails_alone() {
    on_every_backend("read-batch", |fs, dir| {
        fs.create_dir(dir).unwrap();
        let file = fs.create(&dir.join("f")).unwrap();
        for n in 0..40_u8 {
            file.write_at(&filled(BLOCK, n), u64::from(n) * BLOCK_U64).unwrap();
        }
        assert!(file.read_many(&mut []).is_empty());
        let beyond = u64::MAX - u64::MAX % BLOCK_U64;
        // Last in the file first; one across its end, one behind it, and one that no file has.
        let offsets: Vec<u64> = (0..40).rev().map(|n| n * BLOCK_U64).chain([beyond, 50 * BLOCK_U64]).collect();
        let mut buffers: Vec<AlignedBuf> = offsets.iter().map(|_| filled(2 * BLOCK, 99)).collect();
        for count in [1, 2, offsets.len()] {
            let parts = buffers.iter_mut().map(|buf| &mut **buf).zip(offsets.iter().copied());
            let read = file.read_many(&mut parts.take(count).collect::<Vec<_>>());
            assert_eq!(read.len(), count);
            for ((read, &offset), buf) in read.into_iter().zip(&offsets).zip(&buffers) {
                if offset == beyond {
                    assert_eq!(io_kind(read), ErrorKind::InvalidInput);
                    continue;
                }
                let first = offset / BLOCK_U64;
                let blocks = 40_u64.saturating_sub(first).min(2);
                assert_eq!(read.unwrap() as u64, blocks * BLOCK_U64, "at {offset}");
                for (n, block) in (first..first + blocks).zip(buf.chunks(BLOCK)) {
                    assert_eq!(block, [n as u8; BLOCK], "block {n}");
                }
            }
        }
    });
}
