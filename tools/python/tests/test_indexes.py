"""Secondary indexes: built, kept, read, checked and dropped."""

import uuid

import foreshore
import pytest

BY_CITY = foreshore.Index("by city", str, lambda _, user: [user[1]])
BY_NAME = foreshore.Index("by name", str, lambda _, user: [user[0]], unique=True)
BY_PLACE = foreshore.Index("by place", (str, "option<u64>"), lambda key, user: [(user[1], key), (user[1], None)])
USERS = {1: ("Ada", "London"), 2: ("Grace", "New York"), 3: ("Alan", "London"), 4: ("Emmy", "Lon\0don")}


def users(tx, indexes=(BY_CITY, BY_NAME, BY_PLACE)):
    return tx.table("users", "u64", (str, str), indexes=indexes)


@pytest.fixture
def filled(db):
    with db.begin() as tx:
        table = users(tx)
        for key, user in USERS.items():
            table[key] = user
    return db


def keys(rows):
    return [key for key, _ in rows]


def test_rows_are_found_by_index_keys(filled):
    for begin in [filled.begin, filled.read]:
        with begin() as tx:
            by_city, by_name = users(tx).by_index(BY_CITY), users(tx).by_index(BY_NAME)
            assert by_city["London"] == (1, ("Ada", "London")) and by_name["Grace"] == (2, ("Grace", "New York"))
            assert by_name.get("Bob") is None and by_name.get("Bob", 7) == 7
            assert "London" in by_city and "Lon" not in by_city and "Alan" in by_name
            with pytest.raises(KeyError):
                by_name["Bob"]
            assert keys(by_city.rows("London")) == [1, 3] and keys(by_city.rows("London", reverse=True)) == [3, 1]
            assert keys(by_city.rows("Lon\0don")) == [4]
            assert keys(by_city.range()) == [4, 1, 3, 2] and keys(by_city.range("London", "New York")) == [1, 3]
            assert keys(by_city.range("London", "New York", closed=True, reverse=True)) == [2, 3, 1]
            assert keys(by_city.prefix("Lon")) == [4, 1, 3] and keys(by_city.prefix("Lon\0")) == [4]
            assert keys(by_name.prefix("A")) == [1, 3] and keys(by_name.range("B")) == [4, 2]
            assert by_city.check() == 4 and by_name.check() == 4


def test_an_index_may_have_several_keys_of_tuples(filled):
    with filled.read() as tx:
        by_place = users(tx).by_index(BY_PLACE)
        assert by_place["London", 3] == (3, ("Alan", "London"))
        assert keys(by_place.rows(("London", None))) == [1, 3]
        assert keys(by_place.prefix(("London",))) == [1, 3, 1, 3]
        assert by_place.check() == 8


def test_every_write_keeps_the_indexes(filled):
    with filled.begin() as tx:
        table = users(tx)
        by_city = table.by_index(BY_CITY)
        table[1] = ("Ada", "Paris")
        assert keys(by_city.rows("London")) == [3] and keys(by_city.rows("Paris")) == [1]
        for write in [lambda: table.insert(9, ("Ada", "Rome")), lambda: table.replace(9, ("Ada", "Rome"))]:
            with pytest.raises(foreshore.IndexKeyExists):
                write()
        assert 9 not in table and "Rome" not in by_city
        table.update_with(3, lambda user: (user[0], "Rome"))
        del table[2]
        assert table.pop(4) == USERS[4]
        assert keys(by_city.range()) == [1, 3]
        assert [table.by_index(index).check() for index in (BY_CITY, BY_NAME, BY_PLACE)] == [2, 2, 4]
        del table[:]
        assert keys(by_city.range()) == [] and by_city.check() == 0


def test_a_scan_sees_what_the_transaction_writes_ahead_of_it(filled):
    with filled.begin() as tx:
        table = users(tx)
        found = []
        for key, (name, city) in table.by_index(BY_NAME).range():
            found.append(name)
            if name == "Ada":
                table[5] = ("Babbage", city)
                del table[3]
        assert found == ["Ada", "Babbage", "Emmy", "Grace"]


def test_a_table_without_its_indexes_is_only_read(filled):
    with filled.begin() as tx:
        table = users(tx, indexes=[BY_CITY])
        assert table[1] == USERS[1] and table.by_index(BY_NAME)["Ada"][0] == 1
        with pytest.raises(foreshore.Indexed):
            table[5] = ("Bob", "Rome")
        assert tx.drop_index("users", "by name") and tx.drop_index("users", "by place")
        assert not tx.drop_index("users", "by name")
        table = users(tx, indexes=[BY_CITY])
        table[5] = ("Bob", "Rome")
        with pytest.raises(foreshore.NoIndex):
            table.by_index(BY_NAME)
        with pytest.raises(TypeError):
            tx.raw("users").by_index(BY_CITY)


