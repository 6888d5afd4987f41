//! The shell, driven through a pipe.

use crate::support::{ACCOUNTS, Dir, Ran, close, contents};

/// Runs lines that all succeed, and returns the output.
fn prints(dir: &Dir, lines: &str) -> String {
    let ran = dir.run_with("shell", &[], lines);
    assert_eq!((ran.code, &*ran.errors), (0, ""), "{lines}");
    ran.output
}

/// Runs lines, and returns the exit status, the output and the errors.
fn runs(dir: &Dir, lines: &str) -> (i32, String, String) {
    let Ran { code, output, errors } = dir.run_with("shell", &[], lines);
    (code, output, errors)
}

#[test]
fn verbs_do_what_those_of_the_program_do() {
    let dir = Dir::with_database("shell-verbs");
    for (verb, words) in [
        ("tables", ""),
        ("tables", "--json"),
        ("get", "accounts 7"),
        ("get", "names Ada --json"),
        ("get", "blobs 00ff"),
        ("scan", "names"),
        ("scan", "accounts --from 3 --to 5 --keys"),
        ("scan", "accounts --limit 1 --reverse --json"),
    ] {
        let alone = dir.prints(verb, &words.split_whitespace().collect::<Vec<_>>());
        assert_eq!(prints(&dir, &format!("{verb} {words}\n")), alone, "{verb} {words}");
    }
    let lines = "put names 'Grace H' '\"Rear Admiral\"'\nget names 'Grace H'\ndel accounts 8\nput accounts 1000 -5\n\
                 # a comment\n\n  get blobs --utf8 '\\x00\\xff' ";
    assert_eq!(prints(&dir, lines), "Rear Admiral\na\\\\b\n");
    assert_eq!(dir.prints("get", &["accounts", "1000"]), "-5\n");
    assert_eq!(dir.run("get", &["accounts", "8"]).code, 1);
}

#[test]
fn ranges_prefixes_and_counts() {
    let dir = Dir::with_database("shell-ranges");
    let lines = "range accounts 298\nrange accounts 3 5 --keys\nprefix names A --keys\nprefix blobs 6c --keys\n\
                 count accounts\ncount accounts --from 10 --to 15\ncount names --prefix B\ncount shapes\n";
    assert_eq!(prints(&dir, lines), "298\t198\n299\t199\n3\n4\n\"Ada\"\n\"6c61726765\"\n300\n5\n1\n0\n");
}

#[test]
fn a_transaction_spans_lines_and_reads_its_own_writes() {
    let dir = Dir::with_database("shell-transaction");
    let lines = "begin\nput accounts 7 1\nput accounts 500 2\nget accounts 7\ncount accounts\nrollback\nget accounts 7\n\
                 begin\nput accounts 7 70\ndel accounts 9\nscan accounts --from 6 --to 11 --keys\ncommit\nget accounts 7\n";
    assert_eq!(prints(&dir, lines), "1\n301\n-93\n6\n7\n8\n10\n70\n");
    let db = dir.open();
    let tx = db.read();
    let accounts = tx.open(ACCOUNTS).unwrap();
    assert_eq!((accounts.get(7).unwrap(), accounts.get(9).unwrap(), accounts.len().unwrap()), (Some(70), None, 299));
    drop(tx);
    close(db);
}

#[test]
fn an_error_ends_the_input_with_its_status_and_rolls_back() {
    let dir = Dir::with_database("shell-errors");
    for (lines, why) in [
        ("begin\nput accounts 7 1\nput accounts x 1\ncommit\n", "key \"x\": expected a number of u64"),
        ("begin\nput accounts 7 1\nput nothing 1 1\ncommit\n", "there is no table \"nothing\""),
        ("begin\nput accounts 7 1\nbegin\ncommit\n", "a transaction is open"),
        ("begin\nput accounts 7 1\nput 'accounts 7 2\ncommit\n", "a quote is not closed"),
        ("begin\nput accounts 7 1\nput accounts 7\ncommit\n", "required arguments were not provided: <VALUE>"),
        ("begin\nput accounts 7 1\ninsert accounts 7 2\ncommit\n", "unrecognized subcommand 'insert'"),
        ("begin\nput accounts 7 1\n", "the input ends inside a transaction, which is rolled back"),
        ("begin\nput accounts 7 1\nquit\ncommit\n", "the input ends inside a transaction, which is rolled back"),
        ("commit\n", "no transaction is open"),
        ("rollback\n", "no transaction is open"),
    ] {
        dir.run_with("shell", &[], lines).is_refused(2, why);
    }
    assert_eq!(runs(&dir, "get accounts 7\nget accounts x\nget accounts 8\n").1, "-93\n");
    assert_eq!(dir.prints("get", &["accounts", "7"]), "-93\n");
}

