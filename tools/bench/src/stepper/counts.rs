//! How long operations are stepped through, and what they did.

use serde::Serialize;

/// The operations of one worker.
pub(crate) type Operations<'a> = Box<dyn FnMut() -> foreshore::Result<()> + Send + 'a>;

/// How many operations are counted, and when background threads run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Operations of each worker at most.
    pub rounds: u64,
    /// Rounds after which the background threads run.
    pub background_every: u64,
    /// Instructions at most; the round in which they are reached is the last one.
    pub instructions: u64,
}

impl Default for Plan {
    /// As many rounds between background threads as a pipelined worker has transactions in flight.
    fn default() -> Self {
        Self { rounds: 128, background_every: 64, instructions: 2_000_000 }
    }
}

/// What the operations of all workers did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Operations.
    pub operations: u64,
    /// Their instructions.
    pub instructions: u64,
    /// Their read-modify-writes.
    pub rmw: u64,
    /// Of those, the ones of lines that two threads wrote.
    pub contended: u64,
    /// The instructions with contended read-modify-writes, most frequent first.
    pub sites: Vec<Site>,
}

/// An instruction that did contended read-modify-writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    /// The function, or the mapped file if it has no symbols.
    pub function: String,
    /// Its place in the file, for tools such as `addr2line`.
    pub offset: u64,
    /// Contended read-modify-writes of an operation.
    pub contended_rmw_per_txn: f64,
}
