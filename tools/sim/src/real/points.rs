//! The points at which a child kills itself, by name. Each is a call of `foreshore_sync::pause::point` in the engine.

/// When a point is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// While transactions run.
    Work,
    /// While transactions run in a new database.
    Growth,
    /// While space is given back, beside transactions.
    Shrink,
    /// In the restart that follows a kill.
    Restart,
    /// In the creation of a database.
    Creation,
    /// When the database is closed.
    End,
}

/// All points, with the phase in which they are asked for.
pub(super) const POINTS: [(&str, Phase); 47] = [
    ("wal: draw", Phase::Work),
    ("wal: a group is sealed", Phase::Work),
    ("wal: a group is durable", Phase::Work),
    ("wal: a segment begins", Phase::Work),
    ("wal: a segment is taken for another", Phase::Work),
    ("wal: a segment is filled", Phase::Work),
    ("wal: a segment has its name", Phase::Work),
    ("wal: a control slot is durable", Phase::Work),
    ("wal: log is given up", Phase::Work),
    ("wal: an incarnation begins", Phase::Restart),
    ("wal: a last group is repeated", Phase::Restart),
    ("pool: images are durable", Phase::Work),
    ("pool: pages are written", Phase::Work),
    ("pool: pages are synced", Phase::Work),
    ("pool: images are restored", Phase::Restart),
    ("checkpoint: the record is durable", Phase::Work),
    ("checkpoint: the data file is synced", Phase::Work),
    ("checkpoint: the superblock is durable", Phase::Work),
    ("space: the data file has grown", Phase::Growth),
    ("space: the data file is cut off", Phase::Shrink),
    ("txn: about to give up its undo", Phase::Work),
    ("txn: a commit is logged", Phase::Work),
    ("txn: a prepare is durable", Phase::Work),
    ("txn: a change is to be taken back", Phase::Work),
    ("txn: a rollback is logged", Phase::Work),
    ("undo: written to the file", Phase::Work),
    ("btree: a node is split", Phase::Work),
    ("btree: a split is to be linked", Phase::Work),
    ("btree: a split is linked", Phase::Work),
    ("btree: the root has grown", Phase::Growth),
    ("btree: a node is unlinked", Phase::Work),
    ("btree: nodes are merged", Phase::Work),
    ("btree: a table is created", Phase::Work),
    ("db: about to make tables known", Phase::Work),
    ("db: the pages of a dropped table are free", Phase::Work),
    ("restart: history is repeated", Phase::Restart),
    ("restart: a change is taken back", Phase::Restart),
    ("restart: the end of a loser is logged", Phase::Restart),
    ("restart: the ends of losers are durable", Phase::Restart),
    ("open: the first checkpoint is left to the background", Phase::Restart),
    ("checkpoint: the pages of a restart are home", Phase::Restart),
    ("create: the marker is durable", Phase::Creation),
    ("create: the log is there", Phase::Creation),
    ("create: all files are there", Phase::Creation),
    ("create: the marker is removed", Phase::Creation),
    ("open: the first checkpoint is taken", Phase::Creation),
    ("close: the last checkpoint is taken", Phase::End),
];
