"""Deletion vectors, against the files of the reference implementation and the portable format of roaring bitmaps."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyroaring
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quacklake.core.duckdb_versions import arrow_table
from quacklake.core.format.vectors import blobs_of, decode, encode, encode_file
from quacklake.errors import CorruptFileError, InputError

from .oracle import lake

META = "__ducklake_metadata_l"
ROWS = 300_000
POSITIONS: dict[str, list[int]] = {
    "one": [5],
    "few": [0, 7, 65535, 65536, 299_999],
    "a bitset": list(range(0, 20_000, 2)),
    "the limit of an array": list(range(0, 8192, 2)),
    "one more": list(range(0, 8194, 2)),
    "a whole group": list(range(65536, 131_072)),
    "nearly all": list(range(1, ROWS)),
}

_positions = st.sets(
    st.integers(0, 300_000) | st.integers(0, 2**33) | st.integers(0, 2**63 - 1), max_size=60
) | st.builds(lambda first, count, step: set(range(first, first + count * step, step)), st.integers(0, 2**34),
              st.integers(0, 9000), st.integers(1, 3))  # fmt: skip


# -- the reference implementation ------------------------------------------------------------------------------


def decode_file(data: bytes) -> list[tuple[int | None, pa.Array]]:
    return [(snapshot, decode(blob)) for snapshot, blob in blobs_of(data)]


@pytest.fixture
def reference(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with lake(tmp_path) as connection:
        connection.execute("CALL l.set_option('write_deletion_vectors', true)")
        connection.execute(f"CREATE TABLE l.t AS SELECT range AS x FROM range({ROWS})")
        yield connection


def delete_file(connection: duckdb.DuckDBPyConnection, directory: Path) -> Path:
    row = connection.execute(
        f"SELECT path, format FROM {META}.ducklake_delete_file ORDER BY delete_file_id DESC LIMIT 1"
    )
    path, format = row.fetchone() or ("", "")
    assert format == "puffin"
    return directory / "data" / "main" / "t" / str(path)


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
def test_what_the_reference_implementation_writes_is_read_and_written_alike(
    reference: duckdb.DuckDBPyConnection, tmp_path: Path, positions: list[int]
) -> None:
    reference.execute("DELETE FROM l.t WHERE x IN (SELECT unnest(?))", [positions])
    data = delete_file(reference, tmp_path).read_bytes()
    assert decode(data, rows=ROWS).to_pylist() == positions
    assert decode_file(data) == [(None, pa.array(positions))]
    assert encode(positions) == data
    assert encode_file([(None, positions)]) == data


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
def test_the_reference_implementation_reads_what_is_written(
    reference: duckdb.DuckDBPyConnection, tmp_path: Path, positions: list[int]
) -> None:
    reference.execute("DELETE FROM l.t WHERE x = 3")
    data = encode(positions)
    delete_file(reference, tmp_path).write_bytes(data)
    reference.execute(
        f"UPDATE {META}.ducklake_delete_file SET file_size_bytes = ?, delete_count = ?", [len(data), len(positions)]
    )
    left = arrow_table(reference, "SELECT x FROM l.t ORDER BY x")["x"].to_pylist()
    deleted = set(positions)
    assert left == [number for number in range(ROWS) if number not in deleted]


# -- roaring ---------------------------------------------------------------------------------------------------


@given(_positions)
def test_positions_come_back(positions: set[int]) -> None:
    blob = encode(positions)
    assert decode(blob).to_pylist() == sorted(positions)
    assert decode(memoryview(blob)).type == pa.int64()
    assert encode(decode(blob)) == blob


@settings(max_examples=60)
@given(_positions)
def test_bitmaps_are_those_of_the_portable_64_bit_format(positions: set[int]) -> None:
    content = encode(positions)[8:-4]
    bitmap = pyroaring.BitMap64.deserialize(content)
    assert list(bitmap) == sorted(positions)
    assert bitmap.serialize() == content
    bitmap.run_optimize()
    assert decode(framed(bitmap.serialize())).to_pylist() == sorted(positions)


def framed(bitmaps: bytes) -> bytes:
    """Bitmaps as a blob."""
    body = b"\xd1\xd3\x39\x64" + bitmaps
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def test_runs_are_read() -> None:
    short = struct.pack("<IBHHHHHHH", 12347, 1, 0, 7, 2, 10, 4, 20, 2)
    assert decode(framed(struct.pack("<Qi", 1, 0) + short)).to_pylist() == [10, 11, 12, 13, 14, 20, 21, 22]
    header = struct.pack("<IB", 12347 | 3 << 16, 0b0001) + struct.pack("<8H", 0, 1, 1, 0, 2, 0, 3, 0) + bytes(16)
    long = header + struct.pack("<HHH", 1, 7, 1) + struct.pack("<HHH", 1, 2, 3)
    assert decode(framed(struct.pack("<Qi", 1, 0) + long)).to_pylist() == [7, 8, 65537, 131074, 196611]


def test_a_bitmap_ends_where_its_header_says() -> None:
    # says that it may have runs, and has none, so that a library would write it shorter
    first = struct.pack("<IBHHH", 12347, 0, 0, 0, 7)
    second = struct.pack("<IBHHHHHHH", 12347, 1, 0, 7, 2, 10, 4, 20, 2)
    both = struct.pack("<Qi", 2, 0) + first + struct.pack("<i", 1) + second
    assert decode(framed(both)).to_pylist() == [7, *(2**32 + low for low in (10, 11, 12, 13, 14, 20, 21, 22))]


def test_bitmaps_may_be_in_any_order() -> None:
    one, two = encode([1])[16:-4], encode([(1 << 32) + 2])[16:-4]
    assert decode(framed(struct.pack("<Q", 2) + two + one)).to_pylist() == [1, (1 << 32) + 2]


def test_no_positions_are_a_vector_too() -> None:
    assert decode(encode([])).to_pylist() == []
    assert decode(framed(struct.pack("<QiII", 1, 0, 12346, 0))).to_pylist() == []


@pytest.mark.parametrize(
    "positions", [[3, 1, 2, 1], pa.chunked_array([[3, 1], [2]]), pa.array([1, 2, 3], pa.uint64()), {1, 2, 3}]
)
def test_positions_are_taken_in_any_form(positions: object) -> None:
    assert decode(encode(positions)).to_pylist() == [1, 2, 3]  # type: ignore[arg-type]


@pytest.mark.parametrize("positions", [[-1], pa.array([1, None])])
def test_what_is_no_position_is_refused(positions: object) -> None:
    with pytest.raises(InputError):
        encode(positions)  # type: ignore[arg-type]


# -- corrupt files ---------------------------------------------------------------------------------------------

BLOB = encode([1, 5, 70_000, *range(200_000, 210_000)])
PUFFIN = encode_file([(3, [1, 2]), (7, [1, 2, 70_000])], data_file="main/t/f.parquet")


@pytest.mark.parametrize("data", [BLOB, PUFFIN], ids=["bare", "puffin"])
def test_every_cut_is_noticed(data: bytes) -> None:
    for size in {*range(min(len(data), 400)), *range(max(0, len(data) - 400), len(data))}:
        with pytest.raises(CorruptFileError):
            decode_file(data[:size])
    with pytest.raises(CorruptFileError):
        decode_file(data + b"\0")


@given(st.integers(0, len(BLOB) - 1), st.integers(1, 255))
def test_every_changed_byte_is_noticed(index: int, change: int) -> None:
    data = bytearray(BLOB)
    data[index] ^= change
    with pytest.raises(CorruptFileError):
        decode(bytes(data))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(BLOB) - 13), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_right_checksum_does_not_make_a_vector(changes: list[tuple[int, int]]) -> None:
    content = bytearray(BLOB[8:-4])
    for index, byte in changes:
        content[index] = byte
    try:
        positions = decode(framed(bytes(content)))
    except CorruptFileError:
        return
    numbers = positions.to_pylist()
    assert numbers == sorted(set(numbers))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_vector_or_refused(content: bytes) -> None:
    for data in (
        content,
        framed(content),
        b"PFA1" + content,
        b"PFA1PFA1" + content + struct.pack("<II", len(content), 0) + b"PFA1",
    ):
        with pytest.raises(CorruptFileError):
            decode_file(data)


@pytest.mark.parametrize(
    ("bitmaps", "message"),
    [
        (struct.pack("<Q", 1), "too early"),
        (struct.pack("<Qi", 1, 0), "no roaring bitmap"),
        (struct.pack("<QiI", 1, 0, 99), "no roaring bitmap"),
        (struct.pack("<QiII", 1, 0, 12346, 70_000), "no roaring bitmap"),
        (struct.pack("<QiII", 1, -1, 12346, 0), "out of place"),
        (struct.pack("<QiIIiII", 2, 0, 12346, 0, 0, 12346, 0), "out of place"),
        (struct.pack("<QiIII", 1, 0, 12346, 0, 0), "longer than it says"),
        (struct.pack("<Q", 2**63), "too early"),
        (struct.pack("<QiIIHHIHH", 1, 0, 12346, 1, 0, 1, 16, 5, 4), "not strictly increasing"),
        (struct.pack("<QiIBHHH", 1, 0, 12347, 1, 0, 9, 0), "zero run count"),
        (struct.pack("<QiIBHHHHH", 1, 0, 12347, 1, 0, 9, 1, 5, 3), "as many positions as it says"),
        (struct.pack("<QiIBHHHHH", 1, 0, 12347, 1, 0, 9, 1, 65535, 9), "run start \\+ length too large"),
        (struct.pack("<QiIBHHHHHHH", 1, 0, 12347, 1, 0, 9, 2, 5, 3, 7, 5), "run start less than last end"),
    ],
)
def test_what_is_wrong_is_told(bitmaps: bytes, message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        decode(framed(bitmaps))


def test_a_small_file_cannot_stand_for_billions() -> None:
    runs = struct.pack("<HHH", 1, 0, 65535)
    count = 65536
    header = struct.pack("<I", 12347 | (count - 1) << 16) + b"\xff" * (count // 8)
    keys = b"".join(struct.pack("<HH", group, 65535) for group in range(count))
    bomb = struct.pack("<Qi", 1, 0) + header + keys + bytes(4 * count) + runs * count
    with pytest.raises(CorruptFileError):
        decode(framed(bomb), rows=1_000_000)


def test_positions_are_rows_of_the_file() -> None:
    assert decode(encode([9]), rows=10).to_pylist() == [9]
    with pytest.raises(CorruptFileError, match="beyond the 9 rows"):
        decode(encode([9]), rows=9)
    with pytest.raises(CorruptFileError, match="more than 2 positions"):
        decode(encode([0, 1, 2]), rows=2)


# -- Puffin files ----------------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 2**62), _positions, min_size=1, max_size=4), st.text(max_size=20))
def test_vectors_of_several_snapshots_come_back(vectors: dict[int, set[int]], data_file: str) -> None:
    data_file = data_file.encode("utf-8", "replace").decode()
    found = decode_file(encode_file(list(vectors.items()), data_file=data_file))
    expected = [(snapshot, sorted(vectors[snapshot])) for snapshot in sorted(vectors)]
    if len(vectors) == 1:
        expected = [(None, positions) for _, positions in expected]
    assert [(snapshot, positions.to_pylist()) for snapshot, positions in found] == expected


def test_the_footer_is_that_of_the_specification() -> None:
    assert PUFFIN[:4] == PUFFIN[-4:] == b"PFA1"
    (size, flags) = struct.unpack("<II", PUFFIN[-12:-4])
    assert flags == 0
    assert PUFFIN[-16 - size : -12 - size] == b"PFA1"
    first, second = json.loads(PUFFIN[-12 - size : -12])["blobs"]
    assert first["offset"] == 4
    assert second["offset"] == 4 + first["length"]
    assert second == {
        "type": "deletion-vector-v1",
        "fields": [],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": second["offset"],
        "length": second["length"],
        "properties": {
            "referenced-data-file": "main/t/f.parquet",
            "cardinality": "3",
            "ducklake-snapshot-id": "7",
        },
    }
    assert decode(PUFFIN[4 : 4 + first["length"]]).to_pylist() == [1, 2]


def puffin(blobs: object, *, flags: int = 0) -> bytes:
    payload = json.dumps(blobs).encode()
    blob = encode([1])
    return b"PFA1" + blob + b"PFA1" + payload + struct.pack("<II", len(payload), flags) + b"PFA1"


def entry(**changes: object) -> dict[str, object]:
    whole = {"type": "deletion-vector-v1", "offset": 4, "length": len(encode([1])), **changes}
    return {name: value for name, value in whole.items() if value != "absent"}


def test_blobs_of_other_types_are_passed_over() -> None:
    found = decode_file(puffin({"blobs": [{"type": "apache-datasketches-theta-v1"}, entry()]}))
    assert [(snapshot, positions.to_pylist()) for snapshot, positions in found] == [(None, [1])]


@pytest.mark.parametrize(
    "make",
    [
        lambda: puffin({"blobs": [entry()]}, flags=1),
        lambda: puffin({"blobs": []}),
        lambda: puffin({"blobs": {}}),
        lambda: puffin({"blobs": [1]}),
        lambda: puffin({}),
        lambda: puffin([]),
        lambda: puffin({"blobs": [entry(type="absent")]}),
        lambda: puffin({"blobs": [entry(offset="absent")]}),
        lambda: puffin({"blobs": [entry(offset=True)]}),
        lambda: puffin({"blobs": [entry(offset=0)]}),
        lambda: puffin({"blobs": [entry(length=-1)]}),
        lambda: puffin({"blobs": [entry(length=10**9)]}),
        lambda: puffin({"blobs": [entry(offset=1.5)]}),
        lambda: puffin({"blobs": [entry(**{"compression-codec": "zstd"})]}),
        lambda: puffin({"blobs": [entry(properties={"ducklake-snapshot-id": "x"})]}),
        lambda: puffin({"blobs": [entry(properties={"ducklake-snapshot-id": 3})]}),
        lambda: puffin({"blobs": [entry(properties={"ducklake-snapshot-id": "3"}), entry()]}),
    ],
)
def test_a_wrong_footer_is_refused(make: Callable[[], bytes]) -> None:
    with pytest.raises(CorruptFileError):
        decode_file(make())


@pytest.mark.parametrize("vectors", [[], [(None, [1]), (3, [2])]])
def test_vectors_without_a_snapshot_are_alone(vectors: list[tuple[int | None, list[int]]]) -> None:
    with pytest.raises(InputError):
        encode_file(vectors)
