//! Parts of the engine that can be exchanged for others.

use super::values::text;
use crate::group::GroupName;
use foreshore::{Options, Result};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_classics::growth::GrowthKind;
use foreshore_classics::intents::IntentKind;
use foreshore_classics::log_buffers::{BufferKind, BufferOptions, WaitKind};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_classics::status_tables::StatusKind;
use foreshore_wal::log_buffer::MakeLogBuffer;
use serde::Serialize;
use std::{fmt, sync::Arc};

/// Which of the parts that do one job the engine has. The defaults are its own.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parts {
    /// The log buffer.
    #[serde(serialize_with = "text")]
    pub log_buffer: BufferKind,
    /// How appends wait for each other in the log buffers that make them wait.
    #[serde(serialize_with = "text")]
    pub wait: WaitKind,
    /// Places where threads consolidate, in the log buffers that have such.
    pub slots: usize,
    /// When a group of commits goes to the disk.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// How much is released when the commit record is appended.
    #[serde(serialize_with = "text")]
    pub elr: EarlyRelease,
    /// Which page leaves the buffer pool.
    #[serde(serialize_with = "text")]
    pub replacement: ReplacementKind,
    /// How the outcome of a transaction is looked up.
    #[serde(serialize_with = "text")]
    pub status: StatusKind,
    /// Where intents on tables are entered.
    #[serde(serialize_with = "text")]
    pub intents: IntentKind,
    /// When the data file grows.
    #[serde(serialize_with = "text")]
    pub growth: GrowthKind,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            log_buffer: BufferKind::default(),
            wait: WaitKind::default(),
            slots: 4,
            group: GroupName::default(),
            elr: EarlyRelease::default(),
            replacement: ReplacementKind::default(),
            status: StatusKind::default(),
            intents: IntentKind::default(),
            growth: GrowthKind::default(),
        }
    }
}

impl Parts {
    /// Opens databases with these parts.
    ///
    /// # Errors
    /// `InvalidOption` if the log buffer cannot be made so.
    pub(crate) fn set(&self, options: Options) -> Result<Options> {
        let log_buffer = self.log_buffer()?;
        let options = options.lab(|lab| {
            lab.log_buffer = log_buffer;
            lab.hold_until_durable = self.elr.hook();
            lab.replacement = self.replacement.maker();
            lab.status = self.status.maker();
            lab.fast_intents = self.intents.is_fast();
            lab.growth = self.growth.rule();
        });
        Ok(self.group.set(options))
    }

    /// What makes the log buffer, if it is not the engine's own.
    pub(super) fn log_buffer(&self) -> Result<Option<Arc<dyn MakeLogBuffer>>> {
        let (wait, slots) = (self.wait, self.slots);
        Ok(BufferOptions { wait, slots, ..BufferOptions::new(self.log_buffer) }.maker()?)
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { log_buffer, wait, slots, group, elr, replacement, status, intents, growth } = self;
        write!(f, "log-buffer {log_buffer} wait {wait} slots {slots} group {group} elr {elr} ")?;
        write!(f, "replacement {replacement} status {status} intents {intents} growth {growth}")
    }
}
