//! Limits, each checked on entry with an error that names it.

/// Bytes in a page.
pub const PAGE_SIZE: usize = 8192;
/// Bytes in a block: unit and alignment of direct I/O and of log groups.
pub const BLOCK: usize = 4096;
/// Bytes that a device writes whole; the unit of tearing in the fault model.
pub const SECTOR: usize = 512;
/// Largest encoded key, in bytes. Two rows of the largest key and value fit a page with any fences.
pub const MAX_KEY: usize = 992;
/// Largest encoded value in the leaf of its row, in bytes (a quarter of a page). A larger one lies in pages of its own.
pub const MAX_INLINE_VALUE: usize = 2048;
/// Largest encoded value, in bytes.
pub const MAX_VALUE: usize = 1 << 30;
/// Largest length of a table name, in bytes of UTF-8.
pub const MAX_TABLE_NAME: usize = 255;
/// First page id out of range.
pub const MAX_PAGES: u64 = 1 << 31;
/// First xid out of range.
pub const MAX_XID: u64 = 1 << 48;

const _: () = assert!(PAGE_SIZE.is_multiple_of(BLOCK) && BLOCK.is_multiple_of(SECTOR));
