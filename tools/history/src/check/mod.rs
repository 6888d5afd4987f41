//! Whether a history is one that a level of isolation allows.
//!
//! The check is a search for cycles of dependencies (Adya, "Weak Consistency", 1999, chapters 3 and 4). Values are
//! unique, so a read names the transaction that it read from, and a list names the order of all that was appended to
//! it. For registers the order of versions is what the store says, as far as it says it, and what follows from reads
//! beside that.
//!
//! | module | holds |
//! |---|---|
//! | `level`, `violation` | what is asked, and what is answered |
//! | `observe` | what each transaction wrote and saw, and what no level allows |
//! | `lists`, `registers` | orders of versions |
//! | `depend` | dependencies: the graph |
//! | `graph` | components and shortest cycles |
//! | `cycles` | which cycles a level forbids |
//!
//! The time grows with the length of the history, plus sorting, if every list is read in the end or the store tells the
//! order of the versions. A violation costs more time, for its shortest cycle.

mod cycles;
mod depend;
mod graph;
mod level;
mod lists;
mod observe;
mod registers;
mod violation;

pub use level::{Base, Level};
pub use violation::{Anomaly, Dependency, Edge, Violation};

use crate::{History, Kind};
use depend::Graphed;
use observe::Observed;

/// Checks that `level` allows the history.
///
/// # Errors
/// What it does not allow; if there are several such things, the most basic one.
pub fn check(history: &History, level: Level) -> Result<(), Violation> {
    let observed = Observed::of(history)?;
    let mut graph = Graphed::new(history, &observed);
    match history.kind {
        Kind::Append => lists::order(&observed, &mut graph)?,
        Kind::Register => registers::order(history, &observed, level, &mut graph)?,
    }
    if level.real_time {
        graph.add_time(&observed);
    }
    cycles::forbid(&graph, level).map_err(|found| Violation::cycle(history, found))?;
    if level == Level::READ_COMMITTED.in_real_time()
        && let Some((read, answered)) = cycles::stale(history, &graph)
    {
        let what = format!("{read}, though T{answered}, which is that or rests on it, had been answered");
        return Err(Violation::of(history, Anomaly::StaleRead, &what, &[read.from, read.to, answered]));
    }
    Ok(())
}
