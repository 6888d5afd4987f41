//! What this process uses, and what its machine says of itself. Linux's `/proc` and `/sys`.

use crate::error::{Error, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    time::Instant,
};

/// Durable writes of the device probe.
const PROBES: usize = if cfg!(test) { 5 } else { 200 };
/// Bytes of one of them.
const PROBE_BYTES: usize = 4096;
/// Bytes of a sector in the statistics of a block device.
const SECTOR: u64 = 512;

/// Returns user and system time of all threads since the process began, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the time that a hypervisor took from the cores since boot, in seconds; 0 without a hypervisor.
pub(crate) fn stolen_seconds() -> f64 {
    stolen_ticks(&read("/proc/stat")) as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Ticks of stolen time: the eighth number of all cores together.
fn stolen_ticks(stat: &str) -> u64 {
    let cores = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    cores.and_then(|times| times.split_whitespace().nth(7)?.parse().ok()).unwrap_or(0)
}

/// Returns the number of cores that the process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Begins a new high-water mark of resident memory. Containers may forbid it: the mark is then that of the process.
pub(crate) fn reset_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Returns the most bytes that were resident since [`reset_peak`].
pub(crate) fn peak_bytes() -> u64 {
    field(&read("/proc/self/status"), "VmHWM:") * 1024
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The number behind `name` at the start of a line; 0 if there is none.
fn field(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// What the device under a directory has done since boot, for all processes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceUse {
    pub(crate) written_bytes: u64,
    /// Flush requests that ended; 0 before Linux 5.5.
    pub(crate) flushes: u64,
}

impl DeviceUse {
    /// Reads the statistics of the device under `dir`; `None` where no block device is known for it.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let device = fs::metadata(dir).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Self::parse(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let numbers: Vec<u64> = stat.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let flushes = numbers.get(15).copied().unwrap_or(0);
        Some(Self { written_bytes: numbers.get(6)? * SECTOR, flushes })
    }
}

/// The machine of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) filesystem: String,
    /// Median of durable writes of 4 KiB over written space, in microseconds.
    pub(crate) device_sync_us: f64,
}

impl Machine {
    /// Looks at the machine, and probes the device in `dir`.
    ///
    /// # Errors
    /// `Io` of the probe.
    pub(crate) fn probe(dir: &Path) -> Result<Self> {
        Ok(Self {
            cores: cores(),
            memory_bytes: field(&read("/proc/meminfo"), "MemTotal:") * 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            filesystem: filesystem(dir, &read("/proc/mounts")),
            device_sync_us: device_sync_us(&dir.join("sync-probe"))?,
        })
    }

    /// Whether a sync reaches a device.
    pub(crate) fn is_durable(&self) -> bool {
        !matches!(self.filesystem.as_str(), "tmpfs" | "ramfs")
    }
}

/// Type of the file system that holds `dir`: that of the longest mount point that `dir` begins with.
fn filesystem(dir: &Path, mounts: &str) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let points = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((words.next()?, words.next()?))
    });
    let holding = points.filter(|(point, _)| dir.starts_with(point));
    holding.max_by_key(|(point, _)| point.len()).map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

fn device_sync_us(path: &Path) -> Result<f64> {
    let measured = probe(path);
    fs::remove_file(path).map_err(Error::io("remove", path))?;
    measured
}

fn probe(path: &Path) -> Result<f64> {
    let file = File::create(path).map_err(Error::io("create", path))?;
    let block = [1_u8; PROBE_BYTES];
    for at in 0..PROBES {
        file.write_all_at(&block, (at * PROBE_BYTES) as u64).map_err(Error::io("write", path))?;
    }
    file.sync_all().map_err(Error::io("sync", path))?;
    let file =
        OpenOptions::new().write(true).custom_flags(libc::O_DSYNC).open(path).map_err(Error::io("open", path))?;
    let mut times = Vec::with_capacity(PROBES);
    for at in 0..PROBES {
        let begun = Instant::now();
        file.write_all_at(&[2; PROBE_BYTES], (at * PROBE_BYTES) as u64).map_err(Error::io("write", path))?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[PROBES / 2])
}

/// Returns the bytes that the files below `dir` take on their file system.
///
/// # Errors
/// `Io` of the listing.
pub(crate) fn allocated_bytes(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let path = entry.map_err(Error::io("list", dir))?.path();
        let meta = fs::symlink_metadata(&path).map_err(Error::io("look at", &path))?;
        sum += if meta.is_dir() { allocated_bytes(&path)? } else { meta.blocks() * SECTOR };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_that_of_all_cores() {
        assert_eq!(stolen_ticks("cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\n"), 80);
        assert_eq!(stolen_ticks("cpu  1 2 3\ncpu0 1 2 3 4 5 6 7 8"), 0, "an old kernel");
    }

    #[test]
    fn a_device_says_sectors_and_flushes() {
        let stat = "1 2 3 4 5 6 70 8 9 10 11 12 13 14 15 16 17";
        assert_eq!(DeviceUse::parse(stat), Some(DeviceUse { written_bytes: 70 * 512, flushes: 16 }));
        assert_eq!(DeviceUse::parse("1 2 3 4 5 6 70"), Some(DeviceUse { written_bytes: 70 * 512, flushes: 0 }));
        assert_eq!(DeviceUse::parse(""), None);
    }

    #[test]
    fn the_nearest_mount_holds_a_directory() {
        let mounts = "a / ext4 rw\nb /var tmpfs rw\nc /variable xfs rw\n";
        assert_eq!(filesystem(Path::new("/var/none/such"), mounts), "tmpfs");
        assert_eq!(filesystem(Path::new("/none/such"), mounts), "ext4");
    }
}
