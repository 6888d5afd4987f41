//! Map pages, leaves and inner nodes.
#![no_main]

#[path = "../src/limit.rs"]
mod limit;

use foreshore_fuzz::exercise::exercise;
use foreshore_fuzz::input::Input;
use foreshore_fuzz::layout::Kind;
use foreshore_fuzz::patch::{Scope, apply};
use libfuzzer_sys::fuzz_target;

const SCOPE: Scope = Scope { kinds: &[Kind::Map, Kind::Leaf, Kind::Inner, Kind::Chain], files: false };

fuzz_target!(|bytes: &[u8]| exercise(&apply(&mut Input::new(bytes), SCOPE)));
