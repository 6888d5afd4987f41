//! Choices that options name.

use foreshore_base::InvalidOption;
use std::fmt;
use std::str::FromStr;

/// Declares an enum whose values have names.
macro_rules! named {
    ($(#[$doc:meta])* $kind:ident, $option:literal { $($(#[$vdoc:meta])* $variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $kind { $($(#[$vdoc])* $variant),+ }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name),+ })
            }
        }

        impl FromStr for $kind {
            type Err = InvalidOption;

            fn from_str(name: &str) -> Result<Self, InvalidOption> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(InvalidOption {
                        name: $option,
                        value: name.to_owned(),
                        expected: [$($name),+].join(" or "),
                    }),
                }
            }
        }
    };
}
pub(super) use named;

named! {
    /// How appends wait for each other. Those of `faa`, `laser` and `lanes` never do.
    WaitKind, "wait" {
        /// Without an end, yielding the processor: the published buffers' way, for curves on machines with a processor
        /// for each thread.
        Spin = "spin",
        /// Asleep, after a few pauses.
        #[default]
        Park = "park",
    }
}
