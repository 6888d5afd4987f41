//! The graph of dependencies between transactions.

use super::observe::{Observed, Read};
use super::violation::{Dependency, Edge};
use crate::History;
use crate::history::NEVER;

/// Dependencies. Nodes below the number of transactions are transactions. The others are moments: they carry real time
/// from the transactions that have been answered by then to those that begin later.
pub(super) struct Graphed {
    pub(super) txns: usize,
    pub(super) nodes: usize,
    pub(super) edges: Vec<Edge>,
}

impl Graphed {
    pub(super) fn new(history: &History, observed: &Observed<'_>) -> Self {
        let txns = history.txns.len();
        let mut graph = Self { txns, nodes: txns, edges: Vec::new() };
        for read in &observed.reads {
            if let Some(write) = read.version().and_then(|version| observed.writes.get(&(read.key, version))) {
                graph.add(write.txn, read.txn, Dependency::Wr, read.key);
            }
        }
        graph
    }

    fn add(&mut self, from: usize, to: usize, dependency: Dependency, key: u64) {
        // What a transaction does to itself is no dependency.
        if from != to {
            self.edges.push(Edge { from, to, dependency, key });
        }
    }

    /// `before` wrote the version of `key` before that of `after`.
    pub(super) fn add_write(&mut self, before: usize, after: usize, key: u64) {
        self.add(before, after, Dependency::Ww, key);
    }

    /// `after` wrote over what `read` has seen.
    pub(super) fn add_overwrite(&mut self, read: &Read<'_>, after: usize) {
        self.add(read.txn, after, Dependency::Rw { by_scan: read.by_scan }, read.key);
    }

    /// Adds real time: a chain of the moments at which transactions were settled.
    pub(super) fn add_time(&mut self, observed: &Observed<'_>) {
        let txns = &observed.history.txns;
        let is_settled = |&at: &usize| observed.committed[at] && txns[at].settled != NEVER;
        let mut settled: Vec<usize> = (0..self.txns).filter(is_settled).collect();
        settled.sort_unstable_by_key(|&at| txns[at].settled);
        let first = self.nodes;
        for (place, &at) in settled.iter().enumerate() {
            let moment = first + place;
            self.add(at, moment, Dependency::Time, 0);
            if place > 0 {
                self.add(moment - 1, moment, Dependency::Time, 0);
            }
        }
        self.nodes += settled.len();
        for at in (0..self.txns).filter(|&at| observed.committed[at]) {
            let before = settled.partition_point(|&other| txns[other].settled < txns[at].begin);
            if let Some(last) = before.checked_sub(1) {
                self.add(first + last, at, Dependency::Time, 0);
            }
        }
    }
}
