//! After power loss at any operation, with any legal subset of unsynced effects: every acknowledged commit is there, the
//! rest is a prefix, and a second loss during recovery changes nothing.
//!
//! `FORESHORE_CRASH_STRIDE=1` visits every operation.

use crate::script::{Random, Script, disk, open, read};
use foreshore_io::sim::Persist;

const STRIDE: u64 = 5;

const POLICIES: [Persist; 9] = [
    Persist::None,
    Persist::All,
    Persist::Prefix,
    Persist::Suffix,
    Persist::DropOne,
    Persist::RandomHalf,
    Persist::MetadataFirst,
    Persist::DataFirst,
    Persist::Torn,
];

#[test]
fn every_acknowledged_commit_survives_power_loss() {
    let stride = std::env::var("FORESHORE_CRASH_STRIDE").map_or(STRIDE, |text| text.parse().unwrap());
    let sim = disk(1);
    let mut script = Script::new(&sim, 7);
    let db = open(&sim).unwrap();
    script.run(&db, 160).unwrap();
    let stats = db.stats();
    assert!(stats.checkpoint.checkpoints > 3 && stats.log.segments_recycled > 0, "{stats:?}");
    let mut points = sim.crash_points();
    let mut images = 0_u64;
    loop {
        let op = points.op();
        if op % stride == 0 {
            let policy = &POLICIES[(images % POLICIES.len() as u64) as usize];
            let image = points.image(policy, op);
            recover(&script, op, &image)
                .unwrap_or_else(|why| panic!("power lost in operation {op}, {policy:?}: {why}"));
            images += 1;
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 50, "{images} images");
}

/// Recovers an image, loses power at some operation of that, and recovers again.
fn recover(script: &Script, op: u64, image: &foreshore_io::sim::Sim) -> Result<(), String> {
    let db = open(image).map_err(|error| format!("open: {error:?}"))?;
    let found = script.verify(&db, op)?;
    let mut random = Random(op);
    let mut points = image.crash_points();
    for _ in 0..random.below(image.ops().max(1)) {
        points.advance();
    }
    let again = points.image(&POLICIES[random.below(POLICIES.len() as u64) as usize], op);
    let db = open(&again).map_err(|error| format!("open after a second loss: {error:?}"))?;
    db.check().map_err(|error| format!("check after a second loss: {error}"))?;
    let second = read(&db).map_err(|error| error.to_string())?;
    if second != found {
        return Err("a recovery that was cut short changed what the next one found".to_owned());
    }
    Ok(())
}
