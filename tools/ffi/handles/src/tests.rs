use super::*;
use foreshore::{Durability, Options, ReadOptions, TxnOptions};
use std::ops::Bound;
use std::thread;
use std::time::Duration;

fn database() -> Database {
    Database::open(&Options::in_memory(), "db", Open::OrCreate).expect("opens")
}

fn begin(db: &Database) -> (Transaction, Table) {
    let tx = Transaction::begin(db, TxnOptions::new()).expect("begins");
    let table = Table::open(&tx, "rows", "bytes", "bytes").expect("opens");
    (tx, table)
}

fn keys(cursor: &mut Cursor) -> Vec<u8> {
    let mut found = Vec::new();
    while let Some((key, _)) = cursor.next_row().expect("a row") {
        found.push(key[0]);
    }
    found
}

fn between(lower: u8, upper: u8) -> Bounds {
    Bounds { lower: Bound::Included(vec![lower]), upper: Bound::Excluded(vec![upper]) }
}

#[test]
fn handles_outlive_their_transaction_and_say_so() {
    let db = database();
    let (tx, table) = begin(&db);
    table.put(b"a", b"1").expect("written");
    let mut cursor = table.scan(Bounds::all(), Direction::Forward).expect("begins");
    assert!(cursor.next_row().expect("a row").is_some());
    assert!(tx.commit().expect("commits") > 0);
    assert_eq!(table.get(b"a", |_| ()).unwrap_err().status, Status::Ended);
    assert_eq!(cursor.next_row().unwrap_err().status, Status::Ended);
    assert_eq!(tx.commit().unwrap_err().status, Status::Ended);
    assert!(!tx.is_open());
    drop(tx);
    drop((cursor, table));
    let read = Transaction::read(&db, ReadOptions::new()).expect("begins");
    let table = Table::open(&read, "rows", "bytes", "bytes").expect("opens");
    assert_eq!(table.get(b"a", <[u8]>::to_vec).expect("reads").as_deref(), Some(&b"1"[..]));
    assert_eq!(table.put(b"b", b"2").unwrap_err().status, Status::ReadOnly);
    assert_eq!(Table::open(&read, "rows", "str", "bytes").err().expect("refused").status, Status::TableTypes);
}

/// A read transaction goes on with its tables when a thread that has opened one of them ends.
#[test]
fn a_read_transaction_outlives_the_threads_that_used_it() {
    let db = database();
    let (tx, table) = begin(&db);
    table.put(b"a", b"1").expect("written");
    tx.commit().expect("commits");
    drop((tx, table));
    let read = Transaction::read(&db, ReadOptions::new()).expect("begins");
    let first = Table::open(&read, "rows", "bytes", "bytes").expect("opens");
    let opened = thread::scope(|scope| {
        let open = || Table::open(&read, "rows", "bytes", "bytes").expect("opens");
        scope.spawn(open).join().expect("no panic")
    });
    for table in [&first, &opened] {
        assert_eq!(table.get(b"a", <[u8]>::to_vec).expect("reads").as_deref(), Some(&b"1"[..]));
    }
    assert_eq!(read.commit().expect("ends"), 0);
}

