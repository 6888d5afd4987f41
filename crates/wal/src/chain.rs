//! The chain of groups: reading a group, whether it belongs to the chain, and stepping along.

mod cursor;
mod groups;
mod link;
mod parts;

pub(crate) use cursor::{Cursor, Passed, Step, existing};
pub(crate) use groups::{Chain, GroupReader};
pub(crate) use link::{Accepted, LOOK_AHEAD};
pub(crate) use parts::visit;
