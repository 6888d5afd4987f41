//! Logs made by hand: chains with records above the cut of their group, which no buffer of one lane writes, but which the
//! format allows.

use super::*;
use crate::format::{CtlSlot, Envelope, Extent, GROUP_HEADER, SegmentHeader, segment_name};
use crate::reader::Recovered;
use crate::{Log, LogOptions};
use foreshore_base::{Uuid, crc32c};
use foreshore_io::{AlignedBuf, Fs, Mem};
use std::path::Path;

const UUID: Uuid = Uuid([4; 16]);

struct Hand {
    fs: Arc<dyn Fs>,
    segment: Arc<dyn File>,
    at: u64,
    next: u64,
    prev_crc: u32,
}

impl Hand {
    fn new() -> Self {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let dir = Path::new("log");
        fs.create_dir(dir).unwrap();
        let slot =
            CtlSlot { uuid: UUID, incarnation: Incarnation(1), seq: 1, first: GroupNo(1), segment: 1, prev_crc: 0 };
        let control = fs.create(&dir.join("ctl")).unwrap();
        write(&*control, &slot.encode(), 0);
        write(&*control, &CtlSlot { seq: 2, ..slot }.encode(), BLOCK as u64);
        let segment = fs.create(&dir.join(segment_name(1))).unwrap();
        segment.allocate(0, 64 << 10).unwrap();
        write(&*segment, &SegmentHeader { uuid: UUID, number: 1, size: 64 << 10 }.encode(), 0);
        Self { fs, segment, at: FIRST_GROUP, next: 1, prev_crc: 0 }
    }

    /// A group of one extent per record.
    fn group(&mut self, incarnation: u32, cut: u64, lsns: &[u64]) {
        let mut data = Vec::new();
        let mut table = Vec::new();
        for (lane, &lsn) in lsns.iter().enumerate() {
            let envelope = Envelope { len: 0, lsn: Lsn(lsn), tag: lsn, flags: 0 }.encode(0);
            table.extend_from_slice(&Extent { lane: lane as u16, len: envelope.len() as u32, at: 0 }.encode());
            data.extend_from_slice(&envelope);
        }
        let mut body = [table, data].concat();
        body.resize(BLOCK - GROUP_HEADER, 0);
        let header = GroupHeader {
            n_ext: lsns.len() as u16,
            incarnation: Incarnation(incarnation),
            uuid: UUID,
            group: GroupNo(self.next),
            cut: Lsn(cut),
            acked_upto: GroupNo(self.next - 1),
            data_len: (lsns.len() * ENVELOPE) as u32,
            total_len: BLOCK as u32,
            prev_crc: self.prev_crc,
            data_crc: crc32c(&body),
        };
        let (head, crc) = header.encode();
        write(&*self.segment, &[&head[..], &body].concat(), self.at);
        (self.at, self.next, self.prev_crc) = (self.at + BLOCK as u64, self.next + 1, crc);
    }

    fn open(&self) -> (Log, Recovered) {
        let options = LogOptions {
            segment_bytes: 64 << 10,
            ring_bytes: 64 << 10,
            max_sessions: 1,
            ready_segments: 1,
            background: false,
            ..LogOptions::default()
        };
        Log::open(&self.fs, Path::new("log"), UUID, &options).unwrap()
    }
}

fn write(file: &dyn File, bytes: &[u8], at: u64) {
    let mut aligned = AlignedBuf::new(bytes.len());
    aligned.copy_from_slice(bytes);
    file.write_at(&aligned, at).unwrap();
}

fn lsns(recovered: &Recovered) -> Vec<u64> {
    recovered.records(GroupNo(1)).map(|record| record.unwrap().lsn.0).collect()
}

#[test]
fn records_above_the_cut_of_their_incarnation_are_dropped() {
    let mut hand = Hand::new();
    hand.group(1, 90, &[80, 120]);
    assert_eq!(lsns(&hand.open().1), [80]);
    // A later cut of the same incarnation accepts it.
    hand.group(1, 120, &[110]);
    assert_eq!(lsns(&hand.open().1), [80, 120, 110]);
}

#[test]
fn what_was_dropped_stays_dropped_when_a_later_incarnation_passes_its_stamp() {
    let mut hand = Hand::new();
    hand.group(1, 100, &[80, 120]);
    hand.group(2, 150, &[130, 149]);
    let (log, recovered) = hand.open();
    assert_eq!(lsns(&recovered), [80, 130, 149]);
    assert_eq!((recovered.end(), log.durable()), (Lsn(150), Lsn(150)));
}

#[test]
fn stamps_start_above_every_cut_and_every_dropped_record() {
    let mut hand = Hand::new();
    hand.group(1, 100, &[80, 1000]);
    let (log, recovered) = hand.open();
    assert_eq!((recovered.end(), recovered.max_lsn(), log.durable()), (Lsn(100), Lsn(1000), Lsn(100)));
    let mut session = log.session().unwrap();
    session.reserve(crate::Session::cost(0)).unwrap();
    let lsn = session.append(crate::Record { tag: 0, flags: 0, parts: &[] }, crate::Dep::none());
    assert!(lsn > Lsn(1000) && log.durable() < lsn);
    log.force(lsn).unwrap();

    // A cut above all records: a pushed commit stamp was acknowledged.
    let mut hand = Hand::new();
    hand.group(1, 500, &[80]);
    let (log, _) = hand.open();
    assert_eq!((log.durable(), log.current() >= Lsn(500)), (Lsn(500), true));
}

#[test]
fn a_wait_between_the_last_cut_and_the_first_new_stamp_ends_with_a_group_without_data() {
    let mut hand = Hand::new();
    hand.group(1, 100, &[80, 1000]);
    let (log, _) = hand.open();
    log.force(Lsn(1000)).unwrap();
    assert_eq!((log.durable(), log.next_group()), (Lsn(1000), GroupNo(3)));
    drop(log);
    let (log, recovered) = hand.open();
    assert_eq!((lsns(&recovered), log.durable()), (vec![80], Lsn(1000)));
}
