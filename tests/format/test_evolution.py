"""Schema changes, against the rows that the reference implementation writes for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format.evolution import (
    DefaultExpression,
    SchemaChange,
    add_column,
    difference,
    drop_column,
    evolve_to,
    rename_column,
    set_default,
    set_nullable,
    set_type,
)
from quacklake.core.format.names import format_path, parse_path
from quacklake.core.format.schema import Column, ColumnRow, TableSchema, flatten, from_arrow, unflatten
from quacklake.core.format.types import parse_type
from quacklake.errors import InputError, InternalError, InvalidNameError, SchemaMismatchError

from .oracle import lake

TABLE = (
    "CREATE TABLE l.t (a TINYINT, s STRUCT(x TINYINT, y STRUCT(z INT, z2 VARCHAR)), li STRUCT(p INT, q SMALLINT)[], "
    "m MAP(VARCHAR, STRUCT(u INT, v FLOAT)), d VARCHAR DEFAULT 'hi', e TIMESTAMP DEFAULT now(), nn INT NOT NULL)"
)
ROW = "INSERT INTO l.t VALUES (1, {x: 1, y: {z: 2, z2: 'z'}}, [{p: 1, q: 2}], MAP {'k': {u: 1, v: 2}}, 'v', now(), 5)"
COLUMNS = (
    "column_id, parent_column, column_order, column_name, column_type, initial_default, default_value, nulls_allowed, "
    "default_value_type, default_value_dialect"
)
META = "__ducklake_metadata_l"
Step = Callable[[TableSchema, int], TableSchema]


def widen_column(schema: TableSchema, path: tuple[str, ...], new_type: str) -> TableSchema:
    target = Column(0, path[-1] if path else "", str(parse_type(new_type)))
    return set_type(schema, path, target, next_column_id=schema.max_id + 1)


def column(name: str, type: pa.DataType) -> Column:
    return from_arrow(pa.schema([(name, type)])).columns[0]


def adding(parent: str, name: str, type: pa.DataType, default: object = None) -> Step:
    path = parse_path(parent) if parent else ()
    return lambda schema, next_id: add_column(schema, path, column(name, type), next_column_id=next_id, default=default)


def retyping(path: str, type: pa.DataType) -> Step:
    return lambda schema, next_id: set_type(schema, parse_path(path), column("any", type), next_column_id=next_id)


STRUCT = pa.struct([("k", pa.int32()), ("l", pa.list_(pa.string()))])
OPERATIONS: list[tuple[str, Step]] = [
    ("ADD COLUMN b INT", adding("", "b", pa.int32())),
    ("ADD COLUMN b INT DEFAULT 42", adding("", "b", pa.int32(), 42)),
    ("ADD COLUMN b VARCHAR DEFAULT 'it''s'", adding("", "b", pa.string(), "it's")),
    ("ADD COLUMN b VARCHAR DEFAULT ''", adding("", "b", pa.string(), "")),
    ("ADD COLUMN b DATE DEFAULT '2024-01-05'", adding("", "b", pa.date32(), "2024-01-05")),
    ("ADD COLUMN b BLOB DEFAULT 'a\\xFF'", adding("", "b", pa.binary(), b"a\xff")),
    ("ADD COLUMN b STRUCT(k INT, l VARCHAR[])", adding("", "b", STRUCT)),
    ("ADD COLUMN s.w INT", adding("s", "w", pa.int32())),
    ("ADD COLUMN s.w INT DEFAULT 5", adding("s", "w", pa.int32(), 5)),
    ("ADD COLUMN s.y.w STRUCT(k INT, l VARCHAR[])", adding("s.y", "w", STRUCT)),
    ("ADD COLUMN li.element.w INT", adding("li.element", "w", pa.int32())),
    ("ADD COLUMN m.value.w INT", adding("m.value", "w", pa.int32())),
    ("DROP COLUMN a", lambda schema, _: drop_column(schema, ("a",))),
    ("DROP COLUMN s", lambda schema, _: drop_column(schema, ("s",))),
    ("DROP COLUMN s.y", lambda schema, _: drop_column(schema, ("s", "y"))),
    ("DROP COLUMN s.y.z", lambda schema, _: drop_column(schema, ("s", "y", "z"))),
    ("DROP COLUMN li.element.p", lambda schema, _: drop_column(schema, ("li", "element", "p"))),
    ("DROP COLUMN m", lambda schema, _: drop_column(schema, ("m",))),
    ("RENAME COLUMN a TO aa", lambda schema, _: rename_column(schema, ("a",), "aa")),
    ("RENAME COLUMN a TO A", lambda schema, _: rename_column(schema, ("a",), "A")),
    ("RENAME COLUMN s TO ss", lambda schema, _: rename_column(schema, ("s",), "ss")),
    ("RENAME COLUMN d TO dd", lambda schema, _: rename_column(schema, ("d",), "dd")),
    ("RENAME COLUMN e TO ee", lambda schema, _: rename_column(schema, ("e",), "ee")),
    ("RENAME COLUMN nn TO nnn", lambda schema, _: rename_column(schema, ("nn",), "nnn")),
    ("RENAME COLUMN s.y TO yy", lambda schema, _: rename_column(schema, ("s", "y"), "yy")),
    ("RENAME COLUMN li.element.p TO pp", lambda schema, _: rename_column(schema, ("li", "element", "p"), "pp")),
    ("ALTER COLUMN a TYPE INTEGER", lambda schema, _: widen_column(schema, ("a",), "int32")),
    ("ALTER COLUMN nn TYPE BIGINT", lambda schema, _: widen_column(schema, ("nn",), "int64")),
    ("ALTER COLUMN nn TYPE INTEGER", lambda schema, _: widen_column(schema, ("nn",), "int32")),
    (
        "ALTER COLUMN li TYPE STRUCT(p BIGINT, q SMALLINT)[]",
        lambda schema, _: widen_column(schema, ("li", "element", "p"), "int64"),
    ),
    (
        "ALTER COLUMN s TYPE STRUCT(n STRUCT(a INT, b INT[]), Y STRUCT(z BIGINT, k INT), x TINYINT)",
        retyping("s", pa.struct([
            ("n", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.int32()))])),
            ("Y", pa.struct([("z", pa.int64()), ("k", pa.int32())])),
            ("x", pa.int8()),
        ])),
    ),
    (
        "ALTER COLUMN m TYPE MAP(VARCHAR, STRUCT(v DOUBLE, w INT))",
        retyping("m", pa.map_(pa.string(), pa.struct([("v", pa.float64()), ("w", pa.int32())]))),
    ),
    ("ALTER COLUMN a SET DEFAULT 9", lambda schema, _: set_default(schema, ("a",), 9)),
    (
        "ALTER COLUMN a SET DEFAULT random()",
        lambda schema, _: set_default(schema, ("a",), DefaultExpression("random()")),
    ),
    ("ALTER COLUMN d SET DEFAULT 'x''y'", lambda schema, _: set_default(schema, ("d",), "x'y")),
    ("ALTER COLUMN d DROP DEFAULT", lambda schema, _: set_default(schema, ("d",), None)),
    ("ALTER COLUMN e DROP DEFAULT", lambda schema, _: set_default(schema, ("e",), None)),
    ("ALTER COLUMN nn DROP NOT NULL", lambda schema, _: set_nullable(schema, ("nn",), True)),
    ("ALTER COLUMN a SET NOT NULL", lambda schema, _: set_nullable(schema, ("a",), False)),
]  # fmt: skip


def visible(connection: duckdb.DuckDBPyConnection) -> TableSchema:
    rows = connection.execute(f"SELECT {COLUMNS} FROM {META}.ducklake_column WHERE end_snapshot IS NULL").fetchall()
    return unflatten(ColumnRow(*row) for row in rows)


def comparable(row: ColumnRow) -> ColumnRow:
    """A row without what the reference implementation leaves to chance: see the rows of nested nodes."""
    nested = row.parent_column is not None
    return replace(
        row, nulls_allowed=nested or row.nulls_allowed, default_value_type=row.default_value_type or "literal"
    )


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with lake(tmp_path_factory.mktemp("evolution")) as connection:
        yield connection


@pytest.fixture
def table(reference: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    reference.execute(TABLE)
    reference.execute(ROW)
    yield reference
    reference.execute("DROP TABLE l.t")


@pytest.mark.parametrize(("sql", "step"), OPERATIONS, ids=[sql for sql, _ in OPERATIONS])
def test_the_rows_are_those_the_reference_implementation_writes(
    table: duckdb.DuckDBPyConnection, sql: str, step: Step
) -> None:
    before = visible(table)
    table.execute(f"ALTER TABLE l.t {sql}")
    (snapshot,) = table.execute(f"SELECT max(snapshot_id) FROM {META}.ducklake_snapshot").fetchone() or (None,)
    ended = table.execute(f"SELECT column_id FROM {META}.ducklake_column WHERE end_snapshot = ?", [snapshot]).fetchall()
    began = table.execute(
        f"SELECT {COLUMNS} FROM {META}.ducklake_column WHERE begin_snapshot = ?", [snapshot]
    ).fetchall()

    after = step(before, before.max_id + 1)
    change = difference(before, after)
    assert sorted(change.ended) == sorted(id for (id,) in ended)
    assert sorted(map(comparable, change.started), key=lambda row: row.column_id) == sorted(
        (comparable(ColumnRow(*row)) for row in began), key=lambda row: row.column_id
    )


@pytest.mark.parametrize(("sql", "step"), OPERATIONS, ids=[sql for sql, _ in OPERATIONS])
def test_the_reference_implementation_reads_our_rows_as_its_own(
    table: duckdb.DuckDBPyConnection, sql: str, step: Step
) -> None:
    before = visible(table)
    commit(table, difference(before, step(before, before.max_id + 1)))
    ours = arrow_table(table, "FROM l.t"), table.execute("DESCRIBE l.t").fetchall()
    table.execute("DROP TABLE l.t")
    table.execute(TABLE)
    table.execute(ROW)
    table.execute(f"ALTER TABLE l.t {sql}")
    theirs = arrow_table(table, "FROM l.t"), table.execute("DESCRIBE l.t").fetchall()
    times = ("e", "ee")  # the time of the insert
    assert ours[0].drop_columns([name for name in times if name in ours[0].column_names]) == theirs[0].drop_columns(
        [name for name in times if name in theirs[0].column_names]
    )
    assert ours[1] == theirs[1]


def commit(connection: duckdb.DuckDBPyConnection, change: SchemaChange) -> int:
    """Write a change into the catalog behind the reference implementation's back."""
    (table_id,) = connection.execute(f"SELECT max(table_id) FROM {META}.ducklake_table").fetchone() or (None,)
    connection.execute(
        f"INSERT INTO {META}.ducklake_snapshot SELECT snapshot_id + 1, now(), schema_version + 1, next_catalog_id, "
        f"next_file_id FROM {META}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
    )
    (snapshot, version) = connection.execute(
        f"SELECT snapshot_id, schema_version FROM {META}.ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
    ).fetchone() or (0, 0)
    connection.execute(
        f"INSERT INTO {META}.ducklake_snapshot_changes VALUES (?, ?, NULL, NULL, NULL)",
        [snapshot, f"altered_table:{table_id}"],
    )
    connection.execute(f"INSERT INTO {META}.ducklake_schema_versions VALUES (?, ?, ?)", [snapshot, version, table_id])
    for id in change.ended:
        connection.execute(
            f"UPDATE {META}.ducklake_column SET end_snapshot = ? "
            "WHERE column_id = ? AND table_id = ? AND end_snapshot IS NULL",
            [snapshot, id, table_id],
        )
    names = COLUMNS.split(", ")
    for row in change.started:
        connection.execute(
            f"INSERT INTO {META}.ducklake_column BY NAME SELECT {', '.join(f'? AS {name}' for name in names)}, "
            "? AS begin_snapshot, ? AS table_id",
            [*(getattr(row, name) for name in names), snapshot, table_id],
        )
    return int(snapshot)


