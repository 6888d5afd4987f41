//! The copies of the database that are being made, and what each needs.

use foreshore_base::GroupNo;
use foreshore_space::{BackupMark, SuperBlock};
use foreshore_sync::{LockRank, Mutex};

/// The copies that are being made, and the last one that was.
pub(super) struct Copies(Mutex<List>);

struct List {
    /// What the next superblock says.
    mark: BackupMark,
    /// The run that the newest superblock names.
    run: [u8; 16],
    needs: Vec<Need>,
    /// Number of the next copy.
    next: u64,
}

/// What a restart from the superblock of a copy reads.
struct Need {
    copy: u64,
    scan_start: GroupNo,
    redo_start: GroupNo,
}

impl Copies {
    /// Makes an empty list. `mark` is what the next superblock is to say of backups.
    pub(super) fn new(mark: BackupMark) -> Self {
        Self(Mutex::new(LockRank::Leaf, List { mark, run: [0; 16], needs: Vec::new(), next: 0 }))
    }

    /// Returns what the next superblock says of backups. Every backup that it names has ended.
    pub(super) fn mark(&self) -> BackupMark {
        self.0.lock().mark
    }

    /// Notes that this superblock was written.
    pub(super) fn written(&self, superblock: &SuperBlock) {
        self.0.lock().run = superblock.backups.run;
    }

    /// Returns the run that the superblocks of this run name; zero before the first of them.
    pub(super) fn run(&self) -> [u8; 16] {
        self.0.lock().run
    }

    /// Notes the newest backup.
    pub(super) fn made(&self, token: [u8; 16]) {
        assert_ne!(token, [0; 16], "a backup without a token");
        self.0.lock().mark.last = token;
    }

    /// Adds a copy with this superblock and returns its number.
    pub(super) fn add(&self, superblock: &SuperBlock) -> u64 {
        let (scan_start, redo_start) = (superblock.scan_start, superblock.redo_start);
        assert!(scan_start <= redo_start, "redo from {redo_start} of a log that begins at {scan_start}");
        let mut list = self.0.lock();
        let copy = list.next;
        list.next += 1;
        list.needs.push(Need { copy, scan_start, redo_start });
        copy
    }

    /// Returns whether a copy was neither removed nor cancelled.
    pub(super) fn has(&self, copy: u64) -> bool {
        self.0.lock().needs.iter().any(|need| need.copy == copy)
    }

    /// Removes a copy, if it was not cancelled.
    pub(super) fn remove(&self, copy: u64) {
        self.0.lock().needs.retain(|need| need.copy != copy);
    }

    /// Cancels all copies.
    pub(super) fn cancel(&self) {
        self.0.lock().needs.clear();
    }

    /// Returns the first group that a copy needs, but `group` at most.
    pub(super) fn scan_start(&self, group: GroupNo) -> GroupNo {
        self.0.lock().needs.iter().map(|need| need.scan_start).fold(group, GroupNo::min)
    }

    /// Returns whether a copy applies a record of a group before `group` to a page.
    pub(super) fn redoes_before(&self, group: GroupNo) -> bool {
        self.0.lock().needs.iter().any(|need| need.redo_start < group)
    }
}
