//! Lives of several rounds: work, a backup, a power loss, a start and a restore. A writer commits beside the backups
//! and some of the restores. Each chain of full backup and increments holds the commits up to its position. All that
//! were acknowledged before the backup began are among them. With the archive it holds what the database held.
//!
//! `FORESHORE_ROUNDS=300` makes so many rounds.

use crate::backup::{BLOCK_READ, SlowReads};
use crate::restore::ARCHIVE;
use crate::script::{Model, Random, Script, disk, options, read};
use crate::support::{DIR, POLICIES};
use foreshore::{Db, Error, Restore, restore};
use foreshore_io::{Fs, Sim};
use foreshore_sync::pause;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Rounds of a life.
const ROUNDS: u64 = 6;

/// A backup that is whole, and the state at its position.
struct Link {
    dir: String,
    held: Model,
}

/// When the power is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Backup,
    Work,
    Restore,
}

/// How often which case was met.
#[derive(Debug, Default)]
struct Met {
    increments: u32,
    longest: usize,
    cut_backups: u32,
    whole_backups: u32,
    cut_restores: u32,
    whole_restores: u32,
    /// Commits beside a backup that are in it, and that are not.
    beside_backups: [usize; 2],
    /// The same of restores. A restore lists the archive when it begins, so they are not in it.
    beside_restores: [usize; 2],
}

struct Life {
    seed: u64,
    random: Random,
    sim: Sim,
    chain: Vec<Link>,
}

type History = Rc<RefCell<Script>>;

/// Does `work`. A writer commits, and the background works, at some of the blocks that `work` reads.
fn beside_a_writer<T>(db: &Db, script: &History, seed: u64, work: impl FnOnce() -> T) -> T {
    let (hooked, history, mut random) = (db.clone(), Rc::clone(script), Random(seed));
    pause::set(BLOCK_READ, move || match random.below(24) {
        0..3 => {
            let ran = history.borrow_mut().run_pipelined(&hooked);
            // The log is kept for the backup, so it may be full.
            assert!(ran.as_ref().err().is_none_or(Error::is_retryable), "{ran:?}");
        }
        3 => (0..4).for_each(|_| hooked.step()),
        4 if random.below(4) == 0 => hooked.checkpoint().unwrap(),
        5 if random.below(4) == 0 => drop(hooked.archive().unwrap()),
        _ => {}
    });
    let done = work();
    pause::set("nowhere", || ());
    done
}

fn add(sum: &mut [usize; 2], counts: [usize; 2]) {
    sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
}

impl Life {
    fn open(&self, dir: &str) -> Db {
        let fs = || Some(Arc::new(SlowReads(self.sim.clone())) as Arc<dyn Fs>);
        options(&self.sim).lab(|lab| (lab.fs, lab.step_seed) = (fs(), self.seed)).archive(ARCHIVE).open(dir).unwrap()
    }

    /// A restore of the chain.
    fn restore(&self, target: &str) -> Restore {
        let fs: Arc<dyn Fs> = Arc::new(SlowReads(self.sim.clone()));
        let (full, increments) = self.chain.split_first().expect("a chain has a full backup");
        let restore = restore(&full.dir, target).lab(fs, 64 << 10);
        increments.iter().fold(restore, |restore, link| restore.increment(&link.dir))
    }

    /// Makes a full backup, or an increment on a drawn part of the chain, which becomes the chain. Returns the bases of
    /// the backup.
    fn back_up(&mut self, db: &Db, script: &History, dir: &str, met: &mut Met) {
        let began = self.sim.ops();
        let kept = self.random.below(2 * self.chain.len() as u64 + 1) as usize;
        let kept = kept.min(self.chain.len());
        let made = match kept.checked_sub(1) {
            Some(base) => match beside_a_writer(db, script, began, || db.backup_since(dir, &self.chain[base].dir)) {
                // A crash may make the database forget the bases of its last run.
                Err(Error::UnknownBase(_)) => None,
                made => Some((kept, made)),
            },
            None => None,
        };
        let (kept, made) = made.unwrap_or_else(|| (0, beside_a_writer(db, script, began, || db.backup(dir))));
        let (held, beside) = script.borrow().state_at(made.unwrap().lsn, began);
        add(&mut met.beside_backups, beside);
        met.increments += u32::from(kept > 0);
        self.chain.truncate(kept);
        self.chain.push(Link { dir: dir.to_owned(), held });
    }

