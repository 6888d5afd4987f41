//! `foreshore log`: the groups and records of the log, and whether the log is whole.

use super::superblock::Directory;
use crate::exit::Failure;
use crate::output::Output;
use clap::Args;
use foreshore::{Error, GroupNo, Lsn};
use foreshore_btree::TreeKind;
use foreshore_buffer::format::ChangeRecord;
use foreshore_space::SpaceKind;
use foreshore_txn::format as txn;
use foreshore_wal::{Follower, LoggedRecord};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Verify the log and list its groups or records, without opening the database
///
/// It reads files only: it recovers nothing, writes nothing, and works while another process has the database open.
///
/// The log is whole if it reaches from where a restart would begin to the newest checkpoint. Behind the checkpoint,
/// damage looks like the end of the log: only an open of the database tells them apart. Exit status 1 if the log is not
/// whole.
#[derive(Args)]
pub(crate) struct LogArguments {
    /// Directory of the database
    dir: PathBuf,
    /// Print the records instead of the groups
    #[arg(long)]
    records: bool,
    /// Print an object for each group or record, and one for the end (schema/log.json)
    #[arg(long)]
    json: bool,
}

/// The records that begin in a group.
#[derive(Default)]
struct Group {
    records: u64,
    bytes: u64,
    first: Lsn,
    last: Lsn,
}

/// What has been read of the log.
#[derive(Default)]
struct Found {
    groups: BTreeMap<GroupNo, Group>,
    records: u64,
    last: Lsn,
    has_checkpoint: bool,
}

pub(crate) fn run(arguments: &LogArguments) -> Result<(), Failure> {
    let directory = Directory::open(&arguments.dir)?;
    let (mut out, mut found) = (Output::new(), Found::default());
    let damage = match read(&directory, arguments, &mut found, &mut out) {
        Ok(()) => gap(&directory, &found),
        Err(Failure::Failed(error)) if is_damage(&error) => Some(error.to_string()),
        Err(failure) => return Err(failure),
    };
    if !arguments.records {
        found.groups.iter().try_for_each(|(number, group)| print_group(*number, group, arguments, &mut out))?;
    }
    if arguments.json {
        let end = json!({
            "groups": found.groups.len(), "records": found.records, "last_lsn": found.last.0,
            "checkpoint_lsn": directory.superblock.checkpoint_lsn.0, "sound": damage.is_none(), "damage": damage,
        });
        out.json(&json!({ "end": end }))?;
    } else {
        damage.iter().try_for_each(|damage| out.line(damage))?;
        let (groups, records) = (found.groups.len(), found.records);
        out.line(&format!("groups: {groups}, records: {records}, last LSN: {}", found.last))?;
    }
    out.end()?;
    if damage.is_none() { Ok(()) } else { Err(Failure::No) }
}

fn read(directory: &Directory, arguments: &LogArguments, found: &mut Found, out: &mut Output) -> Result<(), Failure> {
    let superblock = &directory.superblock;
    let follower = Follower::open(&directory.fs, &directory.log(), superblock.uuid, GroupNo::ZERO);
    // The last groups of a log are confirmed by no later one.
    let mut follower = follower.map_err(failed)?.unconfirmed();
    while let Some(record) = follower.read().map_err(failed)? {
        found.add(&record, superblock.checkpoint_lsn);
        if arguments.records {
            print_record(&record, arguments, out)?;
        }
    }
    Ok(())
}

fn failed(error: foreshore_base::Error) -> Failure {
    match Error::from(error) {
        error @ (Error::Foreign { .. } | Error::Newer { .. }) => Failure::Unopened(error),
        error => Failure::Failed(error),
    }
}

const fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupted { .. } | Error::Truncated { .. } | Error::LostLog { .. })
}

impl Found {
    fn add(&mut self, record: &LoggedRecord, checkpoint: Lsn) {
        let group = self.groups.entry(record.group).or_default();
        if group.records == 0 {
            group.first = record.lsn;
        }
        group.records += 1;
        group.bytes += record.payload.len() as u64;
        group.last = record.lsn;
        self.records += 1;
        self.last = record.lsn;
        self.has_checkpoint |= record.lsn == checkpoint;
    }
}

/// Returns what the log lacks of what a restart would read.
fn gap(directory: &Directory, found: &Found) -> Option<String> {
    let superblock = &directory.superblock;
    if superblock.checkpoint_lsn == Lsn::ZERO || found.has_checkpoint {
        return None;
    }
    let (last, checkpoint) = (found.last, superblock.checkpoint_lsn);
    Some(format!("the log can be read up to LSN {last}, and the newest checkpoint is at LSN {checkpoint}"))
}

fn print_group(number: GroupNo, group: &Group, arguments: &LogArguments, out: &mut Output) -> Result<(), Failure> {
    let Group { records, bytes, first, last } = group;
    if !arguments.json {
        return out.line(&format!("group {number}: records: {records}, bytes: {bytes}, LSN {first} to {last}"));
    }
    let group = json!({
        "group": number.0, "records": records, "payload_bytes": bytes, "first_lsn": first.0, "last_lsn": last.0,
    });
    out.json(&json!({ "group": group }))
}

fn print_record(record: &LoggedRecord, arguments: &LogArguments, out: &mut Output) -> Result<(), Failure> {
    let (lsn, group, bytes) = (record.lsn, record.group, record.payload.len());
    let change = ChangeRecord::decode(&record.payload);
    let kind = change.as_ref().map_or_else(|why| (*why).to_owned(), |change| kind_name(change.kind));
    let xid = Some(record.tag).filter(|&xid| xid != 0);
    let table = change.as_ref().ok().map(|change| change.table.0).filter(|&table| table != 0);
    let pages: Vec<u64> = change.iter().flat_map(|change| change.pages()).map(|page| page.0).collect();
    if arguments.json {
        let record = json!({
            "lsn": lsn.0, "group": group.0, "kind": kind, "xid": xid, "table": table, "pages": pages,
            "payload_bytes": bytes,
        });
        return out.json(&json!({ "record": record }));
    }
    let mut line = format!("{lsn} group {group} {kind}");
    line.extend(xid.map(|xid| format!(" xid {xid}")));
    line.extend(table.map(|table| format!(" table {table}")));
    if !pages.is_empty() {
        line.push_str(&format!(" pages {}", Json::from(pages)));
    }
    out.line(&format!("{line} {bytes} bytes"))
}

/// Returns the name of a kind of record, or its number.
fn kind_name(kind: u8) -> String {
    let own = match kind {
        txn::COMMIT => Some("commit"),
        txn::END => Some("end-of-rollback"),
        txn::XID_CEILING => Some("xid-ceiling"),
        txn::CHECKPOINT => Some("checkpoint"),
        txn::PREPARE => Some("prepare"),
        txn::ABORT => Some("decision-to-roll-back"),
        txn::PASS => Some("changes-skipped"),
        txn::COPY => Some("changes-copied"),
        _ => None,
    };
    let space = || SpaceKind::from_number(kind).map(SpaceKind::name);
    let name = own.or_else(space).or_else(|| TreeKind::from_number(kind).map(TreeKind::name));
    name.map_or_else(|| format!("kind-{kind}"), str::to_owned)
}
