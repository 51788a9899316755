"""Inlined rows that PostgreSQL joins to blocks of columns are the rows that it sends at once."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest

import quacklake
from quacklake.core.catalog.databases import postgres, postgres_blocks
from quacklake.core.scan import inlined_rows
from quacklake.core.scan.inlined_rows import check_readable, read_inlined
from quacklake.errors import CatalogError
from tests.layout import LAYOUT
from tests.seeds import LONG, chance

pytestmark = pytest.mark.skipif(LAYOUT == "shared", reason="tables of a shared lake have no pages of their own")

EDGES: dict[str, tuple[str, list[str]]] = {
    "flag": ("BOOLEAN", ["true", "false"]),
    "tiny": ("TINYINT", ["-128", "0", "127"]),
    "small": ("SMALLINT", ["-32768", "32767"]),
    "usmall": ("USMALLINT", ["0", "65535"]),
    "int": ("INTEGER", ["-2147483648", "-1", "2147483647"]),
    "uint": ("UINTEGER", ["0", "4294967295"]),
    "big": ("BIGINT", ["-9223372036854775808", "-1", "9223372036854775807"]),
    "ubig": ("UBIGINT", ["0", "18446744073709551615"]),
    "huge": ("HUGEINT", ["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"]),
    "real": ("FLOAT", ["1.1", "'inf'", "'-inf'", "'nan'", "-0.0", "1e-45", "3.4028235e38"]),
    "dbl": ("DOUBLE", ["0.1", "1e308", "'inf'", "'-inf'", "'nan'", "-0.0", "5e-324", "0.30000000000000004"]),
    "exact": ("DECIMAL(38, 10)", ["1234567890123456789012345678.0123456789", "-0.0000000001", "0"]),
    "word": ("VARCHAR", ["''", "'it''s'", "'\\x41'", "'ü 🦆'", "chr(9) || chr(10)", "'a' || chr(0) || 'b'", "'NULL'"]),
    "bytes": ("BLOB", ["'\\x00\\xFF'::BLOB", "''::BLOB", "'\\xFF\\xFF\\xFF\\xFF'::BLOB"]),
    "uid": ("UUID", ["'00000000-0000-0000-0000-000000000001'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"]),
    "day": ("DATE", ["'0001-01-01'", "'1999-12-31'", "'9999-12-31'", "'infinity'", "'5877642-06-25 (BC)'"]),
    "clock": ("TIME", ["'00:00:00'", "'23:59:59.999999'", "'24:00:00'"]),
    "clocktz": ("TIMETZ", ["'12:00:00+05:30'", "'23:59:59.999999-15:59'"]),
    "moment": ("TIMESTAMP", ["'1969-12-31 23:59:59.999999'", "'2024-02-29 12:00:00.000001'", "'-infinity'"]),
    "seconds": ("TIMESTAMP_S", ["'1812-06-24 00:00:01'", "'294247-01-10 04:00:54'"]),
    "nano": ("TIMESTAMP_NS", ["'2024-02-29 12:00:00.000000001'", "'1700-01-01 00:00:00'"]),
    "zoned": ("TIMESTAMPTZ", ["'2024-02-29 12:00:00+05'", "'infinity'"]),
    "span": ("INTERVAL", ["INTERVAL '13 months 3 days 4 seconds'", "INTERVAL '-1 month 2 days -5 microseconds'"]),
    "many": ("INTEGER[]", ["[1, NULL, 3]", "[]"]),
    "nested": ("STRUCT(a INTEGER, b VARCHAR[])", ["{'a': 1, 'b': ['x', NULL, 'it''s']}"]),
    "pairs": ("MAP(VARCHAR, INTEGER)", ["MAP {'k': 1}"]),
    "doc": ("JSON", ["'{\"a\": [1, 2]}'"]),
    # names that the statement uses itself
    "page": ("INTEGER", ["1"]),
    "begins": ("VARCHAR", ["'x'"]),
    "p0": ("DOUBLE", ["2.5"]),
    "block": ("BOOLEAN", ["true"]),
    "50%(a)s : ''\"": ("BIGINT", ["7"]),
}


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways in which rows were read: blocks, those of a block once more row by row, or all rows at once.

    Every table comes in blocks, of a page or of seven packed rows.
    """
    found: list[str] = []

    def noted(name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **more: found.append(name) or read(*given, **more)  # type: ignore[func-returns-value]

    monkeypatch.setattr(postgres, "LEAST_PAGES", 0)
    monkeypatch.setattr(postgres, "LEAST_ROWS", 1)
    monkeypatch.setattr(postgres_blocks, "_PAGES", 1)
    monkeypatch.setattr(postgres_blocks, "_ROWS", 7)
    monkeypatch.setattr(postgres, "fetch_blocks", noted("blocks", postgres_blocks.fetch_blocks))
    monkeypatch.setattr(postgres_blocks, "copy_arrow", noted("again", postgres_blocks.copy_arrow))
    monkeypatch.setattr(postgres, "copy_arrow", noted("at once", postgres.copy_arrow))
    return found


def read(lake: quacklake.Lake, name: str = "t") -> pa.Table:
    """Return the inlined rows as a plan has them, ordered by their ids. Raise for values that cannot be read."""
    view = lake.handle.view()
    info = view.find_table("main", name)
    with lake._context.catalog.read() as reader:
        rows = read_inlined(reader, view.base, info, lake._context.catalog.encoding)
    assert rows is not None
    check_readable(rows, info.schema.columns)
    return rows.sort_by("row_id")


def read_one_by_one(lake: quacklake.Lake, name: str = "t") -> pa.Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "can_fetch", lambda *_: False)
        return read(lake, name)


