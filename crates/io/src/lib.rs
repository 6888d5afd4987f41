//! The disk behind traits: direct, buffered, in memory, simulated.
