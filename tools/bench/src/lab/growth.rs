//! `growth`: what inserts wait for while the data file grows, and is cut again and again.

use super::{
    Row,
    chart::{Axis, Panel, Plot},
    commits::{Place, nanoseconds},
    drive::Span,
    experiment::{Experiment, Lab},
    promise::{Bound, Promise},
    repeat::{median, rounds},
    row::find,
};
use crate::{
    random::Random,
    terminal::{Phase, Tally},
};
use foreshore::{Db, Device, Durability, Options, Result, TableDef, TxnOptions};
use foreshore_classics::growth::GrowthKind;
use hdrhistogram::Histogram;
use serde_json::Value;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Inserting threads, each with a table of its own.
const THREADS: usize = 8;
/// Bytes of a value: four rows to a page.
const VALUE: usize = 1900;
/// Rows of a transaction.
const AT_ONCE: u64 = 8;
/// Inserts a second of all threads, where the load is limited: half of what the slower way of growing sustains on the
/// device in memory.
const LOAD: f64 = 4000.0;
/// Rows of the table that comes and goes, so that there is a free end of the file to cut.
const CHURN: u64 = 1200;
/// Pause between two cuts.
const PAUSE: Duration = Duration::from_millis(20);
/// The device whose latency is known.
const DELAY: Device = Device::Delay(Duration::from_micros(300));
const MEMORY: u64 = 512 << 20;

type Rows = TableDef<'static, u64, &'static [u8]>;

pub(super) struct GrowthLab;

/// One way to grow, on one device.
#[derive(Clone, Copy, Debug)]
struct Point {
    growth: GrowthKind,
    device: Device,
    /// Inserts a second of all threads; `None`: as fast as they go.
    load: Option<f64>,
    seed: u64,
}

/// What a point gave.
#[derive(Clone, Debug)]
struct Measured {
    inserts: u64,
    /// In nanoseconds.
    latency: Histogram<u32>,
    seconds: f64,
    growths: u64,
    cuts: u64,
}

impl Measured {
    fn per_s(&self) -> f64 {
        self.inserts as f64 / self.seconds
    }

    /// A quantile of the latencies, in microseconds.
    fn us(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }

    fn max_us(&self) -> f64 {
        self.latency.max() as f64 / 1000.0
    }
}

