//! `check` names each of many damages: of every kind of page, with wrong checksums and with right ones.

use crate::support::{Dir, Ran, close};
use foreshore::{Error, IndexDef, TableDef};
use foreshore_base::crc32c;
use std::cell::{Cell, RefCell};
use std::fs;
use std::ops::Range;

const PAGE: usize = 8192;
const WIDE: TableDef<u64, &[u8]> = TableDef::new("wide");
const BY_NAME: IndexDef<u64, &str, &str> = IndexDef::new("by name", |_, name: &String, keys| keys.add(name.as_str()));
const PEOPLE: TableDef<u64, &str> = TableDef::new("people").with_indexes(&[&BY_NAME]);
const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");

/// The data file of a closed database with pages of every kind, and where they are.
struct Planted {
    name: String,
    dir: Dir,
    sound: Vec<u8>,
    planted: Cell<usize>,
    unnamed: RefCell<Vec<String>>,
}

impl Planted {
    fn new(name: &str) -> Self {
        let dir = Dir::new(name);
        let db = dir.open();
        db.run(|tx| {
            tx.open(WIDE)?.load((0..6000).map(|n| (n, &[7_u8; 100][..])))?;
            let people = tx.open(PEOPLE)?;
            (0..600).try_for_each(|n| people.put(n, format!("person {n:04}").as_str()))?;
            tx.next_id(&people)?;
            let large = tx.open(LARGE)?;
            large.put(1, &vec![8; 40_000][..])?;
            large.put(2, &vec![9; 3_000][..])?;
            Ok::<_, Error>(())
        })
        .unwrap();
        close(db);
        // Otherwise its images go home again, and mend what was damaged.
        let doublewrite = dir.path().join("dw");
        let mut bytes = fs::read(&doublewrite).unwrap();
        bytes[4096..].fill(0);
        fs::write(&doublewrite, bytes).unwrap();
        let sound = fs::read(dir.path().join("data")).unwrap();
        Self { name: name.to_owned(), dir, sound, planted: Cell::new(0), unnamed: RefCell::default() }
    }

    /// Checks a copy with the damage, as text and as JSON.
    fn check(&self, name: &str, damage: impl FnOnce(&mut Vec<u8>)) -> (Ran, Vec<u64>) {
        let mut data = self.sound.clone();
        damage(&mut data);
        assert!(data != self.sound, "{name} changes something");
        let copy = self.dir.copy(&format!("{}-copy", self.name));
        fs::write(copy.path().join("data"), &data).unwrap();
        let text = copy.run("check", &[]);
        let copy = self.dir.copy(&format!("{}-copy", self.name));
        fs::write(copy.path().join("data"), &data).unwrap();
        // A database that does not open has no report.
        let report = copy.json("check", &[], text.code);
        let pages = report.first().map_or(&[][..], |report| report["damaged"].as_array().unwrap());
        (text, pages.iter().map(|found| found["page"].as_u64().unwrap()).collect())
    }

    /// Checks that the damage is found, and that `page` is named both as text and as JSON. A database that does not
    /// open has no report: then the error names the page.
    fn names(&self, name: &str, page: u64, damage: impl FnOnce(&mut Vec<u8>)) {
        let (text, pages) = self.check(name, damage);
        self.planted.set(self.planted.get() + 1);
        let is_in = |text: &str| [":", " of "].iter().any(|end| text.contains(&format!("page {page}{end}")));
        let is_named = match text.code {
            1 => is_in(&text.output) && pages.contains(&page) && text.errors.is_empty(),
            3 => is_in(&text.errors),
            _ => false,
        };
        if !is_named {
            self.unnamed.borrow_mut().push(format!("{name} of page {page}: {pages:?} {text:?}"));
        }
    }

    /// Checks the same of a page whose checksum fits.
    fn contradicts(&self, name: &str, page: u64, by: impl FnOnce(&mut [u8])) {
        self.names(name, page, |data| change(data, page, by));
    }

