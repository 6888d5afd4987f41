//! What a directory must hold: every transaction whose commit was acknowledged, and of the others all or nothing.

use super::plan::{
    BALANCES, KEYS, LESSENED, PROGRESS, Plan, ROWS, SHARED, THREADS, WINDOW, of_prepared, prepared_name, table_name,
    value,
};
use super::work::Told;
use crate::random::mixed;
use foreshore::{Db, Error, Options, ReadTransaction, TableDef};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// What the writers of one process, or of several, were told.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// The newest transaction of each thread that was said to be durable, and to be prepared.
    committed: [u64; THREADS as usize],
    prepared: [u64; THREADS as usize],
    /// Commits acknowledged.
    pub(super) commits: u64,
    /// Transactions that the disk refused.
    pub(super) refusals: u64,
}

impl Heard {
    /// Notes what a thread was told. Thread and number come from a pipe.
    ///
    /// # Errors
    /// If a thread is told of an older transaction than before.
    pub(super) fn note(&mut self, thread: u64, number: u64, told: Told) -> Result<(), String> {
        let newest = match told {
            Told::Committed => &mut self.committed,
            Told::Prepared => &mut self.prepared,
            Told::Refused => {
                self.refusals += 1;
                return Ok(());
            }
        };
        let newest = newest.get_mut(thread as usize).ok_or_else(|| format!("thread {thread} reports"))?;
        if number < *newest || number == *newest && told == Told::Committed {
            return Err(format!("thread {thread} was told {told:?} of {number} behind {newest}"));
        }
        *newest = number;
        self.commits += u64::from(told == Told::Committed);
        Ok(())
    }
}

/// The rows of one thread as of its newest transaction.
#[derive(Debug, Default)]
struct Part {
    newest: u64,
    /// By key: which transaction has written it, and the length.
    rows: BTreeMap<u64, (u64, usize)>,
    /// Tables with the transaction that has created them.
    tables: BTreeMap<u64, u64>,
}

/// All that the directory must hold, brought forward by each [`Ledger::verify`].
#[derive(Debug)]
pub(super) struct Ledger {
    parts: Vec<Part>,
    balances: Vec<i64>,
}

impl Default for Ledger {
    fn default() -> Self {
        let parts = (0..THREADS).map(|_| Part::default()).collect();
        Self { parts, balances: vec![0; BALANCES as usize] }
    }
}

