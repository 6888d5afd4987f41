//! What a user may rely on, one behaviour per file.

mod bad_files;
mod bank;
mod check;
mod close;
mod commit;
mod crash;
mod create;
mod cut;
mod disk_full;
mod doublewrite;
mod drop;
mod flip;
mod isolation;
mod limits;
mod lock;
mod model;
mod poison;
mod rollback;
mod run;
mod script;
mod stats;
mod support;
mod table_types;
mod torn;
mod vacuum;
