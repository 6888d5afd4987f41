"""Rows, ranges and types of tables."""

import uuid

import foreshore
import pytest


def test_a_table_is_a_mapping_in_key_order(db):
    with db.begin() as tx:
        table = tx.table("stock", int, str)
        table[3] = "three"
        table[-1] = "minus one"
        table[2] = "two"
        assert table[2] == "two" and table.get(9) is None and table.get(9, "none") == "none"
        assert 3 in table and 9 not in table and len(table) == 3 and table
        assert list(table) == [-1, 2, 3] and list(reversed(table)) == [3, 2, -1]
        assert list(table.values()) == ["minus one", "two", "three"]
        assert dict(table.items()) == {-1: "minus one", 2: "two", 3: "three"}
        assert table.first() == (-1, "minus one") and table.last() == (3, "three")
        del table[2]
        with pytest.raises(KeyError):
            table[2]
        with pytest.raises(KeyError):
            del table[2]
        assert table.pop(3) == "three" and table.pop(3, None) is None
        with pytest.raises(KeyError):
            table.pop(3)
        assert table.replace(-1, "new") == "minus one" and table.replace(0, "zero") is None
        with pytest.raises(foreshore.KeyExists):
            table.insert(0, "again")
        assert table.get_for_update(0) == "zero" and table.get_for_update(9, 1) == 1
        assert table.next_id() < table.next_id()
        assert table.estimate() >= 0


def test_slices_are_ranges(db):
    with db.begin() as tx:
        table = tx.table("stock", int, int)
        for n in range(10):
            table[n] = n * n
        keys = lambda rows: [key for key, _ in rows]
        assert keys(table[3:6]) == [3, 4, 5]
        assert keys(table[:2]) == [0, 1] and keys(table[8:]) == [8, 9] and keys(table[:]) == list(range(10))
        assert keys(table[6:3:-1]) == [6, 5, 4] and keys(table[::-1]) == list(range(9, -1, -1))
        assert keys(table[6:3]) == []
        assert keys(table.range(3, 6, closed=True)) == [3, 4, 5, 6]
        assert keys(table.range(3, 6, reverse=True)) == [5, 4, 3]
        with pytest.raises(ValueError):
            table[0:9:2]
        del table[2:8]
        assert list(table) == [0, 1, 8, 9]
        del table[:]
        assert not table and table.first() is None and table.last() is None


def test_a_scan_may_change_its_table(db):
    with db.begin() as tx:
        table = tx.table("stock", int, int)
        for n in range(500):
            table[n] = 0
        seen = []
        for n, _ in table.items():
            seen.append(n)
            if n % 7 == 0:
                table.pop(n + 1, None)
        assert seen == [n for n in range(500) if n % 7 != 1]


TYPES = [
    ("u8", 0, 255), ("u16", 0, 65535), ("u32", 1, 2**32 - 1), ("u64", 1, 2**64 - 1), ("u128", 1, 2**128 - 1),
    ("i8", -128, 127), ("i16", -1, 1), ("i32", -(2**31), 2**31 - 1), (int, -(2**63), 2**63 - 1),
    ("i128", -(2**127), 2**127 - 1), (float, float("-inf"), 1.5), ("f32", -0.5, 0.25), (bool, False, True),
    (str, "", "ä\0b"), (bytes, b"", b"a\0\xff"), (uuid.UUID, uuid.UUID(int=1), uuid.UUID(int=2**127)),
    ((str, int), ("a", 2), ("a\0", 1)), ("(bytes,(bool,u8))", (b"", (False, 1)), (b"\0", (True, 0))),
    ("option<u64>", None, 7),
]


@pytest.mark.parametrize("kind,small,large", TYPES, ids=[str(kind) for kind, _, _ in TYPES])
def test_types_come_back_and_are_ordered(db, kind, small, large):
    with db.begin() as tx:
        table = tx.table("typed", kind, kind)
        table[large] = small
        table[small] = large
        assert list(table.items()) == [(small, large), (large, small)]
        assert type(table[large]) is type(small)