def exact(rows: pa.Table) -> list[list[Any]]:
    """Return the columns, floats and times as their bits: NaN equals itself, no zero another, and no time is too far."""
    columns = []
    for column in rows.columns:
        array = pa.chunked_array(column.chunks, column.type).combine_chunks()
        if pa.types.is_floating(array.type) or pa.types.is_temporal(array.type):
            array = array.view({32: pa.int32(), 64: pa.int64()}[array.type.bit_width])
        columns.append(array.to_pylist())
    return columns


def random_rows(numbers: random.Random, count: int) -> str:
    def cell(kind: str, values: list[str]) -> str:
        return f"CAST({'NULL' if numbers.random() < 0.3 else numbers.choice(values)} AS {kind})"

    return ", ".join(f"({', '.join(cell(*each) for each in EDGES.values())})" for _ in range(count))


@pytest.mark.parametrize("number", range(20 if LONG else 2))
def test_blocks_hold_every_value_of_every_type(
    number: int, postgres_url: str, tmp_path: Path, fetched: list[str]
) -> None:
    numbers = chance("blocks", number)
    kinds = ", ".join(f"{quote(name)} {kind}" for name, (kind, _) in EDGES.items())
    texts = "SELECT COLUMNS(*)::VARCHAR FROM t ORDER BY ALL"
    with (
        quacklake.connect(postgres_url, tmp_path / "data", data_inlining_row_limit=1000) as lake,
        duckdb.connect() as plain,
    ):

        def both(statement: str) -> None:
            lake.sql(statement)
            plain.execute(statement)

        both(f"CREATE TABLE t ({kinds})")
        for _ in range(4):
            both(f"INSERT INTO t VALUES {random_rows(numbers, numbers.randrange(1, 80))}")
        both("DELETE FROM t WHERE tiny = 0 OR flag")
        both("ALTER TABLE t ADD COLUMN later INTEGER DEFAULT 5")
        both(f"INSERT INTO t SELECT *, 6 FROM (VALUES {random_rows(numbers, 20)})")
        assert exact(read(lake)) == exact(read_one_by_one(lake))
        assert lake.sql(texts).fetchall() == plain.execute(texts).fetchall()
        assert set(fetched) == {"blocks", "at once"}


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def small_lake(url: str, path: Path, rows: pa.Table) -> quacklake.Lake:
    lake = quacklake.connect(url, path / "data", data_inlining_row_limit=100_000)
    lake.create_table("t", rows)
    return lake


