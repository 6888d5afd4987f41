//! How much log a restart may have to redo: from the time that it may take, and the measured speed of restarts.
//!
//! The speed is that of a whole start without undo. It is the bytes of log behind the redo start, by the time from the
//! call of `open` until its first checkpoint could begin. So the scan of the log counts, and the reads of pages.
//! Undo does not, since no budget bounds the changes of a transaction without an end.

use std::time::Duration;

/// KiB of log that a restart is assumed to redo in a second, before one is measured. One thread redid a quarter more of
/// TPC-B's log, on two processors and a virtual disk (docs/recovery.md).
const ASSUMED: u32 = 32 << 10;

/// How much log pages may need.
#[derive(Clone, Copy, Debug)]
pub struct RestartBudget {
    /// Most bytes of log, whatever the target.
    pub most: u64,
    /// Least bytes of log that a target leads to, unless `most` is less.
    pub least: u64,
    /// How long a restart may take; `None`: only `most` counts.
    pub target: Option<Duration>,
}

/// Returns the least budget with which `bytes` of log that pages need slow no writer, with some to go on.
pub(crate) const fn behind(bytes: u64) -> u64 {
    2 * bytes
}

/// A finished restart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Restart {
    /// Bytes of log behind the redo start.
    pub(crate) redo_bytes: u64,
    /// Bytes of all log that it found.
    pub(crate) scanned_bytes: u64,
    /// Prepared transactions, whose rows and versions it has rebuilt.
    pub(crate) prepared: u64,
    /// From the call of `open` until the first checkpoint could begin, without undo.
    pub(crate) time: Duration,
}

impl RestartBudget {
    /// Returns the bytes of log that pages may need. `speed` is in KiB of log a second; 0: it is not known.
    pub(crate) fn bytes(&self, speed: u32) -> u64 {
        let Some(target) = self.target else { return self.most };
        let speed = if speed == 0 { ASSUMED } else { speed };
        let bytes = (u128::from(speed) << 10) * target.as_millis() / 1000;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).max(self.least).min(self.most);
        assert!(bytes <= self.most && bytes >= self.least.min(self.most), "{bytes} bytes of log within {self:?}");
        bytes
    }

    /// Returns the speed to use after a restart: its own, or else the speed `known` before. One restart raises the
    /// speed by half at most, and halves it at most, so that none that was disturbed decides alone.
    ///
    /// A short log says little, as the fixed costs of a start outweigh it. So does a log that was mostly kept for other
    /// reasons, and one of prepared transactions, because the budget bounds neither.
    pub(crate) fn speed_after(&self, known: u32, restart: Restart) -> u32 {
        let Restart { redo_bytes, scanned_bytes, prepared, time } = restart;
        let is_typical = redo_bytes >= self.bytes(known) / 4 && redo_bytes >= scanned_bytes / 4 && prepared == 0;
        if !is_typical || redo_bytes == 0 || time.is_zero() {
            return known;
        }
        let before = if known == 0 { ASSUMED } else { known };
        let speed = u128::from(redo_bytes >> 10) * 1_000_000_000 / time.as_nanos();
        let speed = u32::try_from(speed).unwrap_or(u32::MAX);
        speed.clamp((before / 2).max(1), before.saturating_add(before / 2).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: Duration = Duration::from_secs(1);

    fn budget(target: Option<Duration>) -> RestartBudget {
        RestartBudget { most: 512 * MIB, least: 64 * MIB, target }
    }

    #[test]
    fn the_budget_is_the_target_by_the_speed_within_its_bounds() {
        for (target, kib_per_s, mib) in [
            (None, 0, 512),
            (None, 1, 512),
            (Some(4 * SECOND), 0, 128),
            (Some(2 * SECOND), 100 << 10, 200),
            (Some(Duration::from_millis(1500)), 100 << 10, 150),
            (Some(SECOND), 1, 64),
            (Some(Duration::from_nanos(1)), 100 << 10, 64),
            (Some(10 * SECOND), 100 << 10, 512),
            (Some(Duration::MAX), u32::MAX, 512),
        ] {
            assert_eq!(budget(target).bytes(kib_per_s), mib * MIB, "{target:?} at {kib_per_s} KiB/s");
        }
        // With little memory the most is below the least.
        assert_eq!(RestartBudget { most: 2 * MIB, ..budget(Some(SECOND)) }.bytes(1 << 20), 2 * MIB);
    }

    #[test]
    fn a_restart_counts_if_it_redid_enough_log_and_enough_of_what_it_found() {
        let ms = Duration::from_millis;
        const KNOWN: u32 = 100 << 10;
        // At that speed the budget is 100 MiB.
        for (redo_bytes, scanned_bytes, prepared, time, expected, why) in [
            (90 * MIB, 90 * MIB, 0, ms(1000), 90 << 10, "all of the log"),
            (90 * MIB, 360 * MIB, 0, ms(1000), 90 << 10, "a quarter of the log"),
            (90 * MIB, 360 * MIB + 4, 0, ms(1000), KNOWN, "log that was kept for other reasons"),
            (25 * MIB, 25 * MIB, 0, ms(250), KNOWN, "as fast as before"),
            (25 * MIB, 25 * MIB, 0, ms(200), 125 << 10, "just enough"),
            (25 * MIB - 1, 25 * MIB, 0, ms(200), KNOWN, "too little"),
            (90 * MIB, 90 * MIB, 1, ms(1000), KNOWN, "a prepared transaction"),
            (90 * MIB, 90 * MIB, 0, ms(500), 150 << 10, "at most half as much again"),
            (90 * MIB, 90 * MIB, 0, ms(60_000), 50 << 10, "at least half"),
            (0, 0, 0, ms(5), KNOWN, "a clean start"),
            (90 * MIB, 90 * MIB, 0, ms(0), KNOWN, "a clock that stands still"),
        ] {
            let restart = Restart { redo_bytes, scanned_bytes, prepared, time };
            assert_eq!(budget(Some(SECOND)).speed_after(KNOWN, restart), expected, "{why}");
        }
        let fast = Restart { redo_bytes: 1 << 50, scanned_bytes: 1 << 50, prepared: 0, time: SECOND };
        let slow = Restart { time: Duration::from_secs(1 << 50), ..fast };
        assert_eq!(budget(None).speed_after(0, fast), ASSUMED * 3 / 2, "the first one, also without a target");
        assert_eq!(budget(None).speed_after(0, slow), ASSUMED / 2);
        assert_eq!(budget(None).speed_after(u32::MAX, fast), u32::MAX);
        assert_eq!(budget(None).speed_after(1, slow), 1, "never as good as none");
    }
}