def test_values_may_be_json(db):
    with db.begin() as tx:
        table = tx.table("documents", str, foreshore.json)
        document = {"name": "Ada", "tags": ["a", None, 1.5], "nested": {"ü": True}}
        table["ada"] = document
        assert table["ada"] == document
        with pytest.raises(TypeError):
            table["bad"] = object()
        with pytest.raises(TypeError):
            tx.table("bad", foreshore.json, str)


def test_wrong_types_are_refused_and_change_nothing(db):
    with db.begin() as tx:
        table = tx.table("stock", int, (str, bool))
        for key, value in [("1", ("a", True)), (True, ("a", True)), (1.0, ("a", True)), (1, ["a", True]), (1, ("a",)), (1, ("a", 1))]:
            with pytest.raises(TypeError):
                table[key] = value
        with pytest.raises(OverflowError):
            table[2**63] = ("a", True)
        assert len(table) == 0
        with pytest.raises(TypeError):
            tx.table("other", list)
        with pytest.raises(TypeError):
            tx.table("other", "u65")
        with pytest.raises(foreshore.TableTypes):
            tx.table("stock", str, str)
        with pytest.raises(foreshore.KeyTooLarge):
            tx.table("blobs")[b"k" * 2000] = b""
        with pytest.raises(foreshore.NoTable):
            tx.raw("none")
        tx.table("blobs")[bytearray(b"k")] = memoryview(b"v")
        assert tx.tables() == [("blobs", "bytes", "bytes"), ("stock", "i64", "(str,bool)")]
        assert tx.drop_table("blobs") and not tx.drop_table("blobs")


def test_tables_are_renamed_and_cleared(db):
    with db.begin() as tx:
        for name in ["stock", "other"]:
            tx.table(name, int, str)[7] = name
    with db.begin() as tx:
        with pytest.raises(foreshore.TableExists):
            tx.rename_table("stock", "other")
        with pytest.raises(foreshore.TableName):
            tx.rename_table("stock", "")
        assert tx.rename_table("stock", "stored") and not tx.rename_table("stock", "again")
        assert tx.table("stored", int, str)[7] == "stock"
        assert tx.clear_table("other") and not tx.clear_table("stock")
        assert tx.tables() == [("other", "i64", "str"), ("stored", "i64", "str")]
        assert len(tx.table("other", int, str)) == 0
    with db.read() as tx:
        assert len(tx.table("other", int, str)) == 0 and tx.table("stored", int, str)[7] == "stock"
        for change in [lambda: tx.rename_table("stored", "stock"), lambda: tx.clear_table("stored")]:
            with pytest.raises(foreshore.ReadOnly):
                change()


def test_types_and_numbers_have_limits(db):
    deep = int
    for _ in range(40):
        deep = (deep,)
    with db.begin() as tx:
        for kind in ["(" * 200_000 + "u8" + ")" * 200_000, "option<" * 200_000 + "u8" + ">" * 200_000, deep]:
            with pytest.raises(TypeError):
                tx.table("deep", bytes, kind)
        tx.table("deep", bytes, "option<" * 30 + "u8" + ">" * 30)[b""] = None
        table = tx.table("floats", "f32", "f32")
        table[0.0] = 3.4028234e38
        table[1.0] = float("inf")
        for key, value in [(1e300, 0.0), (2.0, -1e39)]:
            with pytest.raises(OverflowError):
                table[key] = value
        assert list(table) == [0.0, 1.0]


def test_prefixes(db):
    with db.begin() as tx:
        paths = tx.table("paths", str, int)
        for path in ["/etc", "/etc/fstab", "/usr"]:
            paths[path] = len(path)
        assert [path for path, _ in paths.prefix("/etc")] == ["/etc", "/etc/fstab"]
        orders = tx.table("orders", ("u64", str), int)
        orders[7, "ink"] = 1
        orders[7, "paper"] = 2
        orders[8, "ink"] = 3
        assert [key for key, _ in orders.prefix((7,), reverse=True)] == [(7, "paper"), (7, "ink")]
        with pytest.raises(TypeError):
            tx.table("numbers", int, int).prefix(1)


def test_large_values(db):
    with db.begin() as tx:
        tx.table("blobs")[b"k"] = bytes(5 << 20)
    with db.read() as tx:
        assert tx.table("blobs")[b"k"] == bytes(5 << 20)
