//! Whether a history is one that the engine promises.
//!
//! The engine tells the place of each commit in the order of commits. So the rows after each commit are known, and a
//! read is right if it shows the rows at the place that its level asks for:
//!
//! | level | the place of its reads |
//! |---|---|
//! | serializable, with changes | just before its own commit, for locks are held to the end |
//! | serializable, without | one place, not before the commits that were answered before it began, nor behind one that began after its end |
//! | snapshot | the same; no commit between that place and its own has changed what it changes |
//! | read committed | one such place for each operation, not before that of the one before; what it has locked is as just before its own commit |
//! | durable | one such place, not before the commits that were known to be durable before it began |
//!
//! After a crash, what is found is what a prefix of the order leaves, which has every commit that was known to be
//! durable. A transaction whose commit was not answered is somewhere in it, whole, or not there.

use super::history::{Level, NEVER, Outcome, Row, Rows, Step, Txn};
use std::collections::{BTreeMap, BTreeSet};

/// The values of a row, each from a place on: so many commits are made there.
type Versions = Vec<(usize, Option<u64>)>;

/// The rows at every place in the order of commits.
#[derive(Debug)]
pub struct Timeline<'t> {
    rows: BTreeMap<Row, Versions>,
    /// The transactions that have changed something, in the order of their commits.
    order: Vec<(u64, &'t Txn)>,
    /// Rows that may have changed at an unknown place.
    doubtful: Vec<&'t Txn>,
}

impl<'t> Timeline<'t> {
    /// Puts the commits of a history behind what was there before.
    ///
    /// Commits that depend on each other in no way may have one number. Their order among themselves is any.
    pub fn new(base: &Rows, txns: &'t [Txn]) -> Self {
        let mut order: Vec<(u64, &Txn)> = Vec::new();
        let mut doubtful = Vec::new();
        for txn in txns.iter().filter(|txn| !txn.changes().is_empty()) {
            match txn.outcome {
                Outcome::Committed(csn) => order.push((csn, txn)),
                Outcome::Unknown | Outcome::Prepared(_) | Outcome::PreparedUnknown(_) => doubtful.push(txn),
                Outcome::Aborted => {}
            }
        }
        order.sort_by_key(|&(csn, _)| csn);
        let mut rows: BTreeMap<Row, Versions> =
            base.iter().map(|(&row, &value)| (row, vec![(0, Some(value))])).collect();
        for (at, (_, txn)) in order.iter().enumerate() {
            for step in txn.changes() {
                match step {
                    Step::Write { row, value } => rows.entry(*row).or_default().push((at + 1, *value)),
                    Step::Drop { table } => {
                        let of_table = rows.range_mut((*table, 0)..=(*table, u16::MAX));
                        of_table.for_each(|(_, versions)| versions.push((at + 1, None)));
                    }
                    _ => {}
                }
            }
        }
        Self { rows, order, doubtful }
    }

