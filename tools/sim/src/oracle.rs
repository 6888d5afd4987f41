//! What a database may hold after its history was cut short.

use crate::random::mixed;
use foreshore::{CommitTicket, Db, Error, TableDef};
use std::collections::{BTreeMap, BTreeSet};

/// The rows of every table that has some, by table name and encoded key.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// A sum over the rows of a database: equal for equal contents, and changed row by row in constant time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The sum of all rows of `contents`.
    #[must_use]
    pub fn of(contents: &Contents) -> Self {
        let rows = contents.iter().flat_map(|(table, rows)| rows.iter().map(move |row| (table, row)));
        rows.fold(Self::default(), |sum, (table, (key, value))| sum.with(table, key, value))
    }

    fn with(self, table: &str, key: &[u8], value: &[u8]) -> Self {
        Self(self.0.wrapping_add(Self::row(table, key, value)))
    }

    fn without(self, table: &str, key: &[u8], value: &[u8]) -> Self {
        Self(self.0.wrapping_sub(Self::row(table, key, value)))
    }

    /// Rows that differ in eight bytes or less differ in this for sure, for each step can be undone; others with a
    /// probability of all but 2^-64.
    fn row(table: &str, key: &[u8], value: &[u8]) -> u64 {
        let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        let sum = [table.as_bytes(), key, value].into_iter().fold(1, |sum, part| {
            let (words, rest) = part.as_chunks::<8>();
            let sum = words.iter().fold(step(sum, part.len() as u64), |sum, word| step(sum, u64::from_le_bytes(*word)));
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            step(sum, u64::from_le_bytes(last))
        });
        mixed(sum)
    }
}

/// A transaction that was asked to commit.
#[derive(Debug)]
struct Commit {
    /// What the database holds after it and all before it.
    after: Fingerprint,
    /// Operations of the disk when it was asked for.
    asked: u64,
    /// Operations of the disk when it was known to be durable.
    acknowledged: Option<u64>,
    ticket: Option<CommitTicket>,
}

/// How many commits a database holds: the least and the largest number of them that leave what was found.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// The history of a script: its commits in their order, and what each must survive.
#[derive(Debug, Default)]
pub struct Oracle {
    /// What the script has committed so far.
    pub contents: Contents,
    start: Fingerprint,
    now: Fingerprint,
    commits: Vec<Commit>,
    tables: BTreeSet<String>,
}

impl Oracle {
    /// A history that begins with what was there before and cannot be lost.
    #[must_use]
    pub fn starting_with(contents: Contents) -> Self {
        let start = Fingerprint::of(&contents);
        let tables = contents.keys().cloned().collect();
        Self { contents, start, now: start, commits: Vec::new(), tables }
    }

