//! The parts of a run, each of which can be left out: the way to the smallest run that fails.
//!
//! A part is known by its place, such as `1.0.5.3`: life 1, session 0, action 5, operation 3. What a part does follows
//! from the seed and its place alone, so the other parts stay what they were when it is left out.

use crate::Random;
use crate::random::mixed;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// Where a part is in its run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(Vec<u32>);

impl Place {
    /// Number `number` of this part's own parts.
    #[must_use]
    pub fn part(&self, number: u32) -> Self {
        Self(self.0.iter().copied().chain([number]).collect())
    }

    /// The parts that it is in, from the outermost on, and itself.
    pub fn path(&self) -> impl Iterator<Item = Self> + '_ {
        (1..=self.0.len()).map(|depth| Self(self.0[..depth].to_vec()))
    }

    /// How deep it is: 1 for a life, 4 for an operation of a transaction.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// Whether it is `other`, or inside it.
    #[must_use]
    pub fn is_in(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split('.').map(|number| number.parse().map_err(|_| format!("{text}: not a place")));
        numbers.collect::<Result<_, _>>().map(Self)
    }
}

/// Which parts a run has.
#[derive(Debug)]
pub struct Parts {
    seed: u64,
    /// The parts that run, each with all that it is in; `None`: all parts.
    only: Option<BTreeSet<Place>>,
    /// The parts that have run.
    run: Mutex<BTreeSet<Place>>,
}

impl Parts {
    /// All parts of `seed`, or some.
    #[must_use]
    pub fn new(seed: u64, only: Option<BTreeSet<Place>>) -> Self {
        Self { seed, only, run: Mutex::default() }
    }

    /// Whether the part runs, which is noted.
    pub fn has(&self, place: &Place) -> bool {
        let is_kept = |only: &BTreeSet<Place>| only.range(place..).next().is_some_and(|next| next.is_in(place));
        let runs = self.only.as_ref().is_none_or(is_kept);
        if runs {
            self.run.lock().unwrap_or_else(PoisonError::into_inner).insert(place.clone());
        }
        runs
    }

    /// The choices of a part.
    #[must_use]
    pub fn random(&self, place: &Place) -> Random {
        Random::new(place.0.iter().fold(mixed(self.seed ^ 0x5EED), |seed, number| mixed(seed ^ u64::from(number + 1))))
    }

    /// The parts that have run.
    #[must_use]
    pub fn run(&self) -> BTreeSet<Place> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads the places of a list such as `0.1.5,2`.
///
/// # Errors
/// If one is none.
pub fn places(list: &str) -> Result<BTreeSet<Place>, String> {
    list.split(',').filter(|place| !place.is_empty()).map(str::parse).collect()
}

/// The list of some places, without those that others are in.
#[must_use]
pub fn list(places: &BTreeSet<Place>) -> String {
    let innermost = places.iter().filter(|place| !has_parts(places, place));
    innermost.map(Place::to_string).collect::<Vec<_>>().join(",")
}

/// Whether other places of the set are in this one.
#[must_use]
pub fn has_parts(places: &BTreeSet<Place>, place: &Place) -> bool {
    places.range(place..).nth(1).is_some_and(|next| next.is_in(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_runs_with_all_that_it_is_in() {
        let parts = Parts::new(1, Some(places("0.1.5.3,2").expect("places")));
        let runs = |place: &str| parts.has(&place.parse().expect("a place"));
        assert!(runs("0") && runs("0.1") && runs("0.1.5") && runs("0.1.5.3") && runs("2"));
        assert!(!runs("0.1.5.2") && !runs("0.1.55") && !runs("1") && !runs("2.0"));
        assert_eq!(list(&parts.run()), "0.1.5.3,2");
    }

    #[test]
    fn the_choices_of_a_part_are_its_own() {
        let parts = Parts::new(7, None);
        let draw = |place: &str| parts.random(&place.parse().expect("a place")).below(u64::MAX);
        let drawn: BTreeSet<u64> = ["0", "0.0", "0.1", "1", "1.0", "0.0.0"].into_iter().map(draw).collect();
        assert_eq!(drawn.len(), 6);
        assert_eq!(draw("0.1"), draw("0.1"));
    }
}
