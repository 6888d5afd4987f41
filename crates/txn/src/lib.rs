//! Transactions of Foreshore: xids, status, undo, commit, rollback.
