//! `status`: how many look-ups of a transaction's status threads make, and how many statuses they set; and the effect
//! on TPC-B.

use super::{
    Row,
    bank::Bank,
    chart::{Axis, Panel, Plot},
    drive::{Counted, Span, Worker, drive},
    experiment::{Experiment, Lab},
    log_insert::span,
    promise::{Bound, Promise},
    repeat::{median, rounds},
    row::find,
};
use crate::{
    Config,
    config::{Parts, Workload},
    random::Random,
    report,
};
use foreshore::Device;
use foreshore::Result;
use foreshore_base::Xid;
use foreshore_classics::status_tables::StatusKind;
use foreshore_io::Mem;
use foreshore_txn::{CsnMap, StatusTable};
use std::{
    hint::black_box,
    path::Path,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

/// Xids that have ended when the look-ups begin, a power of two: 32 pages of PostgreSQL's.
const ENDED: u64 = 1 << 20;
/// The newest of them, which are looked up where look-ups are hot.
const HOT: u64 = 1 << 12;
/// Xids that are noted while that is timed.
const NOTED: u64 = 1 << 20;
/// Xids between two looks ahead, as in the engine.
const STRIDE: u64 = 4096;
/// Xids that are drawn before threads begin.
const DRAWN: usize = 1 << 16;
/// Look-ups between two looks at the time.
const LOOKUPS: usize = 16;
/// The tables that TPC-B runs with, and its threads.
const OF_TPCB: [StatusKind; 2] = [StatusKind::Direct, StatusKind::CsnMap];
const TPCB_THREADS: usize = 32;

pub(super) struct StatusLab;

#[derive(Clone, Copy, Debug)]
struct Point {
    kind: StatusKind,
    hot: bool,
    threads: usize,
    seed: u64,
}

/// What a point measured.
#[derive(Clone, Copy, Debug)]
struct Measured {
    lookups: Counted,
    commits_per_s: f64,
}

impl Measured {
    fn lookups_per_s(&self) -> f64 {
        self.lookups.bytes as f64 / self.lookups.seconds
    }
}

impl Experiment for StatusLab {
    fn name(&self) -> &'static str {
        "status"
    }

    fn figure(&self) -> &'static str {
        "Don't stop the world, slides on CLogControlLock"
    }

    fn paper(&self) -> &'static str {
        "PostgreSQL keeps two bits a transaction in pages of which 8, later 32, then 128 are in memory, found by a linear search. A \
         thread that notes the end of a transaction takes CLogControlLock alone, and so does one that does not find a page; all \
         that look up wait for them. Mapped directly, and prepared in advance, no page is ever missing, and the lock is held shorter."
    }

    fn differs(&self) -> &'static str {
        "The tables are driven by themselves, without transactions around them. A million transactions have ended, which is 32 pages \
         of 8 KiB, in a file in memory: a miss costs a copy and no disk. Look-ups are drawn from all of them, or from the 4096 \
         newest. Notes are timed while no thread looks. TPC-B, with pipelined commits to a device in memory, shows what is left of \
         the difference when all else is done, too; the slides have only that."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[1, 2, 8, 32], &[1, 2]);
        let (seed, span) = (lab.settings.seed, span(lab));
        lab.configure("threads", threads.clone());
        lab.configure("ended", ENDED);
        lab.configure("hot", HOT);
        let mut points = Vec::new();
        for kind in StatusKind::ALL {
            for hot in [false, true] {
                points.extend(threads.iter().map(|&threads| Point { kind, hot, threads, seed }));
            }
        }
        let measured = rounds(lab, lab.choose(3, 1), &points, |point| point.measure(span))?;
        let row = |(point, measured): (&Point, Vec<Measured>)| {
            let (found, keys) = median(&measured, Measured::lookups_per_s);
            let commits = median(&measured, |measured| measured.commits_per_s).0.commits_per_s;
            // Threads beyond the processors wait for their turn most of the time.
            let at_work = point.threads.min(foreshore_sync::available_parallelism()) as f64;
            let repeats: Vec<f64> = keys.into_iter().map(f64::round).collect();
            Row::new()
                .with("status", point.kind.to_string())
                .with("distribution", point.distribution())
                .with("threads", point.threads)
                .measured("lookups_per_s", found.lookups_per_s())
                .measured("lookup_ns", 1e9 * at_work / found.lookups_per_s())
                .measured("commits_per_s", commits)
                .with("repeats", repeats)
        };
        let mut rows: Vec<Row> = points.iter().zip(measured).map(row).collect();
        rows.extend(tpcb(lab)?);
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot = Plot {
            x: Axis::log("threads", 2),
            y: Axis::log("look-ups per second", 10),
            of: ["threads", "lookups_per_s"],
        };
        let lookups: Vec<Row> = rows.iter().filter(|row| row.get("tps").is_none()).cloned().collect();
        plot.panels(&lookups, |row| row.text("distribution").to_owned(), |row| row.text("status").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let at = |status: &str, hot: &str, threads: usize, field: &str| {
            let place = [("status", status.into()), ("distribution", hot.into()), ("threads", threads.into())];
            find(rows, &place, field)
        };
        let ratio = |status: &str| {
            let rate = |status: &str| at(status, UNIFORM, 2, "lookups_per_s");
            let promise = format!("look-ups at 2 threads: {status} / lru:8");
            Some(Promise::new(promise, rate(status)? / rate("lru:8")?, Bound::Least(10.0)))
        };
        let cost = || {
            let promise = "ns of a hot look-up of csnmap, 1 thread";
            Some(Promise::new(promise, at("csnmap", "hot", 1, "lookup_ns")?, Bound::Most(5.0)))
        };
        let whole = || {
            // Round by round: the machine's speed changes more between rounds than between the rows of a round.
            let tps = |status: &str| {
                let row = rows.iter().find(|row| row.text("status") == status && row.get("tps").is_some())?;
                row.get("repeats")?.as_array()?.iter().map(serde_json::Value::as_f64).collect::<Option<Vec<f64>>>()
            };
            let ratios: Vec<f64> =
                tps("csnmap")?.iter().zip(tps("direct")?).map(|(ours, other)| ours / other).collect();
            let promise = format!("TPC-B of {TPCB_THREADS} threads: csnmap / direct, median of rounds");
            Some(Promise::new(promise, median(&ratios, |ratio| *ratio).0, Bound::Least(0.97)))
        };
        [ratio("direct"), ratio("csnmap"), cost(), whole()].into_iter().flatten().collect()
    }
}

