use super::*;
use crate::AlignedBuf;
use std::{cell::RefCell, collections::VecDeque};

/// What the next calls do, then whole transfers.
#[derive(Clone, Copy)]
enum Turn {
    Short(usize),
    Interrupted,
    Fails,
    Says(Errno),
}

struct Script {
    aligned: bool,
    bytes: RefCell<Vec<u8>>,
    turns: RefCell<VecDeque<Turn>>,
    calls: RefCell<usize>,
}

impl Script {
    fn new(aligned: bool, bytes: Vec<u8>, turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns = RefCell::new(turns.into_iter().collect());
        Self { aligned, bytes: RefCell::new(bytes), turns, calls: RefCell::new(0) }
    }

    fn turn(&self, whole: usize) -> io::Result<usize> {
        *self.calls.borrow_mut() += 1;
        match self.turns.borrow_mut().pop_front() {
            None => Ok(whole),
            Some(Turn::Short(n)) => Ok(n.min(whole)),
            Some(Turn::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
            Some(Turn::Fails) => Err(io::Error::other("broken")),
            Some(Turn::Says(errno)) => Err(errno.into()),
        }
    }
}

impl RawFile for Script {
    fn aligned(&self) -> bool {
        self.aligned
    }

    fn read_once(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.borrow();
        let rest = &bytes[bytes.len().min(offset as usize)..];
        let n = self.turn(rest.len().min(buf.len()))?;
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_once(&self, buf: &[u8], offset: u64, _durable: bool) -> io::Result<usize> {
        let n = self.turn(buf.len())?;
        let mut bytes = self.bytes.borrow_mut();
        let end = bytes.len().max(offset as usize + n);
        bytes.resize(end, 0);
        bytes[offset as usize..offset as usize + n].copy_from_slice(&buf[..n]);
        Ok(n)
    }

    fn write_whole_once(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.write_once(buf, offset, false)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.borrow().len() as u64)
    }
}

fn pattern(len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::new(len);
    for (i, byte) in buf.iter_mut().enumerate() {
        *byte = (i % 251) as u8 + 1;
    }
    buf
}

#[test]
fn short_and_interrupted_writes_complete() {
    for aligned in [false, true] {
        let turns =
            [Turn::Interrupted, Turn::Short(1000), Turn::Short(BLOCK + 5), Turn::Interrupted, Turn::Short(BLOCK)];
        let file = Script::new(aligned, Vec::new(), turns);
        let data = pattern(4 * BLOCK);
        write_full(&file, &data, 0, false).unwrap();
        assert_eq!(*file.bytes.borrow(), data.to_vec());
        assert!(file.turns.borrow().is_empty(), "every fault was met");
    }
}

#[test]
fn short_and_interrupted_reads_complete() {
    for aligned in [false, true] {
        let turns = [Turn::Short(17), Turn::Interrupted, Turn::Short(BLOCK + 1), Turn::Short(512)];
        let data = pattern(3 * BLOCK);
        let file = Script::new(aligned, data.to_vec(), turns);
        let mut buf = AlignedBuf::new(4 * BLOCK);
        assert_eq!(read_full(&file, &mut buf, 0).unwrap(), data.len());
        assert_eq!(buf[..data.len()], data[..]);
        assert!(file.turns.borrow().is_empty());
    }
}

#[test]
fn an_aligned_read_ends_at_an_unaligned_end_of_file() {
    let file = Script::new(true, vec![9; BLOCK + 100], []);
    let mut buf = AlignedBuf::new(2 * BLOCK);
    assert_eq!(read_full(&file, &mut buf, 0).unwrap(), BLOCK + 100);
    assert_eq!(*file.calls.borrow(), 1);
}

#[test]
fn a_write_of_nothing_is_an_error_and_not_a_loop() {
    let file = Script::new(false, Vec::new(), [Turn::Short(0)]);
    assert_eq!(write_full(&file, &[1; 10], 0, false).unwrap_err().kind(), io::ErrorKind::WriteZero);
    // Nor do aligned transfers loop that never complete a block.
    let file = Script::new(true, vec![1; BLOCK], [Turn::Short(1); 100]);
    assert_eq!(write_full(&file, &pattern(BLOCK), 0, false).unwrap_err().kind(), io::ErrorKind::WriteZero);
    let file = Script::new(true, vec![1; BLOCK], [Turn::Short(1); 100]);
    let error = read_full(&file, &mut AlignedBuf::new(BLOCK), 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_failure_is_reported_and_not_repeated() {
    let file = Script::new(false, vec![1; 10], [Turn::Fails]);
    assert!(write_full(&file, &[1; 10], 0, true).is_err());
    assert_eq!(*file.calls.borrow(), 1);
}

#[test]
fn a_whole_write_that_needs_space_or_is_unknown_is_refused_and_an_error_is_one() {
    for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOSPC, Errno::DQUOT] {
        let file = Script::new(true, Vec::new(), [Turn::Interrupted, Turn::Says(errno)]);
        assert!(!write_whole(&file, &pattern(BLOCK), 0).unwrap(), "{errno}");
        assert!(write_whole(&file, &pattern(BLOCK), 0).unwrap());
    }
    for turn in [Turn::Says(Errno::IO), Turn::Says(Errno::ROFS), Turn::Short(512), Turn::Fails] {
        assert!(write_whole(&Script::new(true, Vec::new(), [turn]), &pattern(BLOCK), 0).is_err());
    }
}

#[test]
fn refuses_unaligned_and_overlong_ranges() {
    let file = Script::new(true, Vec::new(), []);
    let mut buf = AlignedBuf::new(2 * BLOCK);
    for (range, offset) in [(0..BLOCK - 1, 0), (1..BLOCK + 1, 0), (0..BLOCK, 512), (0..BLOCK, i64::MAX as u64)] {
        let read = read_full(&file, &mut buf[range.clone()], offset).unwrap_err();
        let write = write_full(&file, &buf[range], offset, false).unwrap_err();
        assert_eq!([read.kind(), write.kind()], [io::ErrorKind::InvalidInput; 2]);
    }
    assert_eq!(*file.calls.borrow(), 0);
}
