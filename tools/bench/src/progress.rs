//! Where a run tells how far it is.

/// A listener. The command line draws a bar; tests stay silent.
pub trait Progress: Sync {
    /// A phase of `total` units begins.
    fn phase(&self, name: &str, total: u64);
    /// `done` units of the phase are done.
    fn at(&self, done: u64);
    /// The last phase is over.
    fn end(&self);
}

/// Says nothing.
#[derive(Debug)]
pub struct Silent;

impl Progress for Silent {
    fn phase(&self, _: &str, _: u64) {}
    fn at(&self, _: u64) {}
    fn end(&self) {}
}