def test_a_renamed_field_keeps_the_default_that_fills_old_files(table: duckdb.DuckDBPyConnection) -> None:
    # The reference implementation forgets it: the field of the rows that exist would become NULL.
    table.execute("ALTER TABLE l.t ADD COLUMN s.w INT DEFAULT 5")
    before = visible(table)
    commit(table, difference(before, rename_column(before, ("s", "w"), "ww")))
    assert table.execute("SELECT s.ww FROM l.t").fetchone() == (5,)


# -- refusals --------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, Step]] = [
    ("ADD COLUMN A INT", adding("", "A", pa.int32())),
    ("ADD COLUMN s.X INT", adding("s", "X", pa.int32())),
    ("ADD COLUMN a.b INT", adding("a", "b", pa.int32())),
    ("ADD COLUMN li.b INT", adding("li", "b", pa.int32())),
    ("ADD COLUMN m.key.b INT", adding("m.key", "b", pa.int32())),
    ("ADD COLUMN nope.b INT", adding("nope", "b", pa.int32())),
    ("ADD COLUMN b TIMESTAMP DEFAULT now()", adding("", "b", pa.timestamp("us"), DefaultExpression("now()"))),
    ("ADD COLUMN b INT[] DEFAULT [1]", adding("", "b", pa.list_(pa.int32()), [1])),
    ("DROP COLUMN s.nope", lambda schema, _: drop_column(schema, ("s", "nope"))),
    ("DROP COLUMN li.element", lambda schema, _: drop_column(schema, ("li", "element"))),
    ("DROP COLUMN m.key", lambda schema, _: drop_column(schema, ("m", "key"))),
    ("RENAME COLUMN a TO d", lambda schema, _: rename_column(schema, ("a",), "d")),
    ("RENAME COLUMN s.x TO Y", lambda schema, _: rename_column(schema, ("s", "x"), "Y")),
    ("RENAME COLUMN m.key TO k", lambda schema, _: rename_column(schema, ("m", "key"), "k")),
    ("RENAME COLUMN s.nope TO k", lambda schema, _: rename_column(schema, ("s", "nope"), "k")),
    ("ALTER COLUMN nn TYPE SMALLINT", lambda schema, _: widen_column(schema, ("nn",), "int16")),
    ("ALTER COLUMN a TYPE VARCHAR", lambda schema, _: widen_column(schema, ("a",), "varchar")),
    ("ALTER COLUMN a TYPE STRUCT(x INT)", retyping("a", pa.struct([("x", pa.int32())]))),
    ("ALTER COLUMN li TYPE INTEGER", lambda schema, _: widen_column(schema, ("li",), "int32")),
    (
        "ALTER COLUMN m TYPE MAP(INT, STRUCT(u INT))",
        retyping("m", pa.map_(pa.int32(), pa.struct([("u", pa.int32())]))),
    ),
    ("ALTER COLUMN m TYPE INT[]", retyping("m", pa.list_(pa.int32()))),
    ("ALTER COLUMN nn SET NOT NULL", lambda schema, _: set_nullable(schema, ("nn",), False)),
    ("ALTER COLUMN a DROP NOT NULL", lambda schema, _: set_nullable(schema, ("a",), True)),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "step"), REFUSED, ids=[sql for sql, _ in REFUSED])
