"""The bucket hash, against the function of the reference implementation."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import duckdb
import mmh3
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format.bounds import decode, encode
from quacklake.core.format.texts import literal_text
from quacklake.core.format.transforms import hash_array, hash_comparable, hash_sql
from quacklake.core.format.types import can_widen, duckdb_type
from quacklake.errors import InputError
from tests.duckdbs import import_extension

from .oracle import in_utc
from .test_bounds import EXPLICIT, VALUES
from .test_literals import ALL_VALUES

TYPES = {**ALL_VALUES, "decimal(18,3)": st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: f"{n}e-3")}
TYPES.pop("time_ns")  # DuckDB 1.5 cannot write it to a file
LOWER = 0x7FFFFFFF


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    import_extension("ducklake")
    with in_utc() as found:
        found.execute("LOAD ducklake")
        yield found


def expected(connection: duckdb.DuckDBPyConnection, type: str, texts: list[str | None]) -> tuple[list[int], pa.Array]:
    found = arrow_table(
        connection,
        f"SELECT murmur3_32(x) AS hash, x, {hash_sql('x', type)} AS sql "
        f"FROM (SELECT unnest(?::VARCHAR[])::{duckdb_type(type)} AS x)",
        [texts],
    )
    hashes = found["hash"].to_pylist()
    assert [None if hash is None else hash & LOWER for hash in hashes] == [
        None if hash is None else hash & LOWER for hash in found["sql"].to_pylist()
    ]
    return hashes, found["x"].combine_chunks()


@pytest.mark.parametrize("type", TYPES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_way_gives_the_hash_of_the_reference_implementation(
    type: str, data: st.DataObject, connection: duckdb.DuckDBPyConnection
) -> None:
    values = data.draw(st.lists(TYPES[type] | st.none(), min_size=1, max_size=60))
    texts = [literal_text(value, type) for value in values]
    hashes, array = expected(connection, type, texts)
    assert hash_array(array, type).to_pylist() == hashes
    assert hash_array(array[len(array) // 2 :], type).to_pylist() == hashes[len(array) // 2 :]
    if type in VALUES:
        decoded = [decode(None if value is None else encode(value, type), type) for value in values]
        assert [None if value is None else hash_comparable(value, type) for value in decoded] == hashes


@pytest.mark.parametrize("type", [type for type in EXPLICIT if type in TYPES])
def test_extreme_values_have_the_hash_of_the_reference_implementation(
    type: str, connection: duckdb.DuckDBPyConnection
) -> None:
    texts: list[str | None] = [*EXPLICIT[type], "nan"] if type.startswith("float") else [*EXPLICIT[type]]
    hashes, array = expected(connection, type, texts)
    assert hash_array(array, type).to_pylist() == hashes
    for text, hash in zip(EXPLICIT[type], hashes, strict=False):
        value = decode(text, type)
        assert value is not None
        assert hash_comparable(value, type) == hash


@pytest.mark.parametrize(
    "value",
    [
        "[1, NULL, 3]::INT[]",
        "{x: 1, y: 'é', z: TIMESTAMPTZ '2024-01-01 00:00:00+02'}",
        "MAP {'a': 1}",
        "'3 days'::INTERVAL",
        "1::VARIANT",
    ],
)
def test_what_has_only_a_text_is_hashed_in_sql(value: str, connection: duckdb.DuckDBPyConnection) -> None:
    row = connection.execute(
        f"SELECT murmur3_32(x) & {LOWER}, {hash_sql('x', 'list')} & {LOWER} FROM (SELECT {value} AS x)"
    )
    ours, theirs = row.fetchone() or (0, 1)
    assert ours == theirs


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200) | st.none(), min_size=1))
def test_long_and_short_values_are_hashed_alike(
    connection: duckdb.DuckDBPyConnection, values: list[bytes | None]
) -> None:
    hashes = hash_array(pa.array(values, pa.binary()), "blob").to_pylist()
    assert hashes == [None if value is None else mmh3.hash(value) for value in values]
    found = connection.execute(
        f"SELECT murmur3_32(x), {hash_sql('x', 'blob')} & {LOWER} FROM (SELECT unnest(?::BLOB[]) AS x)", [values]
    ).fetchall()
    assert [hash for hash, _ in found] == hashes
    assert [hash for _, hash in found] == [None if hash is None else hash & LOWER for hash in hashes]


def test_text_that_is_no_utf8_is_hashed_as_its_bytes() -> None:
    content = pa.array([b"\xff", None, b"iceberg"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(content), content.buffers())
    assert hash_array(texts, "varchar").to_pylist() == [mmh3.hash(b"\xff"), None, 1210000089]


@pytest.mark.parametrize("type", [type for type in VALUES if type in TYPES and not type.startswith("decimal")])
@settings(max_examples=30)
@given(data=st.data())
def test_a_wider_type_keeps_the_hash(type: str, data: st.DataObject) -> None:
    value = decode(encode(data.draw(VALUES[type]), type), type)
    assert value is not None
    for wider in VALUES:
        if can_widen(type, wider):
            assert hash_comparable(value, wider) == hash_comparable(value, type)


@pytest.mark.parametrize(
    ("value", "type"), [(1500, "timestamp"), (1 << 70, "int64"), (1, "date"), (Decimal("1.55"), "decimal(9,1)")]
)
def test_what_no_row_can_be_has_no_hash(value: int | Decimal, type: str) -> None:
    assert hash_comparable(value, type) is None


@pytest.mark.parametrize("type", ["timetz", "geometry"])
def test_what_only_duckdb_sees_is_refused(type: str) -> None:
    with pytest.raises(InputError):
        hash_sql("x", type)
    with pytest.raises(InputError):
        hash_array(pa.array([b""]), type)
    with pytest.raises(InputError):
        hash_comparable(b"", type)


@pytest.mark.parametrize("type", ["list", "interval", "variant"])
def test_what_arrow_shows_otherwise_is_refused(type: str) -> None:
    with pytest.raises(InputError):
        hash_array(pa.array([1]), type)
