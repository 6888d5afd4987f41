//! TPC-B, or another workload, on a whole database, for experiments that vary its options.

use super::experiment::Lab;
use crate::{
    Config,
    config::{Storage, Window, Workload},
    home::Home,
    machine::Machine,
    report::Row,
    row::{Check, measure},
    run::prepare,
    workload::{Audit, work},
};
use foreshore::{Device, Result};
use std::time::Duration;

/// A loaded database: a bank, or what another workload has.
pub(super) struct Bank {
    workload: Workload,
    home: Home,
    /// What the last audit found.
    found: Audit,
}

impl Bank {
    /// The options that rows share: those that are asked for; else this scale, and windows of `millis`.
    pub(super) fn options(lab: &Lab<'_>, scale: u64, millis: u64, device: Device) -> Config {
        let settings = lab.settings;
        Config {
            scale: settings.scale.unwrap_or(scale),
            window: Window::of(settings.secs.unwrap_or(Duration::from_millis(millis))),
            storage: Storage { device, ..Storage::default() },
            seed: settings.seed,
            ..Config::default()
        }
    }

    /// Loads `workload` at the scale and on the device of `config`.
    pub(super) fn load(lab: &Lab<'_>, workload: Workload, config: &Config) -> Result<Self> {
        let home = Home::new(config)?;
        let found = prepare(&*work(workload, config), &home, lab.progress)?;
        Ok(Self { workload, home, found })
    }

    /// From now on rows are of `workload`, which has the tables of the one that was loaded.
    pub(super) const fn set_workload(&mut self, workload: Workload) {
        self.workload = workload;
    }

    /// One row with the options of `config`, on the device and at the scale of the bank.
    pub(super) fn row(&mut self, lab: &Lab<'_>, config: &Config, threads: usize) -> Result<Row> {
        self.home.configure(config)?;
        let work = work(self.workload, config);
        measure(config, &self.home, &*work, threads, &mut self.found, Check::Skip, lab.progress)
    }

    /// Looks for the commits of all rows.
    ///
    /// # Panics
    /// If the money does not add up or a commit is missing: a rate of wrong transactions is none.
    pub(super) fn check(&self, lab: &Lab<'_>, config: &Config) -> Result<()> {
        lab.progress.phase("checking", 1);
        let db = self.home.open()?;
        let found = work(self.workload, config).audit(&db)?;
        Home::close(&db)?;
        assert!(
            found.is_sound && found.count == self.found.count,
            "{found:?} is not what was committed: {:?}",
            self.found
        );
        Ok(())
    }

    /// Measures the device, and describes it with the machine.
    pub(super) fn machine(&self) -> Result<Machine> {
        Machine::probe(self.home.fs(), self.home.dir(), self.home.filesystem()?)
    }
}
