//! Which thread wrote which line, by which instruction.

use super::counts::{Counts, Site};
use super::symbols::Symbols;
use crate::units::thousandths;
use std::cmp::Reverse;
use std::collections::HashMap;

/// A kind of write: a thread's instruction on one line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Write {
    line: u64,
    /// Address of the instruction.
    instruction: u64,
    thread: i32,
}

#[derive(Clone, Copy)]
struct Times {
    times: u64,
    is_rmw: bool,
    /// Part of a worker's operation.
    is_operation: bool,
}

#[derive(Default)]
pub(super) struct WrittenLines {
    writes: HashMap<Write, Times>,
    /// Instructions of operations.
    pub(super) instructions: u64,
}

/// An instruction's read-modify-writes.
struct RmwsOfInstruction {
    instruction: u64,
    rmw: u64,
    contended: u64,
}

impl WrittenLines {
    pub(super) fn note(&mut self, line: u64, instruction: u64, thread: i32, is_rmw: bool, is_operation: bool) {
        let write = Write { line, instruction, thread };
        self.writes.entry(write).or_insert(Times { times: 0, is_rmw, is_operation }).times += 1;
    }

    /// What so many operations did.
    pub(super) fn counts(&self, operations: u64, symbols: &mut Symbols) -> Counts {
        let mut counted = self.counted();
        counted.sort_by_key(|counted| (Reverse(counted.contended), counted.instruction));
        let sites = counted.iter().filter(|counted| counted.contended > 0).map(|counted| {
            let (function, offset) = symbols.find(counted.instruction);
            let contended_rmw_per_txn = thousandths(counted.contended as f64 / operations as f64);
            Site { function, offset, contended_rmw_per_txn }
        });
        Counts {
            operations,
            instructions: self.instructions,
            rmw: counted.iter().map(|counted| counted.rmw).sum(),
            contended: counted.iter().map(|counted| counted.contended).sum(),
            sites: sites.collect(),
        }
    }

    /// The read-modify-writes of operations, by instruction.
    fn counted(&self) -> Vec<RmwsOfInstruction> {
        // One writer of each line, and whether there are more.
        let mut lines = HashMap::new();
        for write in self.writes.keys() {
            let (first, is_shared) = lines.entry(write.line).or_insert((write.thread, false));
            *is_shared |= *first != write.thread;
        }
        let mut counted = HashMap::new();
        for (write, times) in self.writes.iter().filter(|(_, times)| times.is_rmw && times.is_operation) {
            let (rmw, contended) = counted.entry(write.instruction).or_insert((0, 0));
            *rmw += times.times;
            *contended += if lines[&write.line].1 { times.times } else { 0 };
        }
        counted
            .into_iter()
            .map(|(instruction, (rmw, contended))| RmwsOfInstruction { instruction, rmw, contended })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_contended_once_two_threads_wrote_it_by_any_instruction() {
        let mut tally = WrittenLines::default();
        tally.note(1, 100, 7, true, true);
        tally.note(1, 100, 7, true, true);
        tally.note(2, 100, 7, true, true);
        let sums = |tally: &WrittenLines| {
            let counted = tally.counted();
            (counted.iter().map(|c| c.rmw).sum::<u64>(), counted.iter().map(|c| c.contended).sum::<u64>())
        };
        assert_eq!(sums(&tally), (3, 0));
        tally.note(1, 200, 8, false, false);
        assert_eq!(sums(&tally), (3, 2), "a plain store of a background thread");
        tally.note(2, 300, 8, true, false);
        assert_eq!(sums(&tally), (3, 3), "whose own read-modify-writes do not count");
    }
}