#[test]
fn a_scan_sees_what_its_transaction_writes_ahead_of_it() {
    let db = database();
    let (_tx, table) = begin(&db);
    (0..200_u8).for_each(|key| table.put(&[key], &[key]).expect("written"));
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = table.scan(between(10, 190), direction).expect("begins");
        let mut seen = Vec::new();
        while let Some((key, value)) = cursor.next_row().expect("a row") {
            assert_eq!(key, value);
            let key = key[0];
            seen.push(key);
            // After some rows without a write, several are at hand.
            if seen.len() == 50 {
                let ahead = if direction == Direction::Forward { key + 2 } else { key - 2 };
                table.remove(&[ahead]).expect("removed");
            }
        }
        let mut expected: Vec<u8> = (10..190).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        expected.remove(51);
        if direction == Direction::Backward {
            expected.retain(|&key| key != 61);
        }
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_row_added_behind_the_last_one_is_seen_until_the_end_is_told() {
    let db = database();
    let (_tx, table) = begin(&db);
    table.put(&[1], &[]).expect("written");
    let mut cursor = table.scan(Bounds::all(), Direction::Forward).expect("begins");
    assert!(cursor.next_row().expect("a row").is_some());
    table.put(&[2], &[]).expect("written");
    assert_eq!(keys(&mut cursor), [2]);
    table.put(&[3], &[]).expect("written");
    assert_eq!(keys(&mut cursor), []);
}

#[test]
fn a_scan_needs_no_handle_of_its_table() {
    let db = database();
    let (_tx, table) = begin(&db);
    (0..9_u8).for_each(|key| table.put(&[key], &[]).expect("written"));
    let mut cursor = table.scan(Bounds::all(), Direction::Forward).expect("begins");
    drop(table);
    assert_eq!(keys(&mut cursor), (0..9).collect::<Vec<u8>>());
}

#[test]
fn bounds_and_prefixes_hold() {
    let db = database();
    let (_tx, table) = begin(&db);
    for key in [&b"a"[..], b"b", b"b\xFF", b"b\xFF\xFF", b"c", b"\xFF", b"\xFF\xFF"] {
        table.put(key, b"").expect("written");
    }
    let count = |bounds: Bounds| table.count(&bounds).expect("counts");
    assert_eq!(count(Bounds::prefix(b"b")), 3);
    assert_eq!(count(Bounds::prefix(b"\xFF")), 2);
    assert_eq!(count(Bounds::prefix(b"")), 7);
    let reversed = between(b'c', b'a');
    assert!(reversed.are_empty() && table.count(&reversed).expect("counts") == 0);
    assert_eq!(table.scan(reversed, Direction::Forward).expect("begins").next_row().expect("over"), None);
    assert_eq!(table.remove_range(&Bounds::prefix(b"b")).expect("removed"), 3);
}

#[test]
fn savepoints_nest_and_are_named_when_gone() {
    let db = database();
    let (tx, table) = begin(&db);
    let first = tx.savepoint().expect("marked");
    table.put(b"a", b"1").expect("written");
    let second = tx.savepoint().expect("marked");
    table.put(b"a", b"2").expect("written");
    tx.rollback_to(second).expect("rolls back");
    assert_eq!(table.get(b"a", <[u8]>::to_vec).expect("reads"), Some(b"1".to_vec()));
    tx.rollback_to(first).expect("rolls back");
    assert_eq!(table.get(b"a", <[u8]>::to_vec).expect("reads"), None);
    assert_eq!(tx.rollback_to(second).unwrap_err().status, Status::NoSavepoint);
    tx.release(first).expect("released");
    assert_eq!(tx.release(first).unwrap_err().status, Status::NoSavepoint);
}

#[test]
fn a_run_is_retried_and_its_handle_ends_with_it() {
    let db = database();
    let mut kept = None;
    let mut runs = 0;
    Transaction::run(&db, TxnOptions::new().isolation(foreshore::Isolation::Snapshot), |tx| {
        runs += 1;
        let table = Table::open(tx, "rows", "bytes", "bytes")?;
        assert_eq!(tx.commit().unwrap_err().status, Status::Invalid);
        if runs == 1 {
            return Err(Fault::new(Status::Other, "as the function wants"));
        }
        table.put(b"a", b"1")?;
        kept = Some(table);
        Ok(())
    })
    .expect_err("the function has failed");
    Transaction::run(&db, TxnOptions::new(), |tx| {
        let table = Table::open(tx, "rows", "bytes", "bytes")?;
        table.put(b"a", b"1")?;
        kept = Some(table);
        Ok::<(), Fault>(())
    })
    .expect("commits");
    assert_eq!(kept.expect("a table").get(b"a", |_| ()).unwrap_err().status, Status::Ended);

    // A conflict with another commit: the second run sees it.
    let mut runs = 0;
    Transaction::run(&db, TxnOptions::new().isolation(foreshore::Isolation::Snapshot), |tx| {
        runs += 1;
        let table = Table::open(tx, "rows", "bytes", "bytes")?;
        table.get(b"a", |_| ())?;
        if runs == 1 {
            let (other, rows) = begin(&db);
            rows.put(b"a", b"2")?;
            other.commit()?;
        }
        table.put(b"a", b"3")
    })
    .expect("commits");
    assert_eq!(runs, 2);
}

#[test]
fn a_second_thread_is_refused_while_a_call_waits() {
    let db = database();
    let (holder, table) = begin(&db);
    table.put(b"a", b"1").expect("written");
    holder.commit().expect("commits");
    let (holder, table) = begin(&db);
    table.put(b"a", b"2").expect("written");
    let (waiter, other) = begin(&db);
    thread::scope(|scope| {
        // It is refused itself while this thread is in a call.
        let waits = scope.spawn(|| {
            loop {
                match other.put(b"a", b"3") {
                    Err(fault) if fault.status == Status::InUse => thread::yield_now(),
                    written => break written,
                }
            }
        });
        let refused = loop {
            match other.contains(b"z") {
                Err(fault) => break fault,
                Ok(_) => thread::yield_now(),
            }
        };
        assert_eq!(refused.status, Status::InUse);
        assert!(waiter.is_open(), "a transaction in use has not ended");
        assert_eq!(waiter.commit().unwrap_err().status, Status::InUse);
        holder.commit().expect("commits");
        waits.join().expect("no panic").expect("written");
    });
    waiter.commit().expect("commits");
}

#[test]
fn a_transaction_in_which_a_call_has_panicked_is_only_rolled_back() {
    let db = database();
    for commits in [true, false] {
        let (tx, table) = begin(&db);
        table.put(b"a", b"1").expect("written");
        let panicked = caught(|| table.get(b"a", |_| panic!("as the test wants"))).unwrap_err();
        assert_eq!(panicked.status, Status::Panic);
        assert!(panicked.message.contains("as the test wants"), "{panicked}");
        assert_eq!(table.get(b"a", |_| ()).unwrap_err().status, Status::Panic);
        assert!(tx.is_open());
        if commits {
            assert_eq!(tx.commit().unwrap_err().status, Status::Panic);
        } else {
            tx.rollback().expect("rolled back");
        }
        assert_eq!(tx.commit().unwrap_err().status, Status::Ended);
        // Its locks are free, and its rows are gone.
        let (_other, rows) = begin(&db);
        assert_eq!(rows.get_for_update_now(b"a").expect("free"), None);
    }
}

#[test]
fn a_scan_that_an_error_has_ended_is_not_over() {
    let db = database();
    let (tx, table) = begin(&db);
    (0..9_u8).for_each(|key| table.put(&[key], &[]).expect("written"));
    tx.commit().expect("commits");
    let (_holder, held) = begin(&db);
    held.put(&[1], &[1]).expect("written");
    thread::scope(|scope| {
        let scan = || {
            let options = TxnOptions::new().lock_timeout(Duration::from_millis(50));
            let tx = Transaction::begin(&db, options).expect("begins");
            let rows = Table::open(&tx, "rows", "bytes", "bytes").expect("opens");
            let mut cursor = rows.scan(Bounds::all(), Direction::Forward).expect("begins");
            assert_eq!(cursor.next_row().expect("a row").expect("the first").0, [0]);
            assert_eq!(cursor.next_row().unwrap_err().status, Status::LockTimeout);
            assert_eq!(cursor.next_row().unwrap_err().status, Status::RolledBack);
        };
        scope.spawn(scan).join().expect("no panic");
    });
}

#[test]
fn a_rollback_waits_for_what_a_reader_has_seen() {
    let db = database();
    for n in 0..200_u8 {
        let tx = Transaction::begin(&db, TxnOptions::new().durability(Durability::Relaxed)).expect("begins");
        Table::open(&tx, "rows", "bytes", "bytes").expect("opens").put(b"a", &[n]).expect("written");
        let csn = tx.commit().expect("commits");
        let reader = Transaction::read(&db, ReadOptions::new().latest()).expect("begins");
        let table = Table::open(&reader, "rows", "bytes", "bytes").expect("opens");
        assert_eq!(table.get(b"a", <[u8]>::to_vec).expect("reads"), Some(vec![n]));
        reader.rollback().expect("rolled back");
        assert!(db.get().expect("open").durable_csn().0 >= csn, "what was read may be lost");
    }
}

#[test]
fn a_relaxed_ticket_waits_for_the_disk_when_it_is_hardened() {
    let db = database();
    let tx = Transaction::begin(&db, TxnOptions::new().durability(Durability::Relaxed)).expect("begins");
    Table::open(&tx, "rows", "bytes", "bytes").expect("opens").put(b"a", b"1").expect("written");
    let ticket = tx.commit_pipelined().expect("commits");
    assert!(ticket.wait(None).expect("acknowledged"), "at once");
    let ticket = ticket.harden();
    assert!(ticket.wait(None).expect("durable") && ticket.is_durable().expect("known"));
}

#[test]
fn a_queue_wakes_its_reader_once_for_what_it_holds() {
    let db = database();
    let queue = Queue::new().expect("made");
    for number in 0..10_u8 {
        let (tx, table) = begin(&db);
        table.put(&[number], b"").expect("written");
        queue.add(tx.commit_pipelined().expect("commits"), number).expect("added");
    }
    let mut done = Vec::new();
    while done.len() < 10 {
        done.extend(queue.take(3).expect("taken"));
    }
    assert!(done.iter().all(|(_, durable)| durable.is_ok()));
    let mut tags: Vec<u8> = done.into_iter().map(|(tag, _)| tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..10).collect::<Vec<u8>>());
    assert!(queue.take(usize::MAX).expect("taken").is_empty());
}

