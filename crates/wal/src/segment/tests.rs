use super::live::{Live, MARK_DISTANCE};
use crate::format::{FIRST_GROUP, MAX_GROUP};
use foreshore_base::GroupNo;
use foreshore_base::limits::BLOCK;

/// When all pages are home, the log behind the redo start is the part of the segment behind the last mark.
#[test]
fn the_log_behind_its_last_mark_is_little_in_a_segment_of_any_size() {
    for size in [64 << 10, 1 << 20, 64 << 20, 1 << 30] {
        let max_group = (MAX_GROUP as u64).min(size / 2);
        let mut live = Live::new(1, size, GroupNo(1), 0);
        let (mut offset, mut group) = (FIRST_GROUP, 1);
        // Small groups, and now and then one of full size.
        loop {
            let len = if group % 50 == 0 { max_group } else { BLOCK as u64 };
            if offset + len > size.min(64 << 20) {
                break;
            }
            live.push(GroupNo(group), offset, offset + len);
            (offset, group) = (offset + len, group + 1);
            let behind = live.end - live.seek(GroupNo(group)).1;
            assert!(behind < MARK_DISTANCE.min(size / 64) + max_group, "{behind} bytes in a segment of {size}");
        }
    }
}
