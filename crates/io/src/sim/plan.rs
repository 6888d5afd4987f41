//! The planned faults, and the operations and reads that they can strike.

use super::fault::{Class, Fault, FaultKind, OpNo};

#[derive(Clone, Default)]
pub(super) struct Plan {
    faults: Vec<Fault>,
    /// Numbers of reads that fail; true if all later ones fail, too.
    read_faults: Vec<(u64, bool)>,
    /// Operations and reads that a fault has struck.
    met: u64,
    reads: u64,
    /// The operations that `ENOSPC` could have struck.
    space_ops: Vec<OpNo>,
    /// The operations that synced a file or a directory.
    sync_ops: Vec<OpNo>,
}

impl Plan {
    pub(super) fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn add_read_error(&mut self, at: u64, sticky: bool) {
        self.read_faults.push((at, sticky));
    }

    /// Removes all faults.
    pub(super) fn clear(&mut self) {
        self.faults.clear();
        self.read_faults.clear();
    }

    /// Counts an operation by its class. Returns the fault that strikes it.
    pub(super) fn strike(&mut self, number: OpNo, class: Class) -> Option<FaultKind> {
        if (Fault { at: number, kind: FaultKind::Enospc, sticky: false }).strikes(number, class) {
            self.space_ops.push(number);
        }
        if class == Class::Sync {
            self.sync_ops.push(number);
        }
        let fault = self.faults.iter().find(|fault| fault.strikes(number, class)).map(|fault| fault.kind);
        self.met += u64::from(fault.is_some());
        fault
    }

    /// Counts a read. Returns whether a fault strikes it.
    pub(super) fn strike_read(&mut self) -> bool {
        let number = self.reads;
        self.reads += 1;
        let fails = self.read_faults.iter().any(|&(at, sticky)| number == at || sticky && number > at);
        self.met += u64::from(fails);
        fails
    }

    /// Returns how many operations and reads a fault has struck.
    pub(super) const fn met(&self) -> u64 {
        self.met
    }

    pub(super) const fn reads(&self) -> u64 {
        self.reads
    }

    /// Returns the operations that `ENOSPC` could have struck.
    pub(super) fn space_ops(&self) -> &[OpNo] {
        &self.space_ops
    }

    /// Returns the operations that synced a file or a directory.
    pub(super) fn sync_ops(&self) -> &[OpNo] {
        &self.sync_ops
    }
}
