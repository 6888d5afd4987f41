//! Properties of files of the operating system: modes, links, other processes. It has a process of its own, because a
//! child that is about to start has the descriptors of its parent, and with them the locks of other tests.

use foreshore_base::Error;
use foreshore_io::{AlignedBuf, Disk, Fs, Kind, ReadOnly};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const CHILD_DIR: &str = "FORESHORE_TEST_LOCK_DIR";

/// A fresh directory, and a disk on it.
fn scratch(name: &str) -> (Disk, PathBuf) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    let disk = Disk::auto(&dir).unwrap();
    disk.create_dir(&dir).unwrap();
    (disk, dir)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_belong_to_their_owner_alone() {
    let (disk, dir) = scratch("modes");
    disk.create(&dir.join("file")).unwrap();
    let _lock = disk.lock(&dir.join("LOCK")).unwrap();
    assert_eq!((mode(&dir), mode(&dir.join("file")), mode(&dir.join("LOCK"))), (0o700, 0o600, 0o600));
}

#[test]
fn an_existing_directory_keeps_its_mode() {
    let (disk, dir) = scratch("kept-mode");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
    disk.create_dir(&dir).unwrap();
    assert_eq!(mode(&dir), 0o750);
}

#[test]
fn what_is_not_a_regular_file_is_foreign() {
    let (disk, dir) = scratch("foreign");
    let (target, link, dangling) = (dir.join("target"), dir.join("link"), dir.join("dangling"));
    fs::write(&target, b"kept").unwrap();
    symlink(&target, &link).unwrap();
    symlink(dir.join("nowhere"), &dangling).unwrap();
    for path in [&link, &dangling] {
        assert!(matches!(disk.open(path), Err(Error::Foreign { .. })));
        assert!(matches!(disk.kind(path), Err(Error::Foreign { .. })));
        assert!(disk.create(path).is_err());
        assert!(disk.lock(path).is_err());
    }
    let socket = dir.join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(matches!(disk.kind(&socket), Err(Error::Foreign { .. })));
    assert!(disk.open(&socket).is_err());
    assert!(disk.open(&dir).is_err(), "a directory is no file");
    assert_eq!(fs::read(&target).unwrap(), b"kept");
    assert!(!dir.join("nowhere").exists());

    let dir_link = dir.join("dir-link");
    symlink(&dir, &dir_link).unwrap();
    assert_eq!(disk.kind(&dir_link).unwrap(), Some(Kind::Dir), "a database may be reached through a link");
    disk.create_dir(&dir_link).unwrap();
}

#[test]
fn the_trial_of_a_place_leaves_nothing_behind() {
    let (_, dir) = scratch("trial");
    // Whether it works here or not.
    let _ = Disk::direct(&dir);
    let _ = Disk::auto(&dir.join("not").join("yet"));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

/// Runs in the child process of the next test. On its own it tests nothing.
#[test]
fn child_that_holds_the_lock() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let dir = PathBuf::from(dir);
    let lock = Disk::auto(&dir).unwrap().lock(&dir.join("LOCK"));
    println!("\nlock:{}", if lock.is_ok() { "held" } else { "refused" });
    std::io::stdout().flush().unwrap();
    // Until the parent closes the pipe or kills this process.
    let _ = std::io::stdin().read(&mut [0]);
}

fn child(dir: &Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_holds_the_lock", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answer = lines.map(Result::unwrap).find_map(|line| line.strip_prefix("lock:").map(str::to_owned));
    (child, answer.expect("the child answers"))
}

