//! File systems that are made for a round: in memory, or in a file behind a loop device.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

const MIB: u64 = 1 << 20;

/// A new, empty folder for what a verb works on.
pub(super) fn scratch(name: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/real");
    let folder = folder.join(format!("{name}-{}", std::process::id()));
    let made = fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
    made.map_err(|error| format!("{}: {error}", folder.display()))
}

/// A mounted file system. Dropped, it is unmounted, and its image is gone.
#[derive(Debug)]
pub(super) struct Mounted {
    kind: String,
    pub(super) dir: PathBuf,
    image: PathBuf,
    bytes: u64,
}

impl Mounted {
    /// Makes and mounts one of this kind, of at least `bytes`, in the folder `base`.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn new(base: &Path, kind: &str, bytes: u64) -> Result<Self, String> {
        if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
            return Err("only root mounts".to_owned());
        }
        let least = match kind {
            "xfs" => 320 * MIB,
            "btrfs" => 160 * MIB,
            _ => 0,
        };
        let (dir, image) = (base.join(kind), base.join(format!("{kind}.img")));
        let mounted = Self { kind: kind.to_owned(), dir, image, bytes: bytes.max(least) };
        fs::create_dir_all(&mounted.dir).map_err(|error| error.to_string())?;
        if kind != "tmpfs" {
            let made = File::create(&mounted.image).and_then(|file| file.set_len(mounted.bytes));
            made.map_err(|error| format!("{}: {error}", mounted.image.display()))?;
            let force = if kind == "ext4" { "-F" } else { "-f" };
            command(&format!("mkfs.{kind}"), &["-q", force, text(&mounted.image)])?;
        }
        mounted.mount()?;
        Ok(mounted)
    }

    /// Allocates all blocks of the image and makes them durable. A sync inside the image then needs no allocation of
    /// the file system below, as on a disk. Otherwise that one, shut down meanwhile, may report a sync of blocks that
    /// its journal then loses.
    pub(super) fn fill_image(&self) -> Result<(), String> {
        let fill = || {
            let file = File::options().read(true).write(true).open(&self.image)?;
            let mut block = vec![0; MIB as usize];
            for at in (0..self.bytes).step_by(block.len()) {
                let len = block.len().min((self.bytes - at) as usize);
                file.read_exact_at(&mut block[..len], at)?;
                file.write_all_at(&block[..len], at)?;
            }
            file.sync_all()
        };
        fill().map_err(|error: std::io::Error| format!("{}: {error}", self.image.display()))
    }

    pub(super) fn mount(&self) -> Result<(), String> {
        let (dir, size) = (text(&self.dir), format!("size={}", self.bytes));
        let done = match self.kind.as_str() {
            "tmpfs" => command("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", dir]),
            // A discard would make a hole in the image.
            kind => command("mount", &["-t", kind, "-o", "loop,nodiscard", text(&self.image), dir]),
        };
        done.map(drop)
    }

    pub(super) fn unmount(&self) -> Result<(), String> {
        command("umount", &[text(&self.dir)]).map(drop)
    }

    /// Shuts the file system down at once: what was not synced is lost, the journal included.
    pub(super) fn shut_down(&self) -> Result<(), String> {
        command("xfs_io", &["-x", "-c", "shutdown", text(&self.dir)]).and_then(|said| match said.trim() {
            "" => Ok(()),
            why => Err(why.to_owned()),
        })
    }

    /// Takes all space, in a file that is returned.
    pub(super) fn fill(&self) -> Result<PathBuf, String> {
        let path = self.dir.join("filler");
        let mut file =
            OpenOptions::new().create(true).append(true).open(&path).map_err(|error| format!("filler: {error}"))?;
        for bytes in [MIB as usize, 4096, MIB as usize, 4096] {
            while file.write_all(&vec![7; bytes]).is_ok() {}
            // Space that was put aside may come back.
            let _ = file.sync_data();
        }
        Ok(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a database that a failed round has left open keeps the mount busy.
        let _ = command("umount", &["-l", text(&self.dir)]);
        let _ = fs::remove_dir(&self.dir);
        let _ = fs::remove_file(&self.image);
    }
}

/// The text of a path of this repository.
pub(super) fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// Runs a program and returns its output.
///
/// # Errors
/// Why it has failed.
pub(super) fn command(name: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(name).args(arguments).output().map_err(|error| format!("{name}: {error}"))?;
    let [out, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() { Ok(out) } else { Err(format!("{name} {}: {}", arguments.join(" "), said.trim())) }
}
