//! Where the gap behind a place in a leaf ends: at the next key, which may lie further right, or at the end of the table.

use crate::descend::{Access, Halt, ReadGuard, Restarts, led_to};
use crate::node::NodeView;
use crate::tree::Tree;
use foreshore_base::{PageId, Result};
use foreshore_buffer::ExclusiveGuard;
use foreshore_lock::{Gap, Target};
use foreshore_sync::model::mutant;
use foreshore_txn::Txn;
use std::cmp::Ordering;

/// What stands in the way of a new key.
pub(crate) enum Obstacle {
    /// Nothing.
    None,
    /// Other transactions know that the key does not exist.
    Row,
    /// Other transactions have the gap, which ends at that key, or at the end of the table.
    Gap(Option<Vec<u8>>),
    /// The next key lies in a page that is not in memory.
    Missing(PageId),
}

impl Tree {
    /// The smallest key in the leaves to the right of `leaf`; `None` if there is none. The leaves that were read for it are
    /// added to `read`. Each was read in one state; if nothing but `leaf` is latched they may have changed by now.
    pub(crate) fn key_beyond<'p, G: Access<'p>, R: Access<'p>>(
        &'p self,
        leaf: &G,
        restarts: &Restarts,
        read: &mut Vec<R>,
    ) -> Result<Option<Vec<u8>>, Halt> {
        let Some((mut high, mut right)) = self.neighbour(leaf)? else { return Ok(None) };
        loop {
            let next = R::try_fix(self.pool(), right, restarts.reading());
            let next = match read.last() {
                Some(before) => led_to(before, next),
                None => led_to(leaf, next),
            };
            let next = next?.ok_or(Halt::Missing(right, 0))?;
            let view = self.node(&next)?;
            let meets = view.is_leaf() && self.sound(&next, view.compare_low(&high))? == Ordering::Equal;
            self.sound(&next, if meets { Ok(()) } else { Err("siblings do not meet") })?;
            let mut key = None;
            if view.len() > 0 {
                let place = self.sound(&next, view.place(0))?;
                view.append_to(place.key, key.insert(Vec::new()));
            }
            let further = if key.is_none() { self.neighbour(&next)? } else { None };
            if !next.holds() {
                return Err(Halt::Changed);
            }
            read.push(next);
            match (key, further) {
                (Some(key), _) => return Ok(Some(key)),
                (None, None) => return Ok(None),
                (None, Some(further)) => (high, right) = further,
            }
        }
    }

    /// High fence and right sibling of a leaf; `None` at the right end.
    fn neighbour<'p, G: Access<'p>>(&self, leaf: &G) -> Result<Option<(Vec<u8>, PageId)>, Halt> {
        let view = self.node(leaf)?;
        if !view.has_high() {
            return Ok(None);
        }
        let high = self.sound(leaf, view.copy_high())?;
        let right = self.sound(leaf, view.sibling())?;
        // Going over siblings leads to ever larger keys, so a way over them ends.
        let goes_up = self.sound(leaf, view.compare_low(&high))? == Ordering::Less;
        self.sound(leaf, if goes_up { Ok(()) } else { Err("the fences are out of order") })?;
        Ok(Some((high, right)))
    }

    /// Whether `key`, which belongs in front of entry `at` of a leaf, may be inserted now. The leaf is latched, and stays so
    /// until the key is in; if the gap is this transaction's own, the key has inherited its lock.
    ///
    /// **A phantom is excluded by one of the two.** A scan enters its locks, fences and then finds the leaf unchanged since it
    /// read it; here the latch is taken, which changes the leaf for readers, then comes a fence and the look at the locks. If
    /// the scan has not seen the latch, its lock is seen here. It is the lock of the same key: while a gap is locked its
    /// end stays where it is (see [`foreshore_lock`]).
    pub(crate) fn obstacle<'p>(
        &'p self,
        txn: &mut Txn,
        leaf: &ExclusiveGuard<'p>,
        key: &[u8],
        at: usize,
    ) -> Result<Obstacle> {
        if txn.shared_by_other(Target::row(self.table, key)) {
            return Ok(Obstacle::Row);
        }
        let view = NodeView::view(&leaf[..]).map_err(|why| self.corrupted(leaf.pid(), why))?;
        let beyond;
        let next = if at < view.len() {
            Some(view.key(at).map_err(|why| self.corrupted(leaf.pid(), why))?)
        } else if mutant("gap: the next leaf is not looked at") {
            None
        } else {
            let waits = mutant("gap: the next leaf is read without latches");
            let mut restarts = if waits { Restarts::default() } else { Restarts::spent() };
            beyond = loop {
                match self.key_beyond(leaf, &restarts, &mut Vec::<ReadGuard<'_>>::new()) {
                    Ok(next) => break next,
                    Err(Halt::Changed) => self.restart(&mut restarts),
                    Err(Halt::Missing(pid, _)) => return Ok(Obstacle::Missing(pid)),
                    Err(Halt::Failed(error)) => return Err(error.in_table(self.table)),
                    Err(Halt::Open(_)) => unreachable!("siblings are followed over open splits"),
                }
            };
            beyond.as_deref()
        };
        match txn.gap_before(self.table, next) {
            Gap::Free => Ok(Obstacle::None),
            Gap::Shared => Ok(Obstacle::Gap(next.map(<[u8]>::to_vec))),
            Gap::Mine => txn.inherit_gap(self.table, key).map(|()| Obstacle::None),
        }
    }
}