impl Experiment for GrowthLab {
    fn name(&self) -> &'static str {
        "growth"
    }

    fn figure(&self) -> &'static str {
        "Don't stop the world, slides on the extension of tables"
    }

    fn paper(&self) -> &'static str {
        "PostgreSQL before 9.6 extended a table by a page at a time, under a lock: inserts of many threads waited for one \
         another. Extension ahead of need took the lock out of their way."
    }

    fn differs(&self) -> &'static str {
        "All tables lie in one file. The file is cut all the while, behind a table that is dropped and filled again. A growth \
         or a cut takes the device in memory as long as a durable write, as where a file system notes a length at once. With a \
         load, inserts arrive at random times, and their latency is taken from then on."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let device = lab.settings.device;
        let real = Place::new(device)?;
        lab.machine = real.machine()?;
        let window = lab.settings.secs.unwrap_or(Duration::from_secs(lab.choose(10, 4)));
        let span = Span { warm_up: Duration::from_millis(500).min(window), window };
        lab.configure("threads", THREADS);
        lab.configure("value_bytes", VALUE);
        lab.configure("secs", window.as_secs_f64());
        let mut points = Vec::new();
        for device in [DELAY, device] {
            for load in [Some(LOAD), None] {
                let seed = lab.settings.seed;
                points.extend([GrowthKind::Inline, GrowthKind::Ahead].map(|growth| Point {
                    growth,
                    device,
                    load,
                    seed,
                }));
            }
        }
        let names = [DELAY.to_string(), real.backend()];
        let measured = rounds(lab, 3, &points, |point| point.measure(span))?;
        let row = |(at, (point, measured)): (usize, (&Point, Vec<Measured>))| {
            // Each figure is the median of its own: one bad moment of the machine decides the longest stall of a round.
            let of = |key: &dyn Fn(&Measured) -> f64| median(&measured, key);
            let (middle, keys) = of(&|measured| measured.us(0.9999));
            let name = &names[at * names.len() / points.len()];
            Row::new()
                .with("growth", point.growth.to_string())
                .with("device", name.as_str())
                .with("threads", THREADS)
                .with("load_per_s", point.load.map_or(Value::Null, Value::from))
                .with("records_per_s", of(&Measured::per_s).0.per_s().round())
                .measured("p50_us", middle.us(0.5))
                .measured("p99_us", middle.us(0.99))
                .measured("p999_us", middle.us(0.999))
                .measured("p9999_us", middle.us(0.9999))
                .measured("max_us", of(&Measured::max_us).0.max_us())
                .with("growths", middle.growths)
                .with("cuts", middle.cuts)
                .with("repeats", keys)
        };
        Ok(points.iter().zip(measured).enumerate().map(row).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let quantiles = [("p50_us", 0.5), ("p99_us", 0.01), ("p999_us", 0.001), ("p9999_us", 0.0001)];
        let points = rows.iter().flat_map(|row| {
            quantiles.map(|(field, share)| {
                Row::new()
                    .with("growth", row.text("growth"))
                    .with("device", title(row))
                    .with("load_fraction", share)
                    .measured("p9999_us", row.number(field).unwrap_or(f64::NAN))
            })
        });
        let points: Vec<Row> = points.collect();
        let (x, y) = (Axis::log("share of the inserts", 10), Axis::log("that take longer than, us", 10));
        let plot = Plot { x, y, of: ["load_fraction", "p9999_us"] };
        plot.panels(&points, |row| row.text("device").to_owned(), |row| row.text("growth").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let get = |growth: &str, device: &str, load: Value, field| {
            let values = [("growth", growth.into()), ("device", device.into()), ("load_per_s", load)];
            find(rows, &values, field)
        };
        let delay = DELAY.to_string();
        let stall = |field| {
            let of = |growth| get(growth, &delay, LOAD.into(), field);
            let promise = format!("{field}: ahead / inline, {delay}, {LOAD} inserts a second");
            Some(Promise::new(promise, of("ahead")? / of("inline")?, Bound::Most(0.5)))
        };
        let real = rows.iter().map(|row| row.text("device")).find(|device| *device != delay);
        let throughput = || {
            let of = |growth| get(growth, real?, Value::Null, "records_per_s");
            let promise = format!("inserts per second: ahead / inline, {}", real?);
            Some(Promise::new(promise, of("ahead")? / of("inline")?, Bound::Least(0.95)))
        };
        [stall("p9999_us"), stall("max_us"), throughput()].into_iter().flatten().collect()
    }
}

fn title(row: &Row) -> String {
    match row.number("load_per_s") {
        Some(load) => format!("{}, {load} inserts a second", row.text("device")),
        None => format!("{}, as fast as it goes", row.text("device")),
    }
}