#[test]
fn an_absent_row_is_no_error_but_the_status_says_it() {
    let dir = Dir::with_database("shell-absent");
    let absent = "table \"accounts\" has no row of key 4000\n";
    let (code, output, errors) =
        runs(&dir, "get accounts 4000\nget accounts 7\ndel accounts 4000\nquit\nget accounts 8\n");
    assert_eq!((code, &*output, errors), (1, "-93\n", absent.repeat(2)));
    let (code, output, errors) = runs(&dir, "begin\ndel accounts 4000\nput accounts 7 0\ncommit\nget accounts 7\n");
    assert_eq!((code, &*output, &*errors), (1, "0\n", absent));
}

#[test]
fn a_shell_for_reading_only_writes_no_file() {
    let dir = Dir::with_database("shell-read-only");
    let before = contents(dir.path());
    let ran = dir.run_with(
        "shell",
        &["--read-only"],
        "begin\nget accounts 7\ncount names\ncommit\nbegin\nrollback\ntables\n",
    );
    assert_eq!((ran.code, &*ran.errors), (0, ""));
    assert!(ran.output.starts_with("-93\n2\naccounts\tu64\ti64\n"), "{}", ran.output);
    for lines in ["put accounts 7 1\n", "begin\ndel accounts 7\n"] {
        dir.run_with("shell", &["--read-only"], lines).is_refused(2, "open for reading only");
    }
    assert!(before == contents(dir.path()), "a file was written");
}

#[test]
fn tables_are_renamed_and_cleared_in_transactions() {
    let dir = Dir::with_database("shell-tables");
    let lines = "rename accounts 'ledger of 2026'\ncount 'ledger of 2026'\nbegin\nclear 'ledger of 2026'\nrename names people\n\
                 count 'ledger of 2026'\ncount people\nrollback\ncount 'ledger of 2026'\ncount names\n\
                 begin\nclear names\nput names Eve null\ncommit\nscan names --keys\n";
    assert_eq!(prints(&dir, lines), "300\n0\n2\n300\n2\n\"Eve\"\n");
    assert_eq!(dir.run("check", &[]).code, 0);
    for (line, why) in [
        ("rename accounts again\n", "there is no table \"accounts\""),
        ("rename 'ledger of 2026' names\n", "there is a table \"names\""),
        ("clear accounts\n", "there is no table \"accounts\""),
        ("rename names\n", "required arguments were not provided: <NEW_NAME>"),
    ] {
        dir.run_with("shell", &[], line).is_refused(2, why);
    }
    for line in ["clear names\n", "rename names other\n"] {
        dir.run_with("shell", &["--read-only"], line).is_refused(2, "open for reading only");
    }
}

#[test]
fn timing_and_help() {
    let dir = Dir::with_database("shell-timing");
    let (code, output, errors) = runs(&dir, "timing on\nget accounts 7\ntiming off\nget accounts 7\n");
    assert_eq!((code, &*output), (0, "-93\n-93\n"));
    assert!(errors.starts_with("time: ") && errors.ends_with(" ms\n") && errors.lines().count() == 1, "{errors}");
    let help = prints(&dir, "help\n");
    let verbs = [
        "tables", "get", "put", "del", "scan", "range", "prefix", "count", "rename", "clear", "begin", "commit",
        "rollback", "quit",
    ];
    assert!(verbs.iter().all(|verb| help.contains(&format!("\n  {verb} "))), "{help}");
    assert!(prints(&dir, "help range\n").contains("--limit <ROWS>"));
}
