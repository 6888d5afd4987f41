//! The creation and the opening of a log.

use crate::format::{CtlSlot, FIRST_GROUP, number_of};
use crate::group::{GroupMemory, Sealer, Tail};
use crate::log_core::Core;
use crate::options::LogOptions;
use crate::pipeline::Pipeline;
use crate::reader::{Chain, GroupReader, Recovered};
use crate::requests::SpaceRequests;
use crate::scan::{FIRST, Scanned, scan};
use crate::segment::{Control, Files, Home, List, Segments, Spare};
use crate::slots::Slots;
use crate::throttle::Throttle;
use crate::watch::GrowthWatch;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Place, Result, Uuid};
use foreshore_io::{AlignedBuf, Fs};
use foreshore_sync::model::mutant;
use foreshore_sync::{Daemon, NextWake, OnPanic, Signal, Step, pause};
use std::path::Path;
use std::sync::Arc;

/// An open log: the shared part, and its threads.
type Parts = (Arc<Core>, Vec<Daemon>);

/// Number of the first segment.
const FIRST_SEGMENT: u64 = 1;

pub(crate) fn create(fs: &Arc<dyn Fs>, dir: &Path, uuid: Uuid, options: &LogOptions) -> Result<()> {
    options.check()?;
    let home = Home { fs: fs.clone(), dir: dir.to_owned(), uuid };
    fs.create_dir(dir)?;
    let names = fs.list(dir)?;
    if !names.iter().any(|name| name == "ctl") {
        for name in names.iter().filter(|name| is_own(name)) {
            fs.remove(&dir.join(name))?;
        }
        let files = Files::new(home.clone(), options.segment_bytes);
        for number in FIRST_SEGMENT..FIRST_SEGMENT + options.ready_segments as u64 {
            files.create(number)?;
        }
    }
    let (first, segment) = (FIRST, FIRST_SEGMENT);
    Control::create(&home, CtlSlot { uuid, incarnation: Incarnation(0), seq: 1, first, segment, prev_crc: 0 })
}

/// Returns whether a file of this name belongs to the log and is worthless without a control file.
fn is_own(name: &str) -> bool {
    name == "ctl.tmp" || number_of(name, ".seg").is_some() || number_of(name, ".tmp").is_some()
}

pub(crate) fn open(fs: &Arc<dyn Fs>, dir: &Path, uuid: Uuid, options: &LogOptions) -> Result<(Parts, Recovered)> {
    options.check()?;
    let home = Home { fs: fs.clone(), dir: dir.to_owned(), uuid };
    let mut control = Control::open(&home)?;
    let scanned = scan(&home, &control)?;
    // The last groups are written once more. So a new segment must have space for each, even if this run is configured
    // for smaller segments.
    let longest = scanned.tail.iter().map(|last| last.len).max().unwrap_or(0);
    let segment_bytes = options.segment_bytes.max(FIRST_GROUP + longest);
    let options = &LogOptions { segment_bytes, ..options.clone() };
    // Nothing has been written up to here. The log may have been read from a cache, so it is made durable first.
    // Otherwise a later power loss could remove groups in the middle of the chain.
    for live in &scanned.live {
        fs.open(&home.segment_path(live.number))?.sync()?;
    }
    fs.sync_dir(dir)?;
    // Both slots get the new incarnation before its first group is written. So dropped records of an earlier
    // incarnation can never be accepted again.
    let is_kept = mutant("sabotage: a start keeps the incarnation of the log");
    let incarnation = Incarnation(scanned.incarnation.0 + u32::from(!is_kept));
    control.renew(incarnation)?;
    pause::point("wal: an incarnation begins");
    let list = sort_files(&home, &scanned, options.ready_target(options.kept_back(0)))?;
    let segments = Arc::new(Segments::new(home.clone(), options, control, list));
    let tail = repeat_last(&scanned, incarnation, &segments)?;
    let recovered = Recovered {
        home,
        end: scanned.end(),
        live: scanned.live,
        cuts: scanned.cuts,
        max_lsn: scanned.max_lsn,
        next_group: scanned.next,
        incarnation,
    };
    let floor = recovered.end.max(recovered.max_lsn);
    Ok((start(options, recovered.end, floor, recovered.next_group, (segments, Some(tail)))?, recovered))
}

/// Repeats the last groups, those that no header confirms, behind themselves, over a group that only the cache has (see
/// `scan`). Returns the place of the next group.
fn repeat_last(scanned: &Scanned, incarnation: Incarnation, segments: &Segments) -> Result<Tail> {
    let (prev_crc, file, live) = (scanned.prev_crc, scanned.file.clone(), scanned.last());
    let mut tail = Tail { incarnation, prev_crc, time: scanned.time, file, offset: live.end, size: live.size };
    let again = if mutant("sabotage: a start does not repeat the last groups") { &[] } else { &scanned.tail[..] };
    let rolls = again.first().is_some_and(|last| tail.offset + last.len > tail.size);
    if rolls && tail.offset + BLOCK as u64 <= tail.size {
        // The cache may have a group here that the medium has not. No repeated group goes over it.
        tail.file.write_durable(&AlignedBuf::new(BLOCK), tail.offset)?;
        pause::point("wal: the place behind the last group is erased");
    }
    for last in again {
        let live = &scanned.live[last.segment];
        let file = segments.home().fs.open(&segments.home().segment_path(live.number))?;
        let (group, prev_crc) = (last.group, last.prev_crc);
        let chain = Chain { uuid: segments.home().uuid, group, prev_crc, incarnation: Incarnation(0) };
        let mut reader = GroupReader::new(live.size);
        let Some((header, _)) = reader.group(&*file, live.size, last.offset, &chain)? else {
            let place = Place::Offset(last.offset);
            return Err(Error::corrupted(file.path(), place, "one of the last groups changed while it was read"));
        };
        let mut bytes = AlignedBuf::new(header.total_len as usize);
        bytes.copy_from_slice(reader.bytes(&header));
        let (file, offset) = tail.place(segments, group, prev_crc, bytes.len() as u64)?;
        file.write_durable(&bytes, offset)?;
        pause::point("wal: a last group is repeated");
    }
    Ok(tail)
}

