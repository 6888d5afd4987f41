//! The record: the media when recording began, and every operation since.

use super::{
    fault::OpNo,
    media::{Media, Op},
};

/// The media as they are, the count of operations, and the record unless it was stopped.
#[derive(Clone)]
pub(super) struct Record {
    media: Media,
    ops: OpNo,
    journal: Option<Journal>,
}

#[derive(Clone)]
struct Journal {
    base: Media,
    first: OpNo,
    ops: Vec<Op>,
}

impl Record {
    pub(super) fn new(media: Media) -> Self {
        let journal = Some(Journal { base: media.clone(), first: 0, ops: Vec::new() });
        Self { media, ops: 0, journal }
    }

    /// Returns the number of the next operation.
    pub(super) const fn ops(&self) -> OpNo {
        self.ops
    }

    pub(super) const fn media(&self) -> &Media {
        &self.media
    }

    /// Records a completed operation and applies it to the media.
    pub(super) fn note(&mut self, op: Op) {
        self.media.complete(op.clone());
        self.add(op);
    }

    /// Records an operation that was in flight when power was lost.
    pub(super) fn note_in_flight(&mut self, op: Op) {
        if let Some(effect) = op.effect() {
            self.media.push(effect.clone());
        }
        self.add(op);
    }

    fn add(&mut self, op: Op) {
        if let Some(journal) = &mut self.journal {
            journal.ops.push(op);
        }
        self.ops += 1;
    }

    /// Changes the media by no operation, and starts the record anew.
    pub(super) fn damage(&mut self, change: impl FnOnce(&mut Media)) {
        change(&mut self.media);
        if let Some(journal) = &mut self.journal {
            *journal = Journal { base: self.media.clone(), first: self.ops, ops: Vec::new() };
        }
    }

    /// Drops the record and adds no further operations.
    pub(super) fn stop(&mut self) {
        self.journal = None;
    }

    /// Returns the record: the media before it, the number of its first operation, and its operations. Without a
    /// record, returns the present state and no operations.
    pub(super) fn recorded(&self) -> (Media, OpNo, Vec<Op>) {
        match &self.journal {
            Some(journal) => (journal.base.clone(), journal.first, journal.ops.clone()),
            None => (self.media.clone(), self.ops, Vec::new()),
        }
    }
}