const UNIFORM: &str = "uniform";

/// TPC-B with one table and the other, in turns.
fn tpcb(lab: &mut Lab<'_>) -> Result<Vec<Row>> {
    let base = Bank::options(lab, 10, lab.choose(5000, 2000), Device::Null);
    lab.configure("tpcb_scale", base.scale);
    lab.configure("tpcb_clients", base.clients);
    lab.configure("tpcb_secs", base.window.secs.as_secs_f64());
    let mut bank = Bank::load(lab, Workload::Tpcb, &base)?;
    let with = |&status: &StatusKind| Config { parts: Parts { status, ..base.parts }, ..base.clone() };
    let measured = rounds(lab, 9, &OF_TPCB, |status| bank.row(lab, &with(status), TPCB_THREADS))?;
    bank.check(lab, &base)?;
    let row = |(status, measured): (&StatusKind, Vec<report::Row>)| {
        let (middle, keys) = median(&measured, |row: &report::Row| row.tps);
        Row::new()
            .with("status", status.to_string())
            .with("distribution", "tpcb")
            .with("threads", TPCB_THREADS)
            .measured("tps", middle.tps)
            .measured("p50_us", middle.latency.p50_us)
            .with("repeats", keys.into_iter().map(f64::round).collect::<Vec<_>>())
    };
    Ok(OF_TPCB.iter().zip(measured).map(row).collect())
}

impl Point {
    fn distribution(&self) -> &'static str {
        if self.hot { "hot" } else { UNIFORM }
    }

    /// A table of its kind, with nothing in it.
    fn table(&self) -> foreshore_base::Result<Arc<dyn StatusTable>> {
        let Some(maker) = self.kind.maker() else {
            // The window holds all xids, so that no thread waits for it to move.
            return Ok(Arc::new(CsnMap::new(Xid(1), (2 * (ENDED + NOTED)) as usize)?));
        };
        maker.make(Xid(1), &Mem::null(), Path::new("status"))
    }

    fn measure(&self, span: Span) -> Result<Measured> {
        let table = self.table()?;
        for xid in 1..=ENDED {
            end(&*table, xid)?;
        }
        let mut random = Random::new(self.seed, 0);
        let among = if self.hot { HOT } else { ENDED };
        let drawn: Vec<Xid> = (0..DRAWN).map(|_| Xid(ENDED - random.below(among))).collect();
        let worker = |thread| Asker { table: &*table, drawn: &drawn, next: thread * (DRAWN / self.threads) };
        let lookups = drive((0..self.threads).map(worker).collect(), span)?;
        Ok(Measured { lookups, commits_per_s: self.note(&*table)? })
    }

    /// Notes the ends of transactions, each xid drawn from one counter, and returns how many a second.
    fn note(&self, table: &dyn StatusTable) -> Result<f64> {
        let next = AtomicU64::new(ENDED + 1);
        let begun = Instant::now();
        thread::scope(|scope| {
            let note = || {
                loop {
                    // ORDERING: only the numbers matter.
                    let xid = next.fetch_add(1, Ordering::Relaxed);
                    if xid > ENDED + NOTED {
                        return Ok::<_, foreshore_base::Error>(());
                    }
                    end(table, xid)?;
                }
            };
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(note)).collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(noted) => noted,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        Ok(NOTED as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Notes that a transaction has committed, or, of one in sixteen, that it was rolled back.
fn end(table: &dyn StatusTable, xid: u64) -> foreshore_base::Result<()> {
    if xid.is_multiple_of(STRIDE) {
        table.prepare(Xid(xid))?;
    }
    table.set(Xid(xid), !xid.is_multiple_of(16))
}

struct Asker<'a> {
    table: &'a dyn StatusTable,
    drawn: &'a [Xid],
    next: usize,
}

impl Worker for Asker<'_> {
    /// Looks several up and returns how many.
    #[inline]
    fn insert(&mut self) -> Result<usize> {
        for _ in 0..LOOKUPS {
            let xid = self.drawn[self.next % DRAWN];
            self.next += 1;
            black_box(self.table.has_committed(xid)?);
        }
        Ok(LOOKUPS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_table_knows_what_it_is_asked() {
        let span = Span { warm_up: Duration::ZERO, window: Duration::from_millis(5) };
        for kind in StatusKind::ALL {
            let point = Point { kind, hot: true, threads: 2, seed: 1 };
            assert!(point.measure(span).unwrap().commits_per_s > 0.0);
            let table = point.table().unwrap();
            for xid in 1..=100 {
                end(&*table, xid).unwrap();
            }
            for xid in 1..=100 {
                assert_eq!(table.has_committed(Xid(xid)).unwrap(), xid % 16 != 0, "{kind}: {xid}");
            }
        }
    }
}
