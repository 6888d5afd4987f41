//! Faults to inject, by operation number.

/// Number of an operation that changes or syncs something, counted from zero over the life of a [`Sim`](super::Sim).
pub type OpNo = u64;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The operation fails with `EIO`. Any part of a failed write may be on the medium. The bytes of a failed sync stay
    /// visible, but no later sync makes them durable: Linux file systems mark failed pages clean. Lengths are metadata,
    /// which a later sync makes durable.
    Eio,
    /// A sync fails as with [`FaultKind::Eio`], because a page cannot be written back. Other operations are not
    /// affected.
    LateEio,
    /// The same with `ENOSPC`: the file system has promised space that the device does not have.
    LateEnospc,
    /// No space. Only operations that may need some fail: creating, growing, allocating, writing where nothing is
    /// allocated, and writes that are whole or not at all ([`File::write_whole`](crate::File::write_whole)).
    Enospc,
    /// A write stops after so many bytes and returns that count. Other operations are not affected.
    ShortWrite(usize),
    /// A signal interrupts the call before it did anything. Affects writes, length changes, allocations and syncs. It
    /// strikes once even if sticky, since callers repeat the call.
    Eintr,
    /// Power is lost while the operation is in flight. It and every later call fail; see
    /// [`Sim::crash_image`](super::Sim::crash_image) for what is left.
    Crash,
}

/// A fault and when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The operation that it strikes. An operation that cannot fail this way, such as a sync with
    /// [`FaultKind::Enospc`], is not affected.
    pub at: OpNo,
    /// What goes wrong.
    pub kind: FaultKind,
    /// Whether every later operation is struck too.
    pub sticky: bool,
}

/// The class of an operation, which decides the faults that can strike it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A write, and whether it may need space.
    Write { space: bool },
    /// A change of length or an allocation, and whether it may need space.
    Length { space: bool },
    /// Creating a name.
    Create,
    /// Renaming or removing.
    Name,
    /// Syncing a file or a directory.
    Sync,
}

impl Fault {
    /// Whether it strikes operation `op` of this class.
    pub(super) fn strikes(&self, op: OpNo, class: Class) -> bool {
        let now = op == self.at || self.sticky && op > self.at && self.kind != FaultKind::Eintr;
        now && match self.kind {
            FaultKind::Eio | FaultKind::Crash => true,
            FaultKind::Enospc => {
                matches!(class, Class::Write { space: true } | Class::Length { space: true } | Class::Create)
            }
            FaultKind::ShortWrite(_) => matches!(class, Class::Write { .. }),
            FaultKind::LateEio | FaultKind::LateEnospc => class == Class::Sync,
            FaultKind::Eintr => !matches!(class, Class::Create | Class::Name),
        }
    }
}
