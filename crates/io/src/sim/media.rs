//! The media: the durable image, and the effects that no sync has made durable.

use super::{fault::OpNo, rng::Rng};
use crate::content::{Content, pieces};
use crate::names::{Names, Node, parent};
use foreshore_base::limits::SECTOR;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Identity of a file, whatever its names.
pub(super) type Ino = u64;

/// Part of a written buffer. The buffer is stored once, however often it is cut.
#[derive(Clone, Debug)]
pub(super) struct Bytes {
    all: Arc<[u8]>,
    start: usize,
    end: usize,
}

impl Bytes {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { all: bytes.into(), start: 0, end: bytes.len() }
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.all[self.start..self.end]
    }

    fn part(&self, start: usize, end: usize) -> Self {
        Self { all: Arc::clone(&self.all), start: self.start + start, end: self.start + end }
    }
}

/// A change of files or names.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// Bytes; `grow` if they may lengthen the file, `whole` if all of them survive or none.
    Write {
        ino: Ino,
        offset: u64,
        bytes: Bytes,
        grow: bool,
        whole: bool,
    },
    SetLen {
        ino: Ino,
        len: u64,
    },
    Allocate {
        ino: Ino,
        offset: u64,
        len: u64,
    },
    CreateDir {
        path: PathBuf,
    },
    Create {
        path: PathBuf,
        ino: Ino,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        ino: Ino,
    },
    Remove {
        path: PathBuf,
        ino: Ino,
    },
}

impl Effect {
    /// Returns bytes `[start, end)` of a write, as far as it has them.
    pub(super) fn part(&self, start: usize, end: usize) -> Option<Self> {
        let Self::Write { ino, offset, bytes, grow, whole } = self else { return None };
        let end = end.min(bytes.get().len());
        let part = |start| Self::Write {
            offset: offset + start as u64,
            bytes: bytes.part(start, end),
            ino: *ino,
            grow: *grow,
            whole: *whole,
        };
        (start < end).then(|| part(start))
    }

    /// Returns the names that it adds or removes.
    fn names(&self) -> impl Iterator<Item = &Path> {
        let (one, other) = match self {
            Self::CreateDir { path } | Self::Create { path, .. } | Self::Remove { path, .. } => (Some(path), None),
            Self::Rename { from, to, .. } => (Some(from), Some(to)),
            Self::Write { .. } | Self::SetLen { .. } | Self::Allocate { .. } => (None, None),
        };
        one.into_iter().chain(other).map(PathBuf::as_path)
    }

    /// Returns the file whose sync makes this durable.
    pub(super) fn file(&self) -> Option<Ino> {
        match self {
            Self::Write { ino, .. } | Self::SetLen { ino, .. } | Self::Allocate { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// Returns the directory whose sync makes this durable. A rename is one effect, of the directory of the new name.
    fn dir(&self) -> Option<PathBuf> {
        match self {
            Self::CreateDir { path } | Self::Create { path, .. } | Self::Remove { path, .. } => Some(parent(path)),
            Self::Rename { to, .. } => Some(parent(to)),
            _ => None,
        }
    }

    /// Applies a change of names, as far as possible if earlier changes are missing.
    pub(super) fn rename_in(&self, names: &mut Names<Ino>) {
        match self {
            Self::CreateDir { path } => names.put(path, Node::Dir),
            Self::Create { path, ino } => names.put(path, Node::File(*ino)),
            Self::Rename { from, to, ino } => {
                names.take_file(from, ino);
                names.put(to, Node::File(*ino));
            }
            Self::Remove { path, ino } => names.take_file(path, ino),
            Self::Write { .. } | Self::SetLen { .. } | Self::Allocate { .. } => {}
        }
    }

    /// Applies a change of length, the growth by a write included, but no bytes.
    pub(super) fn resize(&self, content: &mut Content) {
        match self {
            Self::Write { offset, bytes, grow: true, .. } => content.grow(offset + bytes.get().len() as u64),
            Self::SetLen { len, .. } => content.set_len(*len),
            Self::Allocate { offset, len, .. } => content.allocate(*offset, *len),
            _ => {}
        }
    }

    /// Applies the change to the file's content.
    pub(super) fn apply(&self, content: &mut Content) {
        self.resize(content);
        if let Self::Write { offset, bytes, .. } = self {
            content.write(*offset, bytes.get());
        }
    }
}

/// One operation, as it ended.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A held write was issued; its number stands for it until it lands.
    Issue(OpNo, Effect),
    /// Part of a write in flight is on the medium.
    Reach(Effect),
    /// A held write landed with this operation.
    Land(OpNo, Box<Op>),
    /// A change that some later sync makes durable.
    Effect(Effect),
    /// A write that was durable when it returned.
    Durable(Effect),
    /// A write that failed: it may be on the medium, and no sync promises it.
    FailedWrite(Effect),
    Sync(Ino),
    FailedSync(Ino),
    /// A read past the cache has resolved the stranded bytes: these are on the medium, the others are lost.
    ResolveStranded(Ino, Vec<Effect>),
    SyncDir(PathBuf),
    FailedSyncDir(PathBuf),
    /// Nothing happened.
    Nothing,
}

impl Op {
    /// Returns the effect that may reach the medium while the operation is in flight.
    pub(super) fn effect(&self) -> Option<&Effect> {
        match self {
            Self::Issue(_, effect) | Self::Effect(effect) | Self::Durable(effect) | Self::FailedWrite(effect) => {
                Some(effect)
            }
            _ => None,
        }
    }
}

/// An effect that is not durable.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) effect: Effect,
    /// Its sync failed: it may survive, but no later sync makes it durable.
    stranded: bool,
}

/// Durable names and contents, and pending effects in the order of their issue.
#[derive(Clone, Debug)]
pub(super) struct Media {
    pub(super) names: Names<Ino>,
    pub(super) files: BTreeMap<Ino, Content>,
    pub(super) pending: Vec<Pending>,
    /// Held writes that have not landed, in the order of their issue.
    flying: Vec<(OpNo, Effect)>,
}

impl Media {
    pub(super) const fn new(names: Names<Ino>, files: BTreeMap<Ino, Content>) -> Self {
        Self { names, files, pending: Vec::new(), flying: Vec::new() }
    }

