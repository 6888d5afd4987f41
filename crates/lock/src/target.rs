//! What a lock below a table is on: a key, the gap before a key, or both.

use foreshore_base::TableId;

/// The parts of a key that are locked apart from each other: a set of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part(u8);

impl Part {
    /// The row of the key, whether it exists or not: who has it shared knows what is there.
    pub const ROW: Self = Self(1);
    /// The keys between the key before it and the key: who has it shared knows that there are none.
    pub const GAP: Self = Self(2);
    /// Both, as a scan needs them.
    pub const ROW_AND_GAP: Self = Self(3);

    /// The parts as bits: 1 for the row, 2 for the gap.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The parts that [`bits`](Self::bits) gave; `None` for what it gives for none.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits >= 1 && bits <= 3 { Some(Self(bits)) } else { None }
    }

    /// Whether the two have a part in common.
    pub(crate) const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A key of a table, or the end of the table, and which part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The table.
    pub table: TableId,
    /// The key; `None` for the end of the table, which has a gap before it and no row.
    pub key: Option<&'a [u8]>,
    /// What of it.
    pub part: Part,
}

impl<'a> Target<'a> {
    /// The row of a key.
    #[must_use]
    pub const fn row(table: TableId, key: &'a [u8]) -> Self {
        Self { table, key: Some(key), part: Part::ROW }
    }

    /// The gap before a key, or before the end of the table.
    #[must_use]
    pub const fn gap(table: TableId, key: Option<&'a [u8]>) -> Self {
        Self { table, key, part: Part::GAP }
    }

    /// A key and the gap before it.
    #[must_use]
    pub const fn row_and_gap(table: TableId, key: &'a [u8]) -> Self {
        Self { table, key: Some(key), part: Part::ROW_AND_GAP }
    }
}
