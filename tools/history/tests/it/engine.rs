//! Histories of the engine are what their level of isolation allows, over rollbacks, losses of power and recoveries.
//!
//! `FORESHORE_ENGINE_HISTORIES` sets how many, `FORESHORE_HISTORY_SEED` the first seed.

use foreshore_history::{Base, Config, History, Kind, Level, Outcome, Planted, check, drive};

const HISTORIES: u64 = 60;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Histories of all kinds, by seed.
pub(crate) fn config(isolation: Base, seed: u64) -> Config {
    Config {
        kind: if (seed / 2).is_multiple_of(2) { Kind::Append } else { Kind::Register },
        isolation,
        sessions: 2 + seed % 5,
        txns: 40 + seed % 7 * 10,
        keys: 2 + seed % 6,
        losses: seed % 4,
        seed,
        planted: None,
    }
}

#[test]
fn serializable_histories_are_serializable_in_real_time() {
    pass(Base::Serializable);
}

#[test]
fn snapshot_histories_read_by_snapshots_in_real_time() {
    pass(Base::Snapshot);
}

#[test]
fn read_committed_histories_are_read_committed_in_real_time() {
    pass(Base::ReadCommitted);
}

/// The levels below let anomalies happen, so a level that let them happen would be found.
#[test]
fn each_level_is_told_from_the_one_above() {
    for (isolation, above) in [(Base::ReadCommitted, Base::Snapshot), (Base::Snapshot, Base::Serializable)] {
        let level = Level { base: above, real_time: false };
        let refused = (1..=40).filter(|&seed| check(&drive(&config(isolation, seed)).unwrap(), level).is_err()).count();
        println!("{refused} of 40 histories at {isolation} are not {above}");
        assert!(refused > 4, "{refused} of 40 histories at {isolation} are not {above}");
    }
}

/// The histories contain rollbacks to savepoints, scans from the back, reads of versions that are not durable at a
/// power loss, and transactions that are prepared then. A planted error in each of them is found.
#[test]
fn what_goes_wrong_on_purpose_is_found_out() {
    for (planted, least) in [(Planted::Forgets, 16), (Planted::Short, 16), (Planted::Early, 5), (Planted::Mistold, 5)] {
        let config = |seed| match config(Base::Serializable, seed) {
            // What goes wrong only at some losses of power, each of which meets another moment.
            config if matches!(planted, Planted::Early | Planted::Mistold) => {
                Config { planted: Some(planted), losses: 24, sessions: 6, keys: 2, txns: 400, ..config }
            }
            config => Config { planted: Some(planted), ..config },
        };
        let refused = (1..=20).filter(|&seed| {
            let (config, history) = (config(seed), drive(&config(seed)));
            history.is_err() || check(&history.unwrap(), config.level()).is_err()
        });
        let refused = refused.take(least).count();
        assert!(refused >= least, "{refused} of 20 histories with {planted:?} are refused");
    }
}

fn pass(isolation: Base) {
    let (first, histories) = (number("FORESHORE_HISTORY_SEED", 1), number("FORESHORE_ENGINE_HISTORIES", HISTORIES));
    let (mut committed, mut txns, mut unknown, mut overlap) = (0, 0, 0, 0);
    for seed in first..first + histories {
        let config = config(isolation, seed);
        let history = drive(&config).unwrap_or_else(|error| panic!("{config:?}: {error}"));
        check(&history, config.level()).unwrap_or_else(|violation| panic!("{config:?}: {violation}"));
        committed += history.count(Outcome::Ok);
        unknown += history.count(Outcome::Info);
        txns += history.txns.len();
        overlap += usize::from(overlaps(&history));
    }
    println!(
        "{isolation}: {txns} transactions, {committed} committed, {unknown} indeterminate, {overlap} histories overlap"
    );
    assert!(committed > txns / 3, "{committed} of {txns} transactions committed");
    assert!(overlap > histories as usize / 2, "{overlap} histories have transactions that overlap");
    assert!(unknown > histories as usize / 20, "{unknown} transactions in flight when power was lost");
}

/// Whether transactions of the history overlap.
fn overlaps(history: &History) -> bool {
    history.txns.windows(2).any(|pair| pair[0].begin < pair[1].begin && pair[1].begin < pair[0].end)
}
