//! Named places at which a test stops a thread in the middle of an operation.
//!
//! A test of a stopped thread cannot rely on luck: the thread must stop at the very place. Kernels call [`point`]
//! there. In builds without debug assertions it does nothing. In others it checks whether its own thread has asked for
//! a call, so parallel tests do not interfere. All threads of a shuttle test count as one.
//!
//! A process may choose a point, once (`kill_at`). The passes of all its threads are counted there, and one of them
//! ends the process.

#[cfg(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle))))]
mod kill;

#[cfg(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle))))]
pub use kill::{kill_at, passes};

/// Calls what the thread has asked for with [`set`], if anything. Ends the process at the pass that it has chosen.
#[inline(always)]
pub fn point(name: &'static str) {
    #[cfg(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle))))]
    kill::pass(name);
    #[cfg(any(foreshore_shuttle, all(debug_assertions, not(foreshore_loom))))]
    hooked::point(name);
    #[cfg(not(any(foreshore_shuttle, all(debug_assertions, not(foreshore_loom)))))]
    let _ = name;
}

#[cfg(any(foreshore_shuttle, all(debug_assertions, not(foreshore_loom))))]
pub use hooked::set;

#[cfg(any(foreshore_shuttle, all(debug_assertions, not(foreshore_loom))))]
mod hooked {
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut()>;

    std::thread_local! {
        static HOOK: RefCell<Option<(&'static str, Hook)>> = const { RefCell::new(None) };
    }

    /// Calls `hook` each time that this thread passes the point `name`, in place of an earlier hook.
    pub fn set(name: &'static str, hook: impl FnMut() + 'static) {
        // The earlier hook may pass points itself when it is dropped.
        drop(HOOK.replace(Some((name, Box::new(hook)))));
    }

    pub(super) fn point(name: &'static str) {
        // Taken out while it runs: a hook may pass points itself.
        let taken = HOOK.with_borrow_mut(|hook| hook.take_if(|(wanted, _)| *wanted == name));
        if let Some((wanted, mut hook)) = taken {
            hook();
            HOOK.with_borrow_mut(|slot| {
                slot.get_or_insert((wanted, hook));
            });
        }
    }
}

#[cfg(all(test, debug_assertions, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::thread;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_hook_is_called_at_its_point_on_its_thread() {
        let calls = Rc::new(Cell::new(0));
        let counter = calls.clone();
        set("here", move || {
            counter.set(counter.get() + 1);
            point("here");
        });
        point("there");
        assert_eq!(calls.get(), 0);
        point("here");
        point("here");
        thread::scope(|scope| {
            scope.spawn(|| point("here"));
        });
        assert_eq!(calls.get(), 2);
    }
}
