"""Columns and their ids, to and from Arrow, DuckDB and catalog rows."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quacklake.core.format.schema import (
    FIELD_ID,
    Column,
    ColumnRow,
    TableSchema,
    flatten,
    from_arrow,
    of_last_schema,
    unflatten,
)
from quacklake.errors import CatalogError, InputError, InvalidNameError

EXAMPLE = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("li", pa.list_(pa.int32())),
        pa.field("st", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("last", pa.decimal128(9, 2)),
    ]
)

_scalars = st.sampled_from(
    [pa.int32(), pa.string(), pa.float64(), pa.timestamp("us"), pa.decimal128(7, 3), pa.binary()]
)
_names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
_arrow = st.recursive(
    _scalars,
    lambda inner: (
        inner.map(pa.list_)
        | inner.map(lambda value: pa.map_(pa.string(), value))
        | st.dictionaries(_names.map(str.lower), inner, min_size=1, max_size=3).map(
            lambda d: pa.struct(list(d.items()))
        )
    ),
    max_leaves=6,
)


def _distinct(fields: dict[str, pa.DataType]) -> bool:
    return len({name.lower() for name in fields}) == len(fields)


_schemas = st.dictionaries(_names, _arrow, min_size=1, max_size=4).filter(_distinct).map(lambda d: pa.schema(d.items()))


def test_ids_are_given_depth_first() -> None:
    schema = from_arrow(EXAMPLE, first_id=10)
    assert [(column.id, column.name) for column in schema.walk()] == [
        (10, "id"),
        (11, "li"),
        (12, "element"),
        (13, "st"),
        (14, "a"),
        (15, "b"),
        (16, "element"),
        (17, "m"),
        (18, "key"),
        (19, "value"),
        (20, "last"),
    ]
    assert schema.max_id == 20
    assert [column.id for column in schema.leaves()] == [10, 12, 14, 16, 18, 19, 20]


@given(_schemas)
def test_arrow_comes_back_as_duckdb_would_export_it(arrow: pa.Schema) -> None:
    schema = from_arrow(arrow)
    assert from_arrow(schema.to_arrow()) == schema
    with duckdb.connect() as connection:
        columns = ", ".join(f'NULL::{column.duckdb_type()} AS "{index}"' for index, column in enumerate(schema.columns))
        exported = connection.sql(f"SELECT {columns}").to_arrow_table().schema
    assert exported.types == schema.to_arrow().types


@given(_schemas, st.randoms())
def test_rows_in_any_order_give_the_schema_back(arrow: pa.Schema, rng: random.Random) -> None:
    schema = from_arrow(arrow, first_id=3)
    rows = list(flatten(schema))
    assert [row.column_order for row in rows] == [row.column_id for row in rows]
    rng.shuffle(rows)
    assert unflatten(rows) == schema


def test_the_rows_are_those_the_reference_implementation_writes() -> None:
    rows = flatten(from_arrow(EXAMPLE))
    assert rows[0] == ColumnRow(1, None, 1, "id", "int32", None, "NULL", False, "literal", "duckdb")
    assert rows[1] == ColumnRow(2, None, 2, "li", "list", None, "NULL", True, "", "duckdb")
    assert rows[2] == ColumnRow(3, 2, 3, "element", "int32", None, "NULL", True, "literal", "duckdb")


@pytest.mark.parametrize("default", [None, "", "x", "null", "'NULL'"])
def test_a_default_comes_back_as_it_was(default: str | None) -> None:
    schema = TableSchema((Column(1, "a", "varchar", default=default, initial_default=default),))
    assert unflatten(flatten(schema)) == schema


def test_the_default_text_null_is_not_taken_for_no_default() -> None:
    (row,) = flatten(TableSchema((Column(1, "a", "varchar", default="NULL"),)))
    assert (row.default_value, row.default_value_type) == ("'NULL'", "expression")


def test_an_expression_default_keeps_its_kind() -> None:
    schema = TableSchema((Column(1, "a", "timestamptz", default="now()", default_kind="expression"),))
    assert unflatten(flatten(schema)) == schema


def test_children_follow_the_column_order() -> None:
    rows = [
        ColumnRow(1, None, 9, "late", "int32", None, "NULL", True, "literal", "duckdb"),
        ColumnRow(2, None, 4, "s", "struct", None, "NULL", True, "", "duckdb"),
        ColumnRow(3, 2, 8, "b", "int32", None, "NULL", True, "literal", "duckdb"),
        ColumnRow(4, 2, 7, "a", "TIMESTAMP_US", None, None, True, None, None),
    ]
    schema = unflatten(rows)
    assert schema.names == ("s", "late")
    assert [child.name for child in schema.find("s").children] == ["a", "b"]
    assert schema.by_id(4).type == "timestamp"


@pytest.mark.parametrize(
    "rows",
    [
        [ColumnRow(1, 7, 1, "orphan", "int32", None, None, True, "literal", "duckdb")],
        [ColumnRow(1, 1, 1, "own parent", "list", None, None, True, "", "duckdb")],
        [ColumnRow(1, None, 1, "empty", "list", None, None, True, "", "duckdb")],
    ],
)
def test_rows_that_fit_no_tree_are_refused(rows: list[ColumnRow]) -> None:
    with pytest.raises(CatalogError):
        unflatten(rows)


def test_names_are_found_without_regard_to_ascii_case() -> None:
    schema = TableSchema((Column(1, "Id", "int32"), Column(2, "É", "int32"), Column(3, "é", "int32")))
    assert schema.find("iD").id == 1
    assert schema.find("é").id == 3
    assert schema.get("nothing") is None
    with pytest.raises(InputError, match='did you mean "id"'):
        schema.find("ID_")
    with pytest.raises(InputError):
        schema.by_id(99)


@pytest.mark.parametrize(
    "arrow",
    [
        pa.schema([("a", pa.int8()), ("A", pa.int8())]),
        pa.schema([("", pa.int8())]),
        pa.schema([("s", pa.struct([("x", pa.int8()), ("X", pa.int8())]))]),
        pa.schema([("a", pa.int8()), ("a", pa.int8())]),
    ],
)
def test_empty_and_duplicate_names_are_refused(arrow: pa.Schema) -> None:
    with pytest.raises(InvalidNameError):
        from_arrow(arrow)


def test_a_struct_without_fields_is_refused() -> None:
    with pytest.raises(InputError, match="without fields"):
        from_arrow(pa.schema([("s", pa.struct([]))]))


def test_field_ids_reach_every_depth() -> None:
    schema = from_arrow(EXAMPLE).to_arrow(field_ids=True)
    assert schema.field("id").metadata == {FIELD_ID: b"1"}
    assert not schema.field("id").nullable
    assert schema.field("li").type.value_field.metadata == {FIELD_ID: b"3"}
    assert schema.field("m").type.key_field.metadata == {FIELD_ID: b"9"}
    assert schema.field("m").type.item_field.metadata == {FIELD_ID: b"10"}


def test_a_geometry_is_known_by_its_extension_name() -> None:
    schema = TableSchema((Column(1, "g", "geometry"),))
    assert from_arrow(schema.to_arrow()) == schema


def test_nested_types_are_spelled_with_quoted_names() -> None:
    schema = from_arrow(pa.schema([('x"', pa.struct([('a"b', pa.list_(pa.map_(pa.string(), pa.date32())))]))]))
    assert schema.columns[0].duckdb_type() == 'STRUCT("a""b" MAP(VARCHAR, DATE)[])'


@pytest.mark.parametrize(
    "arrow", [pa.large_list(pa.int8()), pa.list_(pa.int8(), 3), pa.list_view(pa.int8()), pa.large_list_view(pa.int8())]
)
def test_every_arrow_list_is_a_list(arrow: pa.DataType) -> None:
    assert from_arrow(pa.schema([("l", arrow)])).columns[0].duckdb_type() == "TINYINT[]"


def test_what_is_remembered_of_the_last_arrow_schema_is_never_told_of_another() -> None:
    asked: list[pa.Schema] = []

    @of_last_schema
    def shown(schema: pa.Schema) -> str:
        asked.append(schema)
        return str(schema.to_string(show_schema_metadata=True))

    plain = pa.schema([("a", pa.int32())])
    schemas = [
        plain,
        pa.schema([("a", pa.int32())]),
        pa.schema([("a", pa.int64())]),
        pa.schema([("b", pa.int32())]),
        pa.schema([pa.field("a", pa.int32(), nullable=False)]),
        plain.with_metadata({"k": "v"}),
        pa.schema([pa.field("a", pa.int32(), metadata={"k": "v"})]),
        pa.schema([("a", pa.dictionary(pa.int8(), pa.string()))]),
        pa.schema([("a", pa.int32()), ("b", pa.int32())]),
        plain,
    ]
    for schema in schemas:
        assert shown(schema) == schema.to_string(show_schema_metadata=True)
    assert len(asked) == len(schemas) - 1
