//! TATP: the home location register of a mobile network.
//!
//! | table | key | row | rows at scale X |
//! |---|---|---|---|
//! | subscribers | `s_id` | number, ten bits, ten hex digits, ten bytes, two locations | X |
//! | numbers | `sub_nbr` | `s_id` | X |
//! | access infos | `s_id`, `ai_type` | four data fields | 1 to 4 for each subscriber |
//! | special facilities | `s_id`, `sf_type` | whether it is active, and three data fields | 1 to 4 for each subscriber |
//! | call forwardings | `s_id`, `sf_type`, `start_time` | end time, number | 0 to 3 for each facility |
//!
//! The parts of a key are packed into one number. A `sub_nbr` of 15 digits is that number as a key. Seven kinds of
//! transactions make the mix: 80 % read, 16 % update, 2 % insert and 2 % delete. A transaction that finds no row, or
//! one where there must be none, counts too: the specification allows that to each kind but two.
//!
//! Rules and checks are those of `foreshore bench tatp`.
//!
//! Source: Telecommunication Application Transaction Processing Benchmark, description, version 1.0, March 2009.

mod check;
mod draw;
mod rows;
mod tables;
mod transactions;

pub(crate) use check::verify;
pub(crate) use draw::{Draw, KINDS};
pub(crate) use rows::loaded;
pub(crate) use transactions::run;

#[cfg(test)]
mod tests;
