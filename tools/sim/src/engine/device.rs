//! A device that lets writes land in an order of its own.

use super::plan::one_in;
use crate::Random;
use foreshore_io::Sim;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::{Parker, schedule};
use std::sync::Arc;
use std::time::Duration;

/// A device that has several writes in flight, which land in any order.
pub(super) struct Device {
    stop: Arc<AtomicBool>,
    handle: schedule::Handle,
    disk: Sim,
}

impl Device {
    pub(super) fn start(disk: &Sim, seed: u64) -> Result<Self, String> {
        disk.hold(|_| true);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, device, mut random) = (stop.clone(), disk.clone(), Random::new(seed));
        let body = move || {
            // ORDERING: Acquire, pairs with the store in `stop`.
            while !stopped.load(Ordering::Acquire) {
                let released = device.release_any(random.below(u64::MAX));
                if released.is_none() {
                    // Sessions that wait for locks issue no write for many seconds.
                    device.wait_for_flight();
                }
                if released.is_none() || one_in(&mut random, 2) {
                    pause(Duration::from_micros(random.below(300)));
                }
            }
        };
        let handle = schedule::spawn("device", body).map_err(|error| error.to_string())?;
        Ok(Self { stop, handle, disk: disk.clone() })
    }

    pub(super) fn stop(self) {
        // ORDERING: Release, pairs with the load of the device.
        self.stop.store(true, Ordering::Release);
        // This wakes the device.
        self.disk.stop_holding();
        // A panic is noted by its hook.
        drop(self.handle.join());
    }
}

/// Waits for so long by the time of the run.
pub(super) fn pause(time: Duration) {
    // WAIT: park - no thread unparks it.
    Parker::new().park_timeout(time);
}