def test_another_version_builds_the_index_anew(filled):
    upper = foreshore.Index("by city", str, lambda _, user: [user[1].upper()], version=2)
    changed = foreshore.Index("by city", str, lambda _, user: [user[1].lower()], version=2)
    other = foreshore.Index("by city", int, lambda _, user: [], version=2)
    with filled.begin() as tx:
        table = users(tx, [upper, BY_NAME, BY_PLACE])
        assert keys(table.by_index(upper).rows("LONDON")) == [1, 3]
        with pytest.raises(foreshore.IndexTypes):
            table.by_index(BY_CITY)
        with pytest.raises(TypeError):
            table.by_index(other)
        with pytest.raises(foreshore.IndexMismatch):
            table.by_index(changed).check()


def test_a_new_unique_index_refuses_rows_with_one_key(filled):
    unique = foreshore.Index("one a city", str, lambda _, user: [user[1]], unique=True)
    with pytest.raises(foreshore.IndexKeyExists):
        with filled.begin() as tx:
            users(tx, [BY_CITY, BY_NAME, BY_PLACE, unique])


def test_an_exception_of_the_function_is_raised_and_ends_the_transaction(db):
    failing = foreshore.Index("failing", str, lambda key, value: [1 // value])
    for value, error in [(0, ZeroDivisionError), (1, TypeError)]:
        tx = db.begin()
        table = tx.table("t", int, int, indexes=[failing])
        with pytest.raises(error):
            table[1] = value
        with pytest.raises(foreshore.RolledBack):
            tx.commit()


def test_a_stop_iteration_of_the_function_is_not_the_end_of_a_scan(db):
    is_broken = False

    def key(_, value):
        return [next(iter([] if is_broken else [value]))]

    index = foreshore.Index("next", int, key)
    with db.begin() as tx:
        table = tx.table("t", int, int, indexes=[index])
        for n in range(5):
            table[n] = n
    tx = db.begin(isolation="read-committed")
    by_index = tx.table("t", int, int, indexes=[index]).by_index(index)
    assert len(list(by_index.range())) == 5
    is_broken = True
    with pytest.raises(RuntimeError) as raised:
        list(by_index.range())
    assert isinstance(raised.value.__cause__, StopIteration)


def test_the_function_must_return_a_list_and_not_use_the_transaction(db):
    text = foreshore.Index("text", str, lambda key, value: value)
    with pytest.raises(TypeError, match="list of keys"):
        with db.begin() as tx:
            tx.table("t", int, str, indexes=[text])[1] = "abc"
    tx = db.begin()
    inner = foreshore.Index("inner", int, lambda key, value: [tx.table("u", int, int)[1]])
    with pytest.raises(foreshore.InUse):
        tx.table("t", int, int, indexes=[inner])[1] = 1


def test_rows_without_keys_and_other_types_of_keys(db):
    small = foreshore.Index("small", "i8", lambda _, value: [value] if -9 < value < 9 else None)
    by_id = foreshore.Index("by id", uuid.UUID, lambda key, _: {uuid.UUID(int=key)})
    halves = foreshore.Index("halves", float, lambda key, value: (half for half in [value / 2, value / 4]))
    even = foreshore.Index("even", bool, lambda key, _: [key % 2 == 0])
    raw = foreshore.Index("raw", bytes, lambda key, _: [bytes([0, key, 255])])
    with db.begin() as tx:
        table = tx.table("t", "u32", int, indexes=[small, by_id, halves, even, raw])
        for key, value in enumerate([5, -5, 500]):
            table[key] = value
        assert keys(table.by_index(small).range()) == [1, 0]
        assert table.by_index(by_id)[uuid.UUID(int=2)] == (2, 500)
        assert keys(table.by_index(halves).range()) == [1, 1, 0, 0, 2, 2]
        assert keys(table.by_index(even).rows(True)) == [0, 2]
        assert keys(table.by_index(raw).prefix(b"\0\1")) == [1] and table.by_index(raw)[b"\0\2\xff"][0] == 2
        assert [table.by_index(index).check() for index in (small, by_id, halves, even, raw)] == [2, 3, 6, 3, 3]


def test_a_definition_names_what_it_is():
    assert (BY_NAME.name, BY_NAME.unique, BY_CITY.unique, BY_CITY.version) == ("by name", True, False, 1)
    with pytest.raises(TypeError):
        foreshore.Index("x", foreshore.json, lambda key, value: [])