    /// Checks that so many damages were planted, and each was named.
    fn all_named(&self, count: usize) {
        assert_eq!(self.planted.get(), count);
        let unnamed = self.unnamed.borrow();
        assert!(unnamed.is_empty(), "{} of {count} damages are not named:\n{}", unnamed.len(), unnamed.join("\n"));
    }

    /// The pages that are in use by the map, and that `is_wanted` accepts.
    fn pages(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u64> {
        let is_used = |at: usize| self.sound[2 * PAGE + 32 + at / 8] >> (at % 8) & 1 == 1;
        let pages = self.sound.chunks(PAGE).enumerate().skip(2);
        pages.filter(|(at, page)| is_used(*at) && is_wanted(page)).map(|(at, _)| at as u64).collect()
    }

    /// The nodes with that level of the table that has `text` in a node, in the order of their keys.
    fn nodes(&self, text: &[u8], level: u8) -> Vec<u64> {
        let has_text = |page: &[u8]| page[4..6] == [3, 0] && page.windows(text.len()).any(|bytes| bytes == text);
        let table = |page: &[u8]| page[24..28].to_vec();
        let of = table(page(&self.sound, self.pages(has_text)[0]));
        let mut nodes = self.pages(|page| page[4..6] == [3, level] && table(page) == of);
        nodes.sort_by_key(|&node| {
            let page = page(&self.sound, node);
            page[u16_at(page, 56)..][..u16_at(page, 58)].to_vec()
        });
        nodes
    }

    /// The pages of large values with that level.
    fn chains(&self, level: u8) -> Vec<u64> {
        self.pages(|page| page[4..6] == [5, level])
    }
}

fn page(data: &[u8], page: u64) -> &[u8] {
    &data[page as usize * PAGE..][..PAGE]
}

fn u16_at(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(page[at..at + 2].try_into().unwrap()))
}

/// Changes a page, whose checksum then fits.
fn change(data: &mut [u8], page: u64, change: impl FnOnce(&mut [u8])) {
    let page = &mut data[page as usize * PAGE..][..PAGE];
    change(page);
    let crc = crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
}

/// The place of the tuple of entry `at` of a node.
fn tuple(page: &[u8], at: usize) -> usize {
    u16_at(page, 64 + 8 * at)
}

