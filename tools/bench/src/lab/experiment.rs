//! What an experiment is to the lab, and what it listens to.

use super::{Promise, Row, chart::Panel};
use crate::{Progress, machine::Machine, units::invalid};
use foreshore::{Device, Result};
use foreshore_base::limits::MAX_PAGES;
use serde_json::{Map, Value};
use std::{path::PathBuf, time::Duration};

/// One figure: how it is measured, drawn and described.
pub(super) trait Experiment: Sync {
    /// The name that users type.
    fn name(&self) -> &'static str;
    /// The figures that it reproduces.
    fn figure(&self) -> &'static str;
    /// What the paper reports.
    fn paper(&self) -> &'static str;
    /// What differs here.
    fn differs(&self) -> &'static str;
    /// Measures every row. What the rows share goes to the configuration.
    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>>;
    /// The figure.
    fn panels(&self, rows: &[Row]) -> Vec<Panel>;
    /// Ratios that the project promises, as far as the run has the rows for them.
    fn promises(&self, _: &[Row]) -> Vec<Promise> {
        Vec::new()
    }
    /// What else a reader looks for first.
    fn findings(&self, _: &[Row]) -> Vec<String> {
        Vec::new()
    }
}

/// What every experiment listens to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Fewer points and shorter windows: at most three minutes an experiment.
    pub quick: bool,
    /// Buffers that fit the caches of a core, where an experiment has such a curve.
    pub l1: bool,
    /// The device of experiments that write.
    pub device: Device,
    /// Measured time per point; `None`: what the experiment chooses.
    pub secs: Option<Duration>,
    /// Repeats of each point, of which the median is reported; `None`: what the experiment chooses.
    pub repeat: Option<usize>,
    /// Worker threads; empty: what the experiment chooses.
    pub threads: Vec<usize>,
    /// Branches of experiments that run TPC-B, or a ten thousandth of the subscribers of TATP; `None`: what the
    /// experiment chooses.
    pub scale: Option<u64>,
    /// Pages of experiments on the buffer pool, at least [`MIN_PAGES`]; `None`: what the experiment chooses.
    pub pages: Option<u64>,
    /// The trace of `buffer-trace`; `None`: a made-up one.
    pub trace: Option<PathBuf>,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let device = Device::Auto;
        Self {
            quick: false,
            l1: false,
            device,
            secs: None,
            repeat: None,
            threads: Vec::new(),
            scale: None,
            pages: None,
            trace: None,
            seed: 1,
        }
    }
}

/// Most worker threads, as many as a log has sessions by default.
pub(super) const MAX_THREADS: usize = 1024;
/// The least pages of which the smallest share in memory is a pool.
pub const MIN_PAGES: u64 = 512;

impl Settings {
    pub(super) fn check(&self) -> Result<()> {
        if self.secs.is_some_and(|secs| secs.is_zero()) {
            return Err(invalid("secs", "0", "a time above zero"));
        }
        if self.repeat == Some(0) {
            return Err(invalid("repeat", "0", "at least 1"));
        }
        if let Some(pages) = self.pages.filter(|pages| !(MIN_PAGES..=MAX_PAGES).contains(pages)) {
            return Err(invalid("pages", &pages.to_string(), &format!("{MIN_PAGES} to {MAX_PAGES}")));
        }
        match self.threads.iter().find(|threads| !(1..=MAX_THREADS).contains(*threads)) {
            Some(threads) => Err(invalid("threads", &threads.to_string(), &format!("1 to {MAX_THREADS}"))),
            None => Ok(()),
        }
    }
}

/// An experiment in progress.
pub(super) struct Lab<'a> {
    pub(super) settings: &'a Settings,
    pub(super) progress: &'a dyn Progress,
    /// What all rows share.
    pub(super) config: Map<String, Value>,
    /// The machine; with the device, if the experiment has one.
    pub(super) machine: Machine,
}

impl Lab<'_> {
    /// Notes what all rows share.
    pub(super) fn configure(&mut self, name: &str, value: impl Into<Value>) {
        self.config.insert(name.to_owned(), value.into());
    }

    /// `full`, or `quick` in a quick run.
    pub(super) fn choose<T>(&self, full: T, quick: T) -> T {
        if self.settings.quick { quick } else { full }
    }

    /// The pages of a file: those asked for, or those of the experiment.
    pub(super) fn pages(&self, full: u64, quick: u64) -> u64 {
        self.settings.pages.unwrap_or(self.choose(full, quick))
    }

    /// The thread counts to run: those asked for, or those of the experiment.
    pub(super) fn threads(&self, full: &[usize], quick: &[usize]) -> Vec<usize> {
        let own = self.choose(full, quick);
        if self.settings.threads.is_empty() { own.to_vec() } else { self.settings.threads.clone() }
    }
}
