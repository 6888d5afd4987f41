//! The reference of the graphs: what all members have and wait for.

use super::{Ask, EXCLUSIVE, Kind, LABELS, MEMBERS, table};
use crate::toy::{TABLE, key};
use foreshore_base::{Lockable, Waiter};
use foreshore_lock::TableMode;

/// How an error names a thing.
pub(super) fn named(thing: usize, kind: Kind) -> Lockable {
    match kind {
        Kind::Row | Kind::Range => Lockable::Row(TABLE.into(), key(thing).to_vec()),
        Kind::Table => Lockable::Table(table(thing).into()),
    }
}

/// The member that an error names.
pub(super) fn member_of(waiter: &Waiter) -> usize {
    LABELS.iter().position(|&label| label == waiter.label).expect("a member")
}

/// A thing in the reference: its holders, and its waiters.
#[derive(Clone)]
pub(super) struct Thing {
    pub(super) kind: Kind,
    pub(super) holders: Vec<(usize, TableMode)>,
    pub(super) queue: Vec<(usize, TableMode)>,
}

impl Thing {
    pub(super) fn held_by(&self, member: usize) -> Option<TableMode> {
        self.holders.iter().find(|&&(holder, _)| holder == member).map(|&(_, mode)| mode)
    }

    pub(super) fn position(&self, member: usize) -> Option<usize> {
        self.queue.iter().position(|&(waiter, _)| waiter == member)
    }

    /// Where `member` waits: if it has something, before those that wait for that. Otherwise behind all.
    pub(super) fn place(&self, member: usize) -> usize {
        let Some(held) = self.held_by(member) else { return self.queue.len() };
        if self.kind != Kind::Table {
            return 0;
        }
        self.queue.iter().position(|&(_, mode)| !mode.is_compatible(held)).unwrap_or(self.queue.len())
    }

    /// The members that `member` has to wait for if it asks for `mode` behind the first `ahead` of the queue.
    pub(super) fn in_the_way(&self, member: usize, mode: TableMode, ahead: usize) -> Vec<usize> {
        let excludes =
            |&(other, held): &(usize, TableMode)| (other != member && !held.is_compatible(mode)).then_some(other);
        let mut blockers: Vec<_> = self.holders.iter().filter_map(excludes).collect();
        let is_in_header = self.kind == Kind::Row && self.holders.iter().any(|&(_, held)| held == EXCLUSIVE);
        let is_upgrade = self.kind != Kind::Table && self.held_by(member).is_some();
        if is_upgrade || is_in_header {
            return blockers;
        }
        let queued = match (self.kind, mode) {
            (Kind::Table, _) | (_, EXCLUSIVE) => &self.queue[..ahead],
            // Readers of a key let all writers go first.
            _ => &self.queue[..],
        };
        // Writers of a key do not wait for readers that wait themselves.
        let counts = |(_, queued): &&(usize, TableMode)| self.kind == Kind::Table || *queued == EXCLUSIVE;
        blockers.extend(queued.iter().filter(counts).filter_map(excludes));
        blockers
    }
}

/// What all members have and wait for, with nothing of the lock manager but which modes go together.
#[derive(Clone)]
pub(super) struct Reference {
    pub(super) things: Vec<Thing>,
    /// Those that have not ended.
    pub(super) live: Vec<usize>,
}

impl Reference {
    /// What `member` waits for.
    pub(super) fn waits_for(&self, member: usize) -> Option<usize> {
        self.things.iter().position(|thing| thing.position(member).is_some())
    }

    /// The members that `member` waits for.
    pub(super) fn blockers(&self, member: usize) -> Vec<usize> {
        let Some(thing) = self.waits_for(member).map(|thing| &self.things[thing]) else { return Vec::new() };
        let at = thing.position(member).expect("it waits");
        thing.in_the_way(member, thing.queue[at].1, at)
    }

    /// Whether waits lead from one member to another.
    pub(super) fn leads(&self, from: usize, to: usize) -> bool {
        self.leads_by(from, to, |member| self.blockers(member))
    }

    pub(super) fn leads_by(&self, from: usize, to: usize, blockers: impl Fn(usize) -> Vec<usize>) -> bool {
        let (mut open, mut seen) = (blockers(from), [false; MEMBERS]);
        while let Some(member) = open.pop() {
            if member == to {
                return true;
            }
            if !std::mem::replace(&mut seen[member], true) {
                open.extend(blockers(member));
            }
        }
        false
    }

    /// Whether `member` waits for a table, and no holder is in its way.
    pub(super) fn is_soft(&self, member: usize) -> bool {
        let Some(thing) = self.waits_for(member).map(|thing| &self.things[thing]) else { return false };
        let mode = thing.queue[thing.position(member).expect("it waits")].1;
        thing.kind == Kind::Table && thing.in_the_way(member, mode, 0).is_empty()
    }

    /// Whether `member` is on a cycle without soft waits.
    pub(super) fn is_on_hard_cycle(&self, member: usize) -> bool {
        let hard = |member: usize| if self.is_soft(member) { Vec::new() } else { self.blockers(member) };
        self.leads_by(member, member, hard)
    }

    /// Whether `member` may overtake others to break a cycle that `closer` has closed.
    pub(super) fn may_overtake(&self, member: usize, closer: usize) -> bool {
        self.is_soft(member) && self.leads(member, closer) && self.leads(closer, member)
    }

    /// Asks; whether `member` has to wait. Otherwise it has what it asked for.
    pub(super) fn ask(&mut self, member: usize, ask: Ask) -> bool {
        let thing = &mut self.things[ask.thing];
        let held = thing.held_by(member);
        let mode = held.map_or(ask.mode, |held| held.supremum(ask.mode));
        if held == Some(mode) {
            return false;
        }
        if thing.in_the_way(member, mode, thing.place(member)).is_empty() {
            if ask.kind != Kind::Range || mode != EXCLUSIVE {
                thing.holders.retain(|&(holder, _)| holder != member);
                thing.holders.push((member, mode));
            }
            return false;
        }
        thing.queue.insert(thing.place(member), (member, mode));
        true
    }

    /// Ends `member`, and with it all that come to have what they waited for. Returns the members that have ended.
    pub(super) fn end(&mut self, member: usize) -> Vec<usize> {
        let mut ended = Vec::new();
        let mut next = Some(member);
        while let Some(member) = next {
            for thing in &mut self.things {
                thing.holders.retain(|&(holder, _)| holder != member);
                thing.queue.retain(|&(waiter, _)| waiter != member);
            }
            self.live.retain(|&live| live != member);
            ended.push(member);
            let is_free = |&member: &usize| self.waits_for(member).is_some() && self.blockers(member).is_empty();
            next = self.live.iter().copied().find(is_free);
        }
        ended.sort_unstable();
        ended
    }

    /// Whether `told`, of `victim`, is a cycle of those that stand.
    pub(super) fn is_cycle(&self, victim: usize, told: &[Waiter]) -> bool {
        let next = told.iter().cycle().skip(1).map(member_of);
        told.first().map(member_of) == Some(victim)
            && told.iter().zip(next).all(|(waiter, next)| {
                let thing = self.waits_for(member_of(waiter)).map(|thing| (thing, self.things[thing].kind));
                thing.is_some_and(|(thing, kind)| waiter.waits_for == named(thing, kind))
                    && self.blockers(member_of(waiter)).contains(&next)
            })
    }
}
