//! Background work as steps: a thread drives them in production, a simulator inline.

use crate::model::mutant;
use crate::primitive::atomic::{AtomicBool, Ordering, fence};
use crate::{Parker, Unparker};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

/// When a step wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextWake {
    /// At once: there is more to do.
    Now,
    /// When this much time has passed or the signal comes, whichever is first.
    After(Duration),
    /// When the signal comes.
    OnSignal,
}

/// A unit of background work: does a bounded piece and says when to continue. Steps of one object never overlap.
pub trait Step: Send + Sync {
    /// Does one piece of work. A call with nothing to do is allowed and cheap.
    fn step(&self) -> NextWake;
}

/// The signal of a daemon. It exists before its daemon, so that a step's owner can hold it; clones are the same
/// signal.
#[derive(Clone, Debug)]
pub struct Signal {
    parker: Arc<Parker>,
    unparker: Unparker,
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

impl Signal {
    /// Makes a signal that has not been sent.
    pub fn new() -> Self {
        let parker = Arc::new(Parker::new());
        let unparker = parker.unparker();
        Self { parker, unparker }
    }

    /// Makes the daemon's step run once more, after what the caller has published. Signals do not add up. Costs a fence
    /// and one load while an earlier signal has not been taken yet.
    pub fn notify(&self) {
        // ORDERING: store, fence, look: publish, then look for an old signal; pairs with the fence in `wait`, after
        // which the step that takes the old signal sees what was published.
        if !mutant("signal: no fence before looking") {
            fence(Ordering::SeqCst);
        }
        if !self.unparker.is_notified() {
            self.unparker.unpark();
        }
    }

    /// Takes a signal, waiting for it up to `timeout`; returns false if none came. One thread at a time.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        // WAIT: park - a daemon with nothing to do.
        let notified = match timeout {
            None => {
                self.parker.park();
                true
            }
            Some(timeout) => self.parker.park_timeout(timeout),
        };
        // ORDERING: pairs with the fence in `notify`.
        fence(Ordering::SeqCst);
        notified
    }
}

/// Waits for the end of a spawned body.
pub type Joiner = Box<dyn FnOnce() + Send>;

/// Starts a thread under `name` that runs `body`. Calling the joiner waits for its end; dropping it does not stop the
/// body.
///
/// # Errors
/// Those of the system.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Joiner> {
    #[cfg(foreshore_sim)]
    let handle = crate::schedule::spawn(name, body)?;
    #[cfg(not(any(foreshore_loom, foreshore_shuttle, foreshore_sim)))]
    let handle = std::thread::Builder::new().name(name.to_owned()).spawn(body)?;
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    let handle = {
        let _ = name;
        crate::primitive::thread::spawn(body)
    };
    // A body that panics has ended, which is all a joiner promises.
    Ok(Box::new(move || drop(handle.join())))
}

/// Called, on the daemon's thread, with the daemon's name and the panic's message when a step panics.
pub type OnPanic = Box<dyn FnOnce(&str, &str) + Send>;

/// A thread that drives a [`Step`] until it is stopped. Dropping it stops it too. If its own step drops it, the drop
/// does not wait: the thread ends when the step does.
pub struct Daemon {
    stop: Arc<AtomicBool>,
    signal: Signal,
    joiner: Option<Joiner>,
}

impl Daemon {
    /// Starts driving `step`, first at once and then as it asks; `signal` wakes it from outside.
    ///
    /// A panic in the step ends the daemon and is passed to `on_panic`, which fail-stops the owner. A step that
    /// panicked half-way is not run again.
    ///
    /// # Errors
    /// Those of [`spawn`].
    pub fn spawn(name: &str, signal: Signal, step: Arc<dyn Step>, on_panic: OnPanic) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let body = {
            let (stop, signal, name) = (stop.clone(), signal.clone(), name.to_owned());
            move || {
                set_driven(&stop);
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drive(&*step, &signal, &stop))) {
                    on_panic(&name, panic_message(&*panic));
                }
            }
        };
        let joiner = spawn(name, body)?;
        Ok(Self { stop, signal, joiner: Some(joiner) })
    }

    /// Makes the step run once more, like [`Signal::notify`].
    pub fn wake(&self) {
        self.signal.notify();
    }

    /// Waits for the step in progress, if there is one, and ends the thread. Remaining work is not done.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // ORDERING: Release, what the owner did before the stop is visible to the thread's last step; pairs with
        // `drive`.
        self.stop.store(true, Ordering::Release);
        self.signal.notify();
        if let Some(join) = self.joiner.take().filter(|_| !is_driven(&self.stop)) {
            // WAIT: park - one step is bounded work.
            join();
        }
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").finish_non_exhaustive()
    }
}

#[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
std::thread_local! {
    /// The daemon whose steps this thread runs, identified by the address of its flag.
    static DRIVEN: std::cell::Cell<*const AtomicBool> = const { std::cell::Cell::new(std::ptr::null()) };
}

