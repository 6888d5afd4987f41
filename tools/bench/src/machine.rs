//! What a run ran on, and how long that device takes to make 4 KiB durable.

use crate::process::{field, read};
use foreshore::Result;
use foreshore_base::limits::BLOCK;
use foreshore_io::{AlignedBuf, Fs};
use serde::{Deserialize, Deserializer, Serialize};
use std::{path::Path, time::Instant};

/// Writes of the device probe.
const PROBES: usize = 500;
/// Blocks prepared at a time.
const CHUNK: usize = 16;

/// The machine and the device of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// Cores that the process may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The file system under the database, or `memory`.
    pub filesystem: String,
    /// The backend that ran.
    pub device_backend: String,
    /// Median of 500 single durable writes of 4 KiB over prepared space, in microseconds.
    #[serde(deserialize_with = "number_or_nan")]
    pub device_sync_us: f64,
    /// Whether a sync survives power loss: ratios of durable work mean nothing where it does not.
    #[serde(skip)]
    pub is_durable: bool,
}

impl Machine {
    /// Looks at the machine and probes the device in `dir`, which exists.
    ///
    /// # Errors
    /// What the probe's file operations give.
    pub fn probe(fs: &dyn Fs, dir: &Path, filesystem: String) -> Result<Self> {
        let backend = fs.backend();
        Ok(Self {
            filesystem,
            device_backend: backend.name,
            device_sync_us: device_sync_us(fs, dir, PROBES)?,
            is_durable: backend.durable,
            ..Self::without_device()?
        })
    }

    /// Looks at the machine for a measurement that writes nothing: the time of a sync is not a number, `null` in JSON.
    ///
    /// # Errors
    /// `Io` where `/proc` is not mounted.
    pub fn without_device() -> Result<Self> {
        Ok(Self {
            cores: foreshore_sync::available_parallelism(),
            memory_bytes: field(&read("/proc/meminfo")?, "MemTotal:") * 1024,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            filesystem: "none".to_owned(),
            device_backend: "none".to_owned(),
            device_sync_us: f64::NAN,
            is_durable: false,
        })
    }
}

/// JSON has `null` for what is not a number.
fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// Measures the median time of `probes` durable 4 KiB writes, in microseconds. A file is filled with zeros and synced,
/// then written block after block, as the log writes its segments. The file is removed again.
pub(crate) fn device_sync_us(fs: &dyn Fs, dir: &Path, probes: usize) -> Result<f64> {
    let path = dir.join("sync-probe");
    if fs.kind(&path)?.is_some() {
        fs.remove(&path)?;
    }
    let file = fs.create(&path)?;
    let measured = (|| {
        let zeros = AlignedBuf::new(CHUNK * BLOCK);
        for chunk in 0..probes.div_ceil(CHUNK) {
            file.write_at(&zeros, (chunk * CHUNK * BLOCK) as u64)?;
        }
        file.sync()?;
        fs.sync_dir(dir)?;
        let mut block = AlignedBuf::new(BLOCK);
        let mut times = Vec::with_capacity(probes);
        for probe in 0..probes {
            block.fill(probe as u8 | 1);
            let begun = Instant::now();
            file.write_durable(&block, (probe * BLOCK) as u64)?;
            times.push(begun.elapsed().as_nanos() as f64 / 1000.0);
        }
        times.sort_by(f64::total_cmp);
        Ok(times[probes / 2])
    })();
    fs.remove(&path)?;
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_io::Mem;
    use std::time::Duration;

    #[test]
    fn the_probe_measures_the_device_and_leaves_nothing() {
        let fs = Mem::delay(Duration::from_micros(200));
        let dir = Path::new("probe");
        fs.create_dir(dir).unwrap();
        let machine = Machine::probe(&fs, dir, "memory".into()).unwrap();
        assert!(machine.device_sync_us >= 200.0, "{}", machine.device_sync_us);
        assert_eq!(fs.list(dir).unwrap(), Vec::<String>::new());
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && !machine.kernel.is_empty());
    }
}
