//! What sessions do with a table's sequence of numbers.

use super::numbers::{NAME, NUMBERED};
use super::plan::{one_in, one_of};
use super::session::Session;
use super::shared::Stop;
use foreshore::{Error, Table, Transaction};

/// A name that the table has for a moment.
const SPARE: &str = "numbered spare";
/// More numbers than the engine reserves at once.
const MANY: u64 = 1_100;
/// Numbers that get rows, of those that are taken at once.
const ROWS: u64 = 3;

impl Session<'_> {
    /// Takes numbers, skips some, or clears or renames their table.
    pub(super) fn number(&mut self, tx: &Transaction) -> Result<(), Stop> {
        let is_there = match self.random().below(12) {
            0 | 1 => tx.clear_table(NAME)?,
            2 => {
                let savepoint = tx.savepoint()?;
                let is_there = tx.rename_table(NAME, SPARE)?;
                if is_there && one_in(self.random(), 2) {
                    tx.rename_table(SPARE, NAME)?;
                } else {
                    tx.rollback_to(&savepoint)?;
                }
                is_there
            }
            3 => {
                let last = self.shared().numbers.lock().last() + self.random().below(2 * MANY);
                tx.skip_ids(&tx.open(NUMBERED)?, last)?;
                self.shared().numbers.lock().skip(last);
                true
            }
            _ => {
                let open = tx.open(NUMBERED)?;
                let count = one_of(self.random(), &[1, 1, 1, 1, 2, 5, 20, MANY]);
                self.take_numbers(tx, &open, count)?;
                true
            }
        };
        if is_there { Ok(()) } else { Err(Stop::Wrong(format!("the table {NAME} is gone"))) }
    }

    /// Takes numbers, and inserts rows for the first of them.
    fn take_numbers(&self, tx: &Transaction, open: &Table<'_, u64, u64>, count: u64) -> Result<(), Stop> {
        let mut last = 0;
        for at in 0..count {
            let floor = self.shared().numbers.lock().floor();
            let number = tx.next_id(open)?;
            self.shared().numbers.lock().take(number, floor.max(last))?;
            last = number;
            if at < ROWS {
                match open.insert_new(number, at) {
                    Err(Error::KeyExists { .. }) => return Err(Stop::Wrong(format!("number {number} has a row"))),
                    inserted => inserted?,
                }
            }
        }
        Ok(())
    }
}
