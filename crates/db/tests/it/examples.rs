//! The examples do what they say.

#[path = "../../examples/async_tokio.rs"]
mod async_tokio;
#[path = "../../examples/serve_metrics.rs"]
mod serve_metrics;

use crate::support::{fill, in_memory};
use foreshore::Db;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The example counts the increments itself. How long they take depends on the machine, so only a run that asks for it
/// checks that. With `FORESHORE_CONTEND_SECS=60` the tasks contend for a minute, in a database on disk.
#[test]
fn tasks_of_a_runtime_contend_for_rows() {
    let asked = std::env::var("FORESHORE_CONTEND_SECS").ok();
    let figures = match &asked {
        None => async_tokio::contend(&in_memory().0, Duration::from_secs(1)).unwrap(),
        Some(seconds) => {
            let dir = std::env::temp_dir().join(format!("foreshore-contend-{}", std::process::id()));
            let db = Db::open(&dir).unwrap();
            let time = Duration::from_secs(seconds.parse().expect("a number of seconds"));
            let figures = async_tokio::contend(&db, time).unwrap();
            db.close(Duration::from_secs(10)).unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
            figures
        }
    };
    println!("{} transactions, {:?}, {:?}", figures.transactions, figures.longest_wait, figures.latest_timer);
    assert!(figures.transactions >= 256, "each task has done one");
    if asked.is_some() {
        assert!(figures.longest_wait <= Duration::from_secs(1), "a task has waited for {:?}", figures.longest_wait);
        assert!(figures.latest_timer < Duration::from_millis(50), "a timer was late by {:?}", figures.latest_timer);
    }
}

#[test]
fn metrics_are_served_to_those_that_ask_for_them() {
    let db = in_memory().0;
    db.set_profiling(true).unwrap();
    fill(&db, 200);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ask = |request: &str| {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        serve_metrics::answer(&listener.accept().unwrap().0, &db).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    };
    let (status, body) = ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(body.contains("\nforeshore_commits_total 2\n"), "{body}");
    assert!(body.contains("foreshore_profile_transactions_total{label="), "{body}");
    for request in ["GET / HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "\r\n\r\n"] {
        assert_eq!(ask(request).0, "HTTP/1.1 404 Not Found", "{request}");
    }
}
