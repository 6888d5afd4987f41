//! Tests of the check and of the histories that the engine makes.

mod brute;
mod engine;
mod known;
mod mutations;
mod notation;
mod written;