    /// Restores the chain alone and checks it. Returns whether its last backup is whole.
    fn check_chain(&mut self, target: &str, may_be_cut: bool, what: &str) -> bool {
        match self.restore(target).run() {
            Ok(_) => {}
            Err(Error::UnfinishedBackup { .. } | Error::NoDatabase { .. } | Error::Restore(_)) if may_be_cut => {
                return false;
            }
            Err(error) => panic!("{what}: {error:?}"),
        }
        let copy = options(&self.sim).open(target).unwrap();
        copy.check().unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(read(&copy).unwrap() == self.chain.last().unwrap().held, "{what}: the backup holds something else");
        true
    }

    fn round(&mut self, round: u64, met: &mut Met) {
        let db = self.open(DIR);
        // The history of a script begins with no table.
        for table in ["rows", "others", "deep"] {
            db.run(|tx| tx.drop_table(table)).unwrap();
        }
        let script = Rc::new(RefCell::new(Script::new(&self.sim, self.seed * ROUNDS + round)));
        script.borrow_mut().run(&db, 5 + self.random.below(30) as u32).unwrap();
        script.borrow_mut().sync(&db).unwrap();
        let before = self.sim.ops();
        self.back_up(&db, &script, &format!("/backup-{round}"), met);
        let backed_up = self.sim.ops();
        script.borrow_mut().run(&db, self.random.below(40) as u32).unwrap();
        let worked = self.sim.ops();
        let mut expected = Model::default();
        let (moment, (from, to)) = match self.random.below(3) {
            0 => (Moment::Backup, (before, backed_up)),
            1 => (Moment::Work, (backed_up, worked)),
            _ => {
                script.borrow_mut().sync(&db).unwrap();
                db.archive().unwrap();
                let from = self.sim.ops();
                let restore = self.restore(&format!("/cut-{round}")).archive(ARCHIVE);
                let restored = beside_a_writer(&db, &script, from, || restore.run().unwrap());
                let (state, beside) = script.borrow().state_at(restored.lsn, from);
                expected = state;
                add(&mut met.beside_restores, beside);
                (Moment::Restore, (from, self.sim.ops()))
            }
        };
        // Often behind the last operation.
        let op = if self.random.below(2) == 0 { to } else { from + self.random.below((to - from).max(1)) };
        let policy = &POLICIES[self.random.below(POLICIES.len() as u64) as usize];
        let what = format!("seed {}, round {round}, {moment:?}, operation {op}, {policy:?}", self.seed);
        self.sim = self.sim.image_at(op, policy, self.seed);
        drop(db);

        let db = self.open(DIR);
        let found = script.borrow().verify(&db, op).unwrap_or_else(|why| panic!("{what}: {why}"));
        if moment == Moment::Restore {
            match options(&self.sim).open_existing(format!("/cut-{round}")) {
                Ok(copy) => {
                    assert!(read(&copy).unwrap() == expected, "{what}");
                    met.whole_restores += 1;
                }
                Err(Error::UnfinishedBackup { .. } | Error::NoDatabase { .. }) => met.cut_restores += 1,
                Err(error) => panic!("{what}: {error:?}"),
            }
        }
        // Behind its last operation the backup has returned.
        let may_be_cut = moment == Moment::Backup && op < to;
        if self.check_chain(&format!("/alone-{round}"), may_be_cut, &what) {
            met.whole_backups += u32::from(moment == Moment::Backup);
        } else {
            met.cut_backups += 1;
            // Its bases are as good as before.
            self.chain.pop();
        }
        met.longest = met.longest.max(self.chain.len());
        if self.chain.is_empty() {
            return;
        }
        self.check_chain(&format!("/again-{round}"), false, &what);
        db.sync().unwrap();
        db.archive().unwrap();
        let target = format!("/restored-{round}");
        let restored = self.restore(&target).archive(ARCHIVE).run();
        restored.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let copy = options(&self.sim).open(&target).unwrap();
        copy.check().unwrap();
        assert!(read(&copy).unwrap() == found, "{what}: the chain with the archive holds something else");
    }
}

#[test]
fn rounds_of_backup_crash_and_restore() {
    let rounds = std::env::var("FORESHORE_ROUNDS").map_or(36, |text| text.parse().unwrap());
    let mut met = Met::default();
    for seed in 0..u64::div_ceil(rounds, ROUNDS) {
        let mut life = Life { seed, random: Random(seed), sim: disk(seed), chain: Vec::new() };
        (0..ROUNDS).for_each(|round| life.round(round, &mut met));
    }
    let Met { increments, longest, cut_backups, whole_backups, cut_restores, whole_restores, .. } = met;
    assert!(increments > 5 && longest > 2, "{met:?}");
    assert!(cut_backups > 2 && whole_backups > 1 && cut_restores > 2 && whole_restores > 1, "{met:?}");
    assert!(met.beside_backups.iter().all(|&count| count > 5) && met.beside_restores[1] > 5, "{met:?}");
    println!("{rounds} rounds: {met:?}");
}
