//! Operations on a database and on a model of it, with losses of power: they must agree.
#![no_main]

#[path = "../src/limit.rs"]
mod limit;

use foreshore_fuzz::machine;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| machine::run(bytes));
