//! Tests of the check and of the histories that the engine makes.

mod brute;
mod known;
mod notation;
mod written;
