//! Progress on standard error, where that is a terminal.

use foreshore_bench::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// One line, drawn anew for each phase. Draws nothing where standard error is not a terminal.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg:30} {wide_bar} {percent:>3}% {elapsed}");
        bar.set_style(style.expect("the template is constant"));
        Self(bar)
    }
}

impl Progress for Bar {
    fn phase(&self, name: &str, total: u64) {
        self.0.set_message(name.to_owned());
        self.0.set_length(total);
        self.0.reset();
    }

    fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