fn swap(page: &mut [u8], one: Range<usize>, other: Range<usize>) {
    let bytes = page[one.clone()].to_vec();
    page.copy_within(other.clone(), one.start);
    page[other].copy_from_slice(&bytes);
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Six damages of eleven pages, no two of one kind. No checksum fits.
#[test]
fn check_names_each_page_whose_checksum_does_not_fit() {
    let planted = Planted::new("planted-bytes");
    let (wide, index) = (planted.nodes(&[7; 100], 0), planted.nodes(b"person 0000", 0));
    let inner = planted.nodes(&[7; 100], 1)[0];
    // The value of one page is its own root, with content right behind the header.
    let single = planted.pages(|page| page[4..6] == [5, 0] && page[56..60] == [9; 4])[0];
    let (roots, values) = (planted.chains(2), planted.chains(0));
    assert!(wide.len() > 60 && !roots.is_empty() && values.len() > 4, "{wide:?} {roots:?} {values:?}");
    let targets = [
        ("page of a small value", single),
        ("root of the catalogue", 3),
        ("root of the table of chains", 4),
        ("root of the table of sequences", 5),
        ("inner node", inner),
        ("first leaf", wide[0]),
        ("leaf in the middle", wide[wide.len() / 2]),
        ("last leaf", wide[wide.len() - 1]),
        ("leaf with names", index[0]),
        ("root of a large value", roots[0]),
        ("page of a large value", values[2]),
    ];
    let flips: [(&str, Range<usize>); 6] = [
        ("a bit of the checksum", 1..2),
        ("the type", 4..5),
        ("the page id", 8..9),
        ("a byte of the contents", 5000..5001),
        ("a block of 512 bytes", 4096..4608),
        ("the last byte", 8191..8192),
    ];
    for (what, target) in targets {
        for (how, bytes) in &flips {
            planted.names(&format!("{how} of the {what}"), target, |data| {
                page_mut(data, target)[bytes.clone()].iter_mut().for_each(|byte| *byte ^= 0x41);
            });
        }
    }
    planted.all_named(66);
    // All that no other damage hides, at once.
    let all: Vec<_> = wide.iter().copied().take(50).collect();
    let (text, named) = planted.check("fifty leaves", |data| {
        all.iter().for_each(|&leaf| page_mut(data, leaf)[5000] ^= 1);
    });
    assert_eq!(text.code, 1);
    assert!(all.iter().all(|leaf| named.contains(leaf)), "{all:?} {named:?}");
    assert!(text.output.ends_with(", damaged: 50\n"), "{}", text.output);
}

fn page_mut(data: &mut [u8], page: u64) -> &mut [u8] {
    &mut data[page as usize * PAGE..][..PAGE]
}

/// The open makes a new map of what the tables need, so nothing is lost, and the check finds nothing.
#[test]
fn a_damaged_map_is_made_anew() {
    let planted = Planted::new("planted-map");
    let by: [fn(&mut [u8]); 4] = [
        |page| page[5000] ^= 1,
        |page| page.fill(0),
        |page| change(page, 0, |page| page[4] = 3),
        |page| change(page, 0, |page| put(page, 8, &[3])),
    ];
    for (number, by) in by.into_iter().enumerate() {
        let (text, pages) = planted.check(&format!("way {number}"), |data| by(page_mut(data, 2)));
        assert!(text.code == 0 && pages.is_empty() && text.output.contains("rows: 6602, "), "{text:?}");
    }
}

/// What a lost or misdirected write, or a defect of a program, could leave: the checksum fits.
#[test]
fn check_names_a_leaf_that_contradicts_itself_or_others() {
    let planted = Planted::new("planted-leaf");
    let id = |page: u64| page.to_le_bytes();
    let wide = planted.nodes(&[7; 100], 0);
    let (leaf, other) = (wide[20], wide[40]);
    planted.contradicts("two keys in the wrong order", leaf, |page| swap(page, 64..72, 72..80));
    planted.contradicts("a head that is not that of the key", leaf, |page| page[64 + 4] ^= 1);
    planted.contradicts("more entries than fit", leaf, |page| put(page, 32, &2000_u16.to_le_bytes()));
    planted.contradicts("an entry too few", leaf, |page| page[32] -= 1);
    planted.contradicts("a heap above the page", leaf, |page| put(page, 34, &8200_u16.to_le_bytes()));
    planted.contradicts("garbage that is none", leaf, |page| page[36] += 1);
    planted.contradicts("more shared bytes than keys have", leaf, |page| page[39] |= 0xF0);
    planted.contradicts("another table", leaf, |page| page[24] ^= 0x40);
    planted.contradicts("another level", leaf, |page| page[5] = 1);
    planted.contradicts("a type that there is not", leaf, |page| page[4] = 9);
    planted.contradicts("the type of a large value", leaf, |page| page[4] = 5);
    planted.contradicts("the id of another page", leaf, |page| put(page, 8, &id(other)));
    planted.contradicts("an LSN ahead of the log", leaf, |page| put(page, 16, &(1_u64 << 50).to_le_bytes()));
    planted.contradicts("a tuple outside of the page", leaf, |page| put(page, 64, &9000_u16.to_le_bytes()));
    planted.contradicts("a tuple within the slots", leaf, |page| put(page, 64, &70_u16.to_le_bytes()));
    planted.contradicts("a key that is too long", leaf, |page| put(page, 66, &993_u16.to_le_bytes()));
    planted.contradicts("a key that is empty", leaf, |page| put(page, 66, &0_u16.to_le_bytes()));
    planted.contradicts("a value beyond the page", leaf, |page| put(page, tuple(page, 0) + 8, &2048_u16.to_le_bytes()));
    planted.contradicts("unknown flags of a row", leaf, |page| page[tuple(page, 0)] = 0x80);
    planted.contradicts("a large value that is no stub", leaf, |page| page[tuple(page, 3)] = 2);
    planted.contradicts("a low fence beyond the page", leaf, |page| put(page, 56, &8190_u16.to_le_bytes()));
    planted.contradicts("another low fence", leaf, |page| page[u16_at(page, 56) + 7] ^= 1);
    planted.contradicts("no high fence", leaf, |page| page[6] &= !2);
    // Found where the node on its right is met.
    planted.names("a split that is open", wide[21], |data| change(data, leaf, |page| page[6] |= 1));
    planted.contradicts("a node that is empty", leaf, |page| page[32..].fill(0));
    planted.contradicts("a page of zeros", leaf, |page| page.fill(0));
    let contents = page(&planted.sound, other)[16..].to_vec();
    planted.contradicts("contents of another leaf", leaf, |page| put(page, 16, &contents));
    planted.contradicts("a lost write", leaf, |page| put(page, 16, &1_u64.to_le_bytes()));
    planted.all_named(28);
}

#[test]
fn check_names_an_inner_node_that_contradicts_itself_or_others() {
    let planted = Planted::new("planted-inner");
    let id = |page: u64| page.to_le_bytes();
    let inner = planted.nodes(&[7; 100], 1)[0];
    planted.contradicts("an inner node with a key out of order", inner, |page| swap(page, 64..72, 72..80));
    planted.contradicts("an inner node that is a leaf", inner, |page| page[5] = 0);
    planted.contradicts("an inner node with garbage that is none", inner, |page| page[36] += 1);
    planted.contradicts("an inner node without entries", inner, |page| put(page, 32, &[0, 0]));
    planted
        .contradicts("an inner node that leads beyond the file", inner, |page| put(page, tuple(page, 5), &id(1 << 40)));
    planted.contradicts("an inner node that leads to page 0", inner, |page| put(page, tuple(page, 5), &id(0)));
    planted.all_named(6);
}

#[test]
fn check_names_pages_of_a_large_value_that_contradict_each_other() {
    let planted = Planted::new("planted-value");
    let (root, values) = (planted.chains(2)[0], planted.chains(0));
    let is_below = |page: &&u64| self::page(&planted.sound, **page)[32..40] == root.to_le_bytes();
    let value = *values.iter().rfind(is_below).unwrap();
    planted.contradicts("the root of a large value with an id of no page", root, |page| {
        put(page, 56, &u32::MAX.to_le_bytes())
    });
    planted.contradicts("the root of a large value with an id too few", root, |page| page[52] -= 1);
    planted.contradicts("a root of a large value on another level", root, |page| page[5] = 1);
    planted.contradicts("a page of another value", value, |page| page[32] ^= 1);
    planted.contradicts("a page of an earlier value", value, |page| page[40] ^= 1);
    planted.contradicts("a page of another place in the value", value, |page| page[48] ^= 1);
    planted.contradicts("a page with fewer bytes of the value", value, |page| page[52] -= 1);
    planted.contradicts("a page of a value of another table", value, |page| page[24] ^= 0x40);
    planted.contradicts("a page of a value that is a node", value, |page| page[4] = 3);
    planted.all_named(9);
}

#[test]
fn check_names_pages_of_the_engine_that_contradict_others() {
    let planted = Planted::new("planted-engine");
    let leaf = planted.nodes(&[7; 100], 0)[20];
    let free = (planted.sound.len() / PAGE - 1) as u64;
    planted.contradicts("a catalogue of another table", 3, |page| page[24] = 7);
    planted.contradicts("a catalogue with keys in the wrong order", 3, |page| swap(page, 64..72, 72..80));
    planted.contradicts("a table of sequences on another level", 5, |page| page[5] = 1);
    planted.contradicts("a table of chains with an entry that it has not", 4, |page| page[32] = 1);
    for (what, target) in [("in use and free by the map", leaf), ("in use by the map alone", free)] {
        planted.names(what, target, |data| change(data, 2, |map| map[32 + target as usize / 8] ^= 1 << (target % 8)));
    }
    planted.all_named(6);
}
