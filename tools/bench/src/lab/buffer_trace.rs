//! `buffer-trace`: how many reads of a trace a pool serves from memory.

use super::{
    Row,
    buffer_pool::{PoolKind, page, ratio, reads},
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    promise::{Bound, Promise},
    row::find,
};
use crate::{random::Random, random::Zipf, units::invalid};
use foreshore::{Error, Result};
use foreshore_base::limits::MAX_PAGES;
use std::{fs, io::Read, path::Path};

const FRAMES: [usize; 5] = [1000, 2000, 5000, 10000, 15000];
/// Reads of a made-up trace for each page of the other experiments.
const READS_PER_PAGE: u64 = 8;
/// What a file compressed with zstd begins with.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(super) struct BufferTrace;

impl Experiment for BufferTrace {
    fn name(&self) -> &'static str {
        "buffer-trace"
    }

    fn figure(&self) -> &'static str {
        "hit ratios of a trace, as in 2Q, ARC and S3-FIFO"
    }

    fn paper(&self) -> &'static str {
        "2Q (VLDB 1994), ARC (FAST 2003) and S3-FIFO (SOSP 2023) report hit ratios of LRU between those of CLOCK and of policies that \
         pass new pages through a queue, and the more so the smaller the memory."
    }

    fn differs(&self) -> &'static str {
        "The pool itself runs, one thread, over a file that reads without a disk. A trace in the ARC format is given as \
         FILE (plain or zstd: start, count, and columns that are not read); without one a made-up trace stands in, of Zipf-distributed \
         reads, loops and scans."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let file = lab.settings.trace.clone();
        let trace = match &file {
            Some(path) => read(path)?,
            None => made_up(lab.settings.seed, (READS_PER_PAGE * lab.pages(100_000, 6_250)) as usize),
        };
        lab.configure("trace", file.map_or_else(|| "made up".to_owned(), |path| path.display().to_string()));
        lab.configure("reads", trace.len());
        lab.configure("threads", 1);
        let mut rows = Vec::new();
        lab.progress.phase("trace", (FRAMES.len() * PoolKind::ALL.len()) as u64);
        for frames in FRAMES {
            for kind in PoolKind::ALL {
                let row = Row::new().with("policy", kind.to_string()).with("frames", frames);
                rows.push(row.with("hit_ratio", replay(kind, frames, &trace)?));
                lab.progress.at(rows.len() as u64);
            }
        }
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot = Plot { x: Axis::log("frames", 10), y: Axis::linear("hit ratio"), of: ["frames", "hit_ratio"] };
        plot.panels(rows, |_| "reads of a trace".to_owned(), |row| row.text("policy").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let promise = |frames: usize, rival: &str, least: f64| {
            let ratio = |policy: &str| find(rows, &[("policy", policy.into()), ("frames", frames.into())], "hit_ratio");
            let points = 100.0 * (ratio("s3c")? - ratio(rival)?);
            Some(Promise::new(format!("{frames} frames: points of s3c above {rival}"), points, Bound::Least(least)))
        };
        let sizes = FRAMES.into_iter();
        sizes.flat_map(|frames| [promise(frames, "lru", 0.0), promise(frames, "2q", -0.5)]).flatten().collect()
    }
}

/// Share of the reads that find their page in memory.
fn replay(kind: PoolKind, frames: usize, trace: &[u64]) -> Result<f64> {
    let (pool, before) = (kind.open(frames)?, reads());
    for &number in trace {
        pool.read(page(number))?;
    }
    Ok(ratio(trace.len() as u64 - (reads() - before), trace.len() as u64))
}

/// The pages that a trace reads, in order.
fn read(path: &Path) -> Result<Vec<u64>> {
    let failed = |e| Error::io("read", path.to_owned(), e);
    let bytes = fs::read(path).map_err(failed)?;
    let mut text = String::new();
    if bytes.starts_with(&ZSTD) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(&bytes[..]);
        let mut decoder = decoder.map_err(|e| failed(std::io::Error::other(e.to_string())))?;
        decoder.read_to_string(&mut text).map_err(failed)?;
    } else {
        text = String::from_utf8(bytes).map_err(|e| failed(std::io::Error::other(e)))?;
    }
    parse(&text)
}

/// Each line: start, count, and whatever else. `count` pages in a row.
fn parse(text: &str) -> Result<Vec<u64>> {
    let mut trace = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let (Some(Some(start)), Some(Some(count))) = (words.next(), words.next()) else {
            return Err(invalid("FILE", line, "lines of start, count"));
        };
        if count >= MAX_PAGES || start >= MAX_PAGES - count - 1 {
            return Err(invalid("FILE", line, &format!("pages below {}", MAX_PAGES - 1)));
        }
        trace.extend(start..start + count);
    }
    if trace.is_empty() { Err(invalid("FILE", "", "at least one page")) } else { Ok(trace) }
}

/// Reads as a database might do them: most by Zipf's law over a set that drifts, and between them loops and scans.
fn made_up(seed: u64, reads: usize) -> Vec<u64> {
    const PAGES: u64 = 100_000;
    let (zipf, mut random) = (Zipf::new(PAGES, 0.9), Random::new(seed, 0));
    let mut trace = Vec::with_capacity(reads + 40_000);
    for phase in 0.. {
        if trace.len() >= reads {
            break;
        }
        for _ in 0..10_000 {
            // Ranks lie scattered over the pages: the factor has no divisor in common with their number.
            trace.push((zipf.draw(&mut random) * 70_657 + phase * 97) % PAGES);
        }
        let start = random.below(PAGES / 2);
        match phase % 4 {
            1 => trace.extend(start..start + 3000),
            3 => (0..3).for_each(|_| trace.extend(start..start + 1200)),
            _ => {}
        }
    }
    trace.truncate(reads);
    trace
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_classics::replacement::ReplacementKind;

    const LRU: PoolKind = PoolKind::Engine(ReplacementKind::Lru);

    #[test]
    fn a_trace_is_read_as_its_lines_say() {
        assert_eq!(parse("5 2 0 1\n\n7\t1 0 2\n").unwrap(), [5, 6, 7]);
        for wrong in ["", "5\n", "a 1\n", "1 -1 0 0\n", "2147483647 1 0 0\n", "1 18446744073709551615 0 0\n"] {
            assert!(matches!(parse(wrong), Err(Error::InvalidOption { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_compressed_trace_is_the_plain_one() {
        let plain = "9 3 0 0\n".repeat(100);
        let packed = ruzstd::encoding::compress_to_vec(plain.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
        assert!(packed.starts_with(&ZSTD));
        let path = std::env::temp_dir().join(format!("foreshore-trace-{}.lis", std::process::id()));
        let read_back = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            read(&path)
        };
        assert_eq!(read_back(&packed).unwrap(), read_back(plain.as_bytes()).unwrap());
        assert!(read_back(&packed[..packed.len() / 2]).is_err());
        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path), Err(Error::Io { .. })));
    }

    #[test]
    fn a_loop_that_fits_hits_and_one_that_does_not_misses_under_lru() {
        let trace: Vec<u64> = (0..10).flat_map(|_| 0..100).collect();
        assert_eq!(replay(LRU, 100, &trace).unwrap(), 0.9);
        assert_eq!(replay(LRU, 99, &trace).unwrap(), 0.0);
    }
}
