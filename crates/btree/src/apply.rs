//! Applies a log record to one page. Redo, compensation and normal operation all use [`apply`], so a recovered page
//! equals the lost one. There is one exception: a change of rows at run time. That writer knows the positions of its
//! rows. It calls the same edits of [`node`] without the search, with the same result.

use crate::chain;
use crate::chain_record::{ChainBegin, ChainPageImage, decode_cut};
use crate::format::{HAS_HIGH, INCOMPLETE, RowHeader};
use crate::load_record::{Load, decode_unload};
use crate::node::{self, Damage, Node};
use crate::record::{
    Absorb, CreateTable, Delta, DropTable, Link, Move, RowChange, RowInsert, RowRestore, RowWrite, Split, TreeKind,
    decode_erase, decode_page, decode_purge,
};
use crate::rows_record::{DeletedRow, RowsDelete};
use foreshore_base::limits::MAX_PAGES;
use foreshore_base::{PageId, TableId};
use foreshore_buffer::format::PAGE_HEADER;
use foreshore_buffer::{ChangeRecord, PageMut};
use foreshore_space::{mark_allocated, mark_free};
use foreshore_sync::model::mutant;

const UNKNOWN: Damage = "a log record of unknown kind";
const NO_PAGE: Damage = "a log record names a page too many";
const NO_LEAF: Damage = "a row change of an inner node";
const NO_ROW: Damage = "a log record changes a row that is not there";

/// Applies a record of a tree to its page `index`, and changes nothing else.
pub(crate) fn apply(record: &ChangeRecord<'_>, index: usize, page: &mut impl PageMut) -> Result<(), Damage> {
    let kind = TreeKind::from_number(record.kind).ok_or(UNKNOWN)?;
    let body = record.body;
    let second = || record.pages().get(1).copied().ok_or(NO_PAGE);
    match (kind, index) {
        (TreeKind::RowInsert | TreeKind::RowWrite | TreeKind::RowErase | TreeKind::RowRestore, 0) => {
            apply_row(RowChange { kind, body }, page)
        }
        (TreeKind::RowsDelete, 0) => delete_rows(page, &RowsDelete::decode(body)?),
        (TreeKind::Purge, 0) => purge(page, &decode_purge(body)?),
        (TreeKind::Split, 0) => split_left(page, &Split::decode(body)?, second()?),
        (TreeKind::Load | TreeKind::Unload, _) => apply_load(kind, record, index, page),
        (TreeKind::Split, 1) => node::apply_image(page, record.table, Split::decode(body)?.image),
        (TreeKind::Split | TreeKind::Grow, 2) => mark_allocated(page, second()?),
        (TreeKind::Link, 0) => link(page, &Link::decode(body)?),
        (TreeKind::Link, 1) => {
            node::set_flags(page, 0, INCOMPLETE);
            Ok(())
        }
        (TreeKind::Grow, 0) => {
            let level = Node::parse(page.bytes())?.level();
            node::init(page, level + 1, record.table);
            node::set_leftmost(page, second()?);
            Ok(())
        }
        (TreeKind::Grow, 1) => node::apply_image(page, record.table, body),
        (TreeKind::CreateRoot, 0) => {
            node::init(page, 0, record.table);
            Ok(())
        }
        (TreeKind::CreateRoot, 1) => mark_allocated(page, record.pages()[0]),
        (TreeKind::CreateTable, 0) => apply_row(CreateTable::decode(body)?.row, page),
        (TreeKind::CreateTable, 1) => {
            node::init(page, 0, CreateTable::decode(body)?.table);
            Ok(())
        }
        (TreeKind::CreateTable, 2) => mark_allocated(page, second()?),
        (TreeKind::DropTable, 0) => apply_row(DropTable::decode(body)?.row, page),
        (TreeKind::DropTable, 1) => mark_free(page, in_range(DropTable::decode(body)?.root)?),
        (TreeKind::FreeLast, 0) => drop_last_child(page, record.table),
        (TreeKind::FreeLast, 1) => mark_free(page, in_range(decode_page(body)?)?),
        (TreeKind::Unlink, 0) => unlink(page, &Link::decode(body)?),
        (TreeKind::Unlink, 1) => {
            node::set_flags(page, INCOMPLETE, 0);
            Ok(())
        }
        (TreeKind::Merge, 0) => {
            let Absorb { page: right, image } = Absorb::decode(body)?;
            node::absorb(page, right, image)
        }
        (TreeKind::Shift, 0) => {
            let Absorb { page: right, image } = Absorb::decode(body)?;
            node::absorb(page, right, image)?;
            node::set_flags(page, INCOMPLETE, 0);
            Ok(())
        }
        (TreeKind::Shift, 1) => node::give_away(page, Absorb::decode(body)?.image),
        (TreeKind::Collapse, 0) => collapse(page, record.table, Absorb::decode(body)?),
        (TreeKind::Merge, 1) if mutant("sabotage: the map does not learn of a free page") => Ok(()),
        (TreeKind::Merge | TreeKind::Collapse, 1) => mark_free(page, in_range(Absorb::decode(body)?.page)?),
        (TreeKind::Move, _) => apply_move(record, index, page, &Move::decode(body)?),
        (TreeKind::ChainBegin | TreeKind::ChainExtend | TreeKind::ChainCut | TreeKind::ChainEnd, _) => {
            apply_to_chain(kind, record, index, page)
        }
        (TreeKind::RowLock, _) => Err("a lock is not logged"),
        _ => Err(NO_PAGE),
    }
}