    /// What a crash may leave: every prefix with all that is known to be durable. Of commits with one number at its
    /// end, any.
    fn prefixes(&self) -> Vec<Vec<&'t Txn>> {
        let mut prefixes = vec![Vec::new()];
        let mut before: Vec<&Txn> = Vec::new();
        for group in self.order.chunk_by(|one, other| one.0 == other.0) {
            for subset in 1..1_u32 << group.len() {
                let kept = group.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1).map(|(_, commit)| commit.1);
                prefixes.push(before.iter().copied().chain(kept).collect());
            }
            before.extend(group.iter().map(|commit| commit.1));
        }
        let durable = self.order.iter().filter(|commit| commit.1.durable != NEVER).count();
        prefixes.retain(|prefix: &Vec<&Txn>| prefix.iter().filter(|txn| txn.durable != NEVER).count() == durable);
        prefixes
    }

    fn value(&self, row: Row, place: usize) -> Option<u64> {
        let versions = self.rows.get(&row)?;
        versions.iter().rev().find(|&&(from, _)| from <= place).and_then(|&(_, value)| value)
    }

    /// The first place that has all commits that `known` says were known at this moment.
    fn least(&self, moment: u64, known: impl Fn(&Txn) -> u64) -> usize {
        self.order.iter().rposition(|(_, txn)| known(txn) < moment).map_or(0, |last| last + 1)
    }

    /// The last place that may be seen at this moment: no commit that began later is seen.
    fn most(&self, moment: u64) -> usize {
        self.order.iter().position(|(_, txn)| txn.begin > moment).unwrap_or(self.order.len())
    }

    /// Checks the reads of a transaction.
    ///
    /// # Errors
    /// Says which read is wrong, or that no place fits.
    pub fn check(&self, txn: &Txn) -> Result<(), String> {
        let own = self.order.iter().position(|(_, other)| std::ptr::eq(*other, txn));
        let least = match txn.level {
            Level::Durable => self.least(txn.begin, |txn| txn.durable),
            _ => self.least(txn.begin, |txn| txn.answered),
        };
        if let Some(own) = own.filter(|&own| own < least) {
            return Err(format!("it has the number {own}, but {least} commits were answered before it began: {txn:?}"));
        }
        match (txn.level, own) {
            (Level::ReadCommitted, _) => self.check_one_by_one(txn, least, own),
            (Level::Serializable, Some(own)) => {
                self.fits(txn, own).map_err(|why| format!("{why}, just before commit {own} of {txn:?}"))
            }
            (Level::Serializable | Level::Snapshot | Level::Durable, own) => {
                let most = own.unwrap_or_else(|| self.most(txn.ended));
                let is_free = |place: usize| own.is_none_or(|own| !conflicts(&self.order[place..own], txn));
                if (least..=most).any(|place| self.fits(txn, place).is_ok() && is_free(place)) {
                    return Ok(());
                }
                let whys: Vec<String> = (least..=most)
                    .map(|place| self.fits(txn, place).err().unwrap_or_else(|| "a conflict was not noticed".to_owned()))
                    .collect();
                Err(format!("no place from {least} to {most} fits: {whys:?}: {txn:?}"))
            }
        }
    }

    /// Whether all reads of a transaction are right at one place.
    fn fits(&self, txn: &Txn, place: usize) -> Result<(), String> {
        let mut changes: Vec<&Step> = Vec::new();
        for step in &txn.steps {
            match step {
                Step::Write { .. } | Step::Drop { .. } => changes.push(step),
                Step::Back { changes: kept } => changes.truncate(*kept),
                read => self.fits_step(&changes, place, read)?,
            }
        }
        Ok(())
    }

    /// Whether one read is right at a place, behind these changes of its own transaction.
    fn fits_step(&self, changes: &[&Step], place: usize, read: &Step) -> Result<(), String> {
        match read {
            Step::Read { row, found, .. } => self.fits_read(changes, place, *row, *found),
            Step::Presence { row, is_there } => {
                let expected = self.expected(changes, place, *row).is_some();
                if expected == *is_there || self.is_doubtful(*row) {
                    return Ok(());
                }
                Err(format!("row {row:?} was said to be there: {is_there}, and that is {expected}"))
            }
            Step::Scan { .. } => self.fits_scan(changes, place, read),
            Step::Write { .. } | Step::Drop { .. } | Step::Back { .. } => Ok(()),
        }
    }

    fn expected(&self, changes: &[&Step], place: usize, row: Row) -> Option<u64> {
        overlaid(changes, row).unwrap_or_else(|| self.value(row, place))
    }

    fn fits_read(&self, changes: &[&Step], place: usize, row: Row, found: Option<u64>) -> Result<(), String> {
        let expected = self.expected(changes, place, row);
        if found == expected || self.is_doubtful(row) {
            return Ok(());
        }
        Err(format!("row {row:?} was read as {found:?} and is {expected:?}"))
    }

    fn fits_scan(&self, changes: &[&Step], place: usize, scan: &Step) -> Result<(), String> {
        let Step::Scan { table, keys, rows, is_backward, is_whole, skips } = scan else { return Ok(()) };
        if *skips {
            let each = |&(key, value): &(u16, u64)| self.fits_read(changes, place, (*table, key), Some(value));
            return rows.iter().try_for_each(each);
        }
        let touched = changes.iter().filter_map(|change| match change {
            Step::Write { row, .. } => Some(*row),
            _ => None,
        });
        let all: BTreeSet<Row> = self
            .rows
            .range((*table, keys.start)..(*table, keys.end))
            .map(|(row, _)| *row)
            .chain(touched.filter(|row| row.0 == *table && keys.contains(&row.1)))
            .collect();
        let mut expected: Vec<(u16, u64)> =
            all.into_iter().filter_map(|row| self.expected(changes, place, row).map(|value| (row.1, value))).collect();
        if *is_backward {
            expected.reverse();
        }
        if !is_whole {
            expected.truncate(rows.len());
        }
        if expected == *rows || self.doubtful.iter().any(|txn| keys.clone().any(|key| txn.touches((*table, key)))) {
            return Ok(());
        }
        let wrong = expected.iter().zip(rows).find(|(expected, found)| expected != found);
        let (expected, found) = (expected.len(), rows.len());
        Err(format!("a scan of {table}:{keys:?} has {found} rows, not {expected}; the first that differs: {wrong:?}"))
    }

    fn is_doubtful(&self, row: Row) -> bool {
        self.doubtful.iter().any(|txn| txn.touches(row))
    }

    /// Read committed: every operation has a place of its own, and a locked row is as it is at the commit.
    fn check_one_by_one(&self, txn: &Txn, least: usize, own: Option<usize>) -> Result<(), String> {
        let mut changes: Vec<&Step> = Vec::new();
        // A snapshot is never older than the one before.
        let (mut least, most) = (least, self.most(txn.ended));
        for step in &txn.steps {
            let is_locked = match step {
                Step::Write { .. } | Step::Drop { .. } => {
                    changes.push(step);
                    continue;
                }
                Step::Back { changes: kept } => {
                    changes.truncate(*kept);
                    continue;
                }
                Step::Read { is_locked, found, .. } => *is_locked && found.is_some(),
                Step::Scan { skips, .. } => *skips,
                Step::Presence { .. } => false,
            };
            let places = match own.filter(|_| is_locked) {
                Some(own) => own..=own,
                None => least..=most,
            };
            let fits = |place: &usize| self.fits_step(&changes, *place, step).is_ok();
            match places.clone().find(fits) {
                // What is newest may be newer than the next snapshot.
                Some(place)
                    if matches!(step, Step::Scan { skips: false, .. } | Step::Read { is_locked: false, .. }) =>
                {
                    least = place;
                }
                Some(_) => {}
                None => {
                    let why = self.fits_step(&changes, *places.end(), step).err().unwrap_or_default();
                    return Err(format!("{why} (places {places:?}): {txn:?}"));
                }
            }
        }
        Ok(())
    }
}

