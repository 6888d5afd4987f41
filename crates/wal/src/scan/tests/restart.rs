//! Random histories of several lanes, each crashed and started three times, over a file system in memory.
//!
//! A history follows the rules of the log, not its code:
//!
//! - lanes draw stamps, and a cut may meet a lane in the middle of a draw and copy records above the cut;
//! - several groups are in flight; they land in any order, torn, or not at all;
//! - restarts crash too.
//!
//! The real scan and the real reader read what the history wrote. An oracle that saw every step judges the result.
//! `FORESHORE_RESTARTS` says how many histories run.

use super::super::{Rule, Scanned};
use super::craft::{Craft, Draft, record};
use crate::follow::Follower;
use crate::reader::Recovered;
use crate::segment::{Control, Home};
use foreshore_base::GroupNo;
use foreshore_base::limits::BLOCK;
use foreshore_sync::{available_parallelism, primitive::thread};
use std::collections::{BTreeMap, VecDeque};

const SIZE: u64 = 64 << 10;
/// Segments of which a start may pass over some.
const SMALL: u64 = 24 << 10;
const CRASHES: usize = 3;
const SECTOR: usize = 512;

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// An error of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    /// An acknowledged record is missing.
    Lost(u64),
    /// A record that an earlier start dropped is back.
    Revived(u64),
    /// A record was found, but one that it may depend on was not.
    Hole(u64),
    /// Records do not ascend, or one carries another stamp.
    Disorder(u64),
    /// The log was refused.
    Refused(String),
    /// A follower has returned a record that was not acknowledged.
    Early(u64),
    /// A follower has read something else than the log holds, or too little of it.
    Followed,
}