impl Point {
    fn measure(&self, span: Span) -> Result<Measured> {
        let place = Place::new(self.device)?;
        let db = place.database(Options::new().lab(|lab| lab.growth = self.growth.rule()).memory_limit(MEMORY))?;
        let names: Vec<String> = (0..THREADS).map(|thread| format!("rows of {thread}")).collect();
        db.run(|tx| names.iter().try_for_each(|name| tx.open(TableDef::<u64, &[u8]>::new(name)).map(drop)))?;
        let phase = Phase::new();
        thread::scope(|scope| {
            let (phase, db) = (&phase, &db);
            let inserters: Vec<_> = (names.iter().zip(0..))
                .map(|(name, thread)| {
                    let random = Random::new(self.seed, thread);
                    let gap = self.load.map(|load| 1e9 * THREADS as f64 / load);
                    scope.spawn(move || until_stop(phase, || insert(db, name, phase, random, gap)))
                })
                .collect();
            let churn = scope.spawn(move || until_stop(phase, || churn(db, phase)));
            thread::sleep(span.warm_up);
            let (before, begun) = (db.stats().space, Instant::now());
            phase.raise(Phase::MEASURE);
            while begun.elapsed() < span.window && phase.get() != Phase::STOP {
                thread::sleep(PAUSE.min(span.window.saturating_sub(begun.elapsed())));
            }
            let (after, seconds) = (db.stats().space, begun.elapsed().as_secs_f64());
            phase.raise(Phase::STOP);
            let mut tally = Tally::new();
            for inserter in inserters {
                tally.add(&inserter.join().expect("an inserter ends")?);
            }
            churn.join().expect("it ends")?;
            let (growths, cuts) = (after.growths - before.growths, after.cuts - before.cuts);
            let Tally { commits: inserts, latency, .. } = tally;
            Ok(Measured { inserts, latency, seconds, growths, cuts })
        })
    }
}

/// Runs `work`, whose failure ends the measurement.
fn until_stop<T>(phase: &Phase, work: impl FnOnce() -> Result<T>) -> Result<T> {
    work().inspect_err(|_| phase.raise(Phase::STOP))
}

const fn relaxed() -> TxnOptions {
    TxnOptions::new().durability(Durability::Relaxed)
}

/// Inserts rows in the order of their keys, every `gap` nanoseconds on average.
fn insert(db: &Db, name: &str, phase: &Phase, mut random: Random, gap: Option<f64>) -> Result<Tally> {
    let (mut tally, mut key) = (Tally::new(), 0);
    let mut next = Instant::now();
    while phase.get() != Phase::STOP {
        let tx = db.begin_with(relaxed());
        let table = tx.open(TableDef::<u64, &[u8]>::new(name))?;
        for _ in 0..AT_ONCE {
            next = match gap {
                None => Instant::now(),
                // Exponential, so that arrivals do not know of each other.
                Some(gap) => next + Duration::from_nanos((-(1.0 - random.fraction()).ln() * gap) as u64),
            };
            thread::sleep(next.saturating_duration_since(Instant::now()));
            table.insert(key, &[7; VALUE][..])?;
            key += 1;
            if phase.get() == Phase::MEASURE {
                tally.commits += 1;
                tally.latency.saturating_record(nanoseconds(next.elapsed()));
            }
        }
        drop(table);
        tx.commit()?;
    }
    Ok(tally)
}

/// Fills a table, drops it, cuts the file, and again.
fn churn(db: &Db, phase: &Phase) -> Result<()> {
    const NAME: &str = "comes and goes";
    while phase.get() != Phase::STOP {
        for first in (0..CHURN).step_by(AT_ONCE as usize) {
            db.run_with(relaxed(), |tx| {
                let table = tx.open(Rows::new(NAME))?;
                (first..first + AT_ONCE).try_for_each(|key| table.insert(key, &[1; VALUE][..]).map(drop))
            })?;
            if phase.get() == Phase::STOP {
                return Ok(());
            }
        }
        db.run_with(relaxed(), |tx| tx.drop_table(NAME).map(drop))?;
        db.vacuum()?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_growing_are_measured_while_the_file_is_cut() {
        for growth in [GrowthKind::Inline, GrowthKind::Ahead] {
            let point = Point { growth, device: Device::Null, load: Some(2000.0), seed: 1 };
            // A busy machine may not finish one load of the churn within the first window.
            let windows = [1500, 15_000].map(Duration::from_millis);
            let mut tries = windows.map(|window| Span { warm_up: Duration::ZERO, window }).into_iter();
            let measured = tries.find_map(|span| Some(point.measure(span).unwrap()).filter(|it| it.growths > 0));
            let measured = measured.expect("the file grew in one of the windows");
            assert!(measured.inserts > 0, "{growth}: no insert");
            assert!(measured.us(0.5) > 0.0 && measured.max_us() >= measured.us(0.9999));
        }
    }
}
