//! Repeats, in rounds: each round measures every point once, in another order. A disturbance of the machine meets
//! neighbouring points alike, and a median over rounds drops it.

use super::experiment::Lab;
use foreshore::Result;

/// Measures each of `points` in each of `rounds` and returns the measurements point by point, in the order of rounds.
pub(super) fn rounds<P, M>(
    lab: &Lab<'_>,
    rounds: usize,
    points: &[P],
    measure: impl FnMut(&P) -> Result<M>,
) -> Result<Vec<Vec<M>>> {
    exactly(lab, lab.settings.repeat.unwrap_or(rounds), points, measure)
}

/// Measures each of `points` once, whatever the settings say.
pub(super) fn once<P, M>(lab: &Lab<'_>, points: &[P], measure: impl FnMut(&P) -> Result<M>) -> Result<Vec<M>> {
    Ok(exactly(lab, 1, points, measure)?.into_iter().flatten().collect())
}

fn exactly<P, M>(
    lab: &Lab<'_>,
    rounds: usize,
    points: &[P],
    mut measure: impl FnMut(&P) -> Result<M>,
) -> Result<Vec<Vec<M>>> {
    let mut measured: Vec<Vec<M>> = points.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        lab.progress.phase(&format!("round {} of {rounds}", round + 1), points.len() as u64);
        for step in 0..points.len() {
            let at = place(step, round, points.len(), rounds);
            measured[at].push(measure(&points[at])?);
            lab.progress.at(step as u64 + 1);
        }
    }
    Ok(measured)
}

/// Returns the point at `step` of a round. Each round begins elsewhere, and every other one runs backwards. Of two
/// points each comes first as often as the other: AB, BA, BA, AB.
fn place(step: usize, round: usize, points: usize, rounds: usize) -> usize {
    if points == 2 {
        return (step + round.div_ceil(2)) % 2;
    }
    let along = (step + round * (points / rounds + 1)) % points;
    if round.is_multiple_of(2) { along } else { points - 1 - along }
}

/// The measurement whose `key` is the median, the lower of the middle two, and all keys in the order of rounds.
pub(super) fn median<M: Clone>(measured: &[M], key: impl Fn(&M) -> f64) -> (M, Vec<f64>) {
    let keys: Vec<f64> = measured.iter().map(&key).collect();
    let mut order: Vec<usize> = (0..measured.len()).collect();
    order.sort_by(|&a, &b| keys[a].total_cmp(&keys[b]));
    (measured[order[(order.len() - 1) / 2]].clone(), keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_visits_every_point_once_and_begins_elsewhere() {
        for (points, rounds) in [(10, 3), (1, 5), (2, 5), (7, 7), (4, 9)] {
            for round in 0..rounds {
                let mut seen: Vec<usize> = (0..points).map(|step| place(step, round, points, rounds)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..points).collect::<Vec<_>>());
            }
        }
        assert_ne!(place(0, 0, 10, 3), place(0, 2, 10, 3));
        let first = |points, rounds| (0..rounds).map(|round| place(0, round, points, rounds)).collect::<Vec<_>>();
        assert_eq!(first(2, 8), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(first(2, 2), [0, 1]);
        assert_eq!(first(5, 3), [0, 2, 4]);
    }

    #[test]
    fn the_median_comes_with_all_others() {
        assert_eq!(median(&[9, 1, 5], |m| f64::from(*m)), (5, vec![9.0, 1.0, 5.0]));
        assert_eq!(median(&[2, 1], |m| f64::from(*m)).0, 1);
    }
}
