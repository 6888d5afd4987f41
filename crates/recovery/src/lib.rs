//! Checkpoint, analysis, redo and undo of Foreshore.