impl Ledger {
    /// Opens the directory in this process and compares it with what its writers heard.
    pub(super) fn verify_files(
        &mut self,
        options: &Options,
        dir: &Path,
        heard: &Heard,
        seed: u64,
    ) -> Result<(), String> {
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let db = options.open(dir).map_err(|error| format!("open: {error}"))?;
            self.verify(&db, heard, seed)?;
            db.close(Duration::ZERO).map_err(|error| format!("close: {error}"))
        }));
        checked.unwrap_or_else(|_| Err("the check has panicked".to_owned()))
    }

    /// Checks the database, and compares its rows with the answers that its writers `heard`. First some prepared
    /// transactions are ended, as the seed decides.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn verify(&mut self, db: &Db, heard: &Heard, seed: u64) -> Result<(), String> {
        let said = |what: &'static str| move |error: Error| format!("{what}: {error}");
        // First: a check waits for what a prepared creation of a table has locked.
        self.decide(db, heard, seed)?;
        db.check().map_err(said("check"))?;
        let read = db.read();
        let found = progress(&read).map_err(said("read of the progress"))?;
        let lessened = lessened(&read).map_err(said("read of lessened transactions"))?;
        for thread in 0..THREADS {
            self.bring_forward(thread, found.get(&thread).copied().unwrap_or(0), heard, &lessened)?;
        }
        self.compare_rows(&read)?;
        self.compare_balances(&read)?;
        self.compare_tables(&read)
    }

    /// Ends some of the transactions that are prepared, and checks that none is missing.
    fn decide(&self, db: &Db, heard: &Heard, seed: u64) -> Result<(), String> {
        let said = |error: Error| format!("prepared transactions: {error}");
        let mut found = BTreeSet::new();
        for (n, prepared) in (0..).zip(db.prepared().map_err(said)?) {
            let (thread, number) = of_prepared(&prepared.name).ok_or("a prepared transaction of another name")?;
            let newest = self.parts.get(thread as usize).map_or(0, |part| part.newest);
            if number <= newest.max(heard.committed[thread as usize]) {
                return Err(format!("{} is committed and prepared", prepared.name));
            }
            found.insert((thread, number));
            // One that stays must not keep a check from the catalogue.
            let stays = !Plan::new(thread, number, false).creates_table();
            match mixed(seed + n) % if stays { 3 } else { 2 } {
                0 => db.commit_prepared(&prepared.name).map(drop).map_err(said)?,
                1 => db.rollback_prepared(&prepared.name).map_err(said)?,
                _ => {}
            }
        }
        for (thread, &number) in (0..).zip(&heard.prepared) {
            let read = db.read();
            let reached = progress(&read).map_err(said)?.get(&thread).copied().unwrap_or(0);
            if number > reached && !found.contains(&(thread, number)) {
                return Err(format!("{} was prepared and is lost", prepared_name(thread, number)));
            }
        }
        Ok(())
    }

    /// Does what a thread has done up to transaction `found`.
    fn bring_forward(
        &mut self,
        thread: u64,
        found: u64,
        heard: &Heard,
        lessened: &BTreeSet<(u64, u64)>,
    ) -> Result<(), String> {
        let part = &mut self.parts[thread as usize];
        let acknowledged = part.newest.max(heard.committed[thread as usize]);
        if found < acknowledged {
            return Err(format!("thread {thread}: {acknowledged} was acknowledged, and {found} is the newest there"));
        }
        if found > acknowledged + WINDOW as u64 + 2 {
            return Err(format!("thread {thread}: {acknowledged} was acknowledged, and {found} is there"));
        }
        for number in part.newest + 1..=found {
            let plan = Plan::new(thread, number, lessened.contains(&(thread, number)));
            for &(key, len) in &plan.rows {
                match len {
                    Some(len) => _ = part.rows.insert(key, (number, len)),
                    None => _ = part.rows.remove(&key),
                }
            }
            if let Some(table) = plan.renewal {
                Plan::old_tables(table).for_each(|old| _ = part.tables.remove(&old));
                part.tables.insert(table, number);
            }
            let (from, to, amount) = plan.transfer;
            self.balances[from as usize] -= amount;
            self.balances[to as usize] += amount;
        }
        part.newest = found;
        Ok(())
    }

    fn compare_rows(&self, read: &ReadTransaction) -> Result<(), String> {
        let mut found = match read.open(ROWS) {
            Ok(table) => Some(table.iter()),
            Err(Error::NoTable { .. }) => None,
            Err(error) => return Err(format!("rows: {error}")),
        };
        let mut next = || -> Result<Option<(u64, Vec<u8>)>, String> {
            found.as_mut().and_then(Iterator::next).transpose().map_err(|error| format!("rows: {error}"))
        };
        let wanted = self.parts.iter().flat_map(|part| &part.rows);
        for (&key, &(number, len)) in wanted {
            match next()? {
                Some((other, bytes)) if other == key && bytes == value(key, number, len) => {}
                Some((other, _)) if other < key => return Err(format!("row {other} is there: {}", self.place(other))),
                Some((other, _)) if other > key => return Err(format!("row {key} is missing: {}", self.place(key))),
                Some((_, bytes)) => {
                    let is = bytes.get(8..16).and_then(|head| head.try_into().ok()).map(u64::from_le_bytes);
                    return Err(format!("row {key} is of transaction {is:?}, not {number}: {}", self.place(key)));
                }
                None => return Err(format!("row {key} is missing: {}", self.place(key))),
            }
        }
        match next()? {
            Some((other, _)) => Err(format!("row {other} is there: {}", self.place(other))),
            None => Ok(()),
        }
    }

    fn place(&self, key: u64) -> String {
        let thread = key / KEYS;
        format!("thread {thread}, newest {}", self.parts.get(thread as usize).map_or(0, |part| part.newest))
    }

    fn compare_balances(&self, read: &ReadTransaction) -> Result<(), String> {
        let all = || -> Result<BTreeMap<u64, i64>, Error> { read.open(SHARED)?.iter().collect() };
        let found = match all() {
            Err(Error::NoTable { .. }) => BTreeMap::new(),
            answer => answer.map_err(|error| format!("balances: {error}"))?,
        };
        for (key, &wanted) in (0..).zip(&self.balances) {
            let balance = found.get(&key).copied().unwrap_or(0);
            if balance != wanted {
                return Err(format!("balance {key} is {balance}, not {wanted}"));
            }
        }
        Ok(())
    }

    fn compare_tables(&self, read: &ReadTransaction) -> Result<(), String> {
        for (thread, part) in (0..).zip(&self.parts) {
            let newest = part.tables.last_key_value().map_or(0, |(&table, _)| table);
            for table in Plan::old_tables(newest).chain([newest, newest + 1]) {
                let name = table_name(thread, table);
                let wanted = part.tables.get(&table).map(|&number| vec![(0, number), (1, number), (2, number)]);
                let all = || -> Result<Vec<(u64, u64)>, Error> {
                    read.open(TableDef::<u64, u64>::new(&name))?.iter().collect()
                };
                let found = match all() {
                    Err(Error::NoTable { .. }) => None,
                    answer => Some(answer.map_err(|error| format!("{name}: {error}"))?),
                };
                if found != wanted {
                    return Err(format!("{name} has {found:?}, not {wanted:?}"));
                }
            }
            let stray = format!("stray-{thread}");
            match read.open(TableDef::<u64, u64>::new(&stray)) {
                Err(Error::NoTable { .. }) => {}
                Ok(_) => return Err(format!("{stray} was rolled back and is there")),
                Err(error) => return Err(format!("{stray}: {error}")),
            }
        }
        Ok(())
    }
}

fn progress(read: &ReadTransaction) -> Result<BTreeMap<u64, u64>, Error> {
    match read.open(PROGRESS) {
        Ok(table) => table.iter().collect(),
        Err(Error::NoTable { .. }) => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

fn lessened(read: &ReadTransaction) -> Result<BTreeSet<(u64, u64)>, Error> {
    match read.open(LESSENED) {
        Ok(table) => table.iter().map(|row| row.map(|(key, _)| key)).collect(),
        Err(Error::NoTable { .. }) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
