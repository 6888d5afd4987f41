//! Policies of power loss: which legal subset of the effects without a sync survives.

use super::{
    media::{Effect, Ino, Media, sectors},
    rng::Rng,
};
use crate::content::Content;
use crate::names::Names;
use foreshore_base::limits::SECTOR;
use std::collections::{BTreeMap, BTreeSet};

/// The policy that decides which unsynced effects survive.
///
/// An effect is made of units. A write has one unit for each 512-byte sector that it touches. Every other effect is one
/// unit, a write by [`File::write_whole`](crate::File::write_whole) too. A surviving sector past the end of the file
/// grows the file to its own end. Synced effects survive under every policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Persist {
    /// Nothing unsynced survives.
    None,
    /// Everything survives, the operation in flight included.
    All,
    /// A random number of first units survives, and the sector at the cut up to a random byte.
    Prefix,
    /// A random number of last units survives: a device that writes back in reverse.
    Suffix,
    /// All units but one, chosen by the image seed modulo their number.
    DropOne,
    /// One unit alone, chosen by the image seed modulo their number.
    KeepOne,
    /// Each unit with probability one half.
    RandomHalf,
    /// Each unit with this probability.
    Random(f64),
    /// Each effect with this probability, as a whole: writes overtake each other and none is torn.
    Whole(f64),
    /// Names and lengths survive, bytes do not: files have grown and read as zeros there.
    MetadataFirst,
    /// Names and bytes survive, lengths do not: bytes past the old end are lost.
    DataFirst,
    /// Each sector is old, new, zeros, garbage, or new up to or from a random byte. A name or length survives with
    /// probability one half.
    Torn,
}

impl Persist {
    /// One of each policy without a parameter, for loops over crash points.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::All,
        Self::Prefix,
        Self::Suffix,
        Self::DropOne,
        Self::KeepOne,
        Self::RandomHalf,
        Self::MetadataFirst,
        Self::DataFirst,
        Self::Torn,
    ];
}

/// The fate of one unit. Offsets are in bytes from the start of the sector's part of the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Old,
    New,
    Zero,
    Garbage,
    Head(usize),
    Tail(usize),
}

/// Returns the number of units of an effect.
fn units(effect: &Effect) -> u64 {
    match effect {
        Effect::Write { offset, bytes, whole: false, .. } => sectors(*offset, bytes.get().len()).count() as u64,
        _ => 1,
    }
}

/// Decides fates, unit by unit in the order of issue.
struct Dice {
    policy: Persist,
    rng: Rng,
    /// Number of the next unit.
    unit: u64,
    /// The unit that Prefix, Suffix, DropOne and KeepOne choose.
    chosen: u64,
}

impl Dice {
    fn new(policy: Persist, seed: u64, mut rng: Rng, total: u64) -> Self {
        let chosen = match policy {
            Persist::DropOne | Persist::KeepOne => seed % total.max(1),
            _ => rng.below(total + 1),
        };
        Self { policy, rng, unit: 0, chosen }
    }

    /// Draws the fate of a sector of which `len` bytes are written.
    fn sector(&mut self, len: usize) -> Fate {
        match self.policy {
            Persist::DataFirst => Fate::New,
            Persist::Prefix if self.unit == self.chosen => {
                self.unit += 1;
                Fate::Head(self.cut(len))
            }
            Persist::Torn => {
                self.unit += 1;
                match self.rng.below(6) {
                    0 => Fate::Old,
                    1 => Fate::New,
                    2 => Fate::Zero,
                    3 => Fate::Garbage,
                    4 => Fate::Head(self.cut(len)),
                    _ => Fate::Tail(self.cut(len)),
                }
            }
            _ => {
                if self.whole() {
                    Fate::New
                } else {
                    Fate::Old
                }
            }
        }
    }

    /// Draws whether a unit that survives whole or not at all survives. Callers decide for `MetadataFirst` and
    /// `DataFirst`.
    fn whole(&mut self) -> bool {
        let unit = self.unit;
        self.unit += 1;
        match self.policy {
            Persist::None => false,
            Persist::All | Persist::MetadataFirst | Persist::DataFirst => true,
            Persist::Prefix => unit < self.chosen,
            Persist::Suffix => unit >= self.chosen,
            Persist::DropOne => unit != self.chosen,
            Persist::KeepOne => unit == self.chosen,
            Persist::RandomHalf | Persist::Torn => self.rng.chance(0.5),
            Persist::Random(p) | Persist::Whole(p) => self.rng.chance(p),
        }
    }

    fn cut(&mut self, len: usize) -> usize {
        self.rng.below(len as u64 + 1) as usize
    }

    /// Applies the surviving part of a write.
    fn write(&mut self, content: &mut Content, effect: &Effect) {
        let Effect::Write { offset, bytes, grow, whole, .. } = effect else { return };
        if self.policy == Persist::MetadataFirst {
            effect.resize(content);
        }
        let whole = match self.policy {
            Persist::MetadataFirst => Some(Fate::Old),
            policy if *whole || matches!(policy, Persist::Whole(_)) => {
                Some(if self.whole() { Fate::New } else { Fate::Old })
            }
            _ => None,
        };
        for range in sectors(*offset, bytes.get().len()) {
            let at = offset + range.start as u64;
            let part = &bytes.get()[range];
            let fate = whole.unwrap_or_else(|| self.sector(part.len()));
            if *grow && fate != Fate::Old && self.policy != Persist::DataFirst {
                content.grow(at + part.len() as u64);
            }
            match fate {
                Fate::Old => {}
                Fate::New => content.write(at, part),
                Fate::Head(n) => content.write(at, &part[..n]),
                Fate::Tail(n) => content.write(at + n as u64, &part[n..]),
                // The device writes whole sectors, so the bytes beside the written ones are zeros too.
                Fate::Zero => content.write(at - at % SECTOR as u64, &[0; SECTOR]),
                Fate::Garbage => {
                    let noise: [u8; SECTOR] = std::array::from_fn(|_| self.rng.next() as u8);
                    content.write(at - at % SECTOR as u64, &noise);
                }
            }
        }
    }
}

/// Returns names and contents after a power loss while `in_flight` is in flight.
pub(super) fn image(
    media: &Media,
    in_flight: Option<&Effect>,
    policy: Persist,
    seed: u64,
    rng: Rng,
) -> (Names<Ino>, BTreeMap<Ino, Content>) {
    let effects = || media.open_effects().chain(in_flight);
    let mut dice = Dice::new(policy, seed, rng, effects().map(units).sum());
    let (mut names, mut files) = (media.names.clone(), media.files.clone());
    for effect in effects() {
        match effect {
            Effect::Write { ino, .. } => dice.write(files.entry(*ino).or_default(), effect),
            Effect::SetLen { ino, .. } | Effect::Allocate { ino, .. } => {
                if dice.whole() && policy != Persist::DataFirst {
                    effect.resize(files.entry(*ino).or_default());
                }
            }
            _ => {
                if dice.whole() {
                    effect.rename_in(&mut names);
                }
            }
        }
    }
    names.drop_orphans();
    let reachable: BTreeSet<Ino> = names.files().collect();
    files.retain(|ino, _| reachable.contains(ino));
    for ino in reachable {
        files.entry(ino).or_default();
    }
    (names, files)
}
