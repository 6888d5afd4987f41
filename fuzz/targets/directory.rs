//! Everything in the directory of a database.
#![no_main]

#[path = "../src/limit.rs"]
mod limit;

use foreshore_fuzz::exercise::exercise;
use foreshore_fuzz::input::Input;
use foreshore_fuzz::layout::Kind;
use foreshore_fuzz::patch::{Scope, apply};
use libfuzzer_sys::fuzz_target;

const SCOPE: Scope = Scope {
    kinds: &[
        Kind::Superblock,
        Kind::Map,
        Kind::Leaf,
        Kind::Inner,
        Kind::Catalogue,
        Kind::Chain,
        Kind::Doublewrite,
        Kind::Batch,
        Kind::Image,
        Kind::Control,
        Kind::Segment,
        Kind::Group,
        Kind::Record,
    ],
    files: true,
};

fuzz_target!(|bytes: &[u8]| exercise(&apply(&mut Input::new(bytes), SCOPE)));