def test_a_change_is_refused_in_the_words_of_the_reference_implementation(
    table: duckdb.DuckDBPyConnection, sql: str, step: Step
) -> None:
    before = visible(table)
    table.execute("BEGIN")
    with pytest.raises(duckdb.Error) as theirs:
        table.execute(f"ALTER TABLE l.t {sql}")
    table.execute("ROLLBACK")
    with pytest.raises(InputError) as ours:
        step(before, before.max_id + 1)
    # Names inside of types are quoted where they must be, by us always.
    assert ours.value.message.replace('"', "") in str(theirs.value).replace('"', "")


def test_the_last_column_and_the_last_field_stay() -> None:
    schema = from_arrow(pa.schema([("s", pa.struct([("x", pa.int32())]))]))
    with pytest.raises(InputError, match="only has one column remaining"):
        drop_column(schema, ("s",))
    with pytest.raises(InputError, match="the only one"):
        drop_column(schema, ("s", "x"))


def test_a_partition_column_stays() -> None:
    schema = from_arrow(pa.schema([("a", pa.int32()), ("b", pa.int32())]))
    with pytest.raises(InputError, match="the table is partitioned by this column"):
        drop_column(schema, ("a",), partitioned_by={1})
    assert drop_column(schema, ("b",), partitioned_by={1}).names == ("a",)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: set_nullable(s, ("s", "x"), False),
        lambda s: set_default(s, ("s", "x"), 1),
        lambda s: set_default(s, ("s",), {"x": 1}),
        lambda s: set_default(s, ("s",), DefaultExpression("{x: 1}")),
        lambda s: set_default(s, ("a",), "x"),
        lambda s: add_column(s, (), Column(0, "b", "int32", nullable=False), next_column_id=9),
        lambda s: add_column(s, (), Column(0, "b", "int32"), next_column_id=9, default="x"),
        lambda s: widen_column(s, ("a",), "no type"),
        lambda s: widen_column(s, (), "int32"),
    ],
)
def test_what_the_format_has_no_place_for_is_refused(change: Callable[[TableSchema], TableSchema]) -> None:
    schema = from_arrow(pa.schema([("a", pa.int32()), ("s", pa.struct([("x", pa.int32())]))]))
    with pytest.raises(InputError):
        change(schema)


