//! `foreshore page`: one page of the data file, as it lies there.

use super::superblock::Directory;
use crate::exit::Failure;
use crate::output::Output;
use crate::types::Form;
use clap::Args;
use foreshore::limits::PAGE_SIZE;
use foreshore_base::limits::MAX_PAGES;
use foreshore_base::{Lsn, PageId};
use foreshore_btree::format::{OVERFLOW, RowHeader};
use foreshore_btree::{ChainContent, ChainPart, Entries, NodeContent};
use foreshore_buffer::format::{
    PageType, page_flags, page_id, page_level, page_lsn, page_table, page_type, verify_page,
};
use foreshore_buffer::why_quarantined;
use foreshore_space::{REGION_PAGES, is_allocated, map_of};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

/// Print a page of the data file, without opening the database
///
/// It reads files only: it recovers nothing, writes nothing, and works on damaged pages and while another process has
/// the database open. A page that was changed since it was written shows its older state. Exit status 1 if the page is
/// damaged.
#[derive(Args)]
pub(crate) struct PageArguments {
    /// Directory of the database
    dir: PathBuf,
    /// Number of the page: its offset in the file over 8192
    page: u64,
    /// Show keys and values as UTF-8 instead of hex digits
    #[arg(long)]
    utf8: bool,
    /// Print an object (schema/page.json)
    #[arg(long)]
    json: bool,
}

/// The two slots of the superblock.
const SUPERBLOCKS: u64 = 2;
/// How far the log is durable is not known here.
const ANY: Lsn = Lsn(u64::MAX);

pub(crate) fn run(arguments: &PageArguments) -> Result<(), Failure> {
    let directory = Directory::open(&arguments.dir)?;
    let pages = directory.len("data")?.div_ceil(PAGE_SIZE as u64);
    if arguments.page >= pages.min(MAX_PAGES) {
        return Err(Failure::Refused(format!("there is no page {}: the data file has {pages}", arguments.page)));
    }
    let pid = PageId(arguments.page);
    let page = directory.read("data", pid.offset(), PAGE_SIZE)?;
    let form = if arguments.utf8 { Form::Utf8 } else { Form::Hex };
    let map = directory.read("data", map_of(pid).offset(), PAGE_SIZE)?;
    let is_map_sound = verify_page(&map, map_of(pid), ANY).is_ok();
    let is_in_use = is_allocated(&map, pid).ok().filter(|_| is_map_sound);
    let (json, is_sound) = describe(&page, pid, is_in_use, form);
    let mut out = Output::new();
    if arguments.json {
        out.json(&json)?
    } else {
        out.fields(&json)?
    }
    out.end()?;
    if is_sound { Ok(()) } else { Err(Failure::No) }
}

/// Returns a description of a page, and whether it is sound. A page that its map has as free is: nothing reads it.
fn describe(page: &[u8], pid: PageId, is_in_use: Option<bool>, form: Form) -> (Json, bool) {
    let mut json = json!({ "page": pid.0, "offset": pid.offset(), "in_use": is_in_use });
    if pid.0 < SUPERBLOCKS {
        json["type"] = "superblock".into();
        return (json, true);
    }
    let mut damage = verify_page(page, pid, ANY).err().map(|flaw| flaw.why());
    if page.len() == PAGE_SIZE {
        let (kind, content) = content(page, pid, form);
        json["type"] = kind.into();
        json["header"] = json!({
            "id": page_id(page).0,
            "lsn": page_lsn(page).0,
            "table": page_table(page).0,
            "level": page_level(page),
            "flags": page_flags(page),
        });
        match content {
            Ok((content, why)) => {
                json["content"] = content;
                damage = damage.or(why);
            }
            Err(why) => damage = damage.or(Some(why)),
        }
    }
    let damage = damage.filter(|_| is_in_use != Some(false));
    json["damage"] = damage.into();
    (json, damage.is_none())
}

/// The content of a page, and what is wrong with it as a whole.
type Content = Result<(Json, Option<&'static str>), &'static str>;

fn content(page: &[u8], pid: PageId, form: Form) -> (&'static str, Content) {
    match page_type(page) {
        Some(PageType::Map) => ("map", map(page, pid).map(|json| (json, None))),
        Some(PageType::Tree) => ("tree", NodeContent::read(page).map(|node| (node_json(&node, form), node.damage))),
        Some(PageType::Chain) => ("chain", ChainContent::read(page).map(|chain| (chain_json(&chain, form), None))),
        Some(PageType::Quarantined) => ("quarantined", Err(why_quarantined(page_flags(page)))),
        // A page that was never in use, or was given back before it was written.
        None => ("none", Ok((Json::Null, None))),
    }
}

/// Lists the pages of a map that are in use, as ranges with their last page.
fn map(page: &[u8], pid: PageId) -> Result<Json, &'static str> {
    let first = pid.0 / REGION_PAGES * REGION_PAGES;
    if map_of(pid) != pid {
        return Err("a map page in another place");
    }
    let (mut ranges, mut used): (Vec<[u64; 2]>, u64) = (Vec::new(), 0);
    for pid in first..first + REGION_PAGES {
        if !is_allocated(page, PageId(pid))? {
            continue;
        }
        used += 1;
        match ranges.last_mut() {
            Some(range) if range[1] + 1 == pid => range[1] = pid,
            _ => ranges.push([pid, pid]),
        }
    }
    Ok(json!({ "first": first, "pages": REGION_PAGES, "used": used, "used_ranges": ranges }))
}

fn node_json(node: &NodeContent, form: Form) -> Json {
    let mut json = json!({
        "low": form.show(&node.low),
        "high": node.high.as_deref().map(|high| form.show(high)),
        "right": node.right.map(|page| page.0),
        "incomplete": node.is_incomplete,
        "free_bytes": node.free,
    });
    match &node.entries {
        Entries::Children { leftmost, others } => {
            json["leftmost"] = leftmost.0.into();
            let child = |(key, page): &(Vec<u8>, PageId)| json!({ "key": form.show(key), "page": page.0 });
            json["children"] = others.iter().map(child).collect();
        }
        Entries::Rows(rows) => {
            json["rows"] = rows.iter().map(|row| row_json(row.header, [&row.key, &row.value], form)).collect();
        }
    }
    json
}

fn row_json(header: RowHeader, [key, value]: [&[u8]; 2], form: Form) -> Json {
    json!({
        "key": form.show(key),
        "value": form.show(value),
        "xid": header.xid.0,
        "undo": header.undo,
        "deleted": header.is_ghost(),
        "large": header.flags & OVERFLOW != 0,
    })
}

fn chain_json(chain: &ChainContent, form: Form) -> Json {
    let mut json = json!({ "head": chain.chain.head.0, "birth": chain.chain.birth.0, "place": chain.place });
    match &chain.part {
        ChainPart::Data(bytes) => json["data"] = form.show(bytes).into(),
        ChainPart::Pages(pages) => json["pages"] = pages.iter().map(|page| page.0).collect(),
    }
    json
}
