//! Memory, processor time and context switches of this process and of the others on its machine, from Linux's `/proc`.

use foreshore::{Error, Result};
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

const STATUS: &str = "/proc/self/status";

/// Resident bytes of the process.
///
/// # Errors
/// `Io` where `/proc` is not mounted.
pub fn resident_bytes() -> Result<u64> {
    Ok(field(&read(STATUS)?, "VmRSS:") * 1024)
}

/// User and system time of all threads since the process began, in seconds.
#[must_use]
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// User and system time of all threads since the process began, in seconds, apart. In ticks of the kernel: 10 ms.
///
/// # Errors
/// `Io` where `/proc` is not mounted.
pub fn user_and_system_seconds() -> Result<[f64; 2]> {
    Ok(split_times(&read("/proc/self/stat")?)
        .map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Returns the seconds since boot in which a core of this machine had work and the hypervisor ran other machines (steal
/// time). It is 0 without a hypervisor.
///
/// # Errors
/// `Io` where `/proc` is not mounted.
pub fn stolen_seconds() -> Result<f64> {
    Ok(stolen_ticks(&read("/proc/stat")?) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Ticks of stolen time: the eighth number of all cores together.
fn stolen_ticks(stat: &str) -> u64 {
    let cores = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    cores.and_then(|times| times.split_whitespace().nth(7)?.parse().ok()).unwrap_or(0)
}

/// Ticks of user and system time: the fourteenth and fifteenth field, counted behind the name, which may hold spaces.
fn split_times(stat: &str) -> [u64; 2] {
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = behind_name.split_whitespace().skip(11).map(|field| field.parse().unwrap_or(0));
    std::array::from_fn(|_| fields.next().unwrap_or(0))
}

/// Times that a live thread gave up its core of its own accord. Threads that have ended are not counted: the
/// difference over a window is taken while all of its threads live.
///
/// # Errors
/// `Io` where `/proc` is not mounted.
pub fn voluntary_switches() -> Result<u64> {
    let mut sum = 0;
    let tasks = Path::new("/proc/self/task");
    for task in fs::read_dir(tasks).map_err(|e| Error::io("list", tasks, e))? {
        let path = task.map_err(|e| Error::io("list", tasks, e))?.path().join("status");
        match fs::read_to_string(&path) {
            Ok(status) => sum += field(&status, "voluntary_ctxt_switches:"),
            // The thread ended between the listing and the read.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound) || e.raw_os_error() == Some(NO_SUCH_PROCESS) => {}
            Err(e) => return Err(Error::io("read", path, e)),
        }
    }
    Ok(sum)
}

/// `ESRCH`.
const NO_SUCH_PROCESS: i32 = 3;

/// The highest resident size since it was made.
pub struct Peak {
    /// Whether the kernel began a new high-water mark; else only what was observed counts.
    is_reset: bool,
    observed: u64,
}

impl Peak {
    /// Begins a new peak at what is resident in this moment.
    ///
    /// # Errors
    /// `Io` where `/proc` is not mounted.
    pub fn begin() -> Result<Self> {
        // 5 resets the high-water mark; containers may forbid it.
        let is_reset = fs::write("/proc/self/clear_refs", "5").is_ok();
        Ok(Self { is_reset, observed: resident_bytes()? })
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// `Io` where `/proc` is not mounted.
    pub fn observe(&mut self) -> Result<()> {
        let status = read(STATUS)?;
        let mark = if self.is_reset { "VmHWM:" } else { "VmRSS:" };
        self.observed = self.observed.max(field(&status, mark) * 1024);
        Ok(())
    }

    /// The highest value so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.observed
    }
}

pub(crate) fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(|e| Error::io("read", PathBuf::from(path), e))
}

/// The number behind `name` at the start of a line; 0 if there is none.
pub(crate) fn field(status: &str, name: &str) -> u64 {
    let rest = status.lines().find_map(|line| line.strip_prefix(name));
    rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmHWM:\t  12 kB\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "VmHWM:"), 12);
        assert_eq!(field(status, "voluntary_ctxt_switches:"), 3);
        assert_eq!(field(status, "VmRSS:"), 0);
    }

    #[test]
    fn user_and_system_time_stand_behind_any_name() {
        assert_eq!(split_times("12 (a b) c) S 1 2 3 4 5 6 7 8 9 10 71 29 13"), [71, 29]);
        assert_eq!(split_times(""), [0, 0]);
        let sum: f64 = user_and_system_seconds().unwrap().iter().sum();
        // The kernel counts ticks, and the clock that is read after them goes on.
        assert!(sum <= cpu_seconds() + 0.03, "{sum}");
    }

    #[test]
    fn stolen_time_is_that_of_all_cores() {
        let stat = "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(stolen_ticks(stat), 80);
        assert_eq!(stolen_ticks("cpu  1 2 3\ncpu0 1 2 3 4 5 6 7 8"), 0, "an old kernel");
        let begun = stolen_seconds().unwrap();
        assert!(stolen_seconds().unwrap() >= begun);
    }

    #[test]
    fn the_peak_never_falls() {
        let mut peak = Peak::begin().unwrap();
        let begun = peak.bytes();
        assert!(begun > 0);
        peak.observe().unwrap();
        assert!(peak.bytes() >= begun);
        for is_reset in [false, true] {
            let mut low = Peak { is_reset, observed: 0 };
            low.observe().unwrap();
            assert!(low.bytes() > 0);
            let mut high = Peak { is_reset, observed: u64::MAX };
            high.observe().unwrap();
            assert_eq!(high.bytes(), u64::MAX);
        }
    }

    #[test]
    fn processor_time_passes_and_switches_count() {
        let begun = cpu_seconds();
        let mut x = 1_u64;
        while cpu_seconds() < begun + 0.01 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        // Other threads of the test come and go; this one stays.
        let own = field(&read("/proc/thread-self/status").unwrap(), "voluntary_ctxt_switches:");
        assert!(own > 0 && voluntary_switches().unwrap() >= own);
    }
}