#[test]
fn statuses_are_retryable_as_the_errors_are() {
    let errors = [foreshore::Error::LogSpace, foreshore::Error::Closed, foreshore::Error::RolledBack];
    for error in errors {
        assert_eq!(Status::of(&error).is_retryable(), error.is_retryable(), "{error}");
    }
}

#[test]
fn labels_are_stored_once() {
    assert!(std::ptr::eq(label("order").expect("kept"), label(&String::from("order")).expect("kept")));
}

#[test]
fn counters_are_json() {
    let db = database();
    let json = stats_json(&db.get().expect("open").stats());
    assert!(json.starts_with("{\"txn\":{\"commits\":") && json.ends_with('}'), "{json}");
    assert_eq!(json.matches('{').count(), json.matches('}').count());
}

/// An index that the Rust library declares, and the same one by encoded rows.
#[test]
fn an_index_is_shared_with_programs_in_rust() {
    use foreshore::{IndexDef as Typed, TableDef};
    const BY_WORD: Typed<u64, &str, &str> =
        Typed::new("by word", |_, text: &String, keys| text.split(' ').for_each(|word| keys.add(word)));
    const BY_TEXT: Typed<u64, &str, &str> = Typed::unique("by text", |_, text: &String, keys| keys.add(text.as_str()));
    const NOTES: TableDef<u64, &str> = TableDef::new("notes").with_indexes(&[&BY_WORD, &BY_TEXT]);

    let db = database();
    let types = |name, is_unique| IndexTypes { name, is_unique, version: 1, key_type: "str", primary_type: "u64" };
    let by_word = IndexDef::of_bytes(types("by word", false), |_, text, add| {
        text.split(|&byte| byte == b' ').for_each(add);
        Ok(())
    });
    let by_text = IndexDef::of_bytes(types("by text", true), |_, text, add| {
        add(text);
        Ok(())
    });
    let (by_word, by_text) = (by_word.expect("defined"), by_text.expect("defined"));
    let tx = Transaction::begin(&db, TxnOptions::new()).expect("begins");
    let notes = Table::open_with(&tx, "notes", ("u64", "str"), &[by_word, by_text]).expect("builds");
    notes.put(&1_u64.to_be_bytes(), b"buy ink").expect("written");
    tx.commit().expect("commits");

    let engine = db.get().expect("open");
    engine.run(|tx| tx.open(NOTES)?.put(2, "buy paper")).expect("the definitions are the same");
    let reader = engine.read();
    let typed = reader.open(NOTES).expect("opens");
    let found = typed.by_index(BY_WORD).expect("there is one").range("buy"..="buy").map(|row| row.expect("reads").0);
    assert_eq!(found.collect::<Vec<_>>(), [1, 2]);
    assert_eq!(typed.by_index(BY_WORD).expect("there is one").check().expect("sound"), 4);

    let tx = Transaction::read(&db, ReadOptions::new()).expect("begins");
    let notes = Table::open(&tx, "notes", "u64", "str").expect("opens");
    let index = notes.by_index(by_text).expect("there is one");
    assert_eq!(index.get(b"buy paper").expect("reads").expect("a row").0, 2_u64.to_be_bytes());
    assert_eq!(index.check().expect("sound"), 2);
    let index = notes.by_index(by_word).expect("there is one");
    assert!(index.contains(&bytes_key(b"paper", false)).expect("reads"));
    assert!(!index.contains(&bytes_key(b"pap", false)).expect("reads"));
    let wrong = IndexDef::of_bytes(IndexTypes { primary_type: "i64", ..types("by word", false) }, |_, _, _| Ok(()));
    assert_eq!(notes.by_index(wrong.expect("defined")).err().expect("refused").status, Status::IndexTypes);
}
