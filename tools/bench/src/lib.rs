//! Workloads and measurement for Foreshore.
