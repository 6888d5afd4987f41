use super::LogOptions;
use crate::buffer::{LogBuffer, MakeLogBuffer, NewLogBuffer};
use crate::format;
use foreshore_base::limits::BLOCK;
use std::{io, sync::Arc};

/// Stands for a buffer that is not lanes.
#[derive(Debug)]
struct Ring;

impl MakeLogBuffer for Ring {
    fn fragments(&self) -> bool {
        true
    }

    fn make(&self, _: &NewLogBuffer<'_>) -> io::Result<Arc<dyn LogBuffer>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Groups of sizes that `size` draws go where prepared space of just the promised size is ahead, from each offset of
/// the segment in use. Returns how much of it the last one has left over, at least.
fn place(options: &LogOptions, bytes: u64, mut size: impl FnMut(u64) -> u64) -> u64 {
    let usable = options.segment_bytes - format::FIRST_GROUP;
    let promised = options.prepared_for(bytes) + options.tail();
    let mut least = u64::MAX;
    for left in (0..=usable).step_by(BLOCK) {
        // Segments are prepared whole.
        let mut ahead = (left, promised.saturating_sub(left).div_ceil(usable));
        let mut written = 0;
        while written < bytes {
            let group = size(ahead.0).clamp(BLOCK as u64, options.max_group() as u64);
            let group = group.min((bytes - written).next_multiple_of(BLOCK as u64));
            if group > ahead.0 {
                assert!(ahead.1 > 0, "no place for {group} of {bytes} bytes behind {written}, {left} left at first");
                ahead = (usable, ahead.1 - 1);
            }
            ahead.0 -= group;
            written += group;
        }
        least = least.min(ahead.0 + ahead.1 * usable);
    }
    least
}

/// Segments of all sizes near the least one, where the ends of segments count, and of the default size.
#[test]
fn groups_of_any_sizes_find_their_place_in_what_is_prepared_for_them() {
    let block = BLOCK as u64;
    for segment_bytes in (64 << 10..=256 << 10).step_by(BLOCK).chain([1 << 20, 16 << 20]) {
        let options = LogOptions { segment_bytes, ..LogOptions::default() };
        let usable = segment_bytes - format::FIRST_GROUP;
        assert!(2 * options.max_group() as u64 <= usable, "two of the largest groups in {segment_bytes}");
        let (mut random, mut least) = (segment_bytes, u64::MAX);
        for bytes in [32 << 10, 200 << 10, 2 << 20] {
            // The smallest group that does not fit any more, or else one that leaves as much as possible to lose next
            // time.
            let largest = options.max_group() as u64;
            let wasteful =
                |left: u64| if left < largest { left + block } else { (left - largest + block).min(largest) };
            least = least.min(place(&options, bytes, wasteful));
            place(&options, bytes, |_| largest);
            place(&options, bytes, |_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % (largest / block) * block
            });
        }
        assert!(least < 2 * usable, "{least} bytes more than are needed in {segment_bytes}");
    }
}

/// The smallest footprint: with the default options an idle log has the segment in use and two that are ready.
#[test]
fn an_idle_log_keeps_two_segments_ready() {
    let targets = |buffer| {
        let options = LogOptions { buffer, ..LogOptions::default() };
        [0, 1, 8].map(|sessions| options.ready_target(options.kept_back(sessions)))
    };
    assert_eq!(targets(None), [2; 3]);
    assert_eq!(targets(Some(Arc::new(Ring))), [5; 3], "of a ring, all of it may be in flight");
}