    /// Returns the effects of which a power loss leaves any part: those without a sync, and those in flight.
    pub(super) fn open_effects(&self) -> impl Iterator<Item = &Effect> {
        let flying = self.flying.iter().map(|(_, effect)| effect);
        self.pending.iter().map(|pending| &pending.effect).chain(flying)
    }

    /// Adds an effect that a sync may make durable later.
    pub(super) fn push(&mut self, effect: Effect) {
        self.pending.push(Pending { effect, stranded: false });
    }

    /// Takes note of a completed operation.
    pub(super) fn complete(&mut self, op: Op) {
        match op {
            Op::Issue(no, effect) => self.flying.push((no, effect)),
            Op::Land(no, ended) => {
                self.flying.retain(|(flying, _)| *flying != no);
                self.complete(*ended);
            }
            Op::Effect(effect) => self.push(effect),
            Op::Durable(effect) | Op::Reach(effect) => {
                if let Some(ino) = effect.file() {
                    self.commit_length(ino);
                    commit(&mut self.files, &mut self.pending, ino, &effect);
                }
            }
            Op::FailedWrite(effect) => self.pending.push(Pending { effect, stranded: true }),
            Op::Sync(ino) => self.commit_file(ino),
            Op::SyncDir(dir) => self.commit_dir(&dir),
            Op::FailedSync(ino) => self.strand(|effect| matches!(effect, Effect::Write { ino: of, .. } if *of == ino)),
            Op::ResolveStranded(ino, landed) => {
                self.pending.retain(|pending| !pending.stranded || pending.effect.file() != Some(ino));
                for effect in landed {
                    commit(&mut self.files, &mut self.pending, ino, &effect);
                }
            }
            Op::FailedSyncDir(dir) => self.strand(|effect| effect.dir().as_ref() == Some(&dir)),
            Op::Nothing => {}
        }
    }

    fn strand(&mut self, which: impl Fn(&Effect) -> bool) {
        for pending in &mut self.pending {
            pending.stranded |= which(&pending.effect);
        }
    }

    /// Decides which bytes of a failed sync of a file are on the medium: all, none, or each sector by the toss of a
    /// coin. `None` if there are no such bytes.
    pub(super) fn resolve_stranded(&self, ino: Ino, rng: &mut Rng) -> Option<Vec<Effect>> {
        let is_left = |pending: &&Pending| pending.stranded && pending.effect.file() == Some(ino);
        self.pending.iter().find(is_left)?;
        let share = [0.0, 1.0, 0.5, 0.5][rng.below(4) as usize];
        let mut landed = Vec::new();
        for pending in self.pending.iter().filter(is_left) {
            let Effect::Write { offset, bytes, whole, .. } = &pending.effect else { continue };
            if *whole {
                landed.extend(rng.chance(share).then(|| pending.effect.clone()));
                continue;
            }
            let parts = sectors(*offset, bytes.get().len()).filter(|_| rng.chance(share));
            landed.extend(parts.filter_map(|part| pending.effect.part(part.start, part.end)));
        }
        Some(landed)
    }

