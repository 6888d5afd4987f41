//! Serves the counters of a database to Prometheus over HTTP, with nothing but `std`, while writers work.
//!
//! ```text
//! cargo run --release -p foreshore --example serve_metrics -- 127.0.0.1:9184
//! curl http://127.0.0.1:9184/metrics         # or: foreshore top http://127.0.0.1:9184/metrics
//! ```
//!
//! The argument is the address to listen at. It runs until it is stopped. A program that has an HTTP server already
//! needs no more than the function `text`.

use foreshore::{Db, Error, TableDef, metrics};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
const ACCOUNT_COUNT: u64 = 100;
const WRITERS: u64 = 8;
/// A client that is slower than this is cut off, because others wait for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read.
const REQUEST_BYTES: u64 = 8 << 10;

#[allow(dead_code, reason = "the test of the examples includes this file and calls only `answer`")]
fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9184".to_owned());
    let dir = std::env::temp_dir().join(format!("foreshore-metrics-{}", std::process::id()));
    let db = Db::open(&dir)?;
    // The times of waits by class come from the profile.
    db.set_profiling(true)?;
    let listener = TcpListener::bind(&address).map_err(|error| Error::io("bind", &address, error))?;
    println!("http://{address}/metrics, of the database in {}", dir.display());
    thread::scope(|scope| {
        let db = &db;
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(db, writer))).collect();
        serve(&listener, db);
        writers.into_iter().try_for_each(|writer| writer.join().expect("no panic"))
    })
}

/// Moves money between accounts until the process ends.
fn write(db: &Db, writer: u64) -> Result<(), Error> {
    for number in 0.. {
        let account = |step: u64| (writer * 31 + number * step) % ACCOUNT_COUNT;
        db.run(|tx| {
            let accounts = tx.open(ACCOUNTS)?;
            accounts.update_with(account(7), |balance| Some(balance.unwrap_or(0) - 1))?;
            accounts.update_with(account(11), |balance| Some(balance.unwrap_or(0) + 1)).map(drop)
        })?;
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Answers requests, one after another.
pub(crate) fn serve(listener: &TcpListener, db: &Db) {
    for client in listener.incoming() {
        // A client that has gone away must not end the server.
        if let Err(error) = client.and_then(|client| answer(&client, db)) {
            eprintln!("a request was not answered: {error}");
        }
    }
}

/// Reads one request, and answers it.
pub(crate) fn answer(client: &TcpStream, db: &Db) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(client.take(REQUEST_BYTES)).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    // The headers do not matter, but the connection ends with a reset if they are not read.
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (status, body) = match request.split_whitespace().collect::<Vec<_>>()[..] {
        ["GET", "/metrics", _] => ("200 OK", text(db)),
        _ => ("404 Not Found", "only GET /metrics\n".to_owned()),
    };
    let kind = metrics::CONTENT_TYPE;
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
    let mut client = client;
    client.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes())
}

/// All metrics. Those of tables are left out: to count the rows, each page would be read.
fn text(db: &Db) -> String {
    metrics::render(&db.stats()) + &metrics::render_profile(&db.profile())
}
