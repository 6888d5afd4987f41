//! The command line.

use crate::{
    error::{Error, Result},
    workload::{
        CHURNED_ROWS, Shape, Workload,
        values::{MAX_BYTES, MIN_BYTES},
    },
};
use clap::Parser;
use std::path::PathBuf;

/// Runs one workload on Foreshore and on other embedded engines, each at its own best documented settings.
#[derive(Clone, Debug, Parser)]
#[command(name = "compare")]
pub(crate) struct Cli {
    /// `tpcb`, `tatp`, `ycsb-a` to `ycsb-f`, `read`, `insert`, `queue`, `values`, `bulk`, `churn`, `scan` or
    /// `delete-range`.
    pub(crate) workload: String,
    /// Engines, or `ENGINE:VARIANT`; all that are installed if none is named.
    #[arg(long, value_delimiter = ',')]
    pub(crate) engines: Vec<String>,
    /// Worker threads, a row each [default: 1,2,128 for tpcb, 1,2,32 for tatp and for those of ycsb that write, 2 for
    /// queue, 1 for values, bulk and delete-range, else 1,2].
    #[arg(long, value_delimiter = ',')]
    pub(crate) threads: Vec<usize>,
    /// Measured seconds of a row, after a second of warm-up. Rows of bulk and delete-range end when their work is done.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) secs: f64,
    /// Rounds: each has every row once, engines in rotated order; a row is the median of its rounds.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Rows whose commits survive a loss of power. The default; with `--lazy` both are measured.
    #[arg(long)]
    pub(crate) durable: bool,
    /// Rows whose commits may be lost.
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Branches of tpcb [default: 10], subscribers of tatp [default: 100000], MiB of values [default: 256], rows of
    /// bulk [default: 5000000] and of the other workloads [default: 1000000].
    #[arg(long)]
    pub(crate) scale: Option<u64>,
    /// What a transaction of read or values does [default: everything].
    #[arg(long, value_delimiter = ',')]
    pub(crate) shapes: Vec<Shape>,
    /// Bytes of a value of values, a row each.
    #[arg(long, value_delimiter = ',', default_value = "1KiB,8KiB,64KiB,1MiB", value_parser = parse_size)]
    pub(crate) sizes: Vec<u64>,
    /// Rows that are always in the queue.
    #[arg(long, default_value_t = 100)]
    pub(crate) backlog: u64,
    /// Memory of each engine for pages and changes.
    #[arg(long, default_value = "1GiB", value_parser = parse_size)]
    pub(crate) cache: u64,
    /// All randomness.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory for the databases, made and removed [default: a fresh one under the current one].
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Writes one JSON object; `-` is standard output, which then has nothing else.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// Reads a number of bytes with `KiB`, `MiB` or `GiB` behind it, or without a unit.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("", 1)];
    let sized = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let number = sized.and_then(|(number, &bytes)| number.trim().parse::<u64>().ok()?.checked_mul(bytes));
    number.ok_or_else(|| "expected a number of bytes, or of KiB, MiB or GiB".to_owned())
}

/// Threads at once at most: keys of history keep 16 bits for the thread.
const MAX_THREADS: usize = 1024;
/// The least cache that all engines accept.
const MIN_CACHE: u64 = 16 << 20;

