//! Model checking: running a model under loom, and mutants that a model must fail.
//!
//! A model that no mutation can break proves nothing, so kernels carry named switches at the lines whose order matters:
//! `if !mutant("latch: no release fence") { fence(Release) }`. In ordinary builds [`mutant`] is the constant `false`.
//! Under `--cfg foreshore_loom` a test turns one on with `mutated` and expects the model to panic.

#[cfg(foreshore_loom)]
std::thread_local! {
    // loom runs all threads of a model as coroutines of the test's own thread, so they share this cell.
    static ACTIVE: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Whether the line named `name` is switched off in this model.
#[cfg(foreshore_loom)]
pub fn mutant(name: &'static str) -> bool {
    ACTIVE.get() == Some(name)
}

/// Whether the line named `name` is switched off in this model: never, outside loom builds.
#[cfg(not(foreshore_loom))]
#[inline(always)]
pub const fn mutant(_name: &'static str) -> bool {
    false
}

/// Explores every interleaving of `model` within loom's bounds; panics on the first that fails.
#[cfg(foreshore_loom)]
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    loom::model(model);
}

/// As [`check`], with the line named `name` switched off.
#[cfg(foreshore_loom)]
pub fn mutated(name: &'static str, model: impl Fn() + Send + Sync + 'static) {
    ACTIVE.set(Some(name));
    loom::model(model);
    ACTIVE.set(None);
}
