//! The tables and their rows.

use foreshore::TableDef;

/// Accounts of a branch.
pub(super) const ACCOUNTS_PER_BRANCH: u64 = 100_000;
/// Tellers of a branch.
pub(super) const TELLERS_PER_BRANCH: u64 = 10;

pub(super) const ROW_BYTES: usize = 100;
pub(super) const HISTORY_BYTES: usize = 50;
pub(super) const ACCOUNTS: TableDef<'_, u64, Bytes> = TableDef::new("accounts");
pub(super) const TELLERS: TableDef<'_, u64, Bytes> = TableDef::new("tellers");
pub(super) const BRANCHES: TableDef<'_, u64, Bytes> = TableDef::new("branches");
pub(super) const HISTORY: TableDef<'_, HistoryKey, Bytes> = TableDef::new("history");

/// Values are raw bytes.
pub(super) type Bytes = &'static [u8];

/// Run, thread, sequence.
pub(super) type HistoryKey = (u64, u32, u64);

/// Bytes of an account, a teller or a branch.
pub(super) fn row(balance: i64, branch: u64) -> [u8; ROW_BYTES] {
    let mut row = [b'.'; ROW_BYTES];
    row[..8].copy_from_slice(&balance.to_le_bytes());
    row[8..16].copy_from_slice(&branch.to_le_bytes());
    row
}

/// The eight bytes at `at`, if there are as many.
pub(super) fn word(row: &[u8], at: usize) -> Option<[u8; 8]> {
    row.get(at..at + 8)?.try_into().ok()
}

pub(super) fn balance(row: &[u8]) -> Option<i64> {
    (row.len() == ROW_BYTES).then(|| word(row, 0).map(i64::from_le_bytes))?
}