fn in_range(pid: PageId) -> Result<PageId, Damage> {
    if pid == PageId::ZERO || pid.0 >= MAX_PAGES { Err("a log record names a page out of range") } else { Ok(pid) }
}

/// Applies the move of a node. The two pages may have one map.
fn apply_move(
    record: &ChangeRecord<'_>,
    index: usize,
    page: &mut impl PageMut,
    moved: &Move<'_>,
) -> Result<(), Damage> {
    let new = record.pages().get(1).copied().ok_or(NO_PAGE)?;
    let old = in_range(moved.old)?;
    let at_left = if moved.has_left { Some(3) } else { None };
    let at_old_map = 3 + usize::from(moved.has_left);
    match index {
        0 => node::replace_child(page, old, new),
        1 => node::apply_image(page, record.table, moved.image),
        2 if record.pages().len() == at_old_map => {
            mark_free(page, old)?;
            mark_allocated(page, new)
        }
        2 => mark_allocated(page, new),
        index if Some(index) == at_left => node::replace_sibling(page, old, new),
        index if index == at_old_map => mark_free(page, old),
        _ => Err(NO_PAGE),
    }
}

/// Applies a record of chains.
fn apply_to_chain(
    kind: TreeKind,
    record: &ChangeRecord<'_>,
    index: usize,
    page: &mut impl PageMut,
) -> Result<(), Damage> {
    let body = record.body;
    let second = || record.pages().get(1).copied().ok_or(NO_PAGE);
    match (kind, index) {
        (TreeKind::ChainBegin, 0) => apply_row(ChainBegin::decode(body)?.row, page),
        (TreeKind::ChainBegin, 1) => {
            let begin = ChainBegin::decode(body)?;
            chain::init(page, begin.table, &begin.page)
        }
        (TreeKind::ChainExtend, 0) => chain::push_id(page, second()?),
        (TreeKind::ChainExtend, 1) => chain::init(page, record.table, &ChainPageImage::decode(body)?),
        (TreeKind::ChainBegin | TreeKind::ChainExtend, 2) => mark_allocated(page, second()?),
        (TreeKind::ChainCut, 0) => chain::cut_ids(page, &decode_cut(body)?),
        (TreeKind::ChainCut, 1) => chain::mark_all_free(page, &decode_cut(body)?),
        (TreeKind::ChainEnd, 0) => apply_row(DropTable::decode(body)?.row, page),
        (TreeKind::ChainEnd, 1) => mark_free(page, in_range(DropTable::decode(body)?.root)?),
        _ => Err(NO_PAGE),
    }
}

/// Applies the change of one row to its leaf.
fn apply_row(change: RowChange<'_>, page: &mut impl PageMut) -> Result<(), Damage> {
    let leaf = Node::parse(page.bytes())?;
    if !leaf.is_leaf() {
        return Err(NO_LEAF);
    }
    match change.kind {
        TreeKind::RowInsert => {
            let row = RowInsert::decode(change.body)?;
            match leaf.search(row.key)? {
                Err(at) => {
                    let header = RowHeader::from_owner(row.owner);
                    node::insert_leaf(page, at, header, row.key, row.value).map(drop)
                }
                Ok(_) => Err("a log record inserts a row that is there"),
            }
        }
        TreeKind::RowWrite => {
            let row = RowWrite::decode(change.body)?;
            let Delta { prefix, old, new } = row.delta;
            let at = leaf.search(row.key)?.map_err(|_| NO_ROW)?;
            node::splice_value(page, at, RowHeader::from_owner(row.owner), (prefix, old.len(), new))
        }
        TreeKind::RowRestore => {
            let row = RowRestore::decode(change.body)?;
            let at = leaf.search(row.key)?.map_err(|_| NO_ROW)?;
            node::splice_value(page, at, RowHeader::from_owner(row.owner), (row.prefix, row.cut, row.middle))
        }
        TreeKind::RowErase => {
            let at = leaf.search(decode_erase(change.body)?)?.map_err(|_| NO_ROW)?;
            node::remove(page, at)
        }
        _ => Err(UNKNOWN),
    }
}

