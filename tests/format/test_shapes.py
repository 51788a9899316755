"""Values of old columns in the form of new ones: what the SQL gives is what matching by id gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.core.format.schema import (
    Column,
    TableSchema,
    initial_value,
    reshaped,
    same_shape,
    same_shapes,
    stored_alike,
)

NAMES = ("a", "b", "c d", "e'f", 'g"h')


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def _column(id_: int, depth: int) -> st.SearchStrategy[Column]:
    """Columns whose ids say what they are, so that two with one id fit each other."""
    kind = id_ % 4
    if depth == 0 or kind == 0:
        return st.sampled_from(["int16", "int32"]).map(lambda type_: Column(id_, "x", type_))
    if kind == 1:
        return _column(id_ * 4 + 3, depth - 1).map(
            lambda one: Column(id_, "x", "list", children=(_named(one, "element"),))
        )
    if kind == 2:
        return _column(id_ * 4 + 3, depth - 1).map(
            lambda one: Column(id_, "x", "map", children=(Column(id_ * 4, "key", "varchar"), _named(one, "value")))
        )
    fields = st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True).flatmap(
        lambda chosen: st.tuples(*(_column(id_ * 4 + n, depth - 1) for n in chosen))
    )
    names = st.permutations(NAMES)
    return st.tuples(fields, names).map(
        lambda made: Column(
            id_, "x", "struct", children=tuple(_named(c, n) for c, n in zip(made[0], made[1], strict=False))
        )
    )


def _named(column: Column, name: str) -> Column:
    default = "7" if not column.nested and name in NAMES else None
    return Column(column.id, name, column.type, initial_default=default, children=column.children)


def values(column: Column) -> st.SearchStrategy[Any]:
    if column.type == "varchar":
        return st.sampled_from(["k", "l'"])
    if not column.nested:
        return st.one_of(st.none(), st.integers(-5, 5))
    if column.type == "list":
        return st.one_of(st.none(), st.lists(values(column.children[0]), max_size=2))
    if column.type == "map":
        return st.one_of(st.none(), st.dictionaries(values(column.children[0]), values(column.children[1]), max_size=2))
    return st.one_of(st.none(), st.fixed_dictionaries({child.name: values(child) for child in column.children}))


def meant(value: Any, stored: Column, wanted: Column) -> Any:
    """The same by Python."""
    if value is None or not wanted.nested:
        return value
    if wanted.type == "list":
        return [meant(item, stored.children[0], wanted.children[0]) for item in value]
    if wanted.type == "map":
        return {key: meant(item, stored.children[1], wanted.children[1]) for key, item in value.items()}
    known: Mapping[int, Column] = {child.id: child for child in stored.children}
    return {
        child.name: meant(value[known[child.id].name], known[child.id], child)
        if child.id in known
        else (None if child.initial_default is None else 7)
        for child in wanted.children
    }


def literal(value: Any, column: Column) -> str:
    if value is None:
        return "NULL"
    if column.type == "varchar":
        return "'" + value.replace("'", "''") + "'"
    if column.type == "list":
        return f"[{', '.join(literal(item, column.children[0]) for item in value)}]"
    if column.type == "map":
        key, inner = column.children
        return f"MAP {{{', '.join(f'{literal(k, key)}: {literal(v, inner)}' for k, v in value.items())}}}"
    if column.type == "struct":
        fields = ('"{}" := {}'.format(c.name.replace('"', '""'), literal(value[c.name], c)) for c in column.children)
        return f"struct_pack({', '.join(fields)})"
    return str(value)


@settings(max_examples=60)
@given(data=st.data())
def test_fields_are_matched_by_id_at_every_depth(connection: duckdb.DuckDBPyConnection, data: st.DataObject) -> None:
    seed = data.draw(st.integers(1, 3))
    stored, wanted = data.draw(_column(seed, 2)), data.draw(_column(seed, 2))
    value = data.draw(values(stored))
    source = f"(SELECT CAST({literal(value, stored)} AS {stored.duckdb_type()}) AS v)"
    [(found, kind)] = connection.execute(
        f"SELECT r, typeof(r) FROM (SELECT {reshaped('v', stored, wanted)} AS r FROM {source})"
    ).fetchall()
    assert found == meant(value, stored, wanted)
    assert duckdb.sqltype(kind) == duckdb.sqltype(wanted.duckdb_type())


def test_a_value_of_the_same_shape_and_type_is_left_alone() -> None:
    column = Column(1, "s", "struct", children=(Column(2, "a", "int32"),))
    renamed = Column(1, "t", "struct", children=(Column(2, "a", "int32"),))
    assert reshaped("v", column, renamed) == "v"
    assert same_shape(column, renamed)
    assert not same_shape(column, Column(1, "s", "struct", children=(Column(3, "a", "int32"),)))


def test_schemas_are_compared_by_what_they_store() -> None:
    one = TableSchema((Column(1, "a", "int32"), Column(2, "s", "struct", children=(Column(3, "x", "int32"),))))
    defaults = TableSchema((Column(1, "a", "int32", nullable=False, default="1"), one.columns[1]))
    wider = TableSchema((Column(1, "a", "int64"), one.columns[1]))
    other = TableSchema((one.columns[0], Column(2, "s", "struct", children=(Column(3, "y", "int32"),))))
    assert stored_alike(one, defaults)
    assert not stored_alike(one, wider)
    assert not stored_alike(one, other)
    assert same_shapes(one, wider)
    assert not same_shapes(one, other)
    assert same_shapes(one, TableSchema(one.columns[:1]))


def test_the_initial_value_is_the_default_of_older_rows() -> None:
    assert initial_value(Column(1, "a", "varchar", initial_default="it's")) == "CAST('it''s' AS VARCHAR)"
    assert initial_value(Column(1, "a", "int32", default="5")) == "NULL::INTEGER"
