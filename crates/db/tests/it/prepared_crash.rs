//! Power is lost at every operation of a history with prepared transactions. Those acknowledged as prepared are in
//! doubt, with all their locks. Those acknowledged as resolved are what was decided. Recovery may be interrupted at
//! any point.
//!
//! `FORESHORE_CRASH_STRIDE=1` visits every operation with every policy.

use crate::script::{Random, disk, open, options};
use crate::support::{DIR, POLICIES, stride};
use foreshore::{Db, Error, TableDef, Transaction, TxnOptions};
use foreshore_io::sim::{Persist, Sim};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::Duration,
};

type Raw = TableDef<'static, u64, &'static [u8]>;
type Contents = BTreeMap<(&'static str, u64), Vec<u8>>;
/// What becomes of rows, `None` for those that go.
type Changes = BTreeMap<(&'static str, u64), Option<Vec<u8>>>;

const ROWS: &str = "rows";
const OLD: &str = "old";
const MADE: &str = "made";
const TABLES: [&str; 3] = [ROWS, OLD, MADE];

fn table(name: &'static str) -> Raw {
    TableDef::new(name)
}

fn hasty() -> TxnOptions {
    TxnOptions::new().lock_timeout(Duration::ZERO)
}

/// A transaction that is prepared.
#[derive(Clone, Default)]
struct Plan {
    changes: Changes,
    /// Rows that no other transaction may write, besides those that change.
    kept: Vec<(&'static str, u64)>,
    creates: Option<&'static str>,
    drops: Option<&'static str>,
}

impl Plan {
    fn put(&mut self, tx: &Transaction, name: &'static str, key: u64, value: &[u8]) {
        tx.open(table(name)).unwrap().insert(key, value).unwrap();
        self.changes.insert((name, key), Some(value.to_vec()));
    }

    fn remove(&mut self, tx: &Transaction, name: &'static str, key: u64) {
        tx.open(table(name)).unwrap().remove(key).unwrap();
        self.changes.insert((name, key), None);
    }

    /// Removes all rows of a range, whose keys are multiples of ten, by one call.
    fn remove_range(&mut self, tx: &Transaction, name: &'static str, range: std::ops::Range<u64>) {
        let keys: Vec<u64> = range.clone().filter(|key| key % 10 == 0).collect();
        assert_eq!(tx.open(table(name)).unwrap().remove_range(range).unwrap(), keys.len() as u64);
        self.changes.extend(keys.into_iter().map(|key| ((name, key), None)));
    }

    fn apply(&self, contents: &mut Contents) {
        if let Some(gone) = self.drops {
            contents.retain(|&(name, _), _| name != gone);
        }
        for (&row, value) in &self.changes {
            match value {
                Some(value) => drop(contents.insert(row, value.clone())),
                None => drop(contents.remove(&row)),
            }
        }
    }

    /// All that it holds is held, and nothing of it is seen.
    fn verify(&self, db: &Db, name: &str) -> Result<(), String> {
        let held = |what: &str, work: &dyn Fn(&Transaction) -> Result<(), Error>| match work(&db.begin_with(hasty())) {
            Err(Error::LockTimeout { holder, .. }) if holder == name => Ok(()),
            other => Err(format!("{what} is not held by {name}: {other:?}")),
        };
        for (of, key) in self.changes.keys().chain(&self.kept).filter(|(of, _)| self.creates != Some(*of)) {
            held(&format!("{of} {key}"), &|tx| tx.open(table(of))?.insert(*key, &[][..]).map(drop))?;
        }
        for name in self.creates.iter().chain(&self.drops) {
            held(name, &|tx| tx.open(table(name))?.insert(1, &[][..]).map(drop))?;
        }
        Ok(())
    }
}

/// The state after a step of the history.
#[derive(Clone, Default)]
struct State {
    contents: Contents,
    in_doubt: BTreeMap<&'static str, Plan>,
}

struct Step {
    /// Operations of the disk when it was asked for, and when it was done.
    asked: u64,
    done: u64,
    after: State,
}

struct History {
    sim: Sim,
    now: State,
    steps: Vec<Step>,
}

impl History {
    fn step(&mut self, work: impl FnOnce(&mut State)) {
        let asked = self.sim.ops();
        work(&mut self.now);
        self.steps.push(Step { asked, done: self.sim.ops(), after: self.now.clone() });
    }

    fn prepare(&mut self, db: &Db, name: &'static str, work: impl FnOnce(&Transaction, &mut Plan)) {
        let (tx, mut plan) = (db.begin(), Plan::default());
        work(&tx, &mut plan);
        self.step(|state| {
            tx.prepare(name).unwrap();
            state.in_doubt.insert(name, plan);
        });
    }

    fn commit(&mut self, db: &Db, name: &'static str) {
        self.step(|state| {
            db.commit_prepared(name).unwrap();
            state.in_doubt.remove(name).unwrap().apply(&mut state.contents);
        });
    }

    fn roll_back(&mut self, db: &Db, name: &'static str) {
        self.step(|state| {
            db.rollback_prepared(name).unwrap();
            state.in_doubt.remove(name).unwrap();
        });
    }

    /// A transaction that commits at once.
    fn run(&mut self, db: &Db, work: impl Fn(&Transaction, &mut Plan)) {
        self.step(|state| {
            let mut plan = Plan::default();
            db.run_with(hasty(), |tx| {
                plan = Plan::default();
                work(tx, &mut plan);
                Ok::<_, Error>(())
            })
            .unwrap();
            plan.apply(&mut state.contents);
        });
    }
}

fn value(byte: u8, len: usize) -> Vec<u8> {
    vec![byte; len]
}

/// Two tables, of several leaves, before the history begins.
fn loaded(seed: u64) -> (Sim, State) {
    let sim = disk(seed);
    let mut history = History { sim: sim.clone(), now: State::default(), steps: Vec::new() };
    let db = options(&sim).open(DIR).unwrap();
    for name in [ROWS, OLD] {
        history.run(&db, |tx, plan| (0..60).for_each(|key| plan.put(tx, name, key * 10, &value(key as u8, 300))));
    }
    db.close(Duration::ZERO).unwrap();
    (sim.crash_image(&Persist::None, 0), history.now)
}

fn history(db: &Db, sim: &Sim, start: State, seed: u64) -> History {
    let mut history = History { sim: sim.clone(), now: start, steps: Vec::new() };
    let steps = |db: &Db, count: u32| (0..count).for_each(|_| db.step());
    // A transaction that stays open while the others are prepared and resolved.
    let loser = db.begin();
    loser.open(table(ROWS)).unwrap().insert(395, &value(1, 200)[..]).unwrap();
    loser.open(table(ROWS)).unwrap().remove(590).unwrap();
    assert_eq!(loser.open(table(ROWS)).unwrap().remove_range(520..580).unwrap(), 6);
    history.prepare(db, "a", |tx, plan| {
        plan.put(tx, ROWS, 10, &value(7, 500));
        plan.put(tx, ROWS, 10, &value(8, 20));
        plan.put(tx, ROWS, 15, &value(9, 400));
        plan.remove(tx, ROWS, 20);
        plan.remove(tx, ROWS, 30);
        plan.put(tx, ROWS, 30, &value(3, 3));
        let rows = tx.open(table(ROWS)).unwrap();
        let savepoint = tx.savepoint().unwrap();
        rows.insert(60, &value(1, 100)[..]).unwrap();
        rows.insert(65, &value(1, 100)[..]).unwrap();
        rows.remove(70).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        plan.put(tx, ROWS, 70, &value(70, 10));
        rows.get_for_update(40).unwrap().unwrap();
        rows.get(50).unwrap().unwrap();
        assert_eq!(rows.get(55).unwrap(), None);
        // Beside the row of one that will be taken back.
        assert_eq!(rows.range(381..390).count(), 0);
        plan.kept.extend([(ROWS, 40), (ROWS, 50), (ROWS, 55), (ROWS, 60), (ROWS, 65), (ROWS, 385)]);
    });
    steps(db, 6);
    db.checkpoint().unwrap();
    history.run(db, |tx, plan| (11..20).for_each(|key| plan.put(tx, ROWS, key * 10 + 1, &value(1, 250))));
    history.prepare(db, "b", |tx, plan| {
        (0..30).for_each(|key| plan.put(tx, MADE, key, &value(key as u8, 400)));
        assert!(tx.drop_table(OLD).unwrap());
        plan.put(tx, ROWS, 300, &value(4, 30));
        (plan.creates, plan.drops) = (Some(MADE), Some(OLD));
    });
    steps(db, 6);
    // Between two, so that one is found behind a checkpoint and one before it.
    db.checkpoint().unwrap();
    history.run(db, |tx, plan| plan.put(tx, ROWS, 310, &value(5, 310)));
    if seed.is_multiple_of(2) {
        history.commit(db, "a")
    } else {
        history.roll_back(db, "a")
    }
    steps(db, 6);
    // Over what it held.
    history.run(db, |tx, plan| {
        [10, 15, 20, 40, 50, 55, 385].into_iter().for_each(|key| plan.put(tx, ROWS, key, &value(6, 60)));
        plan.remove(tx, ROWS, 30);
    });
    history.prepare(db, "c", |tx, plan| {
        plan.put(tx, ROWS, 10, &value(11, 600));
        plan.remove(tx, ROWS, 40);
        plan.put(tx, ROWS, 30, &value(12, 10));
        plan.remove_range(tx, ROWS, 400..500);
        // Some of these rows were removed, and are back; one is removed again.
        let savepoint = tx.savepoint().unwrap();
        tx.open(table(ROWS)).unwrap().remove_range(200..290).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        plan.kept.extend((200..290).step_by(10).map(|key| (ROWS, key)));
        plan.put(tx, ROWS, 440, &value(13, 100));
    });
    if (seed / 2).is_multiple_of(2) {
        history.roll_back(db, "b")
    } else {
        history.commit(db, "b")
    }
    steps(db, 6);
    history.prepare(db, "a", |tx, plan| plan.put(tx, ROWS, 500, b"again"));
    db.checkpoint().unwrap();
    if seed.is_multiple_of(2) {
        history.roll_back(db, "c")
    } else {
        history.commit(db, "c")
    }
    history.commit(db, "a");
    history.run(db, |tx, plan| plan.put(tx, ROWS, 500, b"the end"));
    drop(loser);
    history
}

/// What readers see: everything but what is in doubt. A table whose drop is in doubt they cannot read.
fn read(db: &Db) -> Result<Contents, Error> {
    let is_dropped = db.prepared()?.iter().any(|found| found.name == "b");
    let mut contents = Contents::new();
    let tx = db.read();
    for name in TABLES.into_iter().filter(|&name| !is_dropped || name != OLD) {
        match tx.open(table(name)) {
            Ok(open) => {
                for row in open.iter() {
                    let (key, value) = row?;
                    contents.insert((name, key), value);
                }
            }
            Err(Error::NoTable { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(contents)
}

fn names(db: &Db) -> Result<BTreeSet<String>, String> {
    Ok(db.prepared().map_err(|error| error.to_string())?.into_iter().map(|found| found.name).collect())
}

/// Which of the states that may be there is there.
fn verify<'h>(db: &Db, start: &'h State, steps: &'h [Step], op: u64) -> Result<&'h State, String> {
    let done = steps.iter().take_while(|step| step.done <= op).count();
    let asked = steps.iter().take_while(|step| step.asked <= op).count();
    let (contents, names) = (read(db).map_err(|error| format!("read: {error}"))?, names(db)?);
    let state = |count: usize| count.checked_sub(1).map_or(start, |last| &steps[last].after);
    let fits = |state: &&State| {
        let expected: BTreeSet<String> = state.in_doubt.keys().map(|&name| name.to_owned()).collect();
        let gone = |name: &str| state.in_doubt.values().any(|plan| plan.drops == Some(name));
        let seen = state.contents.iter().filter(|((name, _), _)| !gone(name));
        seen.eq(&contents) && expected == names
    };
    let found = (done..=asked).map(state).find(fits);
    let found = found.ok_or_else(|| format!("{names:?} in doubt and the rows fit none of {done} to {asked} steps"))?;
    for (name, plan) in &found.in_doubt {
        plan.verify(db, name)?;
    }
    Ok(found)
}

/// Resolves what is in doubt, one way or the other, over one more loss of power.
fn resolve(image: &Sim, db: Db, state: &State, random: &mut Random) -> Result<(), String> {
    let mut contents = state.contents.clone();
    for (name, plan) in &state.in_doubt {
        let failed = |error: Error| format!("resolve {name}: {error}");
        if random.below(2) == 0 {
            db.commit_prepared(name).map_err(failed)?;
            plan.apply(&mut contents);
        } else {
            db.rollback_prepared(name).map_err(failed)?;
        }
    }
    for _ in 0..2 {
        db.check().map_err(|error| format!("check after the end: {error}"))?;
        if read(&db).map_err(|error| error.to_string())? != contents {
            return Err("what was resolved is not what was decided".to_owned());
        }
    }
    let image = image.crash_image(&Persist::None, 1);
    drop(db);
    let db = open(&image).map_err(|error| format!("open after the end: {error:?}"))?;
    if read(&db).map_err(|error| error.to_string())? != contents || !names(&db)?.is_empty() {
        return Err("what was resolved came back".to_owned());
    }
    // Nothing is held any more.
    db.run_with(hasty(), |tx| {
        tx.open(table(MADE))?;
        let rows = tx.open(table(ROWS))?;
        (0..600).try_for_each(|key| rows.insert(key, &[][..]).map(drop))
    })
    .map_err(|error: Error| format!("something is held: {error}"))
}

fn recover(history: (&State, &[Step]), image: &Sim, op: u64, number: u64) -> Result<usize, String> {
    let (start, steps) = history;
    let db = open(image).map_err(|error| format!("open: {error:?}"))?;
    let found = verify(&db, start, steps, op)?;
    let mut random = Random(op * 31 + number);
    let mut points = image.crash_points();
    (0..random.below(image.ops().max(1))).for_each(|_| _ = points.advance());
    let again = points.image(&POLICIES[random.below(POLICIES.len() as u64) as usize], op);
    let second = open(&again).map_err(|error| format!("open after a second loss: {error:?}"))?;
    let place = [Step { asked: 0, done: 0, after: found.clone() }];
    verify(&second, found, &place, 0).map_err(|why| format!("after a second loss: {why}"))?;
    if number.is_multiple_of(2) {
        drop(second);
        resolve(image, db, found, &mut random)?;
    } else {
        drop(db);
        resolve(&again, second, found, &mut random)?;
    }
    Ok(found.in_doubt.len())
}

#[test]
fn power_loss_at_every_operation_leaves_prepared_transactions_as_they_were() {
    let stride = stride(3);
    thread::scope(|scope| {
        for seed in 0..4 {
            scope.spawn(move || lose_power(seed, stride));
        }
    });
}

fn lose_power(seed: u64, stride: u64) {
    let (sim, start) = loaded(seed);
    let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    let history = history(&db, &sim, start.clone(), seed);
    let steps = history.steps;
    drop(db);
    let mut points = sim.crash_points();
    let (mut images, mut in_doubt) = (0_u64, [0; 4]);
    loop {
        let op = points.op();
        let all = if stride == 1 { POLICIES.len() as u64 } else { u64::from((op + seed).is_multiple_of(stride)) };
        for _ in 0..all {
            let policy = &POLICIES[(images % POLICIES.len() as u64) as usize];
            images += 1;
            let found = recover((&start, &steps), &points.image(policy, op), op, images);
            let found =
                found.unwrap_or_else(|why| panic!("seed {seed}, power lost in operation {op}, {policy:?}: {why}"));
            in_doubt[found] += 1;
        }
        if !points.advance() {
            break;
        }
    }
    println!("seed {seed}: {} crash images, a third of them first ones, in doubt {in_doubt:?}", 3 * images);
    assert!(in_doubt[..3].iter().all(|&count| count > 0), "{in_doubt:?} images with so many in doubt");
}

/// A rollback is found begun: it is decided, and the restart goes on with it.
#[test]
fn a_rollback_that_is_cut_short_goes_on() {
    let sim = disk(1);
    let db = options(&sim).open(DIR).unwrap();
    db.run(|tx| tx.open(table(ROWS))?.insert(5000, &b"before"[..]).map(drop)).unwrap();
    let tx = db.begin();
    // More pages than the pool has frames: pages of the rollback go home, and their log before them.
    (0..1500).for_each(|key| drop(tx.open(table(ROWS)).unwrap().insert(key, &[2; 2000][..]).unwrap()));
    tx.prepare("wide").unwrap();
    let from = sim.ops();
    db.rollback_prepared("wide").unwrap();
    let to = sim.ops();
    drop(db);
    let before = Contents::from([((ROWS, 5000), b"before".to_vec())]);
    let (mut points, mut begun, mut waits) = (sim.crash_points(), 0, 0);
    loop {
        let op = points.op();
        if op >= from && (op - from).is_multiple_of(((to - from) / 16).max(1)) {
            // The decision is the first write: without it the transaction still waits.
            let policy = if op == from { 0 } else { op % POLICIES.len() as u64 };
            let image = points.image(&POLICIES[policy as usize], op);
            let db = open(&image).unwrap_or_else(|error| panic!("operation {op}: {error:?}"));
            assert_eq!(read(&db).unwrap(), before, "operation {op}");
            if db.prepared().unwrap().is_empty() {
                begun += u32::from(db.stats().recovery.undone > 0);
            } else {
                waits += 1;
                db.commit_prepared("wide").unwrap();
                assert_eq!(read(&db).unwrap().len(), 1501, "operation {op}");
            }
            db.check().unwrap();
        }
        if !points.advance() {
            break;
        }
    }
    assert!(begun > 0 && waits > 0, "{begun} begun, {waits} not, {from} to {to}");
}
