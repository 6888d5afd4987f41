//! An allocator that ends the process when the target asks for more memory than any input may cost.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes that one allocation may have.
const LARGEST: usize = 128 << 20;
/// Bytes that may be allocated at once, those of the fuzzer and of the databases that it starts from included.
const TOTAL: usize = 1 << 30;

/// The allocator of every target.
#[derive(Debug)]
pub(crate) struct Limited {
    used: AtomicUsize,
    is_over: AtomicBool,
}

impl Limited {
    /// An allocator that has given nothing out.
    const fn new() -> Self {
        Self { used: AtomicUsize::new(0), is_over: AtomicBool::new(false) }
    }

    fn take(&self, bytes: usize) {
        // ORDERING: counter.
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // ORDERING: flag of one thread: what the report allocates is not looked at.
        if (bytes > LARGEST || used > TOTAL) && !self.is_over.swap(true, Ordering::Relaxed) {
            eprintln!("{bytes} bytes more are too many, {used} are in use\n{}", Backtrace::force_capture());
            // The fuzzer keeps the input of an aborted process.
            std::process::abort();
        }
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size());
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // ORDERING: counter.
        self.used.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Limited = Limited::new();
