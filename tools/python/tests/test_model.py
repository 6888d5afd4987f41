"""Random operations, compared with a dict."""

import foreshore
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KEYS = st.tuples(st.text(alphabet="ab\0\xff", max_size=3), st.integers(-3, 3))
VALUES = st.one_of(st.none(), st.binary(max_size=20))
OPERATION = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES),
    st.tuples(st.just("insert"), KEYS, VALUES),
    st.tuples(st.just("pop"), KEYS),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("range"), KEYS, KEYS, st.booleans()),
    st.tuples(st.just("delete"), KEYS, KEYS),
    st.tuples(st.just("nested"), st.booleans(), KEYS, VALUES),
    st.tuples(st.just("end"), st.booleans()),
)


def check(table, model, operation):
    kind, *args = operation
    if kind == "put":
        table[args[0]] = model[args[0]] = args[1]
    elif kind == "insert":
        try:
            table.insert(*args)
            assert args[0] not in model
            model[args[0]] = args[1]
        except foreshore.KeyExists:
            assert args[0] in model
    elif kind == "pop":
        assert table.pop(args[0], "none") == model.pop(args[0], "none")
    elif kind == "get":
        assert table.get(args[0], "none") == model.get(args[0], "none")
        assert (args[0] in table) == (args[0] in model)
    elif kind == "range":
        lower, upper, backward = args
        expected = sorted((key, value) for key, value in model.items() if lower <= key < upper)
        rows = table.range(lower, upper, reverse=backward)
        assert list(rows) == (expected[::-1] if backward else expected)
    elif kind == "delete":
        del table[args[0] : args[1]]
        for key in [key for key in model if args[0] <= key < args[1]]:
            del model[key]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATION, max_size=60))
def test_a_table_behaves_like_a_sorted_dict(db, operations):
    # In the order of code points, as UTF-8 has it.
    with db.begin() as tx:
        tx.drop_table("t")
    committed, tx = {}, db.begin()
    table, model = tx.table("t", (str, int), "option<bytes>"), {}
    for operation in operations:
        kind, *args = operation
        if kind == "nested":
            savepoint, before = tx.savepoint(), dict(model)
            table[args[1]] = model[args[1]] = args[2]
            if args[0]:
                savepoint.rollback()
                model = before
        elif kind == "end":
            if args[0]:
                tx.commit()
                committed = dict(model)
            else:
                tx.rollback()
                model = dict(committed)
            tx = db.begin()
            table = tx.table("t", (str, int), "option<bytes>")
        else:
            check(table, model, operation)
        assert len(table) == len(model)
    assert list(table.items()) == sorted(model.items())
    tx.commit()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(st.floats(allow_nan=False), st.integers(-(2**127), 2**127 - 1), st.binary(max_size=5))))
def test_encoded_keys_are_in_the_order_of_the_keys(db, rows):
    with db.begin() as tx:
        tx.drop_table("t")
        table = tx.table("t", (float, "i128", bytes), bool)
        for row in rows:
            table[row] = True
        # -0.0 is below 0.0, as `f64::total_cmp` has it.
        order = lambda row: (row[0], str(row[0]) != "-0.0", *row[1:])
        assert list(map(repr, table)) == list(map(repr, sorted({repr(row): row for row in rows}.values(), key=order)))