/// What the transaction's own changes make of a row, if they touch it.
fn overlaid(changes: &[&Step], row: Row) -> Option<Option<u64>> {
    changes.iter().rev().find_map(|change| match change {
        Step::Write { row: own, value } if *own == row => Some(*value),
        Step::Drop { table } if *table == row.0 => Some(None),
        _ => None,
    })
}

/// Whether one of the commits before `later`, in their order, has changed a row that `later` changes. Rows of a dropped
/// table, and its drop, conflict with nothing in a later table of the same name.
fn conflicts(before: &[(u64, &Txn)], later: &Txn) -> bool {
    let mut mine: Vec<Row> = Vec::new();
    let mut dropped: Vec<u8> = Vec::new();
    for step in later.changes() {
        match step {
            Step::Drop { table } => dropped.push(*table),
            Step::Write { row, .. } if !dropped.contains(&row.0) => mine.push(*row),
            _ => {}
        }
    }
    dropped.clear();
    let changes = before.iter().rev().flat_map(|(_, txn)| txn.changes().into_iter().rev());
    for step in changes {
        match step {
            Step::Drop { table } => dropped.push(*table),
            Step::Write { row, .. } if mine.contains(row) && !dropped.contains(&row.0) => return true,
            _ => {}
        }
    }
    false
}

/// Checks a whole history, none of which was lost. The changes of prepared transactions that were asked to commit may
/// show.
///
/// # Errors
/// Says what is wrong.
pub fn check(base: &Rows, txns: &[Txn], prepared: &BTreeMap<String, Prepared>) -> Result<(), String> {
    let mut timeline = Timeline::new(base, txns);
    let asked = prepared.values().filter(|entry| entry.asked == Asked::Commit);
    timeline.doubtful.extend(asked.map(|entry| &entry.txn));
    txns.iter().try_for_each(|txn| timeline.check(txn))
}

