//! Ids as newtypes, so that a page number is never taken for a stamp.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The smallest value. Means "none" where a kind of id has a none.
            pub const ZERO: Self = Self(0);
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Log sequence number: an ordered stamp of a log record, not a byte address. Sparse. Zero: before every record.
    Lsn(u64)
}
id! {
    /// Commit sequence number: the LSN of the commit record, or greater. Shares the number space of [`Lsn`].
    Csn(u64)
}
id! {
    /// Number of a page in the data file, counted in pages of [`crate::limits::PAGE_SIZE`]. Below
    /// [`crate::limits::MAX_PAGES`]. Zero holds superblocks, so it also means "no page".
    PageId(u64)
}
id! {
    /// Transaction id, drawn at the first write. Below 2^48. Zero: no transaction.
    Xid(u64)
}
id! {
    /// Table id, never used twice.
    TableId(u32)
}
id! {
    /// Number of a log group; consecutive in the chain.
    GroupNo(u64)
}
id! {
    /// One run of the log between two starts. Raised and synced before the first group of a run.
    Incarnation(u32)
}

impl Csn {
    /// The number as a log stamp, to compare with durable LSNs.
    #[must_use]
    pub const fn lsn(self) -> Lsn {
        Lsn(self.0)
    }
}

impl Lsn {
    /// The number as a commit stamp.
    #[must_use]
    pub const fn csn(self) -> Csn {
        Csn(self.0)
    }
}

impl GroupNo {
    /// The number of the following group.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl PageId {
    /// Byte offset of the page in the data file.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 * crate::limits::PAGE_SIZE as u64
    }
}

/// A universally unique identifier: the identity of a database, in every file header, and a type of keys and values.
///
/// It converts from and to the 16 bytes and the `u128` that other crates have too, and it is ordered by its bytes.
/// `Uuid::from(id.into_bytes())` takes one of the crate `uuid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl From<[u8; 16]> for Uuid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl From<Uuid> for [u8; 16] {
    fn from(uuid: Uuid) -> Self {
        uuid.0
    }
}

impl From<u128> for Uuid {
    /// The highest byte of the number comes first.
    fn from(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

impl From<Uuid> for u128 {
    fn from(uuid: Uuid) -> Self {
        Self::from_be_bytes(uuid.0)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}