    /// Returns a file with every effect that a sync could make durable.
    pub(super) fn written(&self, ino: Ino) -> Content {
        let mut content = self.files.get(&ino).cloned().unwrap_or_default();
        for pending in self.pending.iter().filter(|pending| !pending.stranded && pending.effect.file() == Some(ino)) {
            pending.effect.apply(&mut content);
        }
        content
    }

    /// Makes every effect on a file durable.
    fn commit_file(&mut self, ino: Ino) {
        let mut kept = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            if pending.effect.file() == Some(ino) && !pending.stranded {
                commit(&mut self.files, &mut kept, ino, &pending.effect);
            } else {
                kept.push(pending);
            }
        }
        self.pending = kept;
    }

    /// Makes a file's length durable, as a durable write needs it, without the bytes of earlier writes.
    fn commit_length(&mut self, ino: Ino) {
        let mut kept = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            if pending.effect.file() == Some(ino) && !pending.stranded {
                if let Effect::Write { grow, .. } = &pending.effect {
                    if *grow {
                        pending.effect.resize(self.files.entry(ino).or_default());
                    }
                } else {
                    commit(&mut self.files, &mut kept, ino, &pending.effect);
                    continue;
                }
            }
            kept.push(pending);
        }
        self.pending = kept;
    }

    /// Makes every change of names in a directory durable, and forgets files that no crash can bring back.
    fn commit_dir(&mut self, dir: &Path) {
        let mut kept: Vec<Pending> = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            if pending.effect.dir().is_some_and(|of| of == dir) && !pending.stranded {
                pending.effect.rename_in(&mut self.names);
                // An earlier effect on the same names can no longer undo this one.
                kept.retain(|earlier| {
                    !earlier.effect.names().any(|name| pending.effect.names().any(|own| own == name))
                });
            } else {
                kept.push(pending);
            }
        }
        self.pending = kept;
        let mut reachable: BTreeSet<Ino> = self.names.files().collect();
        reachable.extend(self.pending.iter().filter_map(|pending| match pending.effect {
            Effect::Create { ino, .. } | Effect::Rename { ino, .. } => Some(ino),
            _ => None,
        }));
        self.files.retain(|ino, _| reachable.contains(ino));
        self.pending.retain(|pending| pending.effect.file().is_none_or(|ino| reachable.contains(&ino)));
    }
}

/// Makes one effect on a file durable. An `earlier` effect can no longer overwrite its bytes.
fn commit(files: &mut BTreeMap<Ino, Content>, earlier: &mut Vec<Pending>, ino: Ino, effect: &Effect) {
    effect.apply(files.entry(ino).or_default());
    match effect {
        Effect::Write { offset, bytes, .. } => remove_range(earlier, ino, *offset, offset + bytes.get().len() as u64),
        Effect::SetLen { len, .. } => remove_range(earlier, ino, *len, u64::MAX),
        _ => {}
    }
}

/// Removes `[from, to)` from the pending writes of a file.
fn remove_range(pending: &mut Vec<Pending>, ino: Ino, from: u64, to: u64) {
    let touched = |p: &Pending| match &p.effect {
        Effect::Write { ino: of, offset, bytes, .. } => {
            *of == ino && *offset < to && offset + bytes.get().len() as u64 > from
        }
        _ => false,
    };
    if !pending.iter().any(touched) {
        return;
    }
    for whole in std::mem::take(pending) {
        let Effect::Write { offset, bytes, grow, whole: is_whole, .. } = &whole.effect else {
            pending.push(whole);
            continue;
        };
        if !touched(&whole) {
            pending.push(whole);
            continue;
        }
        let end = offset + bytes.get().len() as u64;
        for (start, stop) in [(*offset, from.min(end)), (to.max(*offset), end)] {
            if start < stop {
                let bytes = bytes.part((start - offset) as usize, (stop - offset) as usize);
                let effect = Effect::Write { ino, offset: start, bytes, grow: *grow, whole: *is_whole };
                pending.push(Pending { effect, stranded: whole.stranded });
            }
        }
    }
}

/// Returns the part of `[offset, offset + len)` in each sector that it touches, as offsets from its start.
pub(super) fn sectors(offset: u64, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    pieces(offset, len, SECTOR).map(|(_, range, from)| from..from + range.len())
}
