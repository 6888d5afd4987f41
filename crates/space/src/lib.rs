//! Superblock, page map and file growth of Foreshore.
