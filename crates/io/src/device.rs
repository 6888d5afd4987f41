//! The choice of a backend, by name.

use crate::{Disk, Fs, Mem, mem::delay_name};
use foreshore_base::{InvalidOption, Result};
use std::{fmt, path::Path, str::FromStr, sync::Arc, time::Duration};

/// Names that [`Device::from_str`] takes.
const EXPECTED: &str = if cfg!(feature = "uring") {
    "auto, direct, uring, buffered, null or delay:<time>, such as delay:300us"
} else {
    "auto, direct, buffered, null or delay:<time>, such as delay:300us; uring needs a build with the feature uring"
};

/// The place where a database keeps its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// [`Device::Direct`], or [`Device::Buffered`] where a trial shows that the file system does not support direct
    /// I/O. A trial that fails for another reason, such as a full disk, is an error. The statistics name the chosen
    /// one.
    #[default]
    Auto,
    /// Files, past the page cache.
    Direct,
    /// [`Device::Direct`] with durable writes through io_uring. Only in a build with the feature `uring`.
    Uring,
    /// Files, through the page cache.
    Buffered,
    /// Memory, kept as long as the opened file system; syncs cost nothing.
    Null,
    /// Memory; durable writes, syncs and changes of the length of a file take this long.
    Delay(Duration),
}

impl Device {
    /// Opens the backend for a database in `dir`, which need not exist yet.
    ///
    /// # Errors
    /// `InvalidOption` if direct I/O or io_uring was requested and is not possible there. Otherwise the error of the
    /// trial.
    #[doc(hidden)]
    pub fn open(&self, dir: &Path) -> Result<Arc<dyn Fs>> {
        Ok(match self {
            Self::Auto => Arc::new(Disk::auto(dir)?),
            Self::Direct => Arc::new(Disk::direct(dir)?),
            #[cfg(feature = "uring")]
            Self::Uring => Arc::new(Disk::uring(dir)?),
            #[cfg(not(feature = "uring"))]
            Self::Uring => return Err(unknown("uring").into()),
            Self::Buffered => Arc::new(Disk::buffered(dir)?),
            Self::Null => Arc::new(Mem::null()),
            Self::Delay(delay) => Arc::new(Mem::delay(*delay)),
        })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Direct => f.write_str("direct"),
            Self::Uring => f.write_str("uring"),
            Self::Buffered => f.write_str("buffered"),
            Self::Null => f.write_str("null"),
            Self::Delay(delay) => f.write_str(&delay_name(*delay)),
        }
    }
}

impl FromStr for Device {
    type Err = InvalidOption;

    fn from_str(s: &str) -> Result<Self, InvalidOption> {
        let known = match s {
            "auto" => Some(Self::Auto),
            "direct" => Some(Self::Direct),
            "uring" if cfg!(feature = "uring") => Some(Self::Uring),
            "buffered" => Some(Self::Buffered),
            "null" => Some(Self::Null),
            _ => s.strip_prefix("delay:").and_then(time).map(Self::Delay),
        };
        known.ok_or_else(|| unknown(s))
    }
}

fn unknown(name: &str) -> InvalidOption {
    InvalidOption { name: "device", value: name.into(), expected: EXPECTED.into() }
}

/// A whole number with a unit.
fn time(s: &str) -> Option<Duration> {
    let digits = s.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = s.split_at(digits);
    let number = number.parse::<u64>().ok()?;
    let nanos = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(number.checked_mul(nanos)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["auto", "direct", "buffered", "null", "delay:0us", "delay:300us", "delay:1500ns"] {
            assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
        }
        assert_eq!(Device::Uring.to_string(), "uring");
        assert_eq!("delay:2ms".parse::<Device>().unwrap(), Device::Delay(Duration::from_millis(2)));
        assert_eq!("delay:1s".parse::<Device>().unwrap(), Device::Delay(Duration::from_secs(1)));
    }

    #[test]
    fn refuses_what_is_not_built_and_says_what_is() {
        let uring = "uring".parse::<Device>();
        assert_eq!(uring.is_ok(), cfg!(feature = "uring"));
        if let Err(error) = uring {
            assert!(error.to_string().contains("the feature uring"), "{error}");
            assert!(matches!(Device::Uring.open(Path::new("/")), Err(foreshore_base::Error::InvalidOption { .. })));
        }
        for name in ["rings", "", "delay:", "delay:300", "delay:-1us", "delay:us", "delay:18446744073709551615s"] {
            match name.parse::<Device>() {
                Err(InvalidOption { name: "device", value, expected }) => {
                    assert_eq!(value, name);
                    assert!(expected.contains("buffered"), "{expected}");
                }
                other => panic!("{name:?} gave {other:?}"),
            }
        }
    }
}
