use super::arena::CHUNK;
use super::*;

/// All that has ended may go.
const ALL: fn() -> Csn = || Csn(u64::MAX);

fn arena(limit: usize) -> Arc<Arena> {
    Arc::new(Arena::new(limit).expect("memory"))
}

fn change(kind: u8, body: &[u8]) -> Undoable<'_> {
    Undoable { kind, table: TableId(7), body, before: None }
}

#[test]
fn entries_come_back_newest_first_across_chunks() {
    let arena = arena(1 << 20);
    let mut undo = Undo::new(arena.clone());
    for n in 0..40_u64 {
        let body = vec![n as u8; 3000 + n as usize];
        undo.reserve(body.len() + 100, ALL).expect("fits");
        let before = Before { undo: UndoPtr(n + 1), back: &[9; 100], ..Before::default() };
        let change = Undoable { table: TableId(n as u32), before: Some(before), ..change(7, &body) };
        let pointer = undo.push(&change, Csn(n), before.undo);
        assert!(!pointer.is_null() && pointer.bits() < 1 << 48);
        if n % 2 == 0 {
            undo.stamp_newest(Lsn(n + 1));
        }
    }
    assert!(arena.used_bytes() >= 20 * CHUNK);
    for n in (0..40_u64).rev() {
        let entry = undo.newest().expect("an entry");
        let lsn = if n % 2 == 0 { Lsn(n + 1) } else { Lsn::ZERO };
        assert_eq!((entry.lsn, entry.kind, entry.table, entry.next), (lsn, 7, TableId(n as u32), UndoPtr(n + 1)));
        assert_eq!(entry.body, vec![n as u8; 3000 + n as usize]);
        undo.pop();
    }
    assert!(undo.newest().is_none());
    undo.end(Csn::ZERO);
    drop(undo);
    assert_eq!(arena.used_bytes(), 0, "nobody needs what was taken back");
}

#[test]
fn chunks_are_kept_for_as_long_as_somebody_may_need_an_entry() {
    let arena = arena(64 << 10);
    let mut undo = Undo::new(arena.clone());
    let body = [1; 3000];
    for csn in (1..=20).map(|n| Csn(10 * n)) {
        // The horizon stays one chunk behind.
        undo.reserve(body.len(), || Csn(csn.0.saturating_sub(40))).expect("old ones go");
        undo.push(&change(1, &body), Csn::ZERO, UndoPtr::NULL);
        undo.end(csn);
    }
    assert!(arena.used_bytes() <= 5 * CHUNK);
    // Now the horizon stands still.
    let refused = (21..60).find(|&n| {
        let refused = undo.reserve(body.len(), || Csn(100)).is_err();
        if !refused {
            undo.push(&change(1, &body), Csn::ZERO, UndoPtr::NULL);
            undo.end(Csn(10 * n));
        }
        refused
    });
    assert!(refused.is_some_and(|n| n > 25), "{refused:?}");
    undo.reserve(body.len(), || Csn(600)).expect("they go when it moves");
}

#[test]
fn the_limit_is_shared_and_refuses_before_anything_is_entered() {
    let arena = arena(4 * CHUNK);
    let mut first = Undo::new(arena.clone());
    let mut second = Undo::new(arena.clone());
    let body = [0; CHUNK / 2];
    let fill = |undo: &mut Undo, entries| {
        for _ in 0..entries {
            undo.reserve(body.len(), ALL)?;
            undo.push(&change(1, &body), Csn::ZERO, UndoPtr::NULL);
        }
        Ok(())
    };
    fill(&mut first, 3).expect("three chunks");
    fill(&mut second, 1).expect("the last one");
    assert!(matches!(fill(&mut second, 1), Err(Error::TransactionTooLarge { max }) if max == 4 * CHUNK));
    first.end(Csn(9));
    fill(&mut second, 1).expect("given back");
}

#[test]
fn many_small_transactions_share_few_chunks() {
    let arena = arena(8 * CHUNK);
    let mut running: Vec<Undo> = (0..100).map(|_| Undo::new(arena.clone())).collect();
    for round in 0..3_u8 {
        for (n, undo) in running.iter_mut().enumerate() {
            let body = [round, n as u8];
            undo.reserve(1000, ALL).expect("room for all");
            undo.push(&change(1, &body), Csn::ZERO, UndoPtr::NULL);
            undo.release();
        }
    }
    for (n, undo) in running.iter_mut().enumerate() {
        for round in (0..3_u8).rev() {
            assert_eq!(undo.newest().expect("an entry").body, [round, n as u8]);
            undo.pop();
        }
        assert!(undo.newest().is_none());
        undo.end(Csn::ZERO);
    }
    running.clear();
    let mut large = Undo::new(arena);
    for _ in 0..8 {
        large.reserve(CHUNK - 100, ALL).expect("all chunks are free again");
        large.push(&change(1, &[0; CHUNK - 100]), Csn::ZERO, UndoPtr::NULL);
    }
}

#[test]
fn a_chunk_that_others_fill_waits_for_all_of_them() {
    let arena = arena(2 * CHUNK);
    let mut first = Undo::new(arena.clone());
    let mut second = Undo::new(arena.clone());
    let mut third = Undo::new(arena);
    // Two chunks in use: memory is short, and what has room is left.
    third.reserve(CHUNK - 100, ALL).expect("a chunk");
    third.push(&change(3, &[3; CHUNK - 100]), Csn::ZERO, UndoPtr::NULL);
    first.reserve(100, ALL).expect("a chunk");
    first.push(&change(1, &[1; 100]), Csn::ZERO, UndoPtr::NULL);
    first.release();
    second.reserve(CHUNK - 500, ALL).expect("the rest of it");
    second.push(&change(2, &[2; CHUNK - 500]), Csn::ZERO, UndoPtr::NULL);
    second.end(Csn(5));
    assert!(second.reserve(CHUNK - 500, ALL).is_err(), "the first has not ended");
    assert_eq!(first.newest().expect("an entry").body, [1; 100]);
    first.end(Csn(7));
    assert!(second.reserve(CHUNK - 500, || Csn(6)).is_err(), "somebody may need what the first replaced");
    second.reserve(CHUNK - 500, || Csn(7)).expect("it is free");
}