def test_names_of_new_fields_are_checked() -> None:
    schema = from_arrow(pa.schema([("a", pa.int32())]))
    twice = Column(0, "s", "struct", children=(Column(0, "x", "int32"), Column(0, "X", "int32")))
    with pytest.raises(InvalidNameError):
        add_column(schema, (), twice, next_column_id=2)
    with pytest.raises(InvalidNameError):
        add_column(schema, (), Column(0, "", "int32"), next_column_id=2)


def test_an_id_in_use_is_never_given_again() -> None:
    schema = from_arrow(pa.schema([("a", pa.int32())]))
    with pytest.raises(InternalError):
        add_column(schema, (), Column(0, "b", "int32"), next_column_id=1)


def test_no_change_has_no_rows() -> None:
    schema = from_arrow(pa.schema([("a", pa.int32())]))
    assert not difference(schema, widen_column(schema, ("a",), "int32"))
    assert not difference(schema, rename_column(schema, ("a",), "a"))


# -- sequences of changes --------------------------------------------------------------------------------------


def _steps(draw: st.DrawFn, schema: TableSchema, next_id: int) -> TableSchema:
    """One change, drawn from those the schema allows."""
    paths = list(_paths(schema))
    path = draw(st.sampled_from(paths))
    name = draw(st.sampled_from(["p", "q", "r", "P", "a.b"]))
    new = column(name, draw(st.sampled_from([pa.int8(), pa.float32(), STRUCT, pa.map_(pa.string(), pa.int8())])))
    wide = draw(st.sampled_from(["int16", "int32", "int64", "float64"]))
    changes: list[Callable[[], TableSchema]] = [
        lambda: add_column(schema, path, new, next_column_id=next_id),
        lambda: add_column(schema, (), new, next_column_id=next_id),
        lambda: drop_column(schema, path),
        lambda: rename_column(schema, path, name),
        lambda: widen_column(schema, path, wide),
        lambda: set_type(schema, path, new, next_column_id=next_id),
        lambda: set_default(schema, path, draw(st.sampled_from([None, 1, "1", DefaultExpression("now()")]))),
        lambda: set_nullable(schema, path, draw(st.booleans())),
    ]
    try:
        return draw(st.sampled_from(changes))()
    except InputError:
        return schema


