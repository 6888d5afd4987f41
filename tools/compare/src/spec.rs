//! What a process is to do.

use crate::{
    engine::{Engine, Kind, Purpose, Setup, Variant},
    engines,
    error::Result,
    workload::{Shape, Workload},
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An engine, and one of its variants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Choice {
    pub(crate) engine: String,
    pub(crate) variant: String,
}

/// What a process is to load or to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) choice: Choice,
    pub(crate) workload: Workload,
    /// Only in `read` and `values`.
    pub(crate) shape: Option<Shape>,
    /// Bytes of a value of `values`; else 0.
    pub(crate) value_bytes: u64,
    pub(crate) threads: usize,
    pub(crate) durable: bool,
    pub(crate) cache: u64,
    pub(crate) secs: f64,
    pub(crate) scale: u64,
    /// Rows that are always in the queue.
    pub(crate) backlog: u64,
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
}

impl Spec {
    /// Returns the number of threads that push in `queue`; the others pop.
    pub(crate) const fn producers(&self) -> usize {
        self.threads.div_ceil(2)
    }

    /// Returns the number of values in the table of `values`.
    pub(crate) fn value_rows(&self) -> u64 {
        (self.scale << 20) / self.value_bytes
    }

    /// Returns the number of subscribers of `tatp`.
    pub(crate) fn subscribers(&self) -> u32 {
        // The scale is checked before.
        u32::try_from(self.scale).unwrap_or(u32::MAX)
    }

    /// Returns the rows that a thread loads in `bulk`.
    pub(crate) const fn bulk_rows(&self, thread: usize) -> u64 {
        self.scale / self.threads as u64 + (self.scale % self.threads as u64 > thread as u64) as u64
    }

    /// Returns what the database is used for.
    pub(crate) fn purpose(&self) -> Purpose {
        Purpose::new(self.workload, self.shape, self.durable)
    }

    /// Returns a short description.
    pub(crate) fn title(&self) -> String {
        let size = if self.value_bytes == 0 { String::new() } else { format!(" of {}", size(self.value_bytes)) };
        let shape = self.shape.map_or_else(String::new, |shape| format!(" {}{size}", shape.name()));
        let durable = if self.durable { "durable" } else { "lazy" };
        let (Choice { engine, variant }, workload) = (&self.choice, self.workload.name());
        format!("{workload}{shape} {engine}:{variant}, {durable}, {} threads", self.threads)
    }

    pub(crate) fn kind(&self) -> Result<&'static Kind> {
        engines::named(&self.choice.engine).ok_or_else(|| engines::unknown(self.choice.engine.clone()))
    }

    pub(crate) fn variant(&self) -> Result<Variant> {
        let variants = (self.kind()?.variants)(self.purpose());
        let found = variants.into_iter().find(|variant| variant.name == self.choice.variant);
        found.ok_or_else(|| engines::unknown(format!("{}:{}", self.choice.engine, self.choice.variant)))
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Engine>> {
        (self.kind()?.open)(&Setup {
            dir: &self.dir,
            cache: self.cache,
            purpose: self.purpose(),
            variant: &self.choice.variant,
            tables: self.workload.tables(self.threads),
            threads: self.threads,
        })
    }
}

/// Returns a size in the largest unit that divides it.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}
