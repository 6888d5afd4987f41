//! Options as arguments.

use crate::errors::OrRaise;
use foreshore::{Durability, Isolation, Options, ReadOptions, TxnOptions};
use foreshore_handles::{label, with_device, with_doublewrite, with_group_window};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// Returns a time of so many seconds.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(format!("{name}={seconds}: {error}")))
}

/// Returns the text of a path.
pub(crate) fn path_of(path: &Bound<'_, PyAny>) -> PyResult<String> {
    let path = path.py().import("os")?.call_method1("fspath", (path,))?;
    path.extract().map_err(|_| PyValueError::new_err("the path is not text"))
}

/// Sets how the files are written.
pub(crate) fn written(
    py: Python<'_>,
    mut options: Options,
    device: Option<&str>,
    doublewrite: Option<&str>,
    group_window: Option<f64>,
) -> PyResult<Options> {
    if let Some(name) = device {
        options = with_device(options, name).or_raise(py)?;
    }
    if let Some(name) = doublewrite {
        options = with_doublewrite(options, name).or_raise(py)?;
    }
    if let Some(window) = group_window {
        options = with_group_window(options, seconds("group_window", window)?);
    }
    Ok(options)
}

/// Returns the options of a transaction.
pub(crate) fn transaction(
    py: Python<'_>,
    isolation: &str,
    durability: &str,
    lock_timeout: Option<f64>,
    deadline: Option<f64>,
    name: Option<&str>,
) -> PyResult<TxnOptions> {
    let isolation = match isolation {
        "serializable" => Isolation::Serializable,
        "snapshot" => Isolation::Snapshot,
        "read-committed" => Isolation::ReadCommitted,
        other => {
            let message = format!("isolation={other:?}: `serializable`, `snapshot` or `read-committed` is wanted");
            return Err(PyValueError::new_err(message));
        }
    };
    let durability = match durability {
        "durable" => Durability::Durable,
        "relaxed" => Durability::Relaxed,
        other => return Err(PyValueError::new_err(format!("durability={other:?}: `durable` or `relaxed` is wanted"))),
    };
    let mut options = TxnOptions::new().isolation(isolation).durability(durability);
    if let Some(timeout) = lock_timeout {
        options = options.lock_timeout(seconds("lock_timeout", timeout)?);
    }
    if let Some(deadline) = deadline {
        options = options.deadline(seconds("deadline", deadline)?);
    }
    Ok(options.label(label(name.unwrap_or_default()).or_raise(py)?))
}

/// Returns the options of a transaction that only reads.
pub(crate) fn reader(py: Python<'_>, name: Option<&str>, latest: bool) -> PyResult<ReadOptions> {
    let options = ReadOptions::new().label(label(name.unwrap_or_default()).or_raise(py)?);
    Ok(if latest { options.latest() } else { options })
}