#[test]
fn the_lock_excludes_other_processes_and_dies_with_its_owner() {
    let (disk, dir) = scratch("lock");
    let lock_path = dir.join("LOCK");
    let (mut holder, answer) = child(&dir);
    assert_eq!(answer, "held");
    assert!(matches!(disk.lock(&lock_path), Err(Error::Locked { path }) if path == dir));
    fs::remove_file(&lock_path).unwrap();
    assert!(matches!(disk.lock(&lock_path), Err(Error::Locked { .. })), "removing the file lets nobody in");
    let (mut second, answer) = child(&dir);
    assert_eq!(answer, "refused");
    second.kill().unwrap();
    second.wait().unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let lock = disk.lock(&lock_path).unwrap();
    let (mut third, answer) = child(&dir);
    assert_eq!(answer, "refused");
    drop(lock);
    third.kill().unwrap();
    third.wait().unwrap();
    drop(disk.lock(&lock_path).unwrap());
}

/// Reads past the cache go through a second descriptor if the file system has direct I/O, else through the first one.
#[test]
fn a_buffered_file_shows_the_same_past_the_cache() {
    let (_, dir) = scratch("past-cache");
    let path = dir.join("file");
    let disk = Disk::buffered(&dir).unwrap();
    let mut block = AlignedBuf::new(4096);
    let file = disk.create(&path).unwrap();
    let mut put = |byte: u8, at: u64| {
        block.fill(byte);
        file.write_at(&block, at).unwrap();
    };
    put(7, 0);
    put(8, 4096);
    let reader = disk.open(&path).unwrap();
    reader.read_past_cache().unwrap();
    let read = || {
        let mut bytes = AlignedBuf::new(16384);
        let len = reader.read_at(&mut bytes, 0).unwrap();
        bytes[..len].chunks(4096).map(|block| (block.len(), block[0], block[block.len() - 1])).collect::<Vec<_>>()
    };
    assert_eq!(read(), [(4096, 7, 7), (4096, 8, 8)]);
    // Dirty pages of the cache are written first.
    put(9, 4096);
    reader.set_len(8192 + 100).unwrap();
    assert_eq!(read(), [(4096, 7, 7), (4096, 9, 9), (100, 0, 0)]);
    reader.read_cached();
    assert_eq!(read(), [(4096, 7, 7), (4096, 9, 9), (100, 0, 0)]);
    reader.sync().unwrap();
}

#[test]
fn a_reader_reads_and_changes_nothing() {
    let (disk, dir) = scratch("reader");
    let path = dir.join("file");
    let mut block = AlignedBuf::new(4096);
    block.fill(7);
    disk.create(&path).unwrap().write_durable(&block, 0).unwrap();
    let reader = ReadOnly::new(&dir).unwrap();
    let refused = |result: Result<(), Error>| match result {
        Err(Error::Io { source, .. }) => source.kind() == std::io::ErrorKind::ReadOnlyFilesystem,
        _ => false,
    };
    assert!(refused(reader.create(&dir.join("new")).map(drop)));
    assert!(refused(reader.create_dir(&dir.join("new"))));
    assert!(refused(reader.rename(&path, &dir.join("new"))));
    assert!(refused(reader.remove(&path)));
    assert!(refused(reader.lock(&dir.join("LOCK")).map(drop)));
    assert!(refused(reader.sync_dir(&dir)));
    assert_eq!(reader.list(&dir).unwrap(), ["file"]);
    assert_eq!(reader.kind(&path).unwrap(), Some(Kind::File));
    let file = reader.open(&path).unwrap();
    assert!(file.write_at(&block, 0).is_err() && file.write_durable(&block, 4096).is_err());
    assert!(file.set_len(0).is_err() && file.allocate(0, 8192).is_err());
    let mut read = AlignedBuf::new(8192);
    assert_eq!(file.read_at(&mut read, 0).unwrap(), 4096);
    assert!(read[..4096] == block[..]);
    // Reads show the writes of the other handle.
    block.fill(9);
    disk.open(&path).unwrap().write_durable(&block, 4096).unwrap();
    assert_eq!(file.read_at(&mut read, 0).unwrap(), 8192);
    assert!(read[4096..] == block[..]);
    assert!(matches!(reader.open(&dir), Err(Error::Foreign { .. } | Error::Io { .. })));
}
