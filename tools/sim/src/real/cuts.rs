//! Power cuts: a file system, or the medium below it, is shut down while a process works on it.
//!
//! | cut | what is lost |
//! |---|---|
//! | of the file system, by its ioctl | all that it has not written to its loop device |
//! | of the medium | all that the file system below the loop file has not been told to sync: a disk with a volatile cache |
//!
//! Rounds take turns. A file system that does not know the ioctl has cuts of its medium alone.

use super::asked::Asked;
use super::child::Order;
use super::ledger::Ledger;
use super::mounts::{Mounted, scratch};
use super::plan::options;
use super::process::{Running, own_program};
use super::totals::Totals;
use crate::random::{Random, mixed};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Rounds on one file system.
const ROUNDS_OF_A_DISK: u64 = 25;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(asked: &Asked, totals: &mut Totals) -> Result<(), String> {
    let base = scratch("cuts")?;
    for kind in asked.kinds(&["ext4", "xfs", "btrfs"]) {
        let count = asked.count.unwrap_or(3);
        let mut rack: Option<Rack> = None;
        for round in 0..count {
            let seed = asked.seed + round;
            if round % ROUNDS_OF_A_DISK == 0 {
                drop(rack.take());
                match Rack::new(&base, &kind) {
                    Ok(new) => rack = Some(new),
                    Err(why) => {
                        totals.skip(&kind, &why);
                        break;
                    }
                }
            }
            let Some(at_work) = &mut rack else { break };
            let outcome = at_work.round(seed, totals);
            if !totals.round(outcome, &format!("--fs {kind} --count 1 --seed {seed}")) {
                drop(rack.take());
                rack = Rack::new(&base, &kind).ok();
            }
        }
        drop(rack);
        let _ = std::fs::remove_dir(base.join(format!("medium-of-{kind}")));
    }
    // Whatever could not be unmounted stays.
    let _ = std::fs::remove_dir(&base);
    Ok(())
}

/// A file system in a file of another one. The fields are dropped in this order.
struct Rack {
    inner: Mounted,
    medium: Mounted,
    kind: String,
    /// Why its own ioctl cannot be used.
    no_ioctl: Option<String>,
    ledger: Ledger,
    dir: PathBuf,
}

impl Rack {
    fn new(base: &Path, kind: &str) -> Result<Self, String> {
        let folder = base.join(format!("medium-of-{kind}"));
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let medium = Mounted::new(&folder, "ext4", 700 * MIB)?;
        let inner = Mounted::new(&medium.dir, kind, 320 * MIB)?;
        unmount_soon(&inner)?;
        inner.fill_image()?;
        inner.mount()?;
        let dir = inner.dir.join("db");
        Ok(Self { inner, medium, kind: kind.to_owned(), no_ioctl: None, ledger: Ledger::default(), dir })
    }

    fn round(&mut self, seed: u64, totals: &mut Totals) -> Result<(), String> {
        let mut random = Random::new(mixed(seed));
        let order = Order {
            dir: self.dir.clone(),
            seed,
            millis: 60_000,
            is_buffered: random.below(2) == 0,
            ..Order::default()
        };
        let mut running = Running::start(&own_program()?, &[], &order)?;
        if !running.wait_for_commit(PATIENCE) {
            let ended = running.wait(PATIENCE)?;
            return Err(format!("the process ended before its first commit: {}", ended.last_words()));
        }
        thread::sleep(Duration::from_millis(random.below(300)));
        let of_medium = random.below(2) == 0 || self.no_ioctl.is_some();
        let cut = if of_medium { self.cut_medium() } else { self.cut_own(totals) };
        // The engine meets an error and stops. Where it has nothing to write, it goes on until it is killed.
        thread::sleep(Duration::from_millis(30));
        let ended = match running.wait_for_end(Duration::from_secs(5)) {
            true => running.wait(PATIENCE)?,
            false => {
                running.kill();
                running.wait(PATIENCE)?
            }
        };
        let by = cut?;
        ended.expect_no_panic()?;
        if ended.is_through() {
            return Err("the process ended in order, though its disk was gone".to_owned());
        }
        totals.count(&format!("{} by {by}", self.kind));
        totals.count(if ended.is_refused() { "stopped by an error" } else { "killed behind a cut" });
        totals.commits += ended.heard.commits;
        self.power_on(by == "medium")?;
        let options = options(seed);
        let options = if order.is_buffered { options.device(foreshore::Device::Buffered) } else { options };
        self.ledger
            .verify_files(&options, &self.dir, &ended.heard, seed)
            .map_err(|why| format!("{why}; cut of {by}, process: {}", ended.last_words()))
    }

    fn cut_medium(&self) -> Result<&'static str, String> {
        self.medium.shut_down().map(|()| "medium")
    }

    fn cut_own(&mut self, totals: &mut Totals) -> Result<&'static str, String> {
        match self.inner.shut_down() {
            Ok(()) => Ok("ioctl"),
            Err(why) => {
                totals.skip(&format!("{} by ioctl", self.kind), &why);
                self.no_ioctl = Some(why);
                self.cut_medium()
            }
        }
    }

    fn power_on(&self, with_medium: bool) -> Result<(), String> {
        unmount_soon(&self.inner)?;
        if with_medium {
            unmount_soon(&self.medium)?;
            self.medium.mount()?;
        }
        self.inner.mount()
    }
}

/// Unmounts. The kernel may be at work on what a process has left.
fn unmount_soon(mounted: &Mounted) -> Result<(), String> {
    let mut tries = 0;
    loop {
        match mounted.unmount() {
            Err(_) if tries < 100 => tries += 1,
            done => return done,
        }
        thread::sleep(Duration::from_millis(20));
    }
}
