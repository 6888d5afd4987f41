//! Small file systems that are full. No log is poisoned, and the directory opens again and again while writers are at
//! work. Large transactions are rolled back, and writes go on by themselves when there is space.

use super::asked::Asked;
use super::child::Order;
use super::ledger::{Heard, Ledger};
use super::mounts::{Mounted, scratch};
use super::plan::options;
use super::process::{Ended, Running, own_program};
use super::totals::Totals;
use crate::random::{Random, mixed};
use foreshore::Db;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);
/// How long writes may take to go on when there is space, and parked rollbacks to end.
const RECOVERY: Duration = Duration::from_secs(60);

pub(super) fn run(asked: &Asked, totals: &mut Totals) -> Result<(), String> {
    let base = scratch("full")?;
    for kind in asked.kinds(&["tmpfs", "ext4", "xfs", "btrfs"]) {
        let mounted = match Mounted::new(&base, &kind, 64 * MIB) {
            Ok(mounted) => mounted,
            Err(why) => {
                totals.skip(&kind, &why);
                continue;
            }
        };
        let count = asked.count.unwrap_or(4);
        let mut disk =
            Disk { dir: mounted.dir.join("db"), mounted: &mounted, ledger: Ledger::default(), refusals: 0, totals };
        let outcome = disk.run(&kind, count, asked.seed);
        totals.round(outcome, &format!("--fs {kind} --count {count} --seed {}", asked.seed));
    }
    // Whatever could not be unmounted stays.
    let _ = std::fs::remove_dir(&base);
    Ok(())
}

struct Disk<'a> {
    mounted: &'a Mounted,
    dir: PathBuf,
    ledger: Ledger,
    /// Transactions that the disk has refused.
    refusals: u64,
    totals: &'a mut Totals,
}

impl Disk<'_> {
    fn run(&mut self, kind: &str, count: u64, seed: u64) -> Result<(), String> {
        self.live(seed, 600, true)?;
        // What others have on the disk, and remove.
        let ballast = self.mounted.dir.join("ballast");
        std::fs::write(&ballast, vec![7; 4 << 20]).map_err(|error| format!("ballast: {error}"))?;
        for open in 0..count {
            let filler = self.mounted.fill()?;
            let seed = seed + open;
            let said = |why| format!("open {open}, seed {seed}: {why}");
            let orderly = Random::new(mixed(seed)).below(2) == 0;
            self.live(seed, 350, orderly).map_err(said)?;
            self.totals.count(kind);
            std::fs::remove_file(filler).map_err(|error| format!("filler: {error}"))?;
            if open % 3 == 2 {
                // Between two times without space there is some.
                self.live(seed, 150, orderly).map_err(said)?;
            }
        }
        std::fs::remove_file(&ballast).map_err(|error| format!("ballast: {error}"))?;
        self.totals.count_many(&format!("transactions refused by {kind}"), self.refusals);
        if self.refusals == 0 {
            return Err("the disk was never full".to_owned());
        }
        self.goes_on(seed)
    }

    /// Lets a process work, which ends in order or is killed, and checks what is there.
    fn live(&mut self, seed: u64, millis: u64, orderly: bool) -> Result<(), String> {
        let order = Order {
            dir: self.dir.clone(),
            seed,
            millis: if orderly { millis } else { 60_000 },
            is_disk_bad: true,
            ..Order::default()
        };
        let mut running = Running::start(&own_program()?, &[], &order)?;
        if !orderly {
            running.wait_for_open(PATIENCE);
            thread::sleep(Duration::from_millis(millis));
            running.kill();
        }
        let ended = running.wait(PATIENCE)?;
        self.judge(&ended)?;
        self.totals.commits += ended.heard.commits;
        self.refusals += ended.heard.refusals;
        self.ledger.verify_files(&options(seed), &self.dir, &ended.heard, seed)
    }

    fn judge(&self, ended: &Ended) -> Result<(), String> {
        ended.expect_no_panic()?;
        match ended.is_refused() {
            true => Err(format!("a full disk has stopped the engine: {}", ended.last_words())),
            false => Ok(()),
        }
    }

    /// With space, each thread commits again, and no rollback stays parked.
    fn goes_on(&mut self, seed: u64) -> Result<(), String> {
        let order = Order { dir: self.dir.clone(), seed, millis: 1000, ..Order::default() };
        let ended = Running::start(&own_program()?, &[], &order)?.wait(PATIENCE)?;
        self.judge(&ended)?;
        let heard = &ended.heard;
        self.totals.commits += heard.commits;
        if heard.commits == 0 {
            return Err("no writer goes on, though there is space".to_owned());
        }
        self.ledger.verify_files(&options(seed), &self.dir, heard, seed)?;
        has_no_parked_rollback(&self.dir, seed)?;
        self.ledger.verify_files(&options(seed), &self.dir, &Heard::default(), seed)
    }
}

fn has_no_parked_rollback(dir: &Path, seed: u64) -> Result<(), String> {
    let db: Db = options(seed).open(dir).map_err(|error| format!("open with space: {error}"))?;
    let until = Instant::now() + RECOVERY;
    while db.stats().txn.parked > 0 {
        if Instant::now() > until {
            return Err(format!("{} rollbacks are parked, though there is space", db.stats().txn.parked));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
