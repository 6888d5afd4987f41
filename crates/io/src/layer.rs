//! Layers on files and on file systems.

use crate::{Backend, DirLock, File, Fs, Kind};
use foreshore_base::Result;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// Declares the trait of a layer, and implements the base trait for every layer. `fixed` methods always forward to the
/// object below. A layer may override the others; they forward too, unless they have a body here.
macro_rules! layer {
    (
        $(#[$doc:meta])*
        pub trait $layer:ident on $base:ident {
            $(#[$below_doc:meta])* below;
            $($own:item)*
        }
        fixed { $(fn $fixed:ident(&self $(, $given:ident: $given_type:ty)*) -> $fixed_answer:ty;)+ }
        overridden {
            $(fn $method:ident(&$self:ident $(, $argument:ident: $type:ty)*) $(-> $answer:ty)? $(= $body:expr)?;)+
        }
    ) => {
        $(#[$doc])*
        pub trait $layer: Send + Sync + Debug {
            $(#[$below_doc])*
            fn below(&self) -> &dyn $base;

            $($own)*

            $(
                #[doc = concat!("Overrides [`", stringify!($base), "::", stringify!($method), "`].")]
                fn $method(&$self $(, $argument: $type)*) $(-> $answer)? {
                    layer!(@body $self.$method($($argument),*) $(, $body)?)
                }
            )+
        }

        impl<L: $layer> $base for L {
            $(
                fn $fixed(&self $(, $given: $given_type)*) -> $fixed_answer {
                    self.below().$fixed($($given),*)
                }
            )+
            $(
                fn $method(&$self $(, $argument: $type)*) $(-> $answer)? {
                    $layer::$method($self $(, $argument)*)
                }
            )+
        }
    };
    (@body $self:ident.$method:ident($($argument:ident),*)) => { $self.below().$method($($argument),*) };
    (@body $self:ident.$method:ident($($argument:ident),*), $body:expr) => { $body };
}

layer! {
    /// A [`File`] that forwards each method to the file below, except those that it overrides. Tests and experiments
    /// use it to hold up, fail, observe or count operations.
    ///
    /// Each part of a [`File::write_many`] goes through [`FileLayer::write_at`], so a layer on writes overrides one
    /// method. The same holds for [`File::read_many`] and [`FileLayer::read_at`]. [`File::write_whole`] goes to the
    /// file below as one call, because no sequence of other calls keeps its promise. If the file below may offer it, a
    /// layer on writes overrides it, too.
    ///
    /// **Invariant:** no method of [`File`] or [`Fs`] has a default body, except [`File::is_empty`]. So the compiler
    /// rejects a layer that forgets a method. A test checks the invariant.
    ///
    /// ```
    /// use foreshore_io::{File, FileLayer, Fs, Mem};
    /// use std::{path::Path, sync::Arc};
    ///
    /// #[derive(Debug)]
    /// struct ReadOnly(Arc<dyn File>);
    ///
    /// impl FileLayer for ReadOnly {
    ///     fn below(&self) -> &dyn File {
    ///         &*self.0
    ///     }
    ///
    ///     fn write_at(&self, _: &[u8], _: u64) -> foreshore_base::Result<()> {
    ///         Err(foreshore_base::Error::Closed)
    ///     }
    /// }
    ///
    /// let below = Mem::null().create(Path::new("/f"))?;
    /// let file: Arc<dyn File> = Arc::new(ReadOnly(below.clone()));
    /// assert!(file.write_at(b"no", 0).is_err());
    /// below.write_at(b"yes", 0)?;
    /// assert_eq!(file.len()?, 3);
    /// # Ok::<(), foreshore_base::Error>(())
    /// ```
    pub trait FileLayer on File {
        /// Returns the file below.
        below;
    }
    fixed {
        fn path(&self) -> &Path;
        fn len(&self) -> Result<u64>;
    }
    overridden {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize>;
        fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> =
            parts.iter_mut().map(|(buf, offset)| FileLayer::read_at(self, buf, *offset)).collect();
        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
        fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()>;
        fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> =
            parts.iter().try_for_each(|&(buf, offset)| FileLayer::write_at(self, buf, offset));
        fn writes_whole(&self, len: usize) -> bool;
        fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool>;
        fn sync(&self) -> Result<()>;
        fn read_past_cache(&self) -> Result<()>;
        fn read_cached(&self);
        fn set_len(&self, len: u64) -> Result<()>;
        fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    }
}

layer! {
    /// An [`Fs`] that forwards each method to the file system below, except those that it overrides. It may also put a
    /// layer on files.
    ///
    /// ```
    /// use foreshore_io::{Fs, FsLayer, Mem};
    /// use std::path::Path;
    ///
    /// #[derive(Debug)]
    /// struct Forgetful(Mem);
    ///
    /// impl FsLayer for Forgetful {
    ///     fn below(&self) -> &dyn Fs {
    ///         &self.0
    ///     }
    ///
    ///     fn sync_dir(&self, _: &Path) -> foreshore_base::Result<()> {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let fs: &dyn Fs = &Forgetful(Mem::null());
    /// fs.create(Path::new("/f"))?.write_at(b"here", 0)?;
    /// assert_eq!(fs.open(Path::new("/f"))?.len()?, 4);
    /// assert!(fs.sync_dir(Path::new("/nowhere")).is_ok());
    /// # Ok::<(), foreshore_base::Error>(())
    /// ```
    pub trait FsLayer on Fs {
        /// Returns the file system below.
        below;

        /// Puts a layer on `file`, which was opened or created below, or returns `file` itself.
        fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
            file
        }
    }
    fixed {
        fn kind(&self, path: &Path) -> Result<Option<Kind>>;
        fn list(&self, dir: &Path) -> Result<Vec<String>>;
        fn backend(&self) -> Backend;
    }
    overridden {
        fn create_dir(&self, dir: &Path) -> Result<()>;
        fn open(&self, path: &Path) -> Result<Arc<dyn File>> = self.below().open(path).map(|file| self.wrap(file));
        fn create(&self, path: &Path) -> Result<Arc<dyn File>> = self.below().create(path).map(|file| self.wrap(file));
        fn rename(&self, from: &Path, to: &Path) -> Result<()>;
        fn remove(&self, path: &Path) -> Result<()>;
        fn sync_dir(&self, dir: &Path) -> Result<()>;
        fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>>;
        fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sim;

    #[derive(Debug)]
    struct Plain(Arc<dyn File>);

    impl FileLayer for Plain {
        fn below(&self) -> &dyn File {
            &*self.0
        }
    }

    #[test]
    fn whole_writes_reach_the_file_below_a_layer() {
        let sim = Sim::new(1);
        sim.set_whole_writes(true);
        let file: Arc<dyn File> = Arc::new(Plain(sim.create(Path::new("f")).unwrap()));
        assert!(file.writes_whole(8192));
        assert!(file.write_whole(&[(&[7; 8192], 0)]).unwrap());
        assert_eq!(file.len().unwrap(), 8192);
    }

    /// Returns the methods of a trait in `source` that have a body.
    fn defaults<'a>(source: &'a str, name: &str) -> Vec<&'a str> {
        let start = source.find(&format!("pub trait {name}:")).expect("the trait");
        let end = start + source[start..].find("\n}").expect("its end");
        let methods = source[start..end].split("    fn ").skip(1);
        let with_body = methods.filter(|method| method.find('{').is_some_and(|at| !method[..at].contains(';')));
        with_body.map(|method| &method[..method.find('(').expect("a signature")]).collect()
    }

    #[test]
    fn no_method_has_a_default_that_a_layer_would_take_instead_of_the_file_below() {
        let source = include_str!("fs.rs");
        assert_eq!(defaults(source, "File"), ["is_empty"]);
        assert!(defaults(source, "Fs").is_empty());
    }
}
