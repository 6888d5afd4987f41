//! Power is lost while the data file grows, shrinks and grows again, under every replacement policy.
//!
//! `FORESHORE_SHRINK_STRIDE=1` visits every operation of the history under the default policy, and every fourth under
//! the others; without it twice `FORESHORE_SIM_STRIDE` counts.

use foreshore_classics::growth::GrowthKind;
use foreshore_classics::replacement::ReplacementKind;
use foreshore_sim::{Script, Shrink, crash, options};

const STRIDE: u64 = 100;
/// The histories are long, and there are many.
const TIMES: u64 = 2;
/// Of the policies that are not the default.
const OTHERS: u64 = 4;

fn lose_power(replacement: ReplacementKind, growth: GrowthKind, stride: u64) {
    let seed = 1;
    let (sim, contents) = Script::loaded().unwrap();
    let mut history = Shrink::new(&sim, seed, contents);
    let db = options(&sim, seed)
        .lab(|lab| {
            lab.replacement = replacement.maker();
            lab.growth = growth.rule();
        })
        .open("db")
        .unwrap();
    history.run(&db).unwrap();
    let marks = history.marks(&db);
    marks.assert_complete();
    assert!(history.oracle.acknowledged() > 10, "{} commits acknowledged", history.oracle.acknowledged());
    history.oracle.forget_tickets();
    drop(db);
    let images = crash::lose_power(&history.oracle, &sim, seed, stride);
    let images = images.unwrap_or_else(|why| panic!("{replacement}, {growth}: {why}"));
    println!("{replacement}, {growth}: {marks:?}; {} crash images, half of them in recoveries", 2 * images);
    assert!(images > 0);
}

fn stride() -> u64 {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    number("FORESHORE_SHRINK_STRIDE").unwrap_or_else(|| TIMES * number("FORESHORE_SIM_STRIDE").unwrap_or(STRIDE))
}

#[test]
fn power_lost_at_every_operation_of_growth_and_cut() {
    lose_power(ReplacementKind::default(), GrowthKind::Ahead, stride());
}

#[test]
fn power_lost_while_the_file_grows_page_by_page() {
    lose_power(ReplacementKind::default(), GrowthKind::Inline, OTHERS * stride());
}

#[test]
fn power_lost_under_every_replacement_policy() {
    for kind in ReplacementKind::ALL {
        if kind != ReplacementKind::default() {
            lose_power(kind, GrowthKind::Ahead, OTHERS * stride());
        }
    }
}
