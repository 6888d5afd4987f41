//! `flush-time`: how long a durable write takes, by its size.

use super::{
    Row,
    chart::{Axis, Data, Panel, Series},
    commits::Place,
    experiment::{Experiment, Lab},
    repeat::rounds,
    row::find,
};
use crate::terminal::Tally;
use foreshore::Result;
use foreshore_io::{AlignedBuf, File};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

const KIB: usize = 1024;
/// Bytes of a write, multiples of a block.
const SIZES: [usize; 7] = [4 * KIB, 16 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB];
/// Bytes that are written before the first of them is written again.
const AREA: usize = 32 * KIB * KIB;

pub(super) struct FlushTime;

impl Experiment for FlushTime {
    fn name(&self) -> &'static str {
        "flush-time"
    }

    fn figure(&self) -> &'static str {
        "Laser Fig. 4a"
    }

    fn paper(&self) -> &'static str {
        "A larger flush costs less for each byte: 100 kB take some 0.4 ms, and 500 kB only some 0.7 ms. So \
         Laser chooses the group timer so that a flush of what it gathers takes no longer than the timer."
    }

    fn differs(&self) -> &'static str {
        "One durable write at a time, over space that is prepared, as the log writes its groups. A device of a fixed delay takes \
         the same time for each size."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let place = Place::new(lab.settings.device)?;
        lab.machine = place.machine()?;
        let window = lab.settings.secs.unwrap_or(Duration::from_millis(lab.choose(2000, 500)));
        lab.configure("secs", window.as_secs_f64());
        lab.configure("repeat", lab.settings.repeat.unwrap_or(ROUNDS));
        let file = place.create("flushes")?;
        let zeros = AlignedBuf::new(KIB * KIB);
        (0..AREA / zeros.len()).try_for_each(|at| file.write_at(&zeros, (at * zeros.len()) as u64))?;
        file.sync()?;
        let measured = rounds(lab, ROUNDS, &SIZES, |size| flushes(&*file, *size, window))?;
        Ok(SIZES.iter().zip(measured).map(|(size, measured)| row(*size, measured)).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let line = |name: &str, field| {
            let point = |row: &Row| Some((row.number("bytes_per_group")? / KIB as f64, row.number(field)?));
            Series {
                name: name.to_owned(),
                points: rows.iter().filter_map(point).filter(|(_, us)| *us > 0.0).collect(),
            }
        };
        let data = Data::Lines(vec![line("median", "p50_us"), line("p99", "p99_us")]);
        let (x, y) = (Axis::log("KiB of a write", 2), Axis::log("microseconds", 10));
        vec![Panel { title: "durable writes".to_owned(), x, y, data }]
    }

    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let cost = |size: usize| Some(find(rows, &[("bytes_per_group", size.into())], "p50_us")? / (size / KIB) as f64);
        let ends = cost(SIZES[0]).zip(cost(SIZES[SIZES.len() - 1]));
        let finding = |(small, large)| {
            format!("median per KiB: {small:.1} us in writes of 4 KiB, {large:.1} us in writes of 1 MiB")
        };
        ends.map(finding).into_iter().collect()
    }
}

const ROUNDS: usize = 3;

/// Writes `size` bytes again and again, and returns the times in nanoseconds.
fn flushes(file: &dyn File, size: usize, window: Duration) -> Result<Histogram<u32>> {
    let mut times = Tally::new().latency;
    let (mut block, begun) = (AlignedBuf::new(size), Instant::now());
    for write in 0.. {
        block.fill(write as u8 | 1);
        let at = Instant::now();
        file.write_durable(&block, (write * size % AREA) as u64)?;
        times.saturating_record(super::commits::nanoseconds(at.elapsed()));
        if begun.elapsed() >= window {
            break;
        }
    }
    Ok(times)
}

/// All rounds together.
fn row(size: usize, rounds: Vec<Histogram<u32>>) -> Row {
    let us = |times: &Histogram<u32>, quantile| times.value_at_quantile(quantile) as f64 / 1000.0;
    let repeats: Vec<f64> = rounds.iter().map(|times| us(times, 0.5)).collect();
    let mut all = rounds[0].clone();
    rounds[1..].iter().for_each(|times| all.add(times).expect("histograms of one shape"));
    Row::new()
        .with("bytes_per_group", size)
        .measured("p50_us", us(&all, 0.5))
        .measured("p99_us", us(&all, 0.99))
        .measured("mb_per_s", size as f64 / us(&all, 0.5))
        .with("samples", all.len())
        .with("repeats", repeats)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore::Device;

    #[test]
    fn a_write_takes_what_its_device_takes() {
        let place = Place::new(Device::Delay(Duration::from_millis(2))).unwrap();
        let file = place.create("flushes").unwrap();
        let rounds = [4 * KIB, 16 * KIB].map(|size| flushes(&*file, size, Duration::from_millis(20)).unwrap());
        let row = row(4 * KIB, rounds.to_vec());
        let of = |field| row.number(field).unwrap();
        assert!(of("p50_us") >= 2000.0 && of("p99_us") >= of("p50_us") && of("mb_per_s") <= 2.1, "{row:?}");
        assert!((2.0..=22.0).contains(&of("samples")), "{row:?}");
    }
}