/// What was found after a crash.
#[derive(Debug)]
pub struct Found {
    /// The rows.
    pub rows: Rows,
    /// The names of prepared transactions.
    pub prepared: BTreeSet<String>,
}

/// A prepared transaction, and what was last asked of it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What it did.
    pub txn: Txn,
    /// What was asked, and not answered.
    pub asked: Asked,
}

/// What was asked of a prepared transaction, and not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing: it is prepared.
    Nothing,
    /// To prepare it.
    Prepare,
    /// To commit it.
    Commit,
    /// To roll it back.
    Rollback,
}

/// Checks what a crash has left of a history.
///
/// # Errors
/// Says what is wrong.
pub fn check_recovered(
    base: &Rows,
    txns: &[Txn],
    prepared: &BTreeMap<String, Prepared>,
    found: &Found,
) -> Result<(), String> {
    if let Some(name) = found.prepared.iter().find(|name| !prepared.contains_key(*name)) {
        return Err(format!("{name} is prepared, and was not or has ended"));
    }
    let mut doubtful: Vec<&Txn> = txns.iter().filter(|txn| txn.outcome == Outcome::Unknown).collect();
    let mut certain: Vec<&Txn> = Vec::new();
    for (name, entry) in prepared {
        match entry.asked {
            _ if found.prepared.contains(name) => {}
            Asked::Nothing => return Err(format!("{name} was prepared, and is not there: {:?}", entry.txn)),
            Asked::Commit => certain.push(&entry.txn),
            Asked::Prepare | Asked::Rollback => {}
        }
    }
    doubtful.retain(|txn| !txn.changes().is_empty());
    let timeline = Timeline::new(base, txns);
    let order: Vec<&Txn> = timeline.order.iter().map(|&(_, txn)| txn).collect();
    let prefixes = timeline.prefixes();
    let least = order.iter().rposition(|txn| txn.durable != NEVER).map_or(0, |last| last + 1);
    for subset in 0..1_u32 << doubtful.len().min(6) {
        let chosen = doubtful.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1).map(|(_, txn)| *txn);
        let extra: Vec<&Txn> = certain.iter().copied().chain(chosen).collect();
        if prefixes.iter().rev().any(|kept| is_reached(base, kept, &extra, &found.rows)) {
            return Ok(());
        }
    }
    Err(difference(base, &order, least, &found.rows, doubtful.len() + certain.len()))
}

/// Whether the commits leave these rows, with the extra ones anywhere among them.
fn is_reached(base: &Rows, order: &[&Txn], extra: &[&Txn], found: &Rows) -> bool {
    let Some((last, rest)) = extra.split_last() else {
        let mut rows = base.clone();
        order.iter().for_each(|txn| txn.apply(&mut rows));
        return rows == *found;
    };
    let mut order = order.to_vec();
    // Behind a commit that it does not meet it leaves the same.
    let matters = |&place: &usize| order.get(place).is_none_or(|next| next.meets(last));
    let places: Vec<usize> = (0..=order.len()).rev().filter(matters).collect();
    places.into_iter().any(|place| {
        order.insert(place, last);
        let is_reached = is_reached(base, &order, rest, found);
        order.remove(place);
        is_reached
    })
}

fn difference(base: &Rows, order: &[&Txn], least: usize, found: &Rows, doubtful: usize) -> String {
    let mut best: Option<(usize, String)> = None;
    for kept in least..=order.len() {
        let mut rows = base.clone();
        order[..kept].iter().for_each(|txn| txn.apply(&mut rows));
        let all: BTreeSet<&Row> = rows.keys().chain(found.keys()).collect();
        let wrong: Vec<_> = all.into_iter().filter(|row| rows.get(row) != found.get(row)).collect();
        if best.as_ref().is_none_or(|(least, _)| wrong.len() < *least) {
            let shown: Vec<_> =
                wrong.iter().take(8).map(|row| (row, "is", found.get(row), "not", rows.get(row))).collect();
            best = Some((wrong.len(), format!("nearest is {kept} commits, {} rows differ: {shown:?}", wrong.len())));
        }
    }
    let total = order.len();
    let best = best.map(|(_, text)| text).unwrap_or_default();
    format!("the rows are those of no prefix of {least} to {total} commits with {doubtful} in doubt; {best}")
}
