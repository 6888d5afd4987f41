//! Which cycles a level forbids.
//!
//! | cycle of | name | forbidden from |
//! |---|---|---|
//! | writes over writes | G0 | read committed |
//! | those and reads of writes | G1c | read committed |
//! | those and reads that were overwritten, no two of these in a row | G-single, G-nonadjacent | snapshot |
//! | all | G2-item, G2 | serializable |
//!
//! In real time, order in time counts as a read of a write does. Read committed has one more rule then. A read may not
//! miss a transaction that was answered before its own began, nor one that the answered one depends on.

use super::depend::Graphed;
use super::graph::Digraph;
use super::level::{Base, Level};
use super::violation::{Anomaly, Dependency, Edge};
use crate::History;

/// A name and a cycle.
type Found = (Anomaly, Vec<Edge>);

/// The cycles that are looked for, the most basic first.
#[derive(Clone, Copy)]
enum Class {
    Writes,
    Reads,
    Apart,
    All,
}

impl Class {
    const BY_BASE: [(Self, Base); 4] = [
        (Self::Writes, Base::ReadCommitted),
        (Self::Reads, Base::ReadCommitted),
        (Self::Apart, Base::Snapshot),
        (Self::All, Base::Serializable),
    ];

    fn has(self, dependency: Dependency) -> bool {
        match dependency {
            Dependency::Ww | Dependency::Time => true,
            Dependency::Wr => !matches!(self, Self::Writes),
            Dependency::Rw { .. } => matches!(self, Self::Apart | Self::All),
        }
    }

    fn name(self, cycle: &[Edge]) -> Anomaly {
        let overwritten = cycle.iter().filter(|edge| matches!(edge.dependency, Dependency::Rw { .. }));
        let by_scan = |edge: &Edge| edge.dependency == Dependency::Rw { by_scan: true };
        match self {
            Self::Writes => Anomaly::G0,
            Self::Reads => Anomaly::G1c,
            Self::Apart if overwritten.count() == 1 => Anomaly::GSingle,
            Self::Apart => Anomaly::GNonadjacent,
            Self::All if cycle.iter().any(by_scan) => Anomaly::G2,
            Self::All => Anomaly::G2Item,
        }
    }
}

/// Looks for what `level` forbids.
pub(super) fn forbid(graph: &Graphed, level: Level) -> Result<(), Found> {
    let forbidden = Class::BY_BASE.into_iter().filter(|(_, base)| *base <= level.base).map(|(class, _)| class);
    // Each class has the ones before in it: what the last one does not have is nowhere.
    let last = forbidden.clone().next_back().expect("every level forbids something");
    if find(graph, last, level.real_time).is_none() {
        return Ok(());
    }
    let times = [false, true];
    let times = times.iter().take(1 + usize::from(level.real_time));
    let all = times.flat_map(|&time| forbidden.clone().map(move |class| (class, time)));
    let found = all.clone().find_map(|(class, time)| find(graph, class, time));
    Err(found.expect("it has just been found"))
}

fn find(graph: &Graphed, class: Class, time: bool) -> Option<Found> {
    let edges = graph.edges.iter().enumerate();
    let edges =
        edges.filter(move |(_, edge)| class.has(edge.dependency) && (time || edge.dependency != Dependency::Time));
    let found = match class {
        // A node for each transaction as it is reached by a read that it wrote over, and one as it is reached
        // otherwise: from the first no such read leads on.
        Class::Apart => Digraph::new(
            2 * graph.nodes,
            edges
                .flat_map(|(at, edge)| match edge.dependency {
                    Dependency::Rw { .. } => [Some((2 * edge.from, 2 * edge.to + 1, at)), None],
                    _ => [Some((2 * edge.from, 2 * edge.to, at)), Some((2 * edge.from + 1, 2 * edge.to, at))],
                })
                .flatten(),
        ),
        _ => Digraph::new(graph.nodes, edges.map(|(at, edge)| (edge.from, edge.to, at))),
    };
    let components = found.components();
    if !components.has_cycle() {
        return None;
    }
    let is_free = |at: usize| graph.edges[at].to >= graph.txns;
    let cycle = found.shortest_cycle(&components, is_free).expect("there is one");
    let cycle = shown(graph, &cycle);
    Some((class.name(&cycle), cycle))
}

/// The cycle without the moments in it.
fn shown(graph: &Graphed, cycle: &[usize]) -> Vec<Edge> {
    let edge = |at: &usize| graph.edges[*at];
    let begin = cycle.iter().position(|at| edge(at).from < graph.txns).expect("moments alone are in no cycle");
    let mut shown: Vec<Edge> = Vec::new();
    let mut from = 0;
    for edge in cycle[begin..].iter().chain(&cycle[..begin]).map(edge) {
        if edge.from < graph.txns {
            from = edge.from;
        }
        if edge.to < graph.txns {
            shown.push(Edge { from, ..edge });
        }
    }
    shown
}

/// Finds a read that misses a transaction answered before its own began: the read, and the answered transaction. There
/// must be no cycle of writes and reads of them.
pub(super) fn stale(history: &History, graph: &Graphed) -> Option<(Edge, usize)> {
    let edges = graph.edges.iter().enumerate().filter(|(_, edge)| Class::Reads.has(edge.dependency));
    let before = Digraph::new(graph.nodes, edges.map(|(at, edge)| (edge.from, edge.to, at)));
    let components = before.components();
    let mut order: Vec<usize> = (0..graph.txns).collect();
    order.sort_unstable_by_key(|&txn| components.of[txn]);
    // For each transaction, the first to be answered of those that rest on it, or itself.
    let mut first: Vec<usize> = (0..graph.nodes).collect();
    for txn in order {
        for next in before.next(txn).filter(|&next| next < graph.txns) {
            if history.txns[first[next]].settled < history.txns[first[txn]].settled {
                first[txn] = first[next];
            }
        }
    }
    let overwritten = graph.edges.iter().filter(|edge| matches!(edge.dependency, Dependency::Rw { .. }));
    let is_stale = |edge: &&Edge| history.txns[first[edge.to]].settled < history.txns[edge.from].begin;
    overwritten.filter(is_stale).map(|edge| (*edge, first[edge.to])).next()
}
