//! What subscribers of `tracing` are told.

use foreshore::{Db, Isolation, Options, TableDef, TxnOptions};
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

const STOCK: TableDef<u64, i64> = TableDef::new("stock");

/// The events of one thread, as `LEVEL message field=value …`.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    /// Runs `work` with this subscriber, and returns what it was told of it.
    fn during<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
        let told = Self::default();
        let done = tracing::subscriber::with_default(told.clone(), work);
        let lines = told.0.lock().unwrap().clone();
        (done, lines)
    }
}

impl Subscriber for Told {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "foreshore"
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.lock().unwrap().push(format!("{} {}{}", event.metadata().level(), line.message, line.fields));
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields += &format!(" {name}={value:?}"),
        }
    }
}

#[test]
fn open_transactions_and_close_are_told() {
    let (_, told) = Told::during(|| {
        let db = Options::in_memory().open("memory").unwrap();
        let deposit = TxnOptions::new().label("deposit");
        db.run_with(deposit, |tx| tx.open(STOCK)?.put(1, 10)).unwrap();
        let tx = db.begin_with(TxnOptions::new().label("withdrawal"));
        tx.open(STOCK).unwrap().put(1, 5).unwrap();
        tx.rollback().unwrap();
        db.checkpoint().unwrap();
        db.vacuum().unwrap();
        db.close(std::time::Duration::from_secs(1)).unwrap();
    });
    let starts = |start: &str| told.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(starts("INFO opened dir=memory was_clean="), 1, "{told:#?}");
    assert_eq!(starts("TRACE committed label=\"deposit\" csn="), 1, "{told:#?}");
    assert_eq!(starts("TRACE rolled back label=\"withdrawal\""), 1, "{told:#?}");
    assert_eq!(starts("INFO ended work=\"vacuum\""), 1, "{told:#?}");
    assert!(starts("DEBUG checkpoint redo_start=") >= 2, "{told:#?}");
    assert_eq!(starts("INFO closed dir=memory"), 1, "{told:#?}");
    assert_eq!(starts(Level::WARN.as_str()) + starts(Level::ERROR.as_str()), 0, "{told:#?}");
}

#[test]
fn a_closure_that_runs_again_is_told_with_its_cause() {
    let db = Db::in_memory().unwrap();
    let mut runs = 0;
    db.run(|tx| tx.open(STOCK)?.put(1, 0)).unwrap();
    let (done, told) = Told::during(|| {
        db.run_with(TxnOptions::new().isolation(Isolation::Snapshot), |tx| {
            runs += 1;
            let stock = tx.open(STOCK)?;
            if runs == 1 {
                // Another transaction changes the row that this one has seen, and commits first.
                stock.get(1)?;
                db.run_with(TxnOptions::new().label("other"), |other| other.open(STOCK)?.put(1, 7))?;
            }
            stock.put(1, 1)
        })
    });
    done.unwrap();
    assert!(told.iter().any(|line| line.starts_with("DEBUG runs again") && line.contains("runs=1")), "{told:#?}");
}