    /// Notes a commit that is asked for at operation `asked`. `writes` are its final values, `None` for a removed row.
    pub fn commit(&mut self, asked: u64, writes: BTreeMap<(String, Vec<u8>), Option<Vec<u8>>>) {
        for ((table, key), value) in writes {
            let rows = self.contents.entry(table.clone()).or_default();
            let old = match &value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(&key),
            };
            if let Some(old) = old {
                self.now = self.now.without(&table, &key, &old);
            }
            if let Some(value) = value {
                self.now = self.now.with(&table, &key, &value);
            }
            self.tables.insert(table);
        }
        self.commits.push(Commit { after: self.now, asked, acknowledged: None, ticket: None });
    }

    /// The newest commit is durable, at operation `op`.
    pub fn acknowledge(&mut self, op: u64) {
        let newest = self.commits.last_mut().expect("a commit was asked for");
        newest.acknowledged = Some(op);
    }

    /// The newest commit will be durable when `ticket` says so.
    pub fn follow(&mut self, ticket: CommitTicket) {
        let newest = self.commits.last_mut().expect("a commit was asked for");
        newest.ticket = Some(ticket);
    }

    /// Notes which tickets have come true by operation `op`.
    pub fn poll(&mut self, op: u64) {
        for commit in &mut self.commits {
            if commit.ticket.as_ref().is_some_and(CommitTicket::is_durable) {
                commit.ticket = None;
                commit.acknowledged = Some(op);
            }
        }
    }

    /// Waits for the oldest open ticket, if there is one. A wait that fails acknowledges nothing.
    ///
    /// # Errors
    /// Those of the wait.
    pub fn wait_for_one(&mut self, op: impl FnOnce() -> u64) -> Result<(), Error> {
        let Some(commit) = self.commits.iter_mut().find(|commit| commit.ticket.is_some()) else { return Ok(()) };
        let ticket = commit.ticket.take().expect("just seen");
        ticket.wait()?;
        commit.acknowledged = Some(op());
        Ok(())
    }

    /// Lets go of open tickets, and so of the database that they belong to.
    pub fn forget_tickets(&mut self) {
        self.commits.iter_mut().for_each(|commit| commit.ticket = None);
    }

    /// Commits asked for.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.commits.len()
    }

    /// Commits acknowledged as durable.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        self.commits.iter().filter(|commit| commit.acknowledged.is_some()).count()
    }

    /// Checks `db`, opened after a power loss at operation `op`: its structure is sound, and it holds what some prefix
    /// of the commits left. That prefix has every commit that was acknowledged by then, and none that was not
    /// requested. Returns the length of the prefix.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn verify(&self, db: &Db, op: u64) -> Result<Counts, String> {
        db.check().map_err(|error| format!("check: {error}"))?;
        let found = self.read(db)?;
        let acknowledged = |commit: &Commit| commit.acknowledged.is_some_and(|at| at <= op);
        let least = self.commits.iter().rposition(acknowledged).map_or(0, |last| last + 1);
        let most = self.commits.iter().take_while(|commit| commit.asked <= op).count();
        let state = |count: usize| count.checked_sub(1).map_or(self.start, |last| self.commits[last].after);
        let mut counts = (least..=most).filter(|&count| state(count) == found);
        if let Some(first) = counts.next() {
            return Ok(Counts { first, last: counts.next_back().unwrap_or(first) });
        }
        Err(match (0..=self.commits.len()).find(|&count| state(count) == found) {
            Some(count) => format!("{count} commits are there, {least} to {most} may be"),
            None => format!("the contents are those of no prefix; {least} to {most} commits may be there"),
        })
    }

    /// The fingerprint of all tables of the history.
    ///
    /// # Errors
    /// Says which read failed.
    pub fn read(&self, db: &Db) -> Result<Fingerprint, String> {
        self.rows(db).map(|contents| Fingerprint::of(&contents))
    }

    /// The rows of all tables of the history.
    ///
    /// # Errors
    /// Says which read failed.
    pub fn rows(&self, db: &Db) -> Result<Contents, String> {
        let read = |name: &String| {
            let tx = db.begin();
            let table = tx.open(TableDef::<&[u8], &[u8]>::new(name))?;
            table.lock_against_writes()?;
            let rows = table.iter().collect::<Result<BTreeMap<_, _>, Error>>()?;
            // Opening creates what is missing; this must not.
            tx.rollback()?;
            Ok((name.clone(), rows))
        };
        let contents: Result<Contents, Error> = self.tables.iter().map(read).collect();
        contents.map_err(|error| format!("read: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_follows_changes_and_tells_contents_apart() {
        let rows = |values: &[(u8, u8)]| values.iter().map(|&(key, value)| (vec![key], vec![value])).collect();
        let before = Contents::from([("a".to_owned(), rows(&[(1, 1), (2, 2)]))]);
        let mut oracle = Oracle::starting_with(before.clone());
        let key = |key: u8| ("a".to_owned(), vec![key]);
        oracle.commit(1, BTreeMap::from([(key(1), Some(vec![7])), (key(2), None), (key(3), Some(vec![3]))]));
        let after = Contents::from([("a".to_owned(), rows(&[(1, 7), (3, 3)]))]);
        assert_eq!(oracle.now, Fingerprint::of(&after));
        assert_eq!(oracle.contents, after);
        assert_ne!(Fingerprint::of(&before), Fingerprint::of(&after));
        let swapped = Contents::from([("a".to_owned(), rows(&[(1, 3), (3, 7)]))]);
        assert_ne!(Fingerprint::of(&swapped), Fingerprint::of(&after));
    }
}
