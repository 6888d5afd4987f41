//! Promise: a pool keeps the pages that its policy would keep. Each policy is compared, on one thread, with a plain
//! simulator that shares no code with it.

use crate::common::{Rng, check, create, init, open, pool_options};
use foreshore_base::PageId;
use foreshore_buffer::{AccessPattern, PoolOptions};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_io::{Fs, Mem};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

const PAGES: u64 = 1500;

/// Page ids with a hot set that drifts, loops and scans.
fn trace() -> Vec<u64> {
    let mut rng = Rng(7);
    let mut trace = Vec::new();
    for phase in 0..40 {
        for _ in 0..1500 {
            // Zipf with s = 1: the logarithm of the rank is uniform.
            let uniform = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
            let rank = (PAGES as f64).powf(uniform) as u64;
            trace.push(1 + (rank + 11 * phase) % (PAGES - 1));
        }
        let start = rng.below(PAGES - 400);
        match phase % 3 {
            0 => trace.extend((0..400).map(|n| 1 + start + n)),
            1 => (0..4).for_each(|_| trace.extend((0..90).map(|n| 1 + start + n))),
            _ => {}
        }
    }
    trace
}

/// Share of reads that the pool serves from memory.
fn pool_hits(fs: &Arc<dyn Fs>, replacement: ReplacementKind, frames: usize, trace: &[u64]) -> f64 {
    let replacement = replacement.maker();
    let bed = open(fs, &PoolOptions { replacement, read_around: false, ..pool_options(frames) }).expect("open");
    for (n, &pid) in trace.iter().enumerate() {
        let pid = PageId(pid);
        match n % 2 {
            0 => drop(check(&bed.pool.shared(pid).expect("shared"), pid)),
            _ => assert!(bed.pool.optimistic(pid, AccessPattern::Random).expect("optimistic").validate(), "one thread"),
        }
    }
    let stats = bed.pool.stats();
    assert_eq!((stats.misses, stats.evictions), (stats.pages_read, stats.pages_read - frames as u64));
    1.0 - stats.pages_read as f64 / trace.len() as f64
}

/// Least recently used: every page with the time of its last use.
fn lru_hits(frames: usize, trace: &[u64]) -> usize {
    let (mut by_page, mut by_time, mut hits) = (HashMap::new(), BTreeMap::new(), 0);
    for (now, &pid) in trace.iter().enumerate() {
        match by_page.insert(pid, now) {
            Some(last) => {
                by_time.remove(&last);
                hits += 1;
            }
            None if by_time.len() == frames => {
                let (_, oldest) = by_time.pop_first().expect("a page");
                by_page.remove(&oldest);
            }
            None => {}
        }
        by_time.insert(now, pid);
    }
    hits
}

/// Second chance as a queue: a used page goes to its end, unused.
fn clock_hits(frames: usize, trace: &[u64]) -> usize {
    let (mut queue, mut used, mut hits) = (VecDeque::new(), HashMap::new(), 0);
    for &pid in trace {
        if let Some(used) = used.get_mut(&pid) {
            *used = true;
            hits += 1;
            continue;
        }
        while queue.len() == frames {
            let oldest = queue.pop_front().expect("a page");
            if used.insert(oldest, false) == Some(true) {
                queue.push_back(oldest);
            } else {
                used.remove(&oldest);
            }
        }
        queue.push_back(pid);
        used.insert(pid, true);
    }
    hits
}

/// 2Q with plain vectors, oldest first.
fn two_q_hits(frames: usize, trace: &[u64]) -> usize {
    let (mut a1in, mut a1out, mut am): (Vec<u64>, Vec<u64>, Vec<u64>) = Default::default();
    let at = |list: &[u64], pid| list.iter().position(|&own| own == pid);
    let mut hits = 0;
    for &pid in trace {
        if let Some(at) = at(&am, pid) {
            am.remove(at);
            am.push(pid);
            hits += 1;
            continue;
        }
        if at(&a1in, pid).is_some() {
            hits += 1;
            continue;
        }
        let ghost = at(&a1out, pid);
        ghost.map(|at| a1out.remove(at));
        if a1in.len() + am.len() == frames {
            if a1in.len() > frames / 4 {
                a1out.push(a1in.remove(0));
                if a1out.len() > frames / 2 {
                    a1out.remove(0);
                }
            } else {
                am.remove(0);
            }
        }
        if ghost.is_some() { am.push(pid) } else { a1in.push(pid) }
    }
    hits
}

#[test]
fn lru_clock_and_2q_hit_as_often_as_their_simulators() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    create(&fs, PAGES).expect("an empty store");
    {
        let bed = open(&fs, &pool_options(64)).expect("open");
        let mut session = bed.log.session().expect("a session");
        for pid in 1..PAGES {
            init(&bed.pool, &mut session, PageId(pid)).expect("init");
        }
        bed.pool.flush_all().expect("flush");
    }
    let trace = trace();
    type Simulator = fn(usize, &[u64]) -> usize;
    let policies: [(_, Simulator); 3] =
        [(ReplacementKind::Lru, lru_hits), (ReplacementKind::Clock, clock_hits), (ReplacementKind::TwoQ, two_q_hits)];
    let mut told_apart = [false; 3];
    for frames in [60, 200, 600] {
        let ratios = policies.map(|(kind, simulate)| {
            let expected = simulate(frames, &trace) as f64 / trace.len() as f64;
            let found = pool_hits(&fs, kind, frames, &trace);
            assert!((found - expected).abs() <= 0.001, "{kind}, {frames} frames: {found:.4}, simulated {expected:.4}");
            found
        });
        for (one, told) in told_apart.iter_mut().enumerate() {
            *told |= (ratios[one] - ratios[(one + 1) % 3]).abs() > 0.003;
        }
    }
    assert_eq!(told_apart, [true; 3], "on this trace two policies are one");
}
