//! Segment files, and the account of the space in them.

mod budget;
mod control;
mod files;
mod home;
mod list;
mod live;
mod segments;

pub(crate) use budget::GRANT;
pub(crate) use control::Control;
pub(crate) use files::Files;
pub(crate) use home::Home;
pub(crate) use list::{List, Spare};
pub(crate) use live::Live;
pub(crate) use segments::Segments;

#[cfg(test)]
mod tests;
