//! Queues of completed commits.

use crate::guard::{free, guard, hand_out, null, object, object_mut};
use foreshore_handles::{Queue, Status};
use std::ffi::c_int;

/// Commits that have completed, behind one descriptor. Any thread may use it, and several at once.
pub struct fs_queue {
    pub(crate) inner: Queue<u64>,
}

/// A commit that has completed.
#[repr(C)]
pub struct fs_completion {
    /// The tag of `fs_commit_queued`.
    pub tag: u64,
    /// `FS_OK` if the commit is durable.
    pub status: Status,
}

/// Makes a queue. Free it with `fs_queue_free`.
///
/// # Safety
/// `queue` is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_queue_new(queue: *mut *mut fs_queue) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let out = unsafe { object_mut(queue, "queue") }?;
        hand_out(out, fs_queue { inner: Queue::new()? });
        Ok(())
    })
}

/// Returns an eventfd that is readable while the queue holds completions, for `poll` and its kin. One wake-up serves
/// many commits. The queue owns it: do not read or close it. -1 for a null queue.
///
/// # Safety
/// `queue` is null or a queue that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_queue_fd(queue: *const fs_queue) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { queue.as_ref() }.map_or(-1, |queue| queue.inner.fd())
}

/// Takes completions, at most `max`, oldest first, without a wait. Stores them in `completions` and their number in
/// `count`.
///
/// # Safety
/// Each pointer is null or of its type, and `completions` has `max` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_queue_take(
    queue: *const fs_queue,
    completions: *mut fs_completion,
    max: usize,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (queue, count) = unsafe { (object(queue, "queue")?, object_mut(count, "count")?) };
        if completions.is_null() {
            return Err(null("completions"));
        }
        let taken = queue.inner.take(max)?;
        *count = taken.len();
        for (at, (tag, durable)) in taken.into_iter().enumerate() {
            let status = durable.map_or_else(|fault| fault.status, |()| Status::Ok);
            // SAFETY: at most `max` were taken, and the array has as many elements.
            unsafe { completions.add(at).write(fs_completion { tag, status }) };
        }
        Ok(())
    })
}

/// Frees a queue. Completions that it still gets are lost; the commits are not. Null is allowed.
///
/// # Safety
/// `queue` is null or a queue that was not freed, and no other thread is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_queue_free(queue: *mut fs_queue) {
    // SAFETY: as the caller promises.
    unsafe { free(queue) };
}
