//! The lock manager of Foreshore: intents, shared locks, deadlocks.