def _paths(schema: TableSchema) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []

    def walk(columns: tuple[Column, ...], prefix: tuple[str, ...]) -> None:
        for each in columns:
            found.append((*prefix, each.name))
            walk(each.children, found[-1])

    walk(schema.columns, ())
    return found


@settings(max_examples=60)
@given(st.data())
def test_any_sequence_of_changes_is_told_by_its_rows(data: st.DataObject) -> None:
    start = schema = from_arrow(pa.schema([("a", pa.int8()), ("s", STRUCT), ("l", pa.list_(STRUCT))]))
    next_id = schema.max_id + 1
    rows = {row.column_id: row for row in flatten(schema)}
    names = {row.column_id: row.column_type for row in flatten(schema)}
    for _ in range(data.draw(st.integers(1, 8))):
        after = data.draw(st.composite(_steps)(schema, next_id))
        change = difference(schema, after)
        for id in change.ended:
            del rows[id]
        for row in change.started:
            assert row.column_id not in rows
            assert row.column_id >= next_id or row.column_id in names, "an id came back"
            rows[row.column_id] = row
        assert unflatten(rows.values()) == after
        assert [node.id for node in after.columns] == sorted(node.id for node in after.columns)
        next_id = max(next_id, after.max_id + 1)
        names |= {row.column_id: row.column_type for row in change.started}
        schema = after
    assert unflatten(flatten(schema)) == schema
    whole = difference(start, schema)
    kept = {row.column_id: row for row in flatten(start) if row.column_id not in whole.ended}
    assert unflatten([*kept.values(), *whole.started]) == schema
    assert all(parse_path(format_path(path)) == path for path in _paths(schema))


