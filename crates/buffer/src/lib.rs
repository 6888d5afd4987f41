//! The buffer pool of Foreshore: frames, guards, replacement, write-back.