/// Events that must happen at least once in a run; otherwise the run proves little.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    dropped_provisional: u64,
    pushed_above_records: u64,
    fallen_cuts: u64,
    intermediate: u64,
    overtaken: u64,
    torn: u64,
    rolled: u64,
    vanished: u64,
    crashed_starts: u64,
    passed_over: u64,
    /// Starts that passed over segments and found groups to repeat that the medium may not have.
    repeated_behind: u64,
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.dropped_provisional += other.dropped_provisional;
        self.pushed_above_records += other.pushed_above_records;
        self.fallen_cuts += other.fallen_cuts;
        self.intermediate += other.intermediate;
        self.overtaken += other.overtaken;
        self.torn += other.torn;
        self.rolled += other.rolled;
        self.vanished += other.vanished;
        self.crashed_starts += other.crashed_starts;
        self.passed_over += other.passed_over;
        self.repeated_behind += other.repeated_behind;
    }

    fn all(&self) -> [u64; 11] {
        [
            self.dropped_provisional,
            self.pushed_above_records,
            self.fallen_cuts,
            self.intermediate,
            self.overtaken,
            self.torn,
            self.rolled,
            self.vanished,
            self.crashed_starts,
            self.passed_over,
            self.repeated_behind,
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Appended; a crash may take it.
    Open,
    Acknowledged,
    /// A start did not find it.
    Dropped,
}

/// A record as the oracle knows it; its index is its tag.
#[derive(Clone, Copy, Debug)]
struct Known {
    lsn: u64,
    incarnation: u32,
    fate: Fate,
    copied: bool,
}

#[derive(Default)]
struct Lane {
    last: u64,
    /// Stamps and tags of the records that are not copied yet.
    waiting: VecDeque<(u64, u64)>,
    /// Offset in the lane of the first one waiting.
    at: u64,
    /// The stamp of a record that is being drawn.
    drawing: Option<u64>,
}

/// A group between seal and acknowledgement.
struct Flight {
    group: u64,
    cut: u64,
    place: (u64, u64),
    bytes: Vec<u8>,
    landed: bool,
}

struct World {
    craft: Craft,
    random: Random,
    rule: Rule,
    seen: Seen,
    known: Vec<Known>,
    incarnation: u32,
    lanes: Vec<Lane>,
    floor: u64,
    clock: u64,
    sealed: u64,
    durable: u64,
    /// Newest group known to be durable.
    acked: u64,
    depth: usize,
    /// Whether a cut may be below the one before. No writer makes such a log, and it is read if nothing is passed over.
    forgetful: bool,
    flights: VecDeque<Flight>,
    /// Groups that the last crash left visible, and perhaps not on the medium: number, place, length.
    visible: Vec<(u64, (u64, u64), usize)>,
    /// A follower that reads the log as another process would, and the records that it has returned.
    follower: Follower,
    followed: Vec<u64>,
    /// Places of the groups that a start has accepted.
    doubtful: Vec<((u64, u64), usize)>,
}

impl World {
    fn new(seed: u64, rule: Rule) -> Self {
        let mut random = Random::new(seed);
        let lanes = 1 + random.below(4) as usize;
        let size = if random.one_in(2) { SMALL } else { SIZE };
        let craft = Craft::new(size);
        let Home { fs, dir, uuid } = &craft.home;
        Self {
            follower: Follower::open(fs, dir, *uuid, GroupNo::ZERO).expect("a new log is sound"),
            followed: Vec::new(),
            craft,
            rule,
            seen: Seen::default(),
            known: Vec::new(),
            incarnation: 2,
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            floor: 0,
            clock: 0,
            sealed: 0,
            durable: 0,
            acked: 0,
            depth: 1 + random.below(3) as usize,
            forgetful: size == SIZE && random.one_in(2),
            flights: VecDeque::new(),
            visible: Vec::new(),
            doubtful: Vec::new(),
            random,
        }
    }

    /// Returns the stamp of a record that is drawn now.
    fn draw(&mut self, lane: usize) -> u64 {
        let dep = match self.random.below(3) {
            0 if !self.known.is_empty() => {
                let other = self.random.below(self.known.len() as u64) as usize;
                // No record depends on one that was dropped.
                if self.known[other].fate == Fate::Dropped { 0 } else { self.known[other].lsn }
            }
            1 => self.durable,
            _ => 0,
        };
        let stamp = self.lanes[lane].last.max(dep).max(self.floor) + 1;
        if self.random.one_in(3) {
            // A commit draws from the clock; some clocks run ahead of all records.
            self.clock = self.clock.max(stamp - 1) + 1 + self.random.below(3);
            return self.clock;
        }
        stamp
    }

    fn publish(&mut self, lane: usize, lsn: u64) {
        let (tag, incarnation) = (self.known.len() as u64, self.incarnation);
        // A wait for an LSN that is durable already ends at once.
        let fate = if lsn <= self.durable { Fate::Acknowledged } else { Fate::Open };
        self.known.push(Known { lsn, incarnation, fate, copied: false });
        self.lanes[lane].last = lsn;
        self.lanes[lane].waiting.push_back((lsn, tag));
    }

    fn append(&mut self) {
        let lane = self.random.below(self.lanes.len() as u64) as usize;
        if self.lanes[lane].drawing.is_none() {
            let lsn = self.draw(lane);
            self.publish(lane, lsn);
        }
    }

    fn finish_draw(&mut self, lane: usize) {
        if let Some(lsn) = self.lanes[lane].drawing.take() {
            self.publish(lane, lsn);
        }
    }

    /// Cuts as `lanes` does, while sessions go on.
    fn cut(&mut self) {
        for lane in 0..self.lanes.len() {
            if self.random.one_in(5) {
                let lsn = self.draw(lane);
                self.lanes[lane].drawing = Some(lsn);
            }
        }
        let high = self.lanes.iter().map(|lane| lane.last).max().unwrap_or(0);
        // The clock may have been pushed by a reader's stamp above all records.
        self.clock += self.random.below(4);
        let stamp = high.max(self.clock).max(self.floor);
        (self.floor, self.clock) = (stamp, stamp);
        let mut cut = stamp;
        let mut copied = Vec::new();
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].drawing.is_some() {
                cut = cut.min(self.lanes[lane].last);
            }
            // Between the load of the lane's stamp and that of its tail.
            if self.random.one_in(2) {
                self.finish_draw(lane);
            }
            if self.random.one_in(4) {
                self.append();
            }
            copied.push(self.lanes[lane].waiting.len());
        }
        (0..self.lanes.len()).for_each(|lane| self.finish_draw(lane));
        if !self.forgetful {
            cut = cut.max(self.sealed);
        }
        if cut <= self.sealed && copied.iter().all(|&count| count == 0) {
            return;
        }
        self.seen.fallen_cuts += u64::from(cut < self.sealed);
        let largest = self.known.iter().map(|known| known.lsn).max().unwrap_or(0);
        self.seen.pushed_above_records += u64::from(cut > largest);
        let parts = 1 + self.random.below(3) as usize;
        self.seen.intermediate += parts as u64 - 1;
        for part in 0..parts {
            let header_cut = if part + 1 == parts { cut } else { self.sealed };
            let counts: Vec<usize> =
                copied.iter().map(|&count| count * (part + 1) / parts - count * part / parts).collect();
            self.seal(header_cut, &counts);
        }
        self.sealed = self.sealed.max(cut);
    }

    /// Seals a group of the first so many records of each lane.
    fn seal(&mut self, cut: u64, counts: &[usize]) {
        while self.flights.len() >= self.depth {
            self.land();
        }
        let mut draft = self.craft.draft(self.incarnation, cut);
        draft.header.acked_upto = GroupNo(self.acked);
        for (lane, &count) in counts.iter().enumerate() {
            let mut data = Vec::new();
            for _ in 0..count {
                let (lsn, tag) = self.lanes[lane].waiting.pop_front().expect("counted");
                let len = if tag % 16 == 0 { 1500 } else { tag % 40 } as usize;
                data.extend(record(lsn, tag, 0, &vec![tag as u8; len]));
                self.known[tag as usize].copied = true;
            }
            let at = self.lanes[lane].at;
            self.lanes[lane].at += data.len() as u64;
            draft.extent(lane as u16, at, data);
        }
        self.launch(&draft, cut);
    }

    fn launch(&mut self, draft: &Draft, cut: u64) {
        let (bytes, crc) = draft.seal();
        let place = self.place(bytes.len());
        let group = self.craft.next;
        self.flights.push_back(Flight { group, cut, place, bytes, landed: false });
        (self.craft.next, self.craft.prev_crc) = (group + 1, crc);
    }

    /// The place of the next group; a new segment holds what an older one did.
    fn place(&mut self, len: usize) -> (u64, u64) {
        let before = self.craft.segment;
        let place = self.craft.place(len as u64);
        if self.craft.segment != before {
            self.seen.rolled += 1;
            if self.random.one_in(2) {
                let mut stale = vec![0; self.craft.size as usize - BLOCK];
                let read = self.craft.file(1).read_at(&mut stale, BLOCK as u64).unwrap();
                self.craft.file(self.craft.segment).write_at(&stale[..read], BLOCK as u64).unwrap();
            }
        }
        place
    }

    /// One of the groups in flight reaches the medium; what that makes durable is acknowledged.
    fn land(&mut self) {
        let open: Vec<usize> = (0..self.flights.len()).filter(|&i| !self.flights[i].landed).collect();
        if open.is_empty() {
            return;
        }
        let nth = open[self.random.below(open.len() as u64) as usize];
        self.seen.overtaken += u64::from(nth > 0);
        let flight = &mut self.flights[nth];
        flight.landed = true;
        self.craft.file(flight.place.0).write_at(&flight.bytes, flight.place.1).unwrap();
        while self.flights.front().is_some_and(|flight| flight.landed) {
            let flight = self.flights.pop_front().expect("looked at");
            self.durable = self.durable.max(flight.cut);
            self.acked = flight.group;
        }
        let (durable, incarnation) = (self.durable, self.incarnation);
        let covered = |known: &&mut Known| known.incarnation == incarnation && known.lsn <= durable;
        for known in self.known.iter_mut().filter(covered) {
            if known.fate == Fate::Open {
                known.fate = Fate::Acknowledged;
            }
        }
    }

    /// Puts each group in flight on the medium whole, in part, or not at all.
    fn crash(&mut self) {
        for ((segment, at), len) in std::mem::take(&mut self.doubtful) {
            if self.random.one_in(2) {
                self.seen.vanished += 1;
                self.craft.file(segment).write_at(&vec![0; len], at).unwrap();
            }
        }
        for flight in std::mem::take(&mut self.flights) {
            let file = self.craft.file(flight.place.0);
            if flight.landed {
                continue;
            }
            match self.random.below(3) {
                0 => {
                    file.write_at(&flight.bytes, flight.place.1).unwrap();
                    self.visible.push((flight.group, flight.place, flight.bytes.len()));
                }
                1 => {}
                _ => self.tear(flight.place, &flight.bytes),
            }
        }
        self.lanes.iter_mut().for_each(|lane| *lane = Lane::default());
    }

    fn tear(&mut self, (segment, at): (u64, u64), bytes: &[u8]) {
        self.seen.torn += 1;
        let file = self.craft.file(segment);
        for (i, sector) in bytes.chunks(SECTOR).enumerate() {
            if self.random.one_in(2) {
                file.write_at(sector, at + (i * SECTOR) as u64).unwrap();
            }
        }
    }

    /// Repeats the start until one succeeds.
    fn start(&mut self) -> Result<(), Wrong> {
        loop {
            let (scanned, recovered) =
                self.craft.recover(self.rule).map_err(|error| Wrong::Refused(format!("{error:?}")))?;
            let found = self.judge(&recovered)?;
            let passed_over = scanned.live.iter().filter(|live| live.is_unread()).count() as u64;
            self.seen.passed_over += passed_over;
            self.seen.repeated_behind += u64::from(passed_over > 0 && scanned.tail.len() > 1);
            let live = scanned.last();
            (self.craft.segment, self.craft.at) = (live.number, live.end);
            (self.craft.next, self.craft.prev_crc) = (scanned.next.0, scanned.prev_crc);
            if self.random.one_in(8) {
                self.seen.crashed_starts += 1;
                continue;
            }
            let mut control = Control::open(&self.craft.home).expect("both slots are sound");
            control.renew(recovered.incarnation()).expect("memory takes it");
            if self.random.one_in(8) || !self.repeat(&scanned) {
                self.seen.crashed_starts += 1;
                continue;
            }
            self.settle(&found);
            let believed = self.visible.drain(..).filter(|&(group, ..)| group < scanned.next.0);
            self.doubtful = believed.map(|(_, place, len)| (place, len)).collect();
            self.incarnation = recovered.incarnation().0;
            let base = recovered.max_lsn().0;
            (self.floor, self.clock) = (base, base);
            (self.sealed, self.durable) = (recovered.end().0, recovered.end().0);
            self.acked = scanned.next.0 - 1;
            self.lanes.iter_mut().for_each(|lane| lane.last = base);
            return Ok(());
        }
    }

    /// Repeats the last groups. Returns false if a crash interrupts that.
    fn repeat(&mut self, scanned: &Scanned) -> bool {
        for last in &scanned.tail {
            let file = self.craft.file(scanned.live[last.segment].number);
            let mut bytes = vec![0; last.len as usize];
            file.read_at(&mut bytes, last.offset).unwrap();
            let place = self.place(bytes.len());
            if self.random.one_in(16) {
                self.tear(place, &bytes);
                return false;
            }
            self.craft.file(place.0).write_at(&bytes, place.1).unwrap();
        }
        true
    }

    /// Compares the records that a start found with the history, and returns them.
    fn judge(&mut self, recovered: &Recovered) -> Result<Vec<bool>, Wrong> {
        let mut last = 0;
        let mut found = vec![false; self.known.len()];
        let mut highest = BTreeMap::<u32, u64>::new();
        for item in recovered.records(recovered.first_group()) {
            let item = item.map_err(|error| Wrong::Refused(format!("{error:?}")))?;
            let Some(known) = self.known.get(item.tag as usize) else { return Err(Wrong::Disorder(item.tag)) };
            if item.lsn.0 < last || item.lsn.0 != known.lsn || found[item.tag as usize] {
                return Err(Wrong::Disorder(item.tag));
            }
            if known.fate == Fate::Dropped {
                return Err(Wrong::Revived(item.tag));
            }
            last = item.lsn.0;
            found[item.tag as usize] = true;
            highest.insert(known.incarnation, known.lsn);
        }
        for (tag, known) in self.known.iter().enumerate().filter(|&(tag, _)| !found[tag]) {
            if known.fate == Fate::Acknowledged {
                return Err(Wrong::Lost(tag as u64));
            }
            let covered = highest.get(&known.incarnation).is_some_and(|&highest| known.lsn < highest);
            if known.fate == Fate::Open && covered {
                return Err(Wrong::Hole(tag as u64));
            }
        }
        Ok(found)
    }

    /// Notes the result of a successful start: its records must stay, and all others must stay lost. A start that
    /// crashes itself does not bind a later one. A torn group may even become whole by what is written over it.
    fn settle(&mut self, found: &[bool]) {
        for (known, &found) in self.known.iter_mut().zip(found) {
            self.seen.dropped_provisional += u64::from(!found && known.copied && known.fate == Fate::Open);
            known.fate = if found { Fate::Acknowledged } else { Fate::Dropped };
        }
    }

    fn live(&mut self) -> Result<(), Wrong> {
        let steps = if self.craft.size == SMALL { 150 } else { 40 };
        for _ in 0..5 + self.random.below(steps) {
            match self.random.below(11) {
                0..6 => self.append(),
                6..8 => self.cut(),
                8..10 => self.land(),
                _ => self.follow()?,
            }
        }
        Ok(())
    }

    /// Lets the follower read, and checks that a crash could drop none of its records.
    fn follow(&mut self) -> Result<(), Wrong> {
        while let Some(item) = self.follower.read().map_err(|error| Wrong::Refused(format!("{error:?}")))? {
            if self.known[item.tag as usize].fate != Fate::Acknowledged {
                return Err(Wrong::Early(item.tag));
            }
            self.followed.push(item.tag);
        }
        Ok(())
    }

    /// Checks that the followed records are the front of those that a start finds. The follower must have read every
    /// group except those that were never confirmed.
    fn compare(&mut self) -> Result<(), Wrong> {
        self.follow()?;
        let (scanned, recovered) =
            self.craft.recover(self.rule).map_err(|error| Wrong::Refused(format!("{error:?}")))?;
        let found = recovered.records(recovered.first_group()).map(|item| item.expect("judged").tag as usize);
        let found: Vec<u64> = found.map(|tag| self.known[tag].lsn).collect();
        let followed: Vec<u64> = self.followed.iter().map(|&tag| self.known[tag as usize].lsn).collect();
        let passed = scanned.tail.first().map_or(scanned.next, |first| first.group);
        match found.starts_with(&followed) && self.follower.next_group() == passed {
            true => Ok(()),
            false => Err(Wrong::Followed),
        }
    }
}

