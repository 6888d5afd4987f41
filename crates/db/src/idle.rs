//! The memory of iterations. Successive iterations of a session use the same cursor.
//!
//! An iteration may outlive its transaction. So it returns the cursor to a place that it shares with the session, not
//! to the transaction. A cursor in that place has no snapshot and no rows.

use foreshore_btree::{Cursor, Tree};
use foreshore_sync::{LockRank, Mutex};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The place of a session for a cursor that no iteration uses.
pub(crate) struct IdleCursor(Mutex<Option<Box<Cursor>>>);

impl Default for IdleCursor {
    fn default() -> Self {
        Self(Mutex::new(LockRank::Leaf, None))
    }
}

/// A cursor that an iteration uses. Its drop returns it to the place it came from.
pub(crate) struct CursorGuard {
    /// Taken by the drop.
    cursor: Option<Box<Cursor>>,
    home: Option<Arc<IdleCursor>>,
}

impl CursorGuard {
    /// Takes the idle cursor of a session, or makes a new one.
    pub(crate) fn new(home: Option<Arc<IdleCursor>>, tree: &Tree) -> Self {
        let idle = home.as_ref().and_then(|home| home.0.lock().take());
        Self { cursor: Some(idle.unwrap_or_else(|| Box::new(Cursor::new(tree)))), home }
    }
}

impl Deref for CursorGuard {
    type Target = Cursor;

    #[inline]
    fn deref(&self) -> &Cursor {
        self.cursor.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for CursorGuard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Cursor {
        self.cursor.as_mut().expect("it is there until the drop")
    }
}

impl Drop for CursorGuard {
    fn drop(&mut self) {
        if let (Some(mut cursor), Some(home)) = (self.cursor.take(), &self.home) {
            cursor.rest();
            // A cursor that another iteration returned before is dropped after the lock is released.
            let _other = home.0.lock().replace(cursor);
        }
    }
}
