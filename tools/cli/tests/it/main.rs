//! The verbs that look into a database, run as the built program.

mod backup;
mod compact;
mod crashed;
mod csv;
mod damaged;
mod dump_load;
mod format_1;
mod generate;
mod log_verb;
mod page;
mod pipes;
mod planted;
mod refused;
mod repair;
mod restore;
mod rows;
mod salvage;
mod salvage_in_doubt;
mod schema;
mod shell;
mod support;
mod tables;
mod top;
mod typed;
mod verbs;
mod whole;
