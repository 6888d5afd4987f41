//! Makes `include/foreshore.h` of what the sources declare: with `write`, and else compares it.

#![forbid(unsafe_code)]

use cbindgen::{Config, DocumentationStyle, EnumConfig, Language, RenameRule, Style};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

const HEAD: &str = "\
/* Foreshore: an embedded, multi-writer, ACID storage manager.
 *
 * Made from tools/ffi/src by `cargo run -p foreshore-header -- write`. Do not edit.
 *
 * STATUS. Each function that can fail returns an fs_status, and fs_message() has the words, for the thread that got it.
 *
 * OWNERSHIP. What a function stores through a pointer to a handle belongs to the caller, which frees it with the
 * function named for it: fs_db_free, fs_tx_free, fs_table_free, fs_cursor_free, fs_reader_free, fs_index_free,
 * fs_buffer_free, fs_queue_free. The order is free: a table, cursor or reader of a transaction that has ended returns
 * FS_ENDED. Bytes passed in are copied.
 *
 * THREADS. fs_db and fs_queue: any threads at once. fs_tx with its fs_table, fs_cursor and fs_reader: one thread at a
 * time, which may change; a second one gets FS_IN_USE. Unchecked: fs_buffer is for one thread at a time, and the row that
 * fs_cursor_next has stored stays until the next call with the cursor. No handle may be freed while it is used.
 *
 * FORKS. A child process that was forked after fs_open gets FS_FORKED from every call with the handles of its parent,
 * its queues too. It may open the database itself when the parent has closed it. A child that is forked inside a
 * function that the library calls must not return from it: it is aborted.
 */
";

/// The files of the library, in the order of the header.
const FILES: [&str; 16] = [
    "guard", "buffer", "options", "db", "copies", "tx", "table", "value", "load", "range", "cursor", "index", "queue",
    "commit", "prepared", "run",
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let made = header()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/foreshore.h");
    if std::env::args().nth(1).is_some_and(|verb| verb == "write") {
        std::fs::write(&path, &made)?;
    } else if std::fs::read_to_string(&path)? != made {
        eprintln!("include/foreshore.h is stale: run `cargo run -p foreshore-header -- write`");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the text of the header.
fn header() -> Result<String, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut config = Config {
        language: Language::C,
        header: Some(HEAD.trim_end().to_owned()),
        include_guard: Some("FORESHORE_H".to_owned()),
        no_includes: true,
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        cpp_compat: true,
        style: Style::Type,
        documentation_style: DocumentationStyle::C99,
        usize_is_size_t: true,
        line_length: 100,
        enumeration: EnumConfig { rename_variants: RenameRule::QualifiedScreamingSnakeCase, ..EnumConfig::default() },
        ..Config::default()
    };
    config.export.rename.insert("Status".to_owned(), "fs_status".to_owned());
    let mut builder = cbindgen::Builder::new().with_config(config).with_src(root.join("handles/src/status.rs"));
    for file in FILES {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate()?.write(&mut made);
    Ok(without_safety(&String::from_utf8(made)?.replace("FS_STATUS_", "FS_")))
}

/// Leaves out the sections for Rust: what they say of pointers holds for all of C.
fn without_safety(header: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    let mut is_safety = false;
    for line in header.lines() {
        let text = line.trim_start();
        is_safety = text == "// # Safety" || is_safety && text.starts_with("//");
        if is_safety {
            if lines.last().is_some_and(|last| last.trim() == "//") {
                lines.pop();
            }
        } else {
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}