# -- appends that bring columns --------------------------------------------------------------------------------


def evolved(table: pa.Schema, rows: pa.Schema | TableSchema) -> TableSchema:
    schema = from_arrow(table)
    given = rows if isinstance(rows, TableSchema) else from_arrow(rows)
    return evolve_to(schema, given, schema.max_id + 1)


def test_rows_bring_new_columns_and_wider_types() -> None:
    table = pa.schema([
        pa.field("a", pa.int32(), nullable=False),
        ("s", pa.struct([("x", pa.float32()), ("y", pa.string())])),
        ("l", pa.list_(pa.struct([("p", pa.int8())]))),
        ("kept", pa.int64()),
    ])  # fmt: skip
    rows = pa.schema([
        ("new", pa.struct([("n", pa.int8())])),
        ("A", pa.int64()),
        ("l", pa.list_(pa.struct([("p", pa.int16()), ("q", pa.date32())]))),
        ("s", pa.struct([("X", pa.float64())])),
        ("kept", pa.int8()),
    ])  # fmt: skip
    after = evolved(table, rows)
    assert [(node.id, node.name, node.type) for node in after.walk()] == [
        (1, "a", "int64"),
        (2, "s", "struct"),
        (3, "x", "float64"),
        (4, "y", "varchar"),
        (5, "l", "list"),
        (6, "element", "struct"),
        (7, "p", "int16"),
        (9, "q", "date"),
        (8, "kept", "int64"),
        (10, "new", "struct"),
        (11, "n", "int8"),
    ]
    assert not after.find("a").nullable
    assert after.find("new").default is None


def test_rows_that_fit_change_nothing() -> None:
    table = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert evolved(table, pa.schema([("b", pa.string())])) == from_arrow(table)
    assert evolved(table, TableSchema((Column(1, "b", "unknown"),))) == from_arrow(table)


def test_a_new_column_of_nulls_is_an_integer() -> None:
    assert evolved(pa.schema([("a", pa.int8())]), TableSchema((Column(1, "b", "unknown"),))).find("b").type == "int32"


def test_every_difference_is_told() -> None:
    table = pa.schema([
        pa.field("must", pa.int32(), nullable=False),
        ("a", pa.int32()),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ])  # fmt: skip
    rows = pa.schema([
        ("a", pa.string()),
        ("s", pa.struct([("x", pa.date32()), ("y", pa.list_(pa.int32()))])),
        ("m", pa.map_(pa.int32(), pa.int64())),
    ])  # fmt: skip
    with pytest.raises(SchemaMismatchError) as failure:
        evolved(table, rows)
    for part in (
        '"a" is VARCHAR, the table has INTEGER',
        '"s.x" is DATE, the table has INTEGER',
        '"s.y" is INTEGER[], the table has INTEGER',
        '"m.key" is INTEGER, the table has VARCHAR',
        '"must" is missing and cannot be NULL',
    ):
        assert part in failure.value.message


_trees = st.recursive(
    st.sampled_from([pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()]),
    lambda inner: (
        inner.map(pa.list_)
        | st.dictionaries(st.sampled_from("xyz"), inner, min_size=1, max_size=3).map(lambda d: pa.struct(d.items()))
    ),
    max_leaves=5,
)
_tables = st.dictionaries(st.sampled_from("abc"), _trees, min_size=1, max_size=3).map(lambda d: pa.schema(d.items()))


@given(_tables, _tables)
def test_what_fits_once_fits_again_without_a_change(table: pa.Schema, rows: pa.Schema) -> None:
    try:
        after = evolved(table, rows)
    except SchemaMismatchError:
        return
    assert evolve_to(after, from_arrow(rows), after.max_id + 1) == after
    assert not {row.column_id for row in flatten(from_arrow(table))} - {row.column_id for row in flatten(after)}
