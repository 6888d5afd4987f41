//! Functions by address, from the symbol tables of the mapped files.

use std::{collections::HashMap, fs};

/// What a process has mapped, and the symbols of those files.
pub(super) struct Symbols {
    maps: Vec<Map>,
    /// Functions of each file by address, sorted.
    files: HashMap<String, Vec<Function>>,
}

struct Map {
    addresses: std::ops::Range<u64>,
    /// Where the file's first byte is mapped.
    base: u64,
    path: String,
}

struct Function {
    address: u64,
    size: u64,
    name: String,
}

impl Symbols {
    pub(super) fn new(process: i32) -> Self {
        let text = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let mut maps: Vec<Map> = text.lines().filter_map(map).collect();
        let bases: HashMap<String, u64> =
            maps.iter().rev().map(|map| (map.path.clone(), map.addresses.start)).collect();
        maps.iter_mut().for_each(|map| map.base = bases[&map.path]);
        Self { maps, files: HashMap::new() }
    }

    /// The function at `address`, or the file if it has no name, and the address in the file.
    pub(super) fn find(&mut self, address: u64) -> (String, u64) {
        let Some(map) = self.maps.iter().find(|map| map.addresses.contains(&address)) else {
            return (String::new(), address);
        };
        let offset = address - map.base;
        let functions = self.files.entry(map.path.clone()).or_insert_with(|| {
            let mut functions = fs::read(&map.path).ok().and_then(|file| functions(&file)).unwrap_or_default();
            functions.sort_by_key(|function| function.address);
            functions
        });
        let after = functions.partition_point(|function| function.address <= offset);
        let found = functions[..after].last().filter(|function| offset - function.address < function.size.max(1));
        (found.map_or_else(|| map.path.clone(), |function| function.name.clone()), offset)
    }
}

/// A line such as `7f00-7fff r-xp 00001000 08:01 42  /usr/lib/libc.so.6`.
fn map(line: &str) -> Option<Map> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16).ok());
    Some(Map { addresses: start?..end?, base: 0, path: words.nth(4)?.to_owned() })
}

/// The functions of an ELF file of 64 bits, from its symbols and its dynamic symbols.
fn functions(file: &[u8]) -> Option<Vec<Function>> {
    const HEADER: usize = 64;
    const SYMBOL: usize = 24;
    const TABLES: [u64; 2] = [2, 11];
    const FUNCTION: u8 = 2;
    if !file.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let sections = number(file, 40, 8)? as usize;
    let section = |index: u64| file.get(sections + index as usize * HEADER..).filter(|header| header.len() >= HEADER);
    let content = |header: &[u8]| {
        let (at, len) = (number(header, 24, 8)? as usize, number(header, 32, 8)? as usize);
        file.get(at..at.checked_add(len)?)
    };
    let mut functions = Vec::new();
    for header in (0..number(file, 60, 2)?).filter_map(section) {
        if !TABLES.contains(&number(header, 4, 4)?) {
            continue;
        }
        let names = content(section(number(header, 40, 4)?)?)?;
        for symbol in content(header)?.chunks_exact(SYMBOL).filter(|symbol| symbol[4] & 15 == FUNCTION) {
            let name = names.get(number(symbol, 0, 4)? as usize..)?.split(|&byte| byte == 0).next()?;
            // Without the hash of the crate.
            let name = format!("{:#}", rustc_demangle::demangle(&String::from_utf8_lossy(name)));
            functions.push(Function { address: number(symbol, 8, 8)?, size: number(symbol, 16, 8)?, name });
        }
    }
    Some(functions)
}

/// A number of so many bytes, the lowest one first.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_to_find() -> usize {
        std::hint::black_box(a_function_to_find as *const () as usize)
    }

    #[test]
    fn a_function_of_this_process_is_found_by_its_address() {
        let mut symbols = Symbols::new(std::process::id() as i32);
        let (name, offset) = symbols.find(a_function_to_find() as u64);
        assert!(name.ends_with("::a_function_to_find"), "{name}");
        assert!(offset > 0);
        assert_eq!(symbols.find(1), (String::new(), 1));
    }

    #[test]
    fn other_files_have_no_functions() {
        assert!(functions(b"").is_none() && functions(b"#!/bin/sh").is_none());
        assert!(functions(b"\x7fELF\x02 cut off").is_none());
    }
}
