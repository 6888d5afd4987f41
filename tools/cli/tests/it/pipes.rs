//! Output that goes into pipes and files.

use crate::support::{ACCOUNTS, Dir, close, program};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

fn many_rows(name: &str) -> Dir {
    let dir = Dir::new(name);
    let db = dir.open();
    // More than a pipe and the buffers of both programs hold.
    for from in (0..30_000).step_by(1000) {
        db.run(|tx| {
            let accounts = tx.open(ACCOUNTS)?;
            (from..from + 1000).try_for_each(|n| accounts.put(n, 1))
        })
        .unwrap();
    }
    close(db);
    dir
}

#[test]
fn a_closed_pipe_ends_the_output_quietly() {
    let dir = many_rows("pipe");
    for (verb, words) in [("scan", &["accounts"][..]), ("scan", &["accounts", "--json"]), ("dump", &[])] {
        let mut command = program();
        command.arg(verb).arg(dir.path()).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.ends_with('\n'), "{first}");
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*errors), (Some(0), ""), "{verb} {words:?}");
    }
}

#[test]
fn a_full_disk_behind_the_output_is_a_failure() {
    let dir = many_rows("full");
    for verb in ["dump", "tables"] {
        let mut command = program();
        let full = File::options().write(true).open("/dev/full").unwrap();
        command.arg(verb).arg(dir.path()).stdout(full).stderr(Stdio::piped());
        let done = command.output().unwrap();
        let errors = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(4), "{errors}");
        assert!(errors.starts_with("error: no space for standard output"), "{errors}");
    }
}
