//! Random histories of several incarnations with power losses between them. Some of them break plausible but wrong
//! rules:
//!
//! - taking the largest cut of the whole chain;
//! - starting new stamps at the last cut;
//! - believing bytes that were only in a cache.

use crate::common::*;
use foreshore_base::Lsn;
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Sim};
use foreshore_wal::{Dep, LogOptions, LoggedRecord, Record, Session, flags};
use std::sync::Arc;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// A model of the log: the records that the last start found, and those appended since.
#[derive(Default)]
struct Model {
    /// Tags and LSNs in order. Records that a start did not find are removed.
    records: Vec<(u64, Lsn)>,
    /// The first so many are acknowledged.
    acked: usize,
    /// The first so many may be truncated.
    truncated: usize,
    next_tag: u64,
    /// Greatest stamp ever assigned or acknowledged.
    stamp: Lsn,
}

impl Model {
    /// Checks that the records found are a gapless run of the model's records, with all acknowledged ones.
    fn meet(&mut self, found: &[LoggedRecord], context: &str) {
        let first = found.first().map_or(self.records.len().min(self.acked), |record| {
            let at = self.records.iter().position(|&(tag, _)| tag == record.tag);
            at.unwrap_or_else(|| panic!("{context}: record {} was dropped before", record.tag))
        });
        assert!(first <= self.truncated, "{context}: starts at {first}, truncated to {}", self.truncated);
        for (i, record) in found.iter().enumerate() {
            let expected = self.records.get(first + i);
            assert_eq!(expected, Some(&(record.tag, record.lsn)), "{context}: record {i}");
            assert!(record.payload == payload(record.tag, record.payload.len()), "{context}: record {i}");
        }
        assert!(first + found.len() >= self.acked, "{context}: {} of {} found", first + found.len(), self.acked);
        self.records.truncate(first + found.len());
        self.acked = self.records.len();
    }
}

fn history(seed: u64) -> usize {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let options = LogOptions { buffer: FRAGMENTING[(seed % 2) as usize].maker(), max_sessions: 2, ..small() };
    let mut sim = Sim::new(seed);
    sim.stop_recording();
    {
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        fs.create_dir(&dir()).unwrap();
        fs.sync_dir("/".as_ref()).unwrap();
        create(&fs, &options).unwrap();
    }
    let (mut model, mut losses) = (Model::default(), 0);
    for run in 0..2 + random.below(4) {
        let context = format!("seed {seed}, run {run}");
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let (log, recovered) = open(&fs, &options).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let before = model.records.len();
        model.meet(&all(&recovered), &context);
        losses += before - model.records.len();
        // Stamps of lost records may be assigned again, but not those that a caller could have seen.
        model.stamp = recovered.max_lsn().max(log.durable());
        assert!(model.records.last().is_none_or(|&(_, lsn)| lsn <= model.stamp), "{context}");
        let mut sessions = [log.session().unwrap(), log.session().unwrap()];
        let mut groups = Vec::new();
        let base = model.records.len();
        for _ in 0..random.below(12) {
            let session = &mut sessions[random.below(2) as usize];
            match random.below(10) {
                0..6 => {
                    let bound = if random.below(8) == 0 { 7000 } else { 300 };
                    let len = random.below(bound) as usize;
                    let tag = model.next_tag;
                    model.next_tag += 1;
                    groups.push(log.next_group());
                    session.reserve(Session::cost(len)).unwrap();
                    let bytes = payload(tag, len);
                    let record = Record { tag, flags: flags::COMMIT, parts: &[&bytes] };
                    let lsn = session.append(record, Dep::none().observed(model.stamp.csn()));
                    assert!(lsn > model.stamp, "{context}: stamp {lsn} was used before");
                    model.stamp = lsn;
                    model.records.push((tag, lsn));
                }
                6..8 => log.force(log.current()).unwrap(),
                8 => {
                    log.flush_soon(session, log.current());
                    log.flush_step();
                }
                _ => {
                    if let Some(keep) = groups.len().checked_sub(3) {
                        model.truncated = model.truncated.max(base + keep);
                        log.truncate(groups[keep]).unwrap();
                    }
                    log.prepare_step();
                }
            }
            let durable = log.durable();
            model.acked = model.acked.max(model.records.partition_point(|&(_, lsn)| lsn <= durable));
        }
        drop(sessions);
        match random.below(4) {
            // A clean end, or the process is killed and the cache survives.
            0 => {
                log.close().unwrap();
                model.acked = model.records.len();
            }
            1 => {}
            _ => {
                let policy = Persist::ALL[random.below(Persist::ALL.len() as u64) as usize];
                sim = sim.crash_image(&policy, random.below(1 << 32));
                sim.stop_recording();
            }
        }
    }
    losses
}

#[test]
fn no_history_loses_what_was_acknowledged_or_revives_what_was_dropped() {
    let losses: usize = (0..3000).map(history).sum();
    assert!(losses > 1000, "only {losses} unacknowledged records were ever lost");
}
