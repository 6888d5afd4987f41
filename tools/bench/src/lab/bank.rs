//! TPC-B on a whole database, for experiments that vary its options.

use super::Lab;
use crate::{
    Config,
    config::Workload,
    home::Home,
    report::Row,
    row::{Check, measure},
    run::prepare,
    workload::{Audit, work},
};
use foreshore::Result;

/// A loaded bank.
pub(super) struct Bank {
    home: Home,
    /// What the last audit found.
    found: Audit,
}

impl Bank {
    /// Loads a bank of the scale and on the device of `config`.
    pub(super) fn load(lab: &Lab<'_>, config: &Config) -> Result<Self> {
        let home = Home::new(config)?;
        let found = prepare(&*work(Workload::Tpcb, config), &home, lab.progress)?;
        Ok(Self { home, found })
    }

    /// One row with the options of `config`, on the device and at the scale of the bank.
    pub(super) fn row(&mut self, lab: &Lab<'_>, config: &Config, threads: usize) -> Result<Row> {
        self.home.configure(config)?;
        let work = work(Workload::Tpcb, config);
        measure(config, &self.home, &*work, threads, &mut self.found, Check::Skip, lab.progress)
    }

    /// Looks for the commits of all rows.
    ///
    /// # Panics
    /// If the money does not add up or a commit is missing: a rate of wrong transactions is none.
    pub(super) fn check(&self, lab: &Lab<'_>, config: &Config) -> Result<()> {
        lab.progress.phase("checking", 1);
        let db = self.home.open()?;
        let found = work(Workload::Tpcb, config).audit(&db)?;
        Home::close(&db)?;
        assert!(
            found.is_sound && found.count == self.found.count,
            "{found:?} is not what was committed: {:?}",
            self.found
        );
        Ok(())
    }

    pub(super) fn home(&self) -> &Home {
        &self.home
    }
}
