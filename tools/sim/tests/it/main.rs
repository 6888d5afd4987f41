//! What the scripts find, and what they do not.

mod crash;
mod faults;
mod history;
mod sabotage;
mod savepoints;
mod shrink;
mod write_back;
