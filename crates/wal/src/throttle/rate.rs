//! The policy of the throttle: the growth rate of the log as a function of the backlog.
//!
//! Below the soft limit no writer is slowed. Between the limits the rate falls from infinity to zero: it is `RATE * (1
//! - x) / x²`, where `x` is the used share of the distance between the limits. The curve has no step at either end. For
//! each rate that the cleaner sustains there is one `x` with the same growth rate, and the backlog converges to it.

/// Bytes a second at `x = 0.62`, where `(1 - x) / x²` is 1. Slow and fast disks both converge well inside the limits:
/// 1 MiB/s at `x = 0.95`, 1 GiB/s at `x = 0.12`.
const RATE: f64 = (16 << 20) as f64;

/// Bytes of log that may stand behind the redo start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Above it writers are slowed.
    pub soft: u64,
    /// At it writers stop until pages have been written home.
    pub hard: u64,
}

/// Returns the bytes a second that writers may append while `backlog` bytes stand behind the redo start; `None` without
/// a limit.
pub(super) fn rate(backlog: u64, limits: LogLimits) -> Option<f64> {
    let over = backlog.checked_sub(limits.soft).filter(|&over| over > 0)?;
    let x = over as f64 / limits.hard.saturating_sub(limits.soft).max(1) as f64;
    Some(RATE * (1.0 - x).max(0.0) / (x * x))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMITS: LogLimits = LogLimits { soft: 40 * MIB, hard: 48 * MIB };

    #[test]
    fn the_rate_of_each_backlog() {
        // Backlog in MiB, and the rate in MiB a second, rounded down.
        let table = [
            (0, None),
            (40, None),
            (41, Some(896)),
            (42, Some(192)),
            (43, Some(71)),
            (44, Some(32)),
            (45, Some(15)),
            (46, Some(7)),
            (47, Some(2)),
            (48, Some(0)),
            (60, Some(0)),
        ];
        for (backlog, expected) in table {
            let found = rate(backlog * MIB, LIMITS).map(|rate| rate as u64 / MIB);
            assert_eq!(found, expected, "at {backlog} MiB");
        }
        assert_eq!(rate(48 * MIB, LIMITS), Some(0.0));
    }

    #[test]
    fn the_rate_falls_without_a_step() {
        let step = MIB / 64;
        let mut last = f64::INFINITY;
        for backlog in (40 * MIB + step..=48 * MIB).step_by(step as usize) {
            let rate = rate(backlog, LIMITS).expect("above the soft limit");
            assert!(rate <= last, "at {backlog}");
            // Where the rate is one that a disk may sustain, 16 KiB of log change it by a tenth at most.
            let is_near = rate > last * 0.9 || last - rate < (MIB / 2) as f64;
            assert!(last > 1024.0 * MIB as f64 || is_near, "from {last} to {rate} at {backlog}");
            last = rate;
        }
        assert!(rate(40 * MIB + step, LIMITS).expect("above the soft limit") > 1e12, "next to nothing is slowed");
    }

    #[test]
    fn limits_that_meet_stop_writers_and_divide_by_nothing() {
        let limits = LogLimits { soft: 10, hard: 10 };
        assert_eq!((rate(10, limits), rate(11, limits)), (None, Some(0.0)));
    }
}