fn set_driven(stop: &Arc<AtomicBool>) {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    DRIVEN.set(Arc::as_ptr(stop));
    let _ = stop;
}

/// Returns whether the calling thread runs the steps of this daemon. Never in a model, whose threads share their
/// thread-locals.
fn is_driven(stop: &Arc<AtomicBool>) -> bool {
    #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
    return DRIVEN.try_with(std::cell::Cell::get) == Ok(Arc::as_ptr(stop));
    #[cfg(any(foreshore_loom, foreshore_shuttle))]
    {
        let _ = stop;
        false
    }
}

fn drive(step: &dyn Step, signal: &Signal, stop: &AtomicBool) {
    // ORDERING: Acquire, pairs with the store in `drop`; the signal that follows it ends a wait.
    while !stop.load(Ordering::Acquire) {
        let pause = match step.step() {
            NextWake::Now => continue,
            NextWake::After(pause) => Some(pause),
            NextWake::OnSignal => None,
        };
        // WAIT: park - as the step has asked.
        signal.wait(pause);
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::atomic::AtomicU64;
    use std::sync::mpsc;

    /// Reports each call through a channel and returns what `next` says for its number.
    struct Reporter {
        calls: AtomicU64,
        seen: mpsc::SyncSender<u64>,
        next: fn(u64) -> NextWake,
    }

    impl Step for Reporter {
        fn step(&self) -> NextWake {
            let call = self.calls.fetch_add(1, Ordering::Relaxed);
            // The test may have seen enough and dropped its end.
            let _ = self.seen.send(call);
            (self.next)(call)
        }
    }

    fn start(next: fn(u64) -> NextWake) -> (Daemon, mpsc::Receiver<u64>) {
        let (seen, calls) = mpsc::sync_channel(1000);
        let step = Arc::new(Reporter { calls: AtomicU64::new(0), seen, next });
        let on_panic = Box::new(|name: &str, message: &str| panic!("{name}: {message}"));
        let daemon = Daemon::spawn("reporter", Signal::new(), step, on_panic).expect("a thread");
        (daemon, calls)
    }

    #[test]
    fn each_signal_runs_the_step_once_more() {
        let (daemon, calls) = start(|_| NextWake::OnSignal);
        assert_eq!(calls.recv(), Ok(0), "the first step runs unasked");
        for call in 1..100 {
            daemon.wake();
            assert_eq!(calls.recv(), Ok(call));
        }
        daemon.stop();
        assert!(calls.try_recv().is_err(), "no step without a signal");
    }

    #[test]
    fn a_step_goes_on_by_itself_when_it_says_so() {
        let next = |call| if call % 2 == 0 { NextWake::Now } else { NextWake::After(Duration::from_micros(1)) };
        let (daemon, calls) = start(next);
        for call in 0..10 {
            assert_eq!(calls.recv(), Ok(call));
        }
        drop(calls);
        daemon.stop();
    }

    #[test]
    fn a_stop_does_not_wait_for_the_pause() {
        let (daemon, calls) = start(|_| NextWake::After(Duration::MAX));
        assert_eq!(calls.recv(), Ok(0));
        daemon.stop();
        assert!(calls.recv().is_err(), "the step is dropped with its thread");
    }

    #[test]
    fn a_daemon_dropped_by_its_own_step_does_not_wait_for_itself() {
        struct Last(std::sync::Mutex<Option<mpsc::Receiver<Daemon>>>, mpsc::Sender<()>);
        impl Step for Last {
            fn step(&self) -> NextWake {
                let own = self.0.lock().expect("one step at a time").take().expect("one step");
                drop(own.recv().expect("the test hands it over"));
                self.1.send(()).expect("the test listens");
                NextWake::Now
            }
        }
        let ((hand, own), (report, reports)) = (mpsc::channel(), mpsc::channel());
        let step = Arc::new(Last(std::sync::Mutex::new(Some(own)), report));
        let on_panic = Box::new(|name: &str, message: &str| panic!("{name}: {message}"));
        let daemon = Daemon::spawn("last", Signal::new(), step, on_panic).expect("a thread");
        hand.send(daemon).expect("the step waits");
        assert_eq!(reports.recv(), Ok(()));
        assert!(reports.recv().is_err(), "no step after the stop");
    }

    #[test]
    fn a_panic_ends_the_daemon_and_is_reported() {
        struct Broken;
        impl Step for Broken {
            fn step(&self) -> NextWake {
                panic!("page {} is torn", 7);
            }
        }
        let (report, reports) = mpsc::channel();
        let on_panic = Box::new(move |name: &str, message: &str| {
            report.send(format!("{name}: {message}")).expect("the test listens");
        });
        let daemon = Daemon::spawn("cleaner", Signal::new(), Arc::new(Broken), on_panic).expect("a thread");
        assert_eq!(reports.recv().as_deref(), Ok("cleaner: page 7 is torn"));
        daemon.stop();
        assert!(reports.recv().is_err(), "reported once");
    }
}
