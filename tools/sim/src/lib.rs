//! Seeded simulation and crash scripts for Foreshore.
