//! The two slots of the superblock: alone, and under a database.
#![no_main]

#[path = "../src/limit.rs"]
mod limit;

use foreshore_fuzz::exercise::{exercise, expect_damage};
use foreshore_fuzz::golden::DIR;
use foreshore_fuzz::input::Input;
use foreshore_fuzz::layout::Kind;
use foreshore_fuzz::patch::{Scope, apply};
use foreshore_io::Fs;
use foreshore_space::SuperBlock;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

const SCOPE: Scope = Scope { kinds: &[Kind::Superblock], files: true };

fuzz_target!(|bytes: &[u8]| {
    let disk = apply(&mut Input::new(bytes), SCOPE);
    slots(&disk.fork());
    exercise(&disk);
});

fn slots(disk: &foreshore_io::Sim) {
    let Ok(file) = disk.open(&Path::new(DIR).join("data")) else { return };
    match SuperBlock::read_newest(&*file) {
        Ok((newest, _)) => {
            let written = newest.write_next(&*file).expect("the disk works");
            let (again, older) = SuperBlock::read_newest(&*file).expect("a slot that was just written");
            assert_eq!(again, written);
            assert!(older.is_none_or(|older| older == newest));
        }
        Err(error) => expect_damage(&error.into(), "superblock"),
    }
}
