//! The check agrees with a search through all orders, on small histories of stores that isolate well, badly or not at
//! all. `FORESHORE_HISTORIES` sets how many.

use foreshore_history::{Base, History, Kind, Level, Op, Outcome, Txn, check};
use std::collections::BTreeMap;

const HISTORIES: u64 = 3_000;
const KEYS: u64 = 3;
const LEVELS: [Level; 4] =
    [Level::SNAPSHOT, Level::SERIALIZABLE, Level::SNAPSHOT.in_real_time(), Level::STRICT_SERIALIZABLE];

#[test]
fn the_check_finds_what_a_search_through_all_orders_finds() {
    let histories = std::env::var("FORESHORE_HISTORIES").map_or(HISTORIES, |text| text.parse().expect("a number"));
    let mut verdicts: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for seed in 0..histories {
        let made = Made::new(seed);
        for level in LEVELS {
            let found = check(&made.history, level);
            let is_allowed = Search::new(&made.history, level).is_allowed();
            let place = || format!("seed {seed}, {level}, {:?}: {found:?}\n{:#?}", made.kind, made.history);
            assert!(found.is_ok() || !is_allowed, "refused, but there is an order: {}", place());
            assert!(found.is_err() || is_allowed || !made.is_complete, "accepted, but there is no order: {}", place());
            let entry = format!("{:?}, {level}, {:?}", made.history.kind, made.kind);
            verdicts.entry(entry).or_default()[usize::from(is_allowed)] += 1;
        }
        let read_committed = check(&made.history, Level::READ_COMMITTED.in_real_time());
        let snapshot = check(&made.history, Level::SNAPSHOT.in_real_time());
        assert!(snapshot.is_err() || read_committed.is_ok(), "seed {seed}: {read_committed:?}\n{:#?}", made.history);
    }
    println!("{verdicts:#?}");
    // Good and bad histories of each kind of store that can make both.
    let always_allowed = |entry: &str| match entry.split(", ").collect::<Vec<_>>()[..] {
        [_, _, "Serial"] => true,
        [_, level, "Snapshots"] => level.starts_with("snapshot"),
        [_, level, "Old"] => level == "snapshot",
        _ => false,
    };
    let some = histories / 1500;
    for (entry, [refused, allowed]) in verdicts {
        assert!(allowed > some, "{entry}: {allowed} allowed");
        assert!(if always_allowed(&entry) { refused == 0 } else { refused > some }, "{entry}: {refused} refused");
    }
}

/// How a store isolates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    /// One transaction at a time.
    Serial,
    /// Reads at a snapshot; the first to commit wins.
    Snapshots,
    /// Reads at a snapshot that may be old; the first to commit wins.
    Old,
    /// Reads at a snapshot, and all commit.
    Unchecked,
    /// Reads of what is committed, writes at the commit.
    Committed,
    /// Reads and writes at once; a rollback leaves what it wrote.
    Nothing,
}

const STORES: [Store; 6] =
    [Store::Serial, Store::Snapshots, Store::Old, Store::Unchecked, Store::Committed, Store::Nothing];

type State = BTreeMap<u64, Vec<u64>>;

/// A history and the store that made it.
struct Made {
    kind: Store,
    history: History,
    /// Whether the history tells the order of all versions.
    is_complete: bool,
}

/// A transaction under way.
struct Running {
    txn: usize,
    left: Vec<Op>,
    snapshot: Option<State>,
    writes: Vec<(u64, u64)>,
    /// Number of commits when it began.
    seen: usize,
}

struct Maker {
    random: u64,
    store: Store,
    history: History,
    state: State,
    /// Keys written by each commit, and what was there before it.
    commits: Vec<(Vec<u64>, State)>,
    moment: u64,
    value: u64,
}

impl Made {
    fn new(seed: u64) -> Self {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let store = STORES[draw(&mut random, 6) as usize];
        let kind = if draw(&mut random, 2) == 0 { Kind::Append } else { Kind::Register };
        let history = History::new(kind, 4);
        let mut maker = Maker { random, store, history, state: State::new(), commits: vec![], moment: 0, value: 0 };
        maker.run();
        let is_complete = maker.below(4) > 0;
        if is_complete {
            maker.read_all();
        } else if kind == Kind::Register {
            maker.history.orders.clear();
        }
        Self { kind: store, history: maker.history, is_complete }
    }
}

