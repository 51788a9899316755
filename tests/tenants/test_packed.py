"""Inlined rows of a shared lake hold every value of every type, as those of a plain one do."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quacklake
from quacklake.core.catalog import InlinedRows
from quacklake.core.format import inline
from quacklake.core.format.inline import LIFE, pack
from quacklake.core.format.schema import from_arrow
from quacklake.core.scan.inlined_rows import decode_inlined
from tests.seeds import LONG

COLUMNS: dict[str, tuple[str, list[str]]] = {
    "flag": ("BOOLEAN", ["true", "false"]),
    "tiny": ("TINYINT", ["-128", "127"]),
    "big": ("BIGINT", ["-9223372036854775808", "9223372036854775807"]),
    "ubig": ("UBIGINT", ["0", "18446744073709551615"]),
    "huge": ("HUGEINT", ["-170141183460469231731687303715884105728", "170141183460469231731687303715884105727"]),
    "real": ("FLOAT", ["1.1", "'inf'", "'nan'"]),
    "dbl": ("DOUBLE", ["0.1", "1e308", "'-inf'", "5e-324"]),
    "exact": ("DECIMAL(38, 10)", ["1234567890123456789012345678.0123456789", "-0.0000000001"]),
    "word": ("VARCHAR", ["''", "'it''s'", "'\"[null]\\'", "'ü 🦆'", "chr(9) || chr(10)"]),
    "bytes": ("BLOB", ["'\\x00\\xFF'::BLOB", "''::BLOB"]),
    "uid": ("UUID", ["'00000000-0000-0000-0000-000000000001'"]),
    "day": ("DATE", ["'0001-01-01'", "'9999-12-31'"]),
    "clock": ("TIME", ["'23:59:59.999999'"]),
    "moment": ("TIMESTAMP", ["'2024-02-29 12:00:00.000001'"]),
    "nano": ("TIMESTAMP_NS", ["'2024-02-29 12:00:00.000000001'"]),
    "zoned": ("TIMESTAMPTZ", ["'2024-02-29 12:00:00+05'"]),
    "span": ("INTERVAL", ["INTERVAL '13 months 3 days 4 seconds'"]),
    "many": ("INTEGER[]", ["[1, NULL, 3]", "[]"]),
    "nested": ("STRUCT(a INTEGER, b VARCHAR[])", ["{'a': 1, 'b': ['x', NULL, 'it''s']}"]),
    "pairs": ("MAP(VARCHAR, INTEGER)", ["MAP {'k': 1}"]),
    "doc": ("JSON", ["'{\"a\": [1, 2]}'"]),
}


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgres", marks=pytest.mark.daily(0.22))])
def test_every_type_comes_back_from_the_catalog_as_it_went(
    database: str, new_url: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUACKLAKE_CATALOG", raising=False)
    kinds = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    rows = []
    for index in range(max(len(values) for _, values in COLUMNS.values()) + 1):
        cells = [values[index] if index < len(values) else "NULL" for _, values in COLUMNS.values()]
        rows.append(f"({', '.join(cells)})")
    found: list[Any] = []
    for url, catalog in ((new_url(database), "acme"), (f"sqlite:///{tmp_path}/plain.db", None)):
        with quacklake.connect(url, tmp_path / f"of {catalog}", catalog=catalog, data_inlining_row_limit=100) as lake:
            lake.sql(f"CREATE TABLE t ({kinds})")
            lake.sql(f"INSERT INTO t VALUES {', '.join(rows)}")
            assert lake.table("t").files().num_rows == 0
            found.append(lake.sql("SELECT COLUMNS(*)::VARCHAR FROM t ORDER BY ALL").fetchall())
    assert found[0] == found[1]
    assert len(found[0]) == len(rows)


_VALUES = st.fixed_dictionaries(
    {
        "flag": st.none() | st.booleans(),
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "raw": st.none() | st.binary(),
        "number": st.none() | st.floats(allow_nan=False),
        "exact": st.none() | st.decimals(-1000, 1000, places=3),
        "day": st.none() | st.dates(dt.date(1, 1, 1)),
    }
)
_SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("n", pa.int64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("number", pa.float64()),
        ("exact", pa.decimal128(20, 3)),
        ("day", pa.date32()),
    ]
)


@settings(max_examples=200 if LONG else 20)
@given(st.lists(_VALUES, min_size=1, max_size=5))
def test_packed_rows_unpack_to_the_same_values(values: list[dict[str, Any]]) -> None:
    schema = from_arrow(_SCHEMA)
    table = pa.Table.from_pylist(values, _SCHEMA)
    encoded = [inline.encode(table.column(i), column, inline.PACKED) for i, column in enumerate(schema.columns)]
    payloads = [pack(row) for row in zip(*encoded, strict=True)]  # type: ignore[arg-type]
    assert all(payload.isascii() and isinstance(json.loads(payload), list) for payload in payloads)
    life = {name: pa.array(range(len(values)), pa.int64()) for name in LIFE}
    stored = InlinedRows(schema, 1, pa.table({**life, "payload": payloads}))
    rows = decode_inlined([stored], schema, inline.PACKED)
    assert rows is not None
    found = rows.select([f"c{column.id}" for column in schema.columns]).rename_columns(_SCHEMA.names).cast(_SCHEMA)
    assert found.to_pylist() == table.to_pylist()


def test_a_row_of_fewer_values_is_padded() -> None:
    schema = from_arrow(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    life = {name: pa.array([1], pa.int64()) for name in LIFE}
    stored = InlinedRows(schema, 1, pa.table({**life, "payload": [pack([Decimal(1)])]}))
    rows = decode_inlined([stored], schema, inline.PACKED)
    assert rows is not None
    assert rows.select(["c1", "c2"]).to_pylist() == [{"c1": 1, "c2": None}]
