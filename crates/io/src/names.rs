//! The directory tree of the backends in memory.

use crate::{DirLock, Kind};
use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Component, Path, PathBuf},
};

/// Returns a path without `.`, `..` and root, so that `/db`, `db` and `./db` are one name.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    out
}

/// Returns the directory of a normal path. The root is its own directory.
pub(crate) fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

/// The object that a name stands for; `F` identifies a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node<F> {
    Dir,
    File(F),
}

/// Marks the lock of a directory as held by one caller alone.
const EXCLUSIVE: u32 = u32::MAX;

/// All names, by normal path. The root, the empty path, always exists.
#[derive(Clone, Debug)]
pub(crate) struct Names<F> {
    nodes: BTreeMap<PathBuf, Node<F>>,
    /// How many callers hold the lock of a directory; `EXCLUSIVE` for one that shares it with none.
    locked: BTreeMap<PathBuf, u32>,
}

impl<F: Clone + PartialEq> Names<F> {
    pub(crate) const fn new() -> Self {
        Self { nodes: BTreeMap::new(), locked: BTreeMap::new() }
    }

    pub(crate) fn kind(&self, path: &Path) -> Option<Kind> {
        if path.as_os_str().is_empty() {
            return Some(Kind::Dir);
        }
        self.nodes.get(path).map(|node| match node {
            Node::Dir => Kind::Dir,
            Node::File(_) => Kind::File,
        })
    }

    /// Returns the files that have a name, once for each name.
    pub(crate) fn files(&self) -> impl Iterator<Item = F> {
        self.entries().map(|(_, file)| file)
    }

    /// Returns every name of a file, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Path, F)> {
        self.nodes.iter().filter_map(|(path, node)| match node {
            Node::File(file) => Some((path.as_path(), file.clone())),
            Node::Dir => None,
        })
    }

    /// Forgets all locks, as a power loss does.
    pub(crate) fn unlock_all(&mut self) {
        self.locked.clear();
    }

    /// Returns the file at `path`.
    pub(crate) fn file(&self, path: &Path) -> io::Result<F> {
        match self.nodes.get(path) {
            Some(Node::File(file)) => Ok(file.clone()),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None if path.as_os_str().is_empty() => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Fails unless `path` is a directory.
    pub(crate) fn need_dir(&self, path: &Path) -> io::Result<()> {
        match self.kind(path) {
            Some(Kind::Dir) => Ok(()),
            Some(Kind::File) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Adds a directory. False if it was there.
    pub(crate) fn create_dir(&mut self, path: &Path) -> io::Result<bool> {
        match self.kind(path) {
            Some(Kind::Dir) => Ok(false),
            Some(Kind::File) => Err(io::ErrorKind::NotADirectory.into()),
            None => {
                self.need_dir(&parent(path))?;
                self.put(path, Node::Dir);
                Ok(true)
            }
        }
    }

    /// Adds a file under a name that is free.
    pub(crate) fn create(&mut self, path: &Path, file: F) -> io::Result<()> {
        if self.kind(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.need_dir(&parent(path))?;
        self.put(path, Node::File(file));
        Ok(())
    }

    /// Returns the names in a directory, sorted.
    pub(crate) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.need_dir(dir)?;
        let inside = self.nodes.keys().filter(|path| parent(path) == dir);
        let mut names: Vec<_> = inside.filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Renames a file and replaces the file at `to`, if there is one. Returns the file.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<F> {
        let file = self.file(from)?;
        self.need_dir(&parent(to))?;
        if self.kind(to) == Some(Kind::Dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.take_file(from, &file);
        self.put(to, Node::File(file.clone()));
        Ok(file)
    }

    /// Removes the name of a file. Returns the file.
    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<F> {
        let file = self.file(path)?;
        self.take_file(path, &file);
        Ok(file)
    }

    /// Sets a name, and replaces the object that it stood for.
    pub(crate) fn put(&mut self, path: &Path, node: Node<F>) {
        self.nodes.insert(path.to_owned(), node);
    }

    /// Removes `path` if it stands for `file`.
    pub(crate) fn take_file(&mut self, path: &Path, file: &F) {
        if matches!(self.nodes.get(path), Some(Node::File(found)) if found == file) {
            self.nodes.remove(path);
        }
    }

    /// Drops every name whose directory is missing.
    pub(crate) fn drop_orphans(&mut self) {
        // In the order of paths a directory comes before its entries.
        let mut kept = Self::new();
        for (path, node) in std::mem::take(&mut self.nodes) {
            if kept.kind(&parent(&path)) == Some(Kind::Dir) {
                kept.nodes.insert(path, node);
            }
        }
        self.nodes = kept.nodes;
    }

    /// Locks the directory of `path`. False if it is locked.
    pub(crate) fn lock(&mut self, path: &Path) -> bool {
        let key = parent(path);
        let is_free = !self.locked.contains_key(&key);
        if is_free {
            self.locked.insert(key, EXCLUSIVE);
        }
        is_free
    }

    /// Locks the directory of `path` beside other callers that do the same. False if one holds it alone.
    pub(crate) fn lock_shared(&mut self, path: &Path) -> bool {
        let holders = self.locked.entry(parent(path)).or_default();
        let is_shared = *holders < EXCLUSIVE - 1;
        if is_shared {
            *holders += 1;
        }
        is_shared
    }

    /// Releases the lock of one caller on the directory of `path`.
    pub(crate) fn unlock(&mut self, path: &Path) {
        let key = parent(path);
        match self.locked.get_mut(&key) {
            Some(holders) if (2..EXCLUSIVE).contains(holders) => *holders -= 1,
            held => {
                debug_assert!(held.is_some(), "unlock of a directory that is not locked");
                self.locked.remove(&key);
            }
        }
    }
}

/// The lock on the directory of a name, which ends when it is dropped.
pub(crate) struct NameLock<U: Fn(&Path)> {
    name: PathBuf,
    unlock: U,
}

impl<U: Fn(&Path)> NameLock<U> {
    /// Wraps a lock that was taken for `name`. `unlock` calls [`Names::unlock`].
    pub(crate) const fn new(name: PathBuf, unlock: U) -> Self {
        Self { name, unlock }
    }
}

impl<U: Fn(&Path) + Send + Sync> DirLock for NameLock<U> {}

impl<U: Fn(&Path)> fmt::Debug for NameLock<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameLock").field(&self.name).finish()
    }
}

impl<U: Fn(&Path)> Drop for NameLock<U> {
    fn drop(&mut self) {
        (self.unlock)(&self.name);
    }
}
