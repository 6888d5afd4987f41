//! The file grows, is cut and grows again, and at any operation of that the disk refuses.
//!
//! `FORESHORE_CUT_STRIDE=1` visits every operation.

use crate::script::{disk, open, options};
use crate::support::DIR;
use foreshore::{Db, Error, TableDef};
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind, Persist};

const STRIDE: u64 = 127;
const KEPT: TableDef<u64, &[u8]> = TableDef::new("kept");
const NAMES: [&str; 3] = ["first", "second", "third"];
/// Rows of a table that comes and goes, some hundred pages.
const ROWS: u64 = 1600;

fn stride() -> u64 {
    std::env::var("FORESHORE_CUT_STRIDE").map_or(STRIDE, |text| text.parse().unwrap())
}

fn value(round: u64, n: u64) -> Vec<u8> {
    vec![(round * 31 + n) as u8; 1500]
}

/// Each round writes a table, cuts off what the one before has left, and drops its own. Returns how many bytes were cut
/// off.
fn history(db: &Db) -> Result<u64, Error> {
    let mut gone = 0;
    for (round, name) in (0..).zip(NAMES) {
        for from in (0..ROWS).step_by(160) {
            db.run(|tx| {
                let table = tx.open(TableDef::<u64, &[u8]>::new(name))?;
                (from..from + 160).try_for_each(|n| table.insert(n, &*value(round, n)).map(drop))
            })?;
            db.step();
        }
        db.run(|tx| tx.open(KEPT)?.insert(round, &*value(round, 0)).map(drop))?;
        db.run(|tx| tx.drop_table(name).map(drop))?;
        (0..round * 4).for_each(|_| db.step());
        gone += db.vacuum()?;
    }
    Ok(gone)
}

/// What must be there whenever the history ended: whole rows, and rounds without gaps.
fn verify(db: &Db) -> Result<(), String> {
    db.check().map_err(|error| format!("check: {error}"))?;
    let rows = |name: &str| {
        let found = db.run(|tx| {
            let table = tx.open(TableDef::<u64, &[u8]>::new(name))?;
            table.lock_against_writes()?;
            table.iter().collect::<Result<Vec<_>, Error>>()
        });
        found.map_err(|error| format!("{name}: {error}"))
    };
    for (round, name) in (0..).zip(NAMES) {
        for (at, (n, found)) in (0..).zip(rows(name)?) {
            if n != at || found != value(round, n) {
                return Err(format!("row {n} of {name} in place {at}"));
            }
        }
    }
    for (at, (round, found)) in (0..).zip(rows("kept")?) {
        if round != at || found != value(round, 0) {
            return Err(format!("round {round} in place {at}"));
        }
    }
    Ok(())
}

/// The database grows and is cut once more.
fn go_on(sim: &Sim) -> Result<(), String> {
    let db = open(sim).map_err(|error| format!("open: {error}"))?;
    verify(&db)?;
    history(&db).map_err(|error| format!("go on: {error}"))?;
    verify(&db)?;
    let db = db.reopen().map_err(|error| format!("reopen: {error}"))?;
    verify(&db)
}

#[test]
fn a_disk_that_refuses_while_the_file_is_cut_loses_nothing() {
    let base = disk(6);
    drop(open(&base).unwrap());
    let first = base.ops();
    let total = {
        let sim = base.fork();
        history(&options(&sim).lab(|lab| lab.step_seed = 6).open(DIR).unwrap()).unwrap();
        sim.ops()
    };
    let mut met = 0;
    for (number, at) in (0..).zip((first..total).step_by(stride() as usize)) {
        let kind = if number % 2 == 0 { FaultKind::Eio } else { FaultKind::Enospc };
        let sim = base.fork();
        sim.inject(Fault { at, kind, sticky: kind == FaultKind::Enospc });
        let place = format!("{kind:?} in operation {at}");
        if let Ok(db) = options(&sim).lab(|lab| lab.step_seed = 6).open(DIR) {
            met += u32::from(history(&db).is_err());
            sim.clear_faults();
            match db.begin().commit() {
                Ok(_) => verify(&db).unwrap_or_else(|why| panic!("{place}: {why}")),
                Err(error) => assert!(matches!(error, Error::Poisoned { .. }), "{place}: {error}"),
            }
        }
        sim.clear_faults();
        let image = sim.crash_image(&Persist::ALL[number % Persist::ALL.len()], at);
        go_on(&image).unwrap_or_else(|why| panic!("{place}, power lost: {why}"));
        go_on(&sim).unwrap_or_else(|why| panic!("{place}: {why}"));
    }
    assert!(met > 3, "{met} faults were met");
}
