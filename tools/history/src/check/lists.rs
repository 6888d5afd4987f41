//! The order of appends: the longest list of a key tells it, and every other list is the beginning of that.

use super::depend::Graphed;
use super::observe::{Observed, Read};
use super::violation::{Anomaly, Violation};
use std::collections::HashSet;

/// Adds the dependencies that the lists tell.
pub(super) fn order(observed: &Observed<'_>, graph: &mut Graphed) -> Result<(), Violation> {
    let mut reads: Vec<&Read<'_>> = observed.reads.iter().collect();
    reads.sort_by_key(|read| read.key);
    let writes = observed.final_writes();
    let mut writes = writes.chunk_by(|one, other| one.0 == other.0).peekable();
    for reads in reads.chunk_by(|one, other| one.key == other.key) {
        let key = reads[0].key;
        while writes.next_if(|writes| writes[0].0 < key).is_some() {}
        let writes = writes.next_if(|writes| writes[0].0 == key).unwrap_or_default();
        of_key(observed, graph, reads, writes)?;
    }
    Ok(())
}

/// Adds those of one key: its `reads` and the final `writes` of committed transactions.
fn of_key(
    observed: &Observed<'_>,
    graph: &mut Graphed,
    reads: &[&Read<'_>],
    writes: &[(u64, usize, u64)],
) -> Result<(), Violation> {
    let Some(longest) = reads.iter().max_by_key(|read| read.found.len()) else { return Ok(()) };
    let key = longest.key;
    observed.check_list(longest)?;
    if let Some(other) = reads.iter().find(|read| !longest.found.starts_with(read.found)) {
        let what = format!("key {key} is {:?} and {:?}", other.found, longest.found);
        return Err(observed.violation(Anomaly::IncompatibleOrder, &what, &[other.txn, longest.txn]));
    }
    let writer = |value: &u64| observed.writes[&(key, *value)].txn;
    let writers: Vec<usize> = longest.found.iter().map(writer).collect();
    for pair in writers.windows(2) {
        graph.add_write(pair[0], pair[1], key);
    }
    // An element that no transaction has read was appended behind all that were read.
    let seen: HashSet<u64> = longest.found.iter().copied().collect();
    let unseen = writes.iter().filter(|write| !seen.contains(&write.2)).map(|write| write.1);
    let unseen: Vec<usize> = unseen.collect();
    if let Some(&last) = writers.last() {
        unseen.iter().for_each(|&after| graph.add_write(last, after, key));
    }
    for read in reads {
        match writers.get(read.found.len()) {
            Some(&next) => graph.add_overwrite(read, next),
            None => unseen.iter().for_each(|&next| graph.add_overwrite(read, next)),
        }
    }
    Ok(())
}