impl Maker {
    fn below(&mut self, bound: u64) -> u64 {
        draw(&mut self.random, bound)
    }

    fn run(&mut self) {
        let mut waiting = 2 + self.below(3);
        let mut running: Vec<Running> = Vec::new();
        let most = if self.store == Store::Serial { 1 } else { 3 };
        while waiting > 0 || !running.is_empty() {
            if waiting > 0 && running.len() < most && (running.is_empty() || self.below(2) == 0) {
                waiting -= 1;
                let begun = self.begin();
                running.push(begun);
                continue;
            }
            let at = self.below(running.len() as u64) as usize;
            if running[at].left.is_empty() {
                let ended = running.swap_remove(at);
                self.end(ended);
            } else {
                self.step(&mut running[at]);
            }
        }
    }

    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    fn begin(&mut self) -> Running {
        let mut left = Vec::new();
        for _ in 0..1 + self.below(3) {
            let key = self.below(KEYS);
            left.push(match self.below(5) {
                0 | 1 => {
                    self.value += 1;
                    Op::Write { key, value: self.value }
                }
                2 | 3 => Op::Read { key, found: None },
                _ => Op::Scan { keys: 0..KEYS, found: None },
            });
        }
        let txn = self.history.txns.len();
        let begin = self.tick();
        let process = txn as u64;
        self.history.txns.push(Txn { process, ops: vec![], outcome: Outcome::Ok, begin, end: 0, settled: 0 });
        let commits = self.commits.len() as u64;
        let (seen, snapshot) = match self.store {
            Store::Snapshots | Store::Unchecked => (commits, Some(self.state.clone())),
            Store::Old => {
                let seen = commits - self.below(2).min(commits);
                (seen, Some(self.commits.get(seen as usize).map_or(&self.state, |(_, before)| before).clone()))
            }
            Store::Serial | Store::Committed | Store::Nothing => (commits, None),
        };
        Running { txn, left, snapshot, writes: vec![], seen: seen as usize }
    }

    fn write(state: &mut State, kind: Kind, key: u64, value: u64) {
        let versions = state.entry(key).or_default();
        if kind == Kind::Register {
            versions.clear();
        }
        versions.push(value);
    }

    fn install(&mut self, key: u64, value: u64) {
        Self::write(&mut self.state, self.history.kind, key, value);
        if self.history.kind == Kind::Register {
            self.history.orders.entry(key).or_default().push(value);
        }
    }

    fn step(&mut self, running: &mut Running) {
        let kind = self.history.kind;
        let mut op = running.left.remove(0);
        let mut view = running.snapshot.as_ref().unwrap_or(&self.state).clone();
        if self.store != Store::Nothing {
            running.writes.iter().for_each(|&(key, value)| Self::write(&mut view, kind, key, value));
        }
        match &mut op {
            Op::Write { key, value } => {
                running.writes.push((*key, *value));
                if self.store == Store::Nothing {
                    self.install(*key, *value);
                }
            }
            Op::Read { key, found } => *found = Some(view.get(key).cloned().unwrap_or_default()),
            Op::Scan { found, .. } => *found = Some(view.into_iter().collect()),
        }
        self.history.txns[running.txn].ops.push(op);
        self.tick();
    }

    fn end(&mut self, running: Running) {
        let wrote = |(keys, _): &(Vec<u64>, State)| running.writes.iter().any(|(key, _)| keys.contains(key));
        let first_wins = matches!(self.store, Store::Snapshots | Store::Old);
        let conflicts = first_wins && self.commits[running.seen..].iter().any(wrote);
        let fails = conflicts || self.below(6) == 0;
        if !fails {
            let before = self.state.clone();
            if self.store != Store::Nothing {
                running.writes.iter().for_each(|&(key, value)| self.install(key, value));
            }
            self.commits.push((running.writes.iter().map(|&(key, _)| key).collect(), before));
        }
        let end = self.tick();
        let is_known = fails || self.below(6) > 0;
        let txn = &mut self.history.txns[running.txn];
        txn.outcome = match (fails, is_known) {
            (true, _) => Outcome::Fail,
            (false, true) => Outcome::Ok,
            (false, false) => Outcome::Info,
        };
        (txn.end, txn.settled) = (end, end);
    }

    /// One more transaction, which reads everything.
    fn read_all(&mut self) {
        let found = Some(std::mem::take(&mut self.state).into_iter().collect());
        let ops = vec![Op::Scan { keys: 0..KEYS, found }];
        let (begin, end) = (self.tick(), self.tick());
        self.history.txns.push(Txn { process: 9, ops, outcome: Outcome::Ok, begin, end, settled: end });
    }
}