/// Sorts the files in the directory into live segments and spare ones, and removes unusable files. A spare file becomes
/// a ready segment once its name and header are durable.
fn sort_files(home: &Home, scanned: &Scanned, spares: usize) -> Result<List> {
    let mut list = List { live: scanned.live.iter().cloned().collect(), ..List::default() };
    let (first, last) = (scanned.live[0].number, scanned.last().number);
    list.next_number = last + 1;
    for name in home.fs.list(&home.dir)? {
        if number_of(&name, ".tmp").is_some() || name == "ctl.tmp" {
            home.fs.remove(&home.dir.join(&name))?;
        }
    }
    // Files behind the last segment were kept ready by the previous run, perhaps for more sessions, and the disk may be
    // full. So all of them stay. Of the files before the first segment only as many stay as are still missing.
    let (before, behind): (Vec<_>, Vec<_>) = home.segment_numbers()?.into_iter().partition(|&number| number < first);
    for number in behind.into_iter().chain(before).filter(|number| !(first..=last).contains(number)) {
        match home.open_segment(number) {
            Ok((_, size)) if list.spare.len() < spares || number > last => list.spare.push(Spare { number, size }),
            Ok(_) | Err(Error::Corrupted { .. } | Error::Truncated { .. } | Error::Foreign { .. }) => {
                home.fs.remove(&home.segment_path(number))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(list)
}

/// Opens a log without files that starts empty.
pub(crate) fn discarding(options: &LogOptions) -> Result<Parts> {
    options.check()?;
    start(options, Lsn::ZERO, Lsn::ZERO, FIRST, (Arc::new(Segments::none(options)), None))
}

/// Starts a log that is durable up to `durable`, whose first LSN is above `floor` and whose next group is `next`.
fn start(
    options: &LogOptions,
    durable: Lsn,
    floor: Lsn,
    next: GroupNo,
    (segments, tail): (Arc<Segments>, Option<Tail>),
) -> Result<Parts> {
    let slots = Arc::new(Slots::new(options.max_sessions));
    let buffer = options.make_buffer(&slots, floor);
    let buffer = buffer.map_err(|source| Error::io("reserve memory for", &segments.home().dir, source))?;
    let growth = Arc::new(GrowthWatch::default());
    let groups = (0..options.width()).map(|_| GroupMemory::new(options.max_group(), &growth)).collect();
    let has_files = tail.is_some();
    let sealer = Sealer { buffer: buffer.clone(), segments: segments.clone(), tail };
    let pipeline = Pipeline::new(sealer, groups, durable, next, slots.clone(), options.group());
    let core = Arc::new(Core {
        buffer,
        lanes: options.session_lanes(),
        slots,
        limits: options.limits(),
        pipeline: pipeline.measuring(options.measure_waits),
        segments,
        growth,
        throttle: Throttle::default(),
        requests: SpaceRequests::default(),
        has_files,
        options: options.clone(),
    });
    // Sessions that wait for a lane check again when the log stops.
    let weak = Arc::downgrade(&core);
    let stop = move || drop(weak.upgrade().inspect(|core| core.lanes.stop()));
    core.pipeline.acks().call_when_stopped(Box::new(stop));
    let daemons = if options.background { spawn(&core)? } else { Vec::new() };
    Ok((core, daemons))
}

/// A flusher: writes groups for commits that no thread waits for.
struct Flusher(Arc<Core>, usize);

impl Step for Flusher {
    fn step(&self) -> NextWake {
        self.0.pipeline.flush_step(self.1)
    }
}

/// The preparer: keeps segments ready.
struct Preparer(Arc<Segments>);

impl Step for Preparer {
    fn step(&self) -> NextWake {
        self.0.prepare_step()
    }
}

fn spawn(core: &Arc<Core>) -> Result<Vec<Daemon>> {
    let start = |name: &str, signal: &Signal, step: Arc<dyn Step>| {
        let on_panic: OnPanic = {
            let core = core.clone();
            Box::new(move |name, message| {
                let source = std::io::Error::other(format!("{name} panicked: {message}"));
                core.pipeline.stop(&Error::io("write", &core.segments.home().dir, source));
                // There may be no other flusher to make the calls that are due at the stop.
                core.pipeline.acks().acknowledge_all();
            })
        };
        Daemon::spawn(name, signal.clone(), step, on_panic)
            .map_err(|source| Error::io("start a thread for", &core.segments.home().dir, source))
    };
    let mut daemons = Vec::new();
    for i in 0..core.pipeline.progress().width() {
        let flusher = Arc::new(Flusher(core.clone(), i));
        daemons.push(start("log flusher", core.pipeline.flusher_signal(i), flusher)?);
    }
    if core.has_files {
        let segments = &core.segments;
        daemons.push(start("log preparer", segments.preparer_signal(), Arc::new(Preparer(segments.clone())))?);
    }
    Ok(daemons)
}
