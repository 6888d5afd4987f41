//! What a database is stored on, and its limits.

use super::values::{optional_seconds, text};
use crate::units::show_bytes;
use foreshore::{Device, DoublewriteKind};
use serde::Serialize;
use std::{fmt, time::Duration};

/// Devices, and bytes of memory and log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Storage {
    /// Whether pages go through the doublewrite file.
    #[serde(serialize_with = "text")]
    pub doublewrite: DoublewriteKind,
    /// The backend.
    #[serde(serialize_with = "text")]
    pub device: Device,
    /// The engine's memory limit, in bytes.
    pub memory: u64,
    /// Most bytes of the file for undo that memory has no room for; none if zero.
    pub spill: u64,
    /// Bytes of a log segment.
    pub segment: u64,
    /// Bytes of log that may stand behind the redo start.
    pub log_budget: u64,
    /// How long a restart may take, if the log behind the redo start follows from that.
    #[serde(serialize_with = "optional_seconds")]
    pub restart_target: Option<Duration>,
    /// Bytes of archived log that are kept; no log is archived if zero.
    pub archive: u64,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            doublewrite: DoublewriteKind::default(),
            device: Device::Auto,
            memory: 1 << 30,
            spill: 0,
            segment: 16 << 20,
            log_budget: 512 << 20,
            restart_target: None,
            archive: 0,
        }
    }
}

impl Storage {
    /// Whether the files live in memory and so begin empty in every process.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.device, Device::Null | Device::Delay(_))
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [memory, spill, segment, log_budget] =
            [self.memory, self.spill, self.segment, self.log_budget].map(show_bytes);
        write!(f, "doublewrite {} device {} memory {memory} spill {spill} ", self.doublewrite, self.device)?;
        match self.restart_target {
            None => write!(f, "segment {segment} log-budget {log_budget}"),
            Some(target) => write!(f, "segment {segment} restart-target {}s", target.as_secs_f64()),
        }?;
        if self.archive > 0 { write!(f, " archive {}", show_bytes(self.archive)) } else { Ok(()) }
    }
}
