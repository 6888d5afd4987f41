//! The content of one page of a tree or of a large value, for programs that show pages.

use crate::chain::ChainPage;
use crate::format::{ChainId, RowHeader};
use crate::node::{Node, Row};
use foreshore_base::PageId;

/// The content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeContent {
    /// Whether the right sibling was split off and the parent does not know it yet.
    pub is_incomplete: bool,
    /// The sibling that holds the keys from the high fence on.
    pub right: Option<PageId>,
    /// The smallest key that may be here.
    pub low: Vec<u8>,
    /// The first key beyond the node; `None` at the right end of the level.
    pub high: Option<Vec<u8>>,
    /// Bytes that new entries can use.
    pub free: usize,
    /// The entries, in key order.
    pub entries: Entries,
    /// Why the node as a whole is not valid, although each entry can be read.
    pub damage: Option<&'static str>,
}

/// The entries of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Of a node above the leaves.
    Children {
        /// The child with the keys below the first entry.
        leftmost: PageId,
        /// The smallest key of each further child, and the child.
        others: Vec<(Vec<u8>, PageId)>,
    },
    /// Of a leaf.
    Rows(Vec<StoredRow>),
}

/// A row as it lies in a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Its writer, flags and undo pointer.
    pub header: RowHeader,
    /// The encoded key.
    pub key: Vec<u8>,
    /// The encoded value, or the [stub](crate::format::Stub) of a large one.
    pub value: Vec<u8>,
}

impl NodeContent {
    /// Reads a page of a tree. Its checksum is not checked.
    ///
    /// # Errors
    /// The damage, if the page is no node, or one of its entries cannot be read.
    pub fn read(page: &[u8]) -> Result<Self, &'static str> {
        let node = Node::parse(page)?;
        let entries = if node.is_leaf() {
            let row = |Row { header, key, value }| StoredRow { header, key: key.to_vec(), value: value.to_vec() };
            Entries::Rows((0..node.len()).map(|index| node.row(index).map(row)).collect::<Result<_, _>>()?)
        } else {
            let child = |index| Ok((node.key(index)?.to_vec(), node.child(index)?));
            let others = (0..node.len()).map(child).collect::<Result<_, &'static str>>()?;
            Entries::Children { leftmost: node.leftmost()?, others }
        };
        Ok(Self {
            is_incomplete: node.is_incomplete(),
            right: Some(node.right()).filter(|&right| right != PageId::ZERO),
            low: node.low()?.to_vec(),
            high: node.high()?.map(<[u8]>::to_vec),
            free: node.free(),
            entries,
            damage: node.validate().err(),
        })
    }
}

/// The content of a page of a large value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainContent {
    /// The chain that the page says it belongs to.
    pub chain: ChainId,
    /// Number of the data page in the value, or of the first one below an index page.
    pub place: u32,
    /// What the page holds.
    pub part: ChainPart,
}

/// What a page of a large value holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainPart {
    /// Bytes of the value.
    Data(Vec<u8>),
    /// Pages with parts of it.
    Pages(Vec<PageId>),
}

impl ChainContent {
    /// Reads a page of a large value. Its checksum is not checked.
    ///
    /// # Errors
    /// The damage, if the page is of another type or malformed.
    pub fn read(page: &[u8]) -> Result<Self, &'static str> {
        let view = ChainPage::view(page)?;
        let part = if view.is_data() { ChainPart::Data(view.data().to_vec()) } else { ChainPart::Pages(view.ids()?) };
        Ok(Self { chain: view.chain(), place: view.place, part })
    }
}
