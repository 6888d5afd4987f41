//! The threads that an engine itself drives.

use crate::engine::Engine;
use crate::max_age::EndOld;
use crate::purge::Purge;
use crate::upkeep::Upkeep;
use foreshore_base::{Error, Result};
use foreshore_sync::{Daemon, Signal, Step};
use std::{io, sync::Arc};

impl Engine {
    /// Starts the threads that the engine itself drives.
    pub(crate) fn spawn_daemons(self: &Arc<Self>) -> Result<()> {
        self.checkpointer.serve(self.options.lab.background);
        if !self.options.lab.background {
            return Ok(());
        }
        let checkpointer: Arc<dyn Step> = Arc::clone(&self.checkpointer) as _;
        self.spawn("foreshore-checkpoint", self.checkpointer.signal(), checkpointer)?;
        if self.options.transaction_max_age.is_some() {
            self.spawn("foreshore-max-age", Signal::new(), Arc::new(EndOld(Arc::downgrade(self))))?;
        }
        self.spawn("foreshore-purge", self.trees.purge_signal(), Arc::new(Purge(Arc::downgrade(self))))?;
        self.spawn("foreshore-space", self.space.signal(), Arc::new(Upkeep(Arc::downgrade(self))))
    }

    fn spawn(&self, name: &'static str, signal: Signal, step: Arc<dyn Step>) -> Result<()> {
        let (log, dir) = (self.log.clone(), self.files.dir.clone());
        let on_panic = Box::new(move |name: &str, message: &str| {
            log.poison(&Error::io("do background work for", dir, io::Error::other(format!("{name}: {message}"))));
        });
        let daemon = Daemon::spawn(name, signal, step, on_panic)
            .map_err(|error| Error::io("start a thread for", &self.files.dir, error))?;
        self.closing.lock().daemons.push(daemon);
        Ok(())
    }
}
