//! The order of the versions of registers: what the store tells of it, and what follows from the reads.

use super::depend::Graphed;
use super::level::{Base, Level};
use super::observe::{Observed, Read};
use super::violation::{Anomaly, Violation};
use crate::History;
use crate::history::NEVER;
use std::collections::{HashMap, HashSet};

/// Adds the dependencies of the versions.
pub(super) fn order(
    history: &History,
    observed: &Observed<'_>,
    level: Level,
    graph: &mut Graphed,
) -> Result<(), Violation> {
    let mut reads: Vec<&Read<'_>> = observed.reads.iter().collect();
    reads.sort_by_key(|read| read.key);
    let writes = observed.final_writes();
    let mut reads = reads.chunk_by(|one, other| one.key == other.key).peekable();
    for writes in writes.chunk_by(|one, other| one.0 == other.0) {
        let key = writes[0].0;
        while reads.next_if(|reads| reads[0].key < key).is_some() {}
        let reads = reads.next_if(|reads| reads[0].key == key).unwrap_or_default();
        let register = Register { observed, key, reads, writes };
        if level.base >= Base::Snapshot {
            register.check_updates()?;
        }
        let told = history.orders.get(&key).map_or(&[][..], Vec::as_slice);
        register.add(&register.successors(told, level), graph);
    }
    Ok(())
}

/// Each version, by what it replaces; `None` is before the first.
type Successors = HashMap<Option<u64>, Vec<u64>>;

/// What happened to one key.
struct Register<'a, 'h> {
    observed: &'a Observed<'h>,
    key: u64,
    reads: &'a [&'a Read<'h>],
    /// Key, transaction, version.
    writes: &'a [(u64, usize, u64)],
}

impl Register<'_, '_> {
    /// Reads whose transaction wrote over them, each with its version: what it replaces, since no level from snapshot
    /// isolation on lets a version come in between.
    fn updates(&self) -> impl Iterator<Item = (&Read<'_>, u64)> {
        let written: HashMap<usize, u64> = self.writes.iter().map(|&(_, txn, version)| (txn, version)).collect();
        self.reads.iter().filter_map(move |read| Some((*read, *written.get(&read.txn)?)))
    }

    /// No transaction reads two versions, and no two replace the same one.
    fn check_updates(&self) -> Result<(), Violation> {
        let mut seen: HashMap<usize, Option<u64>> = HashMap::new();
        for read in self.reads {
            if *seen.entry(read.txn).or_insert(read.version()) != read.version() {
                let what = format!("key {} was read as two versions", self.key);
                return Err(self.observed.violation(Anomaly::GSingle, &what, &[read.txn]));
            }
        }
        let mut replaced: HashMap<Option<u64>, usize> = HashMap::new();
        for (read, _) in self.updates() {
            let first = *replaced.entry(read.version()).or_insert(read.txn);
            if first != read.txn {
                let what = format!("both replaced {:?} of key {}", read.version(), self.key);
                return Err(self.observed.violation(Anomaly::LostUpdate, &what, &[first, read.txn]));
            }
        }
        Ok(())
    }

    fn successors(&self, told: &[u64], level: Level) -> Successors {
        let mut successors = Successors::new();
        let versions: HashMap<u64, usize> = self.writes.iter().map(|&(_, txn, version)| (version, txn)).collect();
        let mut chain: Vec<u64> = Vec::new();
        let mut chained: HashSet<u64> = HashSet::new();
        for &version in told {
            if versions.contains_key(&version) && chained.insert(version) {
                successors.entry(chain.last().copied()).or_default().push(version);
                chain.push(version);
            }
        }
        let mut preceded = HashSet::new();
        if level.base >= Base::Snapshot {
            for (read, version) in self.updates() {
                let known = chained.contains(&version) && read.version().is_none_or(|read| chained.contains(&read));
                if !known {
                    successors.entry(read.version()).or_default().push(version);
                    preceded.insert(version);
                }
            }
        }
        let txns = &self.observed.history.txns;
        for (version, txn) in versions.iter().filter(|(version, _)| !chained.contains(version)) {
            if level.real_time {
                let txn = &txns[*txn];
                let is_before = |other: &u64| txns[versions[other]].settled < txn.begin;
                let is_after = |other: &u64| txn.settled != NEVER && txn.settled < txns[versions[other]].begin;
                if let Some(before) = chain.iter().rfind(|other| is_before(other)) {
                    successors.entry(Some(*before)).or_default().push(*version);
                    preceded.insert(*version);
                }
                if let Some(after) = chain.iter().find(|other| is_after(other)) {
                    successors.entry(Some(*version)).or_default().push(*after);
                }
            }
            if !preceded.contains(version) {
                successors.entry(None).or_default().push(*version);
            }
        }
        successors
    }

    fn add(&self, successors: &Successors, graph: &mut Graphed) {
        let writer = |version: &u64| self.observed.writes[&(self.key, *version)].txn;
        for (version, next) in successors {
            if let Some(version) = version {
                next.iter().for_each(|next| graph.add_write(writer(version), writer(next), self.key));
            }
        }
        for read in self.reads {
            for next in successors.get(&read.version()).into_iter().flatten() {
                graph.add_overwrite(read, writer(next));
            }
        }
    }
}