impl Cli {
    /// Returns the workload, and fills in the defaults that depend on it.
    ///
    /// # Errors
    /// `Workload` for a name that is not built; `Option` for what is out of range.
    pub(crate) fn checked(&mut self) -> Result<Workload> {
        let workload = Workload::named(&self.workload)?;
        if self.threads.is_empty() {
            self.threads = match workload {
                Workload::Tpcb => vec![1, 2, 128],
                Workload::Queue => vec![2],
                Workload::Values | Workload::Bulk | Workload::DeleteRange => vec![1],
                generic if generic.is_generic() && generic.writes() => vec![1, 2, 32],
                _ => vec![1, 2],
            };
        }
        let shapes = Shape::of(workload);
        if let Some(bad) = self.shapes.iter().find(|shape| !shapes.contains(shape)) {
            let expected = "a shape of this workload";
            return Err(Error::Option { name: "shapes", value: bad.name().to_owned(), expected });
        }
        if self.shapes.is_empty() {
            self.shapes = shapes.to_vec();
        }
        let least = if workload == Workload::Queue { 2 } else { 1 };
        if let Some(bad) = self.threads.iter().find(|&&threads| !(least..=MAX_THREADS).contains(&threads)) {
            let expected = if least == 2 { "2 to 1024: a producer and a consumer" } else { "1 to 1024" };
            return Err(Error::Option { name: "threads", value: bad.to_string(), expected });
        }
        let refuse = |name, value: String, expected| Err(Error::Option { name, value, expected });
        if !(self.secs > 0.0 && self.secs <= 3600.0) {
            return refuse("secs", self.secs.to_string(), "more than 0, and an hour at most");
        }
        if self.rounds == 0 {
            return refuse("rounds", "0".to_owned(), "at least 1");
        }
        if self.cache < MIN_CACHE {
            return refuse("cache", self.cache.to_string(), "at least 16 MiB");
        }
        let scale = *self.scale.get_or_insert(workload.default_scale());
        if !(1..=100_000_000).contains(&scale) {
            return refuse("scale", scale.to_string(), "1 to 100000000");
        }
        let most_threads = self.threads.iter().copied().max().unwrap_or(1) as u64;
        for &size in &self.sizes {
            if !(MIN_BYTES..=MAX_BYTES).contains(&(size as usize)) {
                return refuse("sizes", size.to_string(), "16 bytes to 1 MiB");
            }
            if workload == Workload::Values && (scale << 20) / size < most_threads {
                return refuse("scale", scale.to_string(), "a value of each size for each thread");
            }
        }
        let least_rows = if workload == Workload::Churn { CHURNED_ROWS } else { 1 } * most_threads;
        if matches!(workload, Workload::Churn | Workload::Bulk) && scale < least_rows {
            return refuse("scale", scale.to_string(), "a row for each thread, ten in churn");
        }
        if self.backlog == 0 {
            return refuse("backlog", "0".to_owned(), "at least 1");
        }
        Ok(workload)
    }

    /// Returns whether rows are durable: one entry for each kind that was asked for.
    pub(crate) fn durabilities(&self, workload: Workload) -> Vec<bool> {
        match (workload.writes(), self.durable, self.lazy) {
            (false, ..) | (true, _, false) => vec![true],
            (true, true, true) => vec![true, false],
            (true, false, true) => vec![false],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cli(arguments: &str) -> Cli {
        Cli::try_parse_from(["compare"].into_iter().chain(arguments.split(' '))).unwrap()
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("3MiB"), Ok(3 << 20));
        assert_eq!(parse_size("70000"), Ok(70_000));
        assert!(parse_size("1GB").is_err() && parse_size("MiB").is_err() && parse_size("99999999999GiB").is_err());
    }

    #[test]
    fn defaults_depend_on_the_workload() {
        let mut tpcb = cli("tpcb");
        assert_eq!(tpcb.checked().unwrap(), Workload::Tpcb);
        assert_eq!((&tpcb.threads[..], tpcb.scale, tpcb.shapes.len()), (&[1, 2, 128][..], Some(10), 0));
        for (arguments, threads, scale) in
            [("tatp", &[1, 2, 32][..], 100_000), ("ycsb-a", &[1, 2, 32], 1_000_000), ("ycsb-c", &[1, 2], 1_000_000)]
        {
            let mut generic = cli(arguments);
            generic.checked().unwrap();
            assert_eq!((&generic.threads[..], generic.scale), (threads, Some(scale)), "{arguments}");
        }
        let mut values = cli("values --sizes 64KiB");
        assert_eq!(values.checked().unwrap(), Workload::Values);
        assert_eq!((&values.shapes[..], &values.sizes[..]), (&[Shape::Write, Shape::Sum][..], &[1 << 16][..]));
        assert_eq!(tpcb.durabilities(Workload::Tpcb), [true]);
        assert_eq!(cli("tpcb --lazy").durabilities(Workload::Tpcb), [false]);
        assert_eq!(cli("tpcb --lazy --durable").durabilities(Workload::Tpcb), [true, false]);
        assert_eq!(cli("read --lazy").durabilities(Workload::Read), [true]);
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_its_name() {
        for (arguments, name) in [
            ("queue --threads 1", "threads"),
            ("tpcb --threads 2,0", "threads"),
            ("tpcb --secs 0", "secs"),
            ("tpcb --rounds 0", "rounds"),
            ("tpcb --cache 1MiB", "cache"),
            ("tpcb --scale 0", "scale"),
            ("queue --backlog 0", "backlog"),
            ("values --sizes 8", "sizes"),
            ("values --sizes 1MiB --scale 1 --threads 2", "scale"),
            ("values --shapes get-1", "shapes"),
            ("churn --scale 9", "scale"),
        ] {
            let refused = cli(arguments).checked();
            assert!(matches!(&refused, Err(Error::Option { name: refused, .. }) if *refused == name), "{arguments}");
        }
        assert!(matches!(cli("tpcc").checked(), Err(Error::Workload { .. })));
    }
}
