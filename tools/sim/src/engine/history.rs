//! What the sessions of a run did, and what they were told.

/// The tables of a run, by number.
pub const TABLES: [&str; 4] = ["a", "b", "c", "big"];

/// A table and a key in it, both by number.
pub type Row = (u8, u16);

/// The value of each row that is there.
pub type Rows = std::collections::BTreeMap<Row, u64>;

/// A moment that no event reaches.
pub const NEVER: u64 = u64::MAX;

/// What a transaction may see of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each operation by a snapshot of its own.
    ReadCommitted,
    /// All by one snapshot.
    Snapshot,
    /// As if transactions ran one after the other.
    Serializable,
    /// Only reads, by one snapshot of what is durable.
    Durable,
}

/// A step of a transaction, with what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sets a row, or removes it.
    Write {
        /// The row.
        row: Row,
        /// Its new value.
        value: Option<u64>,
    },
    /// Removes all rows of a table.
    Drop {
        /// The table.
        table: u8,
    },
    /// Takes back all changes but the first few.
    Back {
        /// How many stay.
        changes: usize,
    },
    /// Reads a row.
    Read {
        /// The row.
        row: Row,
        /// Its value.
        found: Option<u64>,
        /// Whether no other transaction may change it until this one ends.
        is_locked: bool,
    },
    /// Learns whether a row is there, and not its value.
    Presence {
        /// The row.
        row: Row,
        /// Whether it is.
        is_there: bool,
    },
    /// Reads the rows of an interval.
    Scan {
        /// The table.
        table: u8,
        /// The interval of keys, without its end.
        keys: std::ops::Range<u16>,
        /// What was there, in the order in which it was given.
        rows: Vec<(u16, u64)>,
        /// Whether it began at the end.
        is_backward: bool,
        /// Whether the interval has no more rows.
        is_whole: bool,
        /// Whether rows that others have locked are missing.
        skips: bool,
    },
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At this place in the order of commits.
    Committed(u64),
    /// Without an effect.
    Aborted,
    /// The answer to its commit says that the outcome is unknown.
    Unknown,
    /// It is prepared under a name.
    Prepared(String),
    /// The answer to its prepare says that the outcome is unknown.
    PreparedUnknown(String),
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Txn {
    /// What it may see.
    pub level: Level,
    /// When it began.
    pub begin: u64,
    /// When it had been told the last of what it was told.
    pub ended: u64,
    /// When its session knew that it has committed.
    pub answered: u64,
    /// When its session knew that the commit is durable.
    pub durable: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The LSN of its commit record, if its session was told.
    pub record: Option<u64>,
    /// What it did, and was told.
    pub steps: Vec<Step>,
}

impl Txn {
    /// The changes that it has made in the end, in their order.
    pub fn changes(&self) -> Vec<&Step> {
        let mut changes = Vec::new();
        for step in &self.steps {
            match step {
                Step::Write { .. } | Step::Drop { .. } => changes.push(step),
                Step::Back { changes: kept } => changes.truncate(*kept),
                Step::Read { .. } | Step::Presence { .. } | Step::Scan { .. } => {}
            }
        }
        changes
    }

    /// Whether one of its changes and one of the other's are of one row.
    pub fn meets(&self, other: &Self) -> bool {
        self.changes().into_iter().any(|step| match step {
            Step::Write { row, .. } => other.touches(*row),
            Step::Drop { table } => other.changes().into_iter().any(|step| match step {
                Step::Write { row, .. } => row.0 == *table,
                Step::Drop { table: own } => own == table,
                _ => false,
            }),
            _ => false,
        })
    }

    /// Whether its changes touch this row.
    pub fn touches(&self, row: Row) -> bool {
        self.changes().into_iter().any(|step| match step {
            Step::Write { row: own, .. } => *own == row,
            Step::Drop { table } => *table == row.0,
            _ => false,
        })
    }

    /// Forgets reads that no lock protects over a restart. The prepared transaction has its locks again after the
    /// restart.
    pub fn keep_what_is_locked(&mut self) {
        let level = self.level;
        self.steps.retain(|step| match step {
            Step::Read { is_locked, found, .. } => match level {
                Level::Serializable => true,
                Level::ReadCommitted => *is_locked && found.is_some(),
                Level::Snapshot | Level::Durable => false,
            },
            Step::Presence { .. } | Step::Scan { .. } => level == Level::Serializable,
            Step::Write { .. } | Step::Drop { .. } | Step::Back { .. } => true,
        });
    }

    /// Makes its changes to `rows`.
    pub fn apply(&self, rows: &mut Rows) {
        for step in self.changes() {
            apply(step, rows);
        }
    }
}

/// Makes one change to `rows`.
pub fn apply(step: &Step, rows: &mut Rows) {
    match step {
        Step::Write { row, value: Some(value) } => _ = rows.insert(*row, *value),
        Step::Write { row, value: None } => _ = rows.remove(row),
        Step::Drop { table } => rows.retain(|row, _| row.0 != *table),
        _ => {}
    }
}
