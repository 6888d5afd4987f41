//! A leaf that is built from rows in ascending order, outside of the pool.

use super::edit::{init, put_bounds, run, set_fences, write_below, write_slot};
use super::{CAPACITY, Damage, Node, Row};
use crate::format::{LEAF_HEADER, MAX_LEAF_ENTRY, RowHeader, SLOT, SLOTS};
use foreshore_base::TableId;
use foreshore_base::limits::{MAX_KEY, PAGE_SIZE};

/// A leaf without a high fence. It always has space for a high fence that is one byte longer than its last key: the
/// separator before the next leaf is never longer.
pub(crate) struct Packed {
    page: Box<[u8; PAGE_SIZE]>,
    table: TableId,
    /// Rows, and the first byte of the heap.
    len: usize,
    heap: usize,
}

// Any row fits an empty leaf.
const _: () = assert!(SLOTS + MAX_KEY + MAX_LEAF_ENTRY + MAX_KEY < PAGE_SIZE);

impl Packed {
    pub(crate) fn new(table: TableId) -> Self {
        Self { page: Box::new([0; PAGE_SIZE]), table, len: 0, heap: PAGE_SIZE }
    }

    /// Begins an empty leaf.
    pub(crate) fn begin(&mut self, low: &[u8]) {
        init(&mut *self.page, 0, self.table);
        set_fences(&mut *self.page, low, None).expect("an empty leaf has space for a fence");
        (self.len, self.heap) = (0, PAGE_SIZE - low.len());
    }

    /// Returns whether a row fits, and at most `limit` bytes of the leaf are then in use. An empty leaf takes any row.
    pub(crate) const fn fits(&self, key_len: usize, value_len: usize, limit: usize) -> bool {
        let need = SLOT + LEAF_HEADER + key_len + value_len;
        // `<`, not `<=`: one byte more than the key, for the high fence.
        self.len == 0 || self.used() + need <= limit && self.used() + need + key_len < CAPACITY
    }

    /// Returns the bytes in use.
    pub(crate) const fn used(&self) -> usize {
        PAGE_SIZE - self.heap + self.len * SLOT
    }

    /// Appends a row, which fits and has a larger key than the others.
    pub(crate) fn push(&mut self, header: RowHeader, key: &[u8], value: &[u8]) {
        let page = &mut *self.page;
        self.heap = write_below(page, self.heap, &[&header.encode(value.len()), key, value]);
        write_slot(page, self.len, self.heap, key, 0);
        self.len += 1;
        put_bounds(page, [self.len, self.heap, 0, run(self.len, 0)]);
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the page.
    pub(crate) fn page(&self) -> &[u8; PAGE_SIZE] {
        &self.page
    }

    /// Returns a row.
    pub(crate) fn row(&self, at: usize) -> Result<Row<'_>, Damage> {
        Node::parse(&*self.page)?.row(at)
    }

    /// Drops the rows. `begin` comes next; until then the page has its old content.
    pub(crate) const fn clear(&mut self) {
        (self.len, self.heap) = (0, PAGE_SIZE);
    }
}