fn history(seed: u64, rule: Rule) -> Result<Seen, Wrong> {
    let mut world = World::new(seed, rule);
    for _ in 0..CRASHES {
        world.live()?;
        world.crash();
        if world.random.one_in(2) {
            world.follow()?;
        }
        world.start()?;
        world.compare()?;
    }
    Ok(world.seen)
}

fn histories() -> u64 {
    std::env::var("FORESHORE_RESTARTS").map_or(2000, |count| count.parse().expect("FORESHORE_RESTARTS is a number"))
}

/// Runs the histories of every `step`th seed from `first` on.
fn run(first: u64, step: u64) -> Seen {
    let mut seen = Seen::default();
    for seed in (first..histories()).step_by(step as usize) {
        match history(seed, Rule::Sound) {
            Ok(one) => seen.add(&one),
            Err(wrong) => panic!("history {seed}: {wrong:?}"),
        }
    }
    seen
}

#[test]
fn no_history_loses_or_revives_a_record() {
    let threads = available_parallelism() as u64;
    let mut seen = Seen::default();
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|first| scope.spawn(move || run(first, threads))).collect();
        parts.into_iter().for_each(|part| seen.add(&part.join().expect("every history is sound")));
    });
    println!("{} crash images of the log: {seen:?}", histories() * CRASHES as u64);
    assert!(seen.all().iter().all(|&count| count > 20), "too little happened: {seen:?}");
}

/// Returns how many histories a rule fails in each way.
fn failures(rule: Rule) -> (u64, u64, u64) {
    let (mut lost, mut revived, mut other) = (0, 0, 0);
    for seed in 0..2000 {
        match history(seed, rule) {
            Err(Wrong::Lost(_)) => lost += 1,
            Err(Wrong::Revived(_)) => revived += 1,
            Err(_) => other += 1,
            Ok(_) => {}
        }
    }
    (lost, revived, other)
}

#[test]
fn the_last_cut_of_an_incarnation_loses_records() {
    let (lost, ..) = failures(Rule::LastCut);
    assert!(lost > 20, "{lost}");
}

#[test]
fn the_largest_cut_of_the_log_revives_records() {
    let (_, revived, _) = failures(Rule::ChainWide);
    assert!(revived > 20, "{revived}");
}

#[test]
fn stamps_that_begin_below_a_cut_lose_records() {
    let (lost, ..) = failures(Rule::BaseBelow);
    assert!(lost > 20, "{lost}");
}