/// Removes entries, which ascend, from a leaf.
fn purge(page: &mut impl PageMut, ghosts: &[usize]) -> Result<(), Damage> {
    node::retain(page, |entry| ghosts.binary_search(&entry).is_err())
}

/// Makes rows of a leaf ghosts.
fn delete_rows(page: &mut impl PageMut, delete: &RowsDelete<'_>) -> Result<(), Damage> {
    let leaf = Node::parse(page.bytes())?;
    if !leaf.is_leaf() {
        return Err(NO_LEAF);
    }
    let entry = |row: &DeletedRow<'_>| leaf.search(row.key)?.map_err(|_| NO_ROW);
    let entries: Vec<usize> = delete.rows.iter().map(entry).collect::<Result<_, Damage>>()?;
    entries.into_iter().try_for_each(|at| node::set_header(page, at, RowHeader::from_owner(delete.owner)))
}

/// Keeps the first entries of the left node, and makes the right one its sibling.
fn split_left(page: &mut impl PageMut, split: &Split<'_>, right: PageId) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    if split.from > node.len() {
        return Err("a split beyond the end of a node");
    }
    let leftmost = if node.is_leaf() { None } else { Some(node.leftmost()?) };
    let fences = (node.low()?, Some(split.separator));
    let left = node::build_part(&node, 0..split.from, fences, right, leftmost)?;
    page.write(PAGE_HEADER, &left[PAGE_HEADER..]);
    node::set_flags(page, INCOMPLETE | HAS_HIGH, 0);
    Ok(())
}

/// Applies a record of loads.
fn apply_load(kind: TreeKind, record: &ChangeRecord<'_>, index: usize, page: &mut impl PageMut) -> Result<(), Damage> {
    let second = || record.pages().get(1).copied().ok_or(NO_PAGE);
    match (kind, index) {
        (TreeKind::Load, 0) => load_right(page, Load::decode(record.body)?.image, second()?),
        (TreeKind::Load, 1) => node::apply_image(page, record.table, Load::decode(record.body)?.image),
        (TreeKind::Load, 2) => mark_allocated(page, second()?),
        (TreeKind::Unload, 0) => unload(page, &decode_unload(record.body)?),
        _ => Err(NO_PAGE),
    }
}

/// Gives the last leaf of a tree a right sibling with the content of an image.
fn load_right(page: &mut impl PageMut, image: &[u8], right: PageId) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    if !node.is_leaf() || node.has_high() {
        return Err("a loaded leaf follows one that is not the last");
    }
    let separator = node::image_low(image)?;
    split_left(page, &Split { from: node.len(), separator, image }, right)
}

/// Removes runs of entries from a leaf.
fn unload(page: &mut impl PageMut, runs: &[(usize, usize)]) -> Result<(), Damage> {
    let leaf = Node::parse(page.bytes())?;
    if !leaf.is_leaf() || runs.iter().any(|&(first, count)| first + count > leaf.len()) {
        return Err("a leaf loses rows that it does not have");
    }
    node::retain(page, |entry| !runs.iter().any(|&(first, count)| (first..first + count).contains(&entry)))
}

/// Enters a separator, and the child to its right, in an inner node.
fn link(page: &mut impl PageMut, link: &Link<'_>) -> Result<(), Damage> {
    match Node::parse(page.bytes())?.search(link.separator)? {
        Err(at) => node::insert_inner(page, at, link.separator, link.right),
        Ok(_) => Err("a separator is there already"),
    }
}

/// Removes the entry of a merge's right node from the parent.
fn unlink(page: &mut impl PageMut, link: &Link<'_>) -> Result<(), Damage> {
    let parent = Node::parse(page.bytes())?;
    match parent.search(link.separator)? {
        Ok(at) if !parent.is_leaf() && parent.child(at)? == link.right => node::remove(page, at),
        _ => Err("the entry of a merged node is not there"),
    }
}

/// Replaces the root by its only child.
fn collapse(page: &mut impl PageMut, table: TableId, child: Absorb<'_>) -> Result<(), Damage> {
    let root = Node::parse(page.bytes())?;
    if root.is_leaf() || root.len() > 0 || root.leftmost()? != child.page {
        return Err("a root that has other children collapses");
    }
    node::apply_image(page, table, child.image)
}

/// Removes the last child of a node; a node without children becomes an empty leaf.
fn drop_last_child(page: &mut impl PageMut, table: TableId) -> Result<(), Damage> {
    let node = Node::parse(page.bytes())?;
    match node.len() {
        0 => {
            node::init(page, 0, table);
            Ok(())
        }
        len => node::remove(page, len - 1),
    }
}