/// SplitMix64.
fn draw(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % bound
}

/// A search for an order of beginnings and commits, with each indeterminate transaction in it or not.
struct Search<'h> {
    history: &'h History,
    level: Level,
    /// The last write of each transaction to each key.
    writes: Vec<State>,
}

#[derive(Clone)]
struct Node {
    state: State,
    /// What each key has been set to so far, where the history tells the order.
    told: State,
    snapshots: Vec<Option<State>>,
    /// Keys that were written since the transaction began.
    since: Vec<Vec<u64>>,
    done: Vec<bool>,
}

impl<'h> Search<'h> {
    fn new(history: &'h History, level: Level) -> Self {
        let writes = history.txns.iter().map(|txn| {
            let mut writes = State::new();
            for (key, value) in txn.writes() {
                Maker::write(&mut writes, history.kind, key, value);
            }
            writes
        });
        Self { history, level, writes: writes.collect() }
    }

    fn is_allowed(&self) -> bool {
        let txns = &self.history.txns;
        let start = Node {
            state: State::new(),
            told: State::new(),
            snapshots: vec![None; txns.len()],
            since: vec![vec![]; txns.len()],
            done: txns.iter().map(|txn| txn.outcome == Outcome::Fail).collect(),
        };
        self.go_on(&start)
    }

    fn go_on(&self, node: &Node) -> bool {
        let txns = &self.history.txns;
        let must = |at: &usize| txns[*at].outcome == Outcome::Ok;
        if (0..txns.len()).filter(must).all(|at| node.done[at]) {
            return true;
        }
        (0..txns.len()).filter(|&at| !node.done[at]).any(|at| self.begin(node, at) || self.commit(node, at))
    }

    fn may_begin(&self, node: &Node, at: usize) -> bool {
        let txns = &self.history.txns;
        let is_before = |other: &Txn| other.settled < txns[at].begin;
        // What has not committed by then never does: an indeterminate one that settled earlier is left out for good.
        !self.level.real_time
            || txns.iter().zip(&node.done).all(|(txn, done)| *done || txn.outcome == Outcome::Info || !is_before(txn))
    }

    fn begin(&self, node: &Node, at: usize) -> bool {
        if node.snapshots[at].is_some() || !self.may_begin(node, at) || !self.reads_hold(&node.state, at) {
            return false;
        }
        let mut next = node.clone();
        if self.level.real_time {
            let begin = self.history.txns[at].begin;
            for (other, txn) in self.history.txns.iter().enumerate() {
                next.done[other] |= txn.outcome == Outcome::Info && txn.settled < begin;
            }
        }
        next.snapshots[at] = Some(State::new());
        next.since[at].clear();
        if self.level.base == Base::Serializable { self.commit(&next, at) } else { self.go_on(&next) }
    }

    fn reads_hold(&self, state: &State, at: usize) -> bool {
        let txn = &self.history.txns[at];
        if txn.outcome != Outcome::Ok {
            return true;
        }
        let mut view = state.clone();
        txn.ops.iter().all(|op| match op {
            Op::Write { key, value } => {
                Maker::write(&mut view, self.history.kind, *key, *value);
                true
            }
            Op::Read { key, found } => view.get(key).map_or(&[][..], Vec::as_slice) == found.as_deref().unwrap(),
            Op::Scan { found, .. } => view.iter().eq(found.as_ref().unwrap().iter().map(|(key, found)| (key, found))),
        })
    }

    fn commit(&self, node: &Node, at: usize) -> bool {
        let writes = &self.writes[at];
        if node.snapshots[at].is_none() || writes.keys().any(|key| node.since[at].contains(key)) {
            return false;
        }
        let mut next = node.clone();
        next.done[at] = true;
        for (key, values) in writes {
            next.since.iter_mut().for_each(|since| since.push(*key));
            values.iter().for_each(|value| Maker::write(&mut next.state, self.history.kind, *key, *value));
            if let Some(order) = self.history.orders.get(key) {
                let told = next.told.entry(*key).or_default();
                told.extend(values);
                let place = |value: &u64| order.iter().position(|other| other == value);
                if !told.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])) {
                    return false;
                }
            }
        }
        self.go_on(&next)
    }
}
