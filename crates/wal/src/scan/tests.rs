//! Crafted logs: chains with records above the cut of their group. The format allows them, but no buffer of one lane
//! writes them.

pub(crate) mod craft;
mod heads;
mod restart;
mod tails;

use super::*;
use crate::reader::Recovered;
use crate::{Log, LogOptions};
use craft::{Craft, UUID};

const SIZE: u64 = 64 << 10;

/// Writes a group of one extent per record.
fn group(craft: &mut Craft, incarnation: u32, cut: u64, lsns: &[u64]) {
    let mut draft = craft.draft(incarnation, cut);
    for (lane, &lsn) in lsns.iter().enumerate() {
        draft = draft.lane(lane as u16, &[lsn]);
    }
    craft.put(&draft);
}

fn open(craft: &Craft) -> (Log, Recovered) {
    let options = LogOptions {
        segment_bytes: SIZE,
        ring_bytes: 64 << 10,
        max_sessions: 1,
        ready_segments: 1,
        background: false,
        ..LogOptions::default()
    };
    Log::open(&craft.home.fs, &craft.home.dir, UUID, &options).unwrap()
}

fn lsns(recovered: &Recovered) -> Vec<u64> {
    recovered.records(GroupNo(1)).map(|record| record.unwrap().lsn.0).collect()
}

#[test]
fn records_above_the_cut_of_their_incarnation_are_dropped() {
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 90, &[80, 120]);
    assert_eq!(lsns(&open(&craft).1), [80]);
    // A later cut of the same incarnation accepts it.
    group(&mut craft, 1, 120, &[110]);
    assert_eq!(lsns(&open(&craft).1), [80, 110, 120]);
}

#[test]
fn what_was_dropped_stays_dropped_when_a_later_incarnation_passes_its_stamp() {
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 100, &[80, 120]);
    group(&mut craft, 2, 150, &[130, 149]);
    let (log, recovered) = open(&craft);
    assert_eq!(lsns(&recovered), [80, 130, 149]);
    assert_eq!((recovered.end(), log.durable()), (Lsn(150), Lsn(150)));
}

#[test]
fn stamps_start_above_every_cut_and_every_dropped_record() {
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 100, &[80, 1000]);
    let (log, recovered) = open(&craft);
    assert_eq!((recovered.end(), recovered.max_lsn(), log.durable()), (Lsn(100), Lsn(1000), Lsn(100)));
    let mut session = log.session().unwrap();
    session.reserve(crate::Session::cost(0)).unwrap();
    let lsn = session.append(crate::Record { tag: 0, flags: 0, parts: &[] }, crate::Dep::none());
    assert!(lsn > Lsn(1000) && log.durable() < lsn);
    log.force(lsn).unwrap();

    // A cut above all records: a pushed commit stamp was acknowledged.
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 500, &[80]);
    let (log, _) = open(&craft);
    assert_eq!((log.durable(), log.current() >= Lsn(500)), (Lsn(500), true));
}

#[test]
fn a_wait_between_the_last_cut_and_the_first_new_stamp_ends_with_a_group_without_data() {
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 100, &[80, 1000]);
    let (log, _) = open(&craft);
    log.force(Lsn(1000)).unwrap();
    assert_eq!((log.durable(), log.next_group()), (Lsn(1000), GroupNo(3)));
    drop(log);
    let (log, recovered) = open(&craft);
    assert_eq!((lsns(&recovered), log.durable()), (vec![80], Lsn(1000)));
}

/// The smallest logs that tell the rules apart.
#[test]
fn each_wrong_rule_reads_a_log_wrong() {
    let found = |craft: &Craft, rule| lsns(&craft.recover(rule).unwrap().1);
    // A cut that knows nothing of the one before may be lower; what the larger one covered was acknowledged.
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 100, &[80, 90]);
    group(&mut craft, 1, 85, &[101]);
    assert_eq!(found(&craft, Rule::Sound), [80, 90]);
    assert_eq!(found(&craft, Rule::LastCut), [80]);
    // What a start dropped stays dropped when the cuts of the next incarnation pass its stamp.
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 100, &[80, 120]);
    group(&mut craft, 2, 150, &[130]);
    assert_eq!(found(&craft, Rule::Sound), [80, 130]);
    assert_eq!(found(&craft, Rule::ChainWide), [80, 120, 130]);
    // A cut above all records was acknowledged too.
    let mut craft = Craft::new(SIZE);
    group(&mut craft, 1, 100, &[80]);
    assert_eq!(craft.recover(Rule::Sound).unwrap().0.max_lsn, Lsn(100));
    assert_eq!(craft.recover(Rule::BaseBelow).unwrap().0.max_lsn, Lsn(80));
}
