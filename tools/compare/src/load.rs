//! What is in the tables before a row is measured.

use crate::{
    spec::Spec,
    tatp,
    workload::{
        ACCOUNTS, ACCOUNTS_PER_BRANCH, BRANCHES, QUEUE, ROWS, RowBytes, Rows, TELLERS, TELLERS_PER_BRANCH, Table,
        Workload, churned, own_rows, row, values::Pool,
    },
    ycsb,
};

fn balances(table: Table, rows: u64) -> (Table, Box<Rows<'static>>) {
    (table, Box::new((0..rows).map(|key| (key, RowBytes::Row(row(key, 0))))))
}

/// Returns the tables that are loaded before a row is measured, with their rows.
pub(crate) fn loaded(spec: &Spec) -> Vec<(Table, Box<Rows<'static>>)> {
    let scale = spec.scale;
    match spec.workload {
        Workload::Tpcb => vec![
            balances(ACCOUNTS, scale * ACCOUNTS_PER_BRANCH),
            balances(TELLERS, scale * TELLERS_PER_BRANCH),
            balances(BRANCHES, scale),
        ],
        Workload::Read | Workload::Scan | Workload::DeleteRange => vec![(ROWS, Box::new(own_rows(0..scale)))],
        Workload::Insert | Workload::Bulk => Vec::new(),
        Workload::Tatp => tatp::loaded(spec.seed, spec.subscribers()),
        Workload::YcsbA | Workload::YcsbB | Workload::YcsbC | Workload::YcsbD | Workload::YcsbE | Workload::YcsbF => {
            vec![(ROWS, ycsb::loaded(scale))]
        }
        Workload::Queue => vec![(QUEUE, Box::new(own_rows(0..spec.backlog)))],
        Workload::Churn => {
            let mut keys: Vec<u64> = (0..scale).map(churned).collect();
            keys.sort_unstable();
            vec![(ROWS, Box::new(own_rows(keys.into_iter())))]
        }
        Workload::Values => {
            let (pool, len) = (Pool::new(), spec.value_bytes);
            let value = move |key| {
                let mut value = Vec::new();
                pool.fill(key, len as usize, &mut value);
                (key, RowBytes::Value(value))
            };
            vec![(ROWS, Box::new((0..spec.value_rows()).map(value)))]
        }
    }
}
