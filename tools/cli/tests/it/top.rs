//! Rates of a program that serves its metrics.

use crate::schema;
use crate::support::{ACCOUNTS, Dir, Ran, close, foreshore, program};
use foreshore::{Db, TxnOptions, metrics};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

/// A server at a free port of this machine.
struct Server {
    listener: TcpListener,
    url: String,
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// Answers one request.
    fn answer(&self, status: &str, body: &str) {
        let (client, _) = self.listener.accept().unwrap();
        read_request(&client);
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        (&client).write_all((head + body).as_bytes()).unwrap();
    }

    fn top(&self, words: &[&str]) -> Ran {
        let words = ["top", &self.url, "--interval", "10ms"].into_iter().chain(words.iter().copied()).map(OsStr::new);
        foreshore(words, None)
    }
}

fn read_request(client: &TcpStream) {
    let mut lines = BufReader::new(client).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "GET /metrics HTTP/1.0");
    assert!(lines.any(|line| line.unwrap().is_empty()), "the request ends");
}

fn text(db: &Db) -> String {
    metrics::render(&db.stats()) + &metrics::render_profile(&db.profile())
}

fn commit(db: &Db, count: u64) {
    (0..count).for_each(|n| db.run(|tx| tx.open(ACCOUNTS)?.put(n, 1)).unwrap());
}

#[test]
fn two_samples_of_a_program_become_rates() {
    let (dir, server) = (Dir::new("top"), Server::new());
    let db = dir.open();
    db.set_profiling(true).unwrap();
    commit(&db, 10);
    let open = db.begin_with(TxnOptions::new().label("import"));
    open.open(ACCOUNTS).unwrap().put(500, 1).unwrap();
    let ran = thread::scope(|scope| {
        let top = scope.spawn(|| server.top(&["--json", "--once"]));
        server.answer("200 OK", &text(&db));
        commit(&db, 100);
        server.answer("200 OK", &text(&db));
        top.join().unwrap()
    });
    assert_eq!((ran.code, &*ran.errors), (0, ""));
    let view = &schema::lines("top", &ran.output)[0];
    let number = |name: &str| view[name].as_f64().expect(name);
    let commits = number("commits_per_second") * number("seconds");
    assert!((commits - 100.0).abs() < 1e-6, "{view}");
    assert!(number("commits_per_write") > 0.0 && number("log_bytes_per_second") > 0.0, "{view}");
    assert_eq!(view["oldest_transaction"]["label"], "import");
    let shares: f64 = view["time_shares"].as_object().unwrap().values().map(|share| share.as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{view}");
    drop(open);
    close(db);
}

#[test]
fn lines_go_into_a_pipe_until_it_is_closed() {
    let (db, server) = (Db::in_memory().unwrap(), Server::new());
    let mut command = program();
    command.args(["top", &server.url, "--interval", "1ms"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    (0..3).for_each(|_| server.answer("200 OK", &text(&db)));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let names = ["commits ", "rollbacks ", "log ", "pages ", "waits ", "time ", "oldest tr", "oldest sn"];
        for name in names {
            let line = lines.next().unwrap().unwrap();
            assert!(line.starts_with(name) && !line.contains('\x1b'), "{line}");
        }
    }
    drop(lines);
    server.answer("200 OK", &text(&db));
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*errors), (Some(0), ""));
}

#[test]
fn what_is_no_such_program_is_refused() {
    let server = Server::new();
    for (status, body, code, why) in [
        ("200 OK", "other_total 1\n", 2, "expected that of foreshore::metrics"),
        ("200 OK", "foreshore_commits_total one\n", 2, "a line is no metric: foreshore_commits_total one"),
        ("404 Not Found", "", 4, "404 Not Found"),
    ] {
        let ran = thread::scope(|scope| {
            let top = scope.spawn(|| server.top(&["--once"]));
            server.answer(status, body);
            top.join().unwrap()
        });
        ran.is_refused(code, why);
    }
    let url = server.url.clone();
    drop(server);
    foreshore(["top", &url].map(OsStr::new).into_iter(), None).is_refused(4, &url);
    for words in [&["top", "https://host/metrics"][..], &["top", "--interval", "0"], &["top", "--interval", "1h"]] {
        assert_eq!(foreshore(words.iter().map(OsStr::new), None).code, 2, "{words:?}");
    }
}
