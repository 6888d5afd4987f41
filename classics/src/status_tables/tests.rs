use super::*;
use foreshore_io::Mem;

fn tables(first: u64) -> Vec<(StatusKind, Arc<dyn StatusTable>)> {
    let fs = Mem::null();
    let table = |kind: StatusKind| {
        kind.maker().map(|maker| maker.make(Xid(first), &fs, Path::new(&kind.to_string())).expect("memory"))
    };
    StatusKind::ALL.into_iter().filter_map(|kind| Some((kind, table(kind)?))).collect()
}

#[test]
fn names_come_back() {
    for kind in StatusKind::ALL {
        assert_eq!(kind.to_string().parse::<StatusKind>().unwrap(), kind);
    }
    assert_eq!("lru:16".parse::<StatusKind>().unwrap(), StatusKind::Lru { buffers: 16, banks: false });
    for wrong in ["", "lru", "lru:", "lru:0", "lru:8:banks", "lru:24:banks", "lru:99999999", "csn"] {
        assert!(wrong.parse::<StatusKind>().is_err(), "{wrong}");
    }
}

#[test]
fn each_table_knows_the_committed_transactions() {
    for (kind, table) in tables(1000) {
        assert!(table.has_committed(Xid(999)).unwrap(), "{kind}: before it began");
        for xid in 1000..1100 {
            table.prepare(Xid(xid)).unwrap();
            assert!(!table.has_committed(Xid(xid)).unwrap(), "{kind}: {xid} runs");
            if xid % 3 != 0 {
                table.set(Xid(xid), xid % 3 == 1).unwrap();
            }
        }
        for xid in 1000..1100 {
            assert_eq!(table.has_committed(Xid(xid)).unwrap(), xid % 3 == 1, "{kind}: {xid}");
        }
    }
}

/// More pages than any of them has in memory: evicted pages return unchanged.
#[test]
fn xids_far_apart_are_told_apart() {
    const APART: u64 = 10_007;
    for (kind, table) in tables(1) {
        for n in 0..1000 {
            table.prepare(Xid(1 + n * APART)).unwrap();
            table.set(Xid(1 + n * APART), n % 2 == 0).unwrap();
        }
        for n in (0..1000).rev() {
            let xid = 1 + n * APART;
            assert_eq!(table.has_committed(Xid(xid)).unwrap(), n % 2 == 0, "{kind}: {xid}");
            assert!(!table.has_committed(Xid(xid + 1)).unwrap(), "{kind}: {xid} + 1");
        }
    }
}

/// Content of an earlier run is replaced: a table says nothing of another run.
#[test]
fn a_table_begins_empty() {
    let (fs, kind) = (Mem::null(), StatusKind::Lru { buffers: 1, banks: false });
    fs.create(Path::new("status")).unwrap().write_at(&[0x55; 8192], 0).unwrap();
    for _ in 0..2 {
        let table = kind.maker().expect("a table").make(Xid(1), &fs, Path::new("status")).unwrap();
        assert!(!table.has_committed(Xid(7)).unwrap());
        table.set(Xid(7), true).unwrap();
        table.set(Xid(70_000), true).unwrap();
        assert!(table.has_committed(Xid(7)).unwrap());
    }
}
