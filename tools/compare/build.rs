//! Finds the engines that are libraries of the system, and hands versions to the program.

use std::{fs, path::Path};

/// Where headers of the system lie.
const INCLUDE: &str = "/usr/include";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rustc-env=COMPARE_REDB={}", locked("redb"));
    println!("cargo::rustc-env=COMPARE_FJALL={}", locked("fjall"));
    rocksdb();
    wiredtiger();
}

/// Binds RocksDB if its header and library are installed.
fn rocksdb() {
    println!("cargo::rustc-check-cfg=cfg(have_rocksdb)");
    let header = watched("rocksdb/version.h");
    let version = fs::read_to_string(header).unwrap_or_default();
    let part = |name: &str| {
        let line = version.lines().find(|line| line.contains(&format!("#define ROCKSDB_{name} ")))?;
        line.split_whitespace().nth(2)
    };
    if let (Some(major), Some(minor), Some(patch)) = (part("MAJOR"), part("MINOR"), part("PATCH"))
        && links("rocksdb")
    {
        println!("cargo::rustc-env=COMPARE_ROCKSDB={major}.{minor}.{patch}");
        println!("cargo::rustc-cfg=have_rocksdb");
    }
}

/// Binds WiredTiger if its header and library are installed.
fn wiredtiger() {
    println!("cargo::rustc-check-cfg=cfg(have_wiredtiger)");
    let shim = "src/engines/wiredtiger/shim.c";
    println!("cargo::rerun-if-changed={shim}");
    if Path::new(&watched("wiredtiger.h")).exists() && links("wiredtiger") {
        cc::Build::new().file(shim).std("c11").opt_level(2).compile("compare_wiredtiger");
        println!("cargo::rustc-link-lib=dylib=wiredtiger");
        println!("cargo::rustc-cfg=have_wiredtiger");
    }
}

/// Path of a header, which makes the build run again when it comes or goes.
fn watched(header: &str) -> String {
    let path = format!("{INCLUDE}/{header}");
    println!("cargo::rerun-if-changed={path}");
    path
}

/// Whether the C compiler finds the library.
fn links(name: &str) -> bool {
    let file = format!("lib{name}.so");
    let found = cc::Build::new().get_compiler().to_command().arg(format!("-print-file-name={file}")).output();
    // A compiler that finds nothing prints the name alone.
    found.is_ok_and(|found| String::from_utf8_lossy(&found.stdout).trim() != file)
}

/// Version of a crate in `Cargo.lock`.
fn locked(name: &str) -> String {
    let lock = fs::read_to_string("Cargo.lock").unwrap_or_default();
    let package = lock.split("[[package]]").find(|package| package.contains(&format!("name = \"{name}\"")));
    let version = package.and_then(|package| package.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown").to_owned()
}