def test_null_has_other_bytes_each_time(
    postgres_url: str, tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[postgres_blocks._Marks] = []
    draw = postgres_blocks._Marks.drawn
    monkeypatch.setattr(postgres_blocks._Marks, "drawn", lambda most: drawn.append(draw(most)) or drawn[-1])
    rows = pa.table({"i": [0, None, 1], "f": [0.0, None, math.nan], "s": ["", None, "NULL"], "b": [False, None, True]})
    with small_lake(postgres_url, tmp_path, rows) as lake:
        for _ in range(10):
            found = read(lake).select(["c1", "c2", "c3", "c4"])
            assert exact(found) == exact(rows)
            # whoever knows the bytes of one time knows nothing of the next
            (number,) = struct.unpack(">q", drawn[-1].number)
            (double,) = struct.unpack(">d", drawn[-1].number)
            values = pa.table({"i": [number], "f": [double], "s": [drawn[-1].text.decode()], "b": [True]})
            lake.table("t").append(values)
            rows = pa.concat_tables([rows, values])
        assert fetched == ["blocks"] * 10
    assert len({(each.number, each.text) for each in drawn}) == 10


@pytest.mark.parametrize("mark", ["\x1e", "\x1f", "a\x1fb", "\x1e\x1f", "\x1f\x1f"])
def test_texts_that_hold_the_marks_between_texts_come_as_they_are(
    mark: str, postgres_url: str, tmp_path: Path, fetched: list[str]
) -> None:
    rows = pa.table({"d": [[mark], None, [""], [mark, mark]], "s": [mark, None, "", "x"]})
    with small_lake(postgres_url, tmp_path, rows) as lake:
        assert read(lake).column("c3").to_pylist() == rows.column("s").to_pylist()
        assert lake.table("t").to_arrow().to_pylist() == rows.to_pylist()
        assert ("again" in fetched) is ("\x1f" in mark)


@pytest.mark.parametrize("value", [b"\xfe", b"\xff", b"\xfe\xff\xfe"])
def test_bytes_that_are_no_text_are_bytes_or_an_error(
    value: bytes, postgres_url: str, tmp_path: Path, fetched: list[str]
) -> None:
    rows = pa.table({"b": [value, None, b"", value], "s": ["x", None, "", "y"]})
    with small_lake(postgres_url, tmp_path, rows) as lake:
        assert read(lake).column("c1").to_pylist() == rows.column("b").to_pylist()
        assert fetched == ["blocks"]
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE ducklake_inlined_data_1_1 SET s = %b WHERE row_id = 0", [value])
        with pytest.raises(CatalogError, match="cannot be read"):
            read(lake)
        with pytest.raises(CatalogError, match="cannot be read"):
            lake.table("t").to_arrow()


def test_rows_on_pages_that_were_not_counted_are_read(postgres_url: str, tmp_path: Path, fetched: list[str]) -> None:
    rows = pa.table({"i": range(5_000)})
    with small_lake(postgres_url, tmp_path, rows) as lake:
        by_pages = postgres_blocks.by_pages
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres, "by_pages", lambda pages: by_pages(pages // 3))
            assert read(lake).column("c1").to_pylist() == list(range(5_000))
        assert read(lake).column("c1").to_pylist() == list(range(5_000))
        assert fetched == ["blocks", "blocks"]


def test_long_values_come_one_by_one(postgres_url: str, tmp_path: Path, fetched: list[str]) -> None:
    numbers = chance("long values")
    rows = pa.table({"b": [numbers.randbytes(100_000), b"", None]})
    with small_lake(postgres_url, tmp_path, rows) as lake:
        assert read(lake).column("c1").to_pylist() == rows.column("b").to_pylist()
        assert fetched == ["at once"]


def test_compressed_values_come_in_blocks(postgres_url: str, tmp_path: Path, fetched: list[str]) -> None:
    rows = pa.table({"s": ["x" * 50_000, "", None] * 50})
    with small_lake(postgres_url, tmp_path, rows) as lake:
        assert read(lake).column("c1").to_pylist() == rows.column("s").to_pylist()
        assert fetched == ["blocks"]


def test_very_wide_tables_come_one_by_one(postgres_url: str, tmp_path: Path, fetched: list[str]) -> None:
    with small_lake(postgres_url, tmp_path, pa.table({f"c{i}": [i, None] for i in range(450)})) as lake:
        assert read(lake).column("c450").to_pylist() == [449, None]
        assert fetched == ["at once"]


def test_wide_tables_count_the_nulls_of_all_columns(postgres_url: str, tmp_path: Path, fetched: list[str]) -> None:
    with small_lake(postgres_url, tmp_path, pa.table({f"c{i}": [i, None, 3] for i in range(350)})) as lake:
        assert exact(read(lake)) == exact(read_one_by_one(lake))
        assert fetched == ["blocks", "at once"]


@pytest.mark.parametrize("bytes_", [b"\xff", b"a\xc3", b"\xed\xa0\x80"])
def test_text_that_is_none_is_an_error_either_way(
    bytes_: bytes, postgres_url: str, tmp_path: Path, fetched: list[str]
) -> None:
    with small_lake(postgres_url, tmp_path, pa.table({"s": ["x", "y"]})) as lake:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE ducklake_inlined_data_1_1 SET s = %b WHERE row_id = 1", [bytes_])
        for way in (read, read_one_by_one):
            with pytest.raises(CatalogError, match="cannot be read"):
                way(lake)
        assert fetched[0] == "blocks"


def test_a_database_with_another_encoding_sends_rows_one_by_one(
    postgres_server: Any, tmp_path: Path, fetched: list[str]
) -> None:
    name = "latin_blocks"
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    try:
        with small_lake(
            postgres_server.url_of(name), tmp_path, pa.table({"s": ["é", "x"], "d": [["ë"], None]})
        ) as lake:
            assert read(lake).column("c1").to_pylist() == ["é", "x"]
            assert fetched == ["at once"]
    finally:
        postgres_server.drop_database(name)


def test_a_role_that_may_only_read_gets_blocks(
    postgres_url: str, postgres_server: Any, tmp_path: Path, fetched: list[str]
) -> None:
    role = postgres_server.create_role("reader")
    rows = pa.table({"i": [1, None], "s": ["x", None]})
    small_lake(postgres_url, tmp_path, rows).close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    with quacklake.connect(postgres_url.replace("://quacklake@", f"://{role}@")) as lake:
        assert read(lake).column("c2").to_pylist() == ["x", None]
        assert lake.table("t").to_arrow() == rows
        assert set(fetched) == {"blocks"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_between_blocks_leaves_a_lake_that_can_be_read(
    error: type[BaseException], postgres_url: str, tmp_path: Path, fetched: list[str]
) -> None:
    calls = []

    def interrupted(original: Callable[..., Any], *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise error
        return original(*given)

    rows = pa.table({"i": range(20_000), "s": ["x" * 100] * 20_000})
    with small_lake(postgres_url, tmp_path, rows) as lake:
        original = postgres_blocks._rows
        with pytest.MonkeyPatch.context() as patch, pytest.raises(error):
            patch.setattr(postgres_blocks, "_rows", lambda *given: interrupted(original, *given))
            read(lake)
        assert len(calls) == 3
        assert read(lake).num_rows == 20_000
        lake.table("t").append(rows[:1])
        assert lake.table("t").count() == 20_001


def test_large_tables_come_in_blocks_by_themselves(postgres_url: str, tmp_path: Path) -> None:
    rows = pa.table({"i": range(30_000), "s": ["x" * 100] * 30_000})
    with pytest.MonkeyPatch.context() as patch:
        batches = []
        original = postgres_blocks._rows
        patch.setattr(postgres_blocks, "_rows", lambda *given: batches.append(given[0]) or original(*given))
        with small_lake(postgres_url, tmp_path, rows) as lake:
            assert lake.sql("SELECT count(*), sum(i), count(DISTINCT s) FROM t").fetchall() == [
                (30_000, 449_985_000, 1)
            ]
        assert len(batches) > 1
        assert sum(batches) == 30_000


@pytest.fixture
def tenant(postgres_url: str, tmp_path: Path, fetched: list[str]) -> Iterator[quacklake.Lake]:
    """A tenant beside another one whose tables have the same ids."""
    with quacklake.tenants(postgres_url, tmp_path / "shared") as tenants:
        for name in ("other", "one"):
            tenants.create(name)
    options = {"data_inlining_row_limit": 100_000, "plan_cache_bytes": 0}
    with quacklake.connect(postgres_url, catalog="other", **options) as lake:
        lake.create_table("t", pa.table({"id": range(500, 600), "s": ["not mine"] * 100}))
    with quacklake.connect(postgres_url, catalog="one", **options) as lake:
        fetched.clear()
        yield lake


def test_packed_rows_come_in_blocks_of_their_ids(tenant: quacklake.Lake, fetched: list[str]) -> None:
    """Rows that ended, moved and came again, with ids far apart, at every snapshot, beside a plain DuckDB."""
    numbers = chance("packed blocks")
    with duckdb.connect() as plain:
        plain.execute("CREATE TABLE t (id BIGINT, s VARCHAR)")
        tenant.create_table("t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
        states = []
        for turn in range(12):
            ids = sorted(numbers.sample(range(1_000), 40))
            values = ", ".join(
                f"({each}, {numbers.choice(['NULL', repr('x' * (each % 50)), repr('ü' + chr(10))])})" for each in ids
            )
            low = numbers.randrange(900)
            statements = [f"INSERT INTO t VALUES {values}"]
            if turn % 3 == 1:
                statements.append(f"UPDATE t SET s = 'turn {turn}' WHERE id BETWEEN {low} AND {low + 200}")
            if turn % 3 == 2:
                statements.append(f"DELETE FROM t WHERE id BETWEEN {low} AND {low + 200}")
            for statement in statements:
                tenant.sql(statement)
                plain.execute(statement)
            if turn == 5:
                tenant.table("t").flush_inlined_data()
            states.append((tenant.current_snapshot(), plain.execute("FROM t ORDER BY ALL").fetchall()))
        fetched.clear()
        for snapshot, rows in states:
            assert tenant.sql(f"FROM t AT (VERSION => {snapshot}) ORDER BY ALL").fetchall() == rows
        assert set(fetched) == {"blocks"}
        assert read(tenant).num_rows < len(states[-1][1])
        fetched.clear()
        assert exact(read(tenant)) == exact(read_one_by_one(tenant))
        assert fetched == ["blocks", "at once"]


@pytest.mark.parametrize("size", [8_000, 9_000, 300_000])
def test_blocks_with_a_long_packed_row_are_read_row_by_row(
    size: int, tenant: quacklake.Lake, fetched: list[str]
) -> None:
    rows = pa.table({"id": range(30), "s": ["x" * size if number == 11 else None for number in range(30)]})
    tenant.create_table("t", rows)
    assert read(tenant).select(["c1", "c2"]).to_pydict() == dict(
        zip(("c1", "c2"), rows.to_pydict().values(), strict=True)
    )
    assert fetched == ["blocks"] + ["again"] * (size > 8_100)


@pytest.mark.parametrize("payload", ["[1, 2]", '["1"', '["1", null] \x1f', "\x1e", '{"r": 1}'])
def test_a_packed_row_that_is_damaged_is_an_error_either_way(
    payload: str, tenant: quacklake.Lake, postgres_url: str, fetched: list[str]
) -> None:
    tenant.create_table("t", pa.table({"id": range(30), "s": ["x"] * 30}))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        changed = connection.execute(
            "UPDATE ducklake_inlined_rows SET payload = %s WHERE row_id = 11 AND payload LIKE '%%\"x\"%%'", [payload]
        )
        assert changed.rowcount == 1
    for way in (read, read_one_by_one):
        with pytest.raises(CatalogError, match=r"cannot be read|not a list of texts"):
            way(tenant)
    assert fetched[0] == "blocks"


def test_an_error_while_the_server_sends_more_leaves_a_lake_that_can_be_read(
    tenant: quacklake.Lake, postgres_url: str, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inlined_rows, "_CHUNK", 1)
    rows = pa.table({"id": range(20_000), "s": ["x" * 200] * 20_000})
    table = tenant.create_table("t", rows)
    change = "UPDATE ducklake_inlined_rows SET payload = %s WHERE row_id = 11 AND payload = %s"
    whole, damaged = json.dumps(["11", "x" * 200]), '["11", '
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        assert connection.execute(change, [damaged, whole]).rowcount == 1
        with pytest.raises(CatalogError, match="cannot be read"):
            table.to_arrow()
        assert connection.execute(change, [whole, damaged]).rowcount == 1
    assert table.to_arrow().sort_by("id") == rows
    table.append(rows[:1])
    assert table.count() == 20_001
    assert set(fetched) == {"blocks"}


def test_few_packed_rows_come_at_once(tenant: quacklake.Lake, fetched: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "LEAST_ROWS", 50)
        tenant.create_table("t", pa.table({"id": range(49), "s": ["x"] * 49}))
        assert read(tenant).num_rows == 49
        assert fetched == ["at once"]
        tenant.table("t").append(pa.table({"id": [49], "s": ["y"]}))
        assert read(tenant).num_rows == 50
        assert fetched == ["at once", "blocks"]
