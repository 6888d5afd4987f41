//! The log manager of Foreshore: buffers, groups, segments, durability.
