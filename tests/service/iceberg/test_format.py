"""The files of Iceberg as pure functions, read back by other programs."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema

from quacklake.core.format.bounds import encode
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.vectors import decode, referenced_blobs
from quacklake.errors import UnsupportedFeatureError
from quacklake.service.iceberg.avro import Manifest, encode_list, encode_manifest
from quacklake.service.iceberg.bounds import bound, unscaled
from quacklake.service.iceberg.lives import Chunk, DataFile, DeleteFile, chunks, states
from quacklake.service.iceberg.manifests import Placed, data_entry
from quacklake.service.iceberg.puffin import encode_positions, encode_puffin
from quacklake.service.iceberg.types import serve

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "float64": st.floats(allow_nan=False),
    "float32": st.floats(allow_nan=False, width=32),
    "decimal(38,6)": st.decimals(-(10**31), 10**31, places=6),
    "varchar": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "blob": st.binary(max_size=40),
}


def iceberg_type_of(type_: str) -> Any:
    served = serve(TableSchema((Column(1, "c", type_),)), 3)
    return Schema.model_validate(served.json(0)).fields[0].field_type


@given(st.data())
def test_a_bound_reads_back_as_the_value(data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(sorted(VALUES)))
    value = data.draw(VALUES[type_])
    packed = bound(encode(value, type_), type_, upper=data.draw(st.booleans()))
    assert packed is not None
    read = from_bytes(iceberg_type_of(type_), packed)
    expected = value
    if type_ == "date":
        expected = (value - dt.date(1970, 1, 1)).days
    elif type_ == "timestamp":
        expected = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert read == expected


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        (None, "int32"),
        ("x", "int32"),
        ("99999999999", "int32"),
        ("infinity", "timestamp"),
        ("nan", "float64"),
        (str(uuid.UUID(int=5)), "uuid"),
        ("1", "interval"),
    ],
)
def test_a_bound_that_may_mislead_is_left_out(text: str | None, type_: str) -> None:
    assert bound(text, type_, upper=True) is None


def test_zeros_of_both_signs_are_within_their_bounds() -> None:
    low, high = bound("0.0", "float64", upper=False), bound("-0.0", "float64", upper=True)
    assert low == b"\0" * 7 + b"\x80" and high == b"\0" * 8


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_lose_no_digit(number: int, scale: int) -> None:
    sign, digits = ("-", str(-number)) if number < 0 else ("", str(number))
    digits = digits.rjust(scale + 1, "0")
    text = f"{sign}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}"
    assert unscaled(Decimal(text), scale) == number
    assert scale == 0 or number % 10 == 0 or unscaled(Decimal(text), scale - 1) is None


def test_defaults_are_written_as_the_specification_says() -> None:
    cases = {
        "boolean": ("true", True), "int32": ("34", 34), "float64": ("1.5", 1.5), "decimal(9,2)": ("14.2", "14.20"),
        "date": ("2017-11-16", "2017-11-16"), "time": ("22:31:08.1", "22:31:08.100000"),
        "timestamp": ("2017-11-16 22:31:08", "2017-11-16T22:31:08.000000"),
        "timestamptz": ("2017-11-16 22:31:08.5+00", "2017-11-16T22:31:08.500000+00:00"),
        "timestamp_ns": ("2017-11-16 22:31:08.123456789", "2017-11-16T22:31:08.123456789"),
        "varchar": ("34", "34"), "uuid": ("f79c3e09-677c-4bbd-a479-3f349cb785e7", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    }  # fmt: skip
    for type_, (text, expected) in cases.items():
        served = serve(TableSchema((Column(1, "c", type_, initial_default=text),)), 3)
        assert (served.fields[0]["initial-default"], served.copied) == (expected, None), type_
        assert serve(TableSchema((Column(1, "c", type_, initial_default=text),)), 3).copied is None
    for type_, text in (("float64", "inf"), ("blob", "AB"), ("date", "infinity"), ("date", "99999-01-01")):
        served = serve(TableSchema((Column(1, "c", type_, initial_default=text),)), 3)
        assert served.copied is not None and "initial-default" not in served.fields[0], type_


def test_names_that_readers_cannot_tell_apart_are_refused() -> None:
    inner = Column(2, "b", "int32")
    schema = TableSchema((Column(1, "a", "struct", children=(inner,)), Column(3, "a.b", "int32")))
    with pytest.raises(UnsupportedFeatureError, match=r"a\.b"):
        serve(schema, 3)


@pytest.mark.parametrize("version", [2, 3])
def test_manifests_are_what_other_avro_readers_read(version: int) -> None:
    schema = serve(TableSchema((Column(1, "id", "int64"),)), version).json(7)
    metrics = {"lower_bounds": [(1, b"\x01" * 8)], "value_counts": [(1, 3)]}
    file = DataFile(5, "x", 3, 99, begin=4, row_id_start=10)
    entry = data_entry(1, 4, file, Placed("/data/x.parquet", 99), metrics, version)
    content = encode_manifest([entry], version=version, schema=schema, deletes=False)
    assert content == encode_manifest([entry], version=version, schema=schema, deletes=False)
    reader = fastavro.reader(io.BytesIO(content))
    (read,) = list(reader)
    assert reader.metadata["format-version"] == str(version) and reader.metadata["content"] == "data"
    assert read["data_file"]["lower_bounds"] == [{"key": 1, "value": b"\x01" * 8}]
    assert (read["sequence_number"], read["data_file"].get("first_row_id")) == (4, 10 if version == 3 else None)
    listed = encode_list(
        [Manifest("/m", 1, False, 4, 4, (1, 0, 0), (3, 0, 0))], version=version, snapshot_id=4, parent=None
    )
    (manifest,) = list(fastavro.reader(io.BytesIO(listed)))
    # summaries with empty bounds would make readers leave out every file
    assert manifest["partitions"] is None
    assert (manifest["added_rows_count"], manifest["added_snapshot_id"]) == (3, 4)


_INT64 = st.integers(-(2**63), 2**63 - 1)
_PAIRS = st.lists(st.tuples(st.integers(0, 2**31 - 1), _INT64), min_size=1, max_size=3) | st.none()
_BOUNDS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=200)), min_size=1, max_size=3) | st.none()
_ENTRIES = st.fixed_dictionaries(
    {
        "status": st.integers(0, 2),
        **dict.fromkeys(("snapshot_id", "sequence_number", "file_sequence_number"), _INT64),
        "data_file": st.fixed_dictionaries(
            {
                "content": st.integers(0, 1),
                "file_path": st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
                "file_format": st.sampled_from(["PARQUET", "PUFFIN"]),
                **dict.fromkeys(("record_count", "file_size_in_bytes"), _INT64),
                **dict.fromkeys(("value_counts", "null_value_counts", "nan_value_counts"), _PAIRS),
                **dict.fromkeys(("lower_bounds", "upper_bounds"), _BOUNDS),
                **dict.fromkeys(("first_row_id", "content_offset", "content_size_in_bytes"), _INT64 | st.none()),
                "referenced_data_file": st.text("/aé", max_size=5) | st.none(),
            }
        ),
    }
)


@given(st.lists(_ENTRIES, max_size=4), st.sampled_from([2, 3]))
def test_entries_of_any_values_read_back(entries: list[dict[str, Any]], version: int) -> None:
    schema = serve(TableSchema((Column(1, "id", "int64"),)), version).json(7)
    content = encode_manifest(entries, version=version, schema=schema, deletes=False)
    read: list[Any] = list(fastavro.reader(io.BytesIO(content)))
    assert len(read) == len(entries)
    for entry, found in zip(entries, read, strict=True):
        file, kept = entry["data_file"], found.pop("data_file")
        assert found == {key: value for key, value in entry.items() if key != "data_file"}
        for key, value in file.items():
            if isinstance(value, list):
                value = [{"key": number, "value": each} for number, each in value]
            missing = version == 2 and key in ("first_row_id", "content_offset", "content_size_in_bytes")
            assert kept.get(key) == (None if missing else value), key


@given(
    st.dictionaries(st.text("abc/é", min_size=1), st.sets(st.integers(0, 2**33), min_size=1, max_size=20), max_size=4)
)
def test_a_puffin_file_holds_the_positions_of_each_file(deleted: dict[str, set[int]]) -> None:
    arrays = {path: pa.array(sorted(positions), pa.int64()) for path, positions in deleted.items()}
    content, vectors = encode_puffin(arrays)
    for path, vector in vectors.items():
        assert vector.rows == len(deleted[path])
        assert content[vector.offset + 4 : vector.offset + 8] == b"\xd1\xd3\x39\x64"
    if deleted:
        assert {path: set(decode(blob).to_pylist()) for path, blob in referenced_blobs(content)} == deleted
    table = pq.read_table(pa.BufferReader(encode_positions(arrays)))
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert rows == sorted((path, position) for path, positions in deleted.items() for position in positions)
    assert [field.metadata[b"PARQUET:field_id"] for field in table.schema] == [b"2147483546", b"2147483545"]


LIVES = st.lists(st.tuples(st.integers(1, 30), st.none() | st.integers(1, 30)), max_size=60)


@given(LIVES, st.integers(1, 8))
def test_chunks_hold_every_file_once_and_keep_their_borders(lives: list[tuple[int, int | None]], size: int) -> None:
    files = [
        DataFile(number, f"f{number}", 1, 1, begin, None if length is None else begin + length)
        for number, (begin, length) in enumerate(lives)
    ]
    parts = list(chunks(files, {}, {}, size=size))
    assert [file for chunk in parts for file in chunk.files] == files
    for snapshot in range(0, 65, 7):
        assert [file for chunk in parts for file in chunk.live(snapshot)] == [
            file for file in files if file.begin <= snapshot and (file.end is None or snapshot < file.end)
        ]
    if len(parts) > 1:
        fewer = list(chunks(files[1:], {}, {}, size=size))
        # without the first file, only the first chunk changes
        assert [chunk.files for chunk in fewer][-(len(parts) - 1) :] == [chunk.files for chunk in parts][1:]


@given(st.lists(st.integers(1, 40), unique=True), st.lists(st.integers(1, 40)), st.integers(1, 10))
def test_states_group_the_snapshots_that_saw_no_change(snapshots: list[int], points: list[int], limit: int) -> None:
    found = states(snapshots, points, limit)
    assert len(found) <= limit
    for point, seen in found:
        for snapshot in seen:
            assert point == max(each for each in points if each <= snapshot)
    everything = [snapshot for _, seen in states(snapshots, points, 1000) for snapshot in seen]
    assert everything == sorted(snapshot for snapshot in snapshots if points and snapshot >= min(points))


def test_deletes_are_those_of_the_snapshot() -> None:
    file = DataFile(1, "f", 10, 1, begin=2, partial_max=6)
    deletes = [DeleteFile(7, "d", "parquet", begin=3, end=8, partial_max=5), DeleteFile(9, "e", "parquet", begin=8)]
    chunk = Chunk((file,), {1: deletes}, {1: [(4, 7), (2, 9)]}, range(2, 10))
    seen = {snapshot: chunk.deleted(snapshot).get(1) for snapshot in range(2, 10)}
    assert {s: (d and d.file and d.file.id, d and d.until, d and d.positions, d and d.rows_until) for s, d in seen.items()} == {
        2: (None, None, (), 2), 3: (7, 3, (), 3), 4: (7, 4, (), 4), 5: (7, None, (), 5), 6: (7, None, (), None),
        7: (7, None, (4,), None), 8: (9, None, (4,), None), 9: (9, None, (2, 4), None),
    }  # fmt: skip
    assert set(range(2, 10)) <= {*chunk.delete_points}
