"""Deletion vectors: the deleted positions of a data file, as the blobs and Puffin files that hold them.

A blob ``deletion-vector-v1`` is a big-endian length, a magic number, a 64-bit roaring bitmap in its portable form
(https://github.com/RoaringBitmap/RoaringFormatSpec) and a checksum. DuckLake 1.0 stores one as a file. Newer writers
put several into a Puffin file, one for every snapshot that deleted rows, each with all positions deleted until then.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import CorruptFileError, InputError

MAX_POSITIONS = 1 << 28
"""The most positions of a vector whose data file is not known: a few bytes can stand for billions."""

_MAGIC = b"\xd1\xd3\x39\x64"
_PUFFIN = b"PFA1"
_WITHOUT_RUNS = struct.pack("<I", 12346)
_OFFSETS_FROM = 4  # groups from which a bitmap with runs says where each of them begins
_FRAME = 8  # the length before the magic and the checksum at the end
_TAIL = 12  # size of the footer, flags, magic
_MAX_BLOBS = 100_000
_TYPE = "deletion-vector-v1"
_SNAPSHOT = "ducklake-snapshot-id"
_REFERENCED = "referenced-data-file"


def decode(blob: bytes | memoryview, *, rows: int | None = None) -> pa.Array:
    """Return the positions in a deletion vector, ascending, as ``int64``, all below ``rows``.

    Raise ``CorruptFileError`` for a blob that is none.

    >>> decode(encode(pa.array([1, 7]))).to_pylist()
    [1, 7]
    """
    if len(blob) < _FRAME + len(_MAGIC) + 8:
        raise CorruptFileError("a deletion vector is too short")
    (length,) = struct.unpack_from(">I", blob, 0)
    if length != len(blob) - _FRAME or bytes(blob[4:8]) != _MAGIC:
        raise CorruptFileError("a file is not a deletion vector")
    end = len(blob) - 4
    (checksum,) = struct.unpack_from(">I", blob, end)
    if zlib.crc32(blob[4:end]) != checksum:
        raise CorruptFileError("the checksum of a deletion vector is wrong")
    (count,) = struct.unpack_from("<Q", blob, 8)
    content, offset, room = memoryview(blob)[:end], 16, MAX_POSITIONS if rows is None else rows
    bitmaps: dict[int, pa.Array] = {}
    while len(bitmaps) < count:
        if offset + 4 > end:
            raise CorruptFileError("a deletion vector ends too early")
        (key,) = struct.unpack_from("<i", content, offset)
        numbers, size = _read_bitmap(content[offset + 4 :], room)
        if key < 0 or key in bitmaps:
            raise CorruptFileError("a deletion vector has a bitmap out of place")
        bitmaps[key] = pc.add(numbers, pa.scalar(key << 32, pa.int64()))
        offset += 4 + size
        room -= len(numbers)
    if offset != end:
        raise CorruptFileError("a deletion vector is longer than it says")
    # Writers do not all put the bitmaps in order.
    positions = pa.concat_arrays([pa.array([], pa.int64()), *(bitmaps[key] for key in sorted(bitmaps))])
    if rows is not None and len(positions) and positions[-1].as_py() >= rows:
        raise CorruptFileError(f"a deletion vector has positions beyond the {rows} rows of its data file")
    return positions


def _read_bitmap(content: memoryview, limit: int) -> tuple[pa.Array, int]:
    """Return the numbers of the bitmap that some bytes begin with, ascending, and its size in bytes."""
    from pyroaring import BitMap  # most lakes have no deletion vectors

    try:
        bitmap = BitMap.deserialize(content)  # type: ignore[arg-type]  # takes any buffer
    except (IndexError, ValueError) as error:
        raise CorruptFileError(f"a deletion vector holds no roaring bitmap: {error}") from None
    if len(bitmap) > limit:
        raise CorruptFileError(f"a deletion vector has more than {limit} positions")
    parts = bitmap.get_statistics()
    groups = parts["n_containers"]
    plain = content[:4] == _WITHOUT_RUNS
    keys = 8 if plain else 4 + (groups + 7) // 8
    sizes = struct.unpack_from(f"<{2 * groups}H", content, keys)[1::2]
    if sum(sizes) + groups != len(bitmap):
        raise CorruptFileError("a deletion vector does not have as many positions as it says")
    body = parts["n_bytes_array_containers"] + parts["n_bytes_run_containers"] + parts["n_bytes_bitset_containers"]
    numbers = pa.Array.from_buffers(pa.uint32(), len(bitmap), [None, pa.py_buffer(bitmap.to_array())])
    return numbers.cast(pa.int64()), keys + (8 if plain or groups >= _OFFSETS_FROM else 4) * groups + body


def encode(positions: pa.Array | pa.ChunkedArray | Iterable[int]) -> bytes:
    """Return the blob of positions in any order, each once; an ``InputError`` for one that is negative or missing."""
    from pyroaring import BitMap

    ordered = _sort_positions(positions)
    high = pc.shift_right(ordered, pa.scalar(32, pa.int64()))
    parts = []
    keys = pc.unique(high).to_pylist()
    for key in keys:
        numbers = ordered.filter(pc.equal(high, key)) if len(keys) > 1 else ordered
        numbers = pc.bit_wise_and(numbers, pa.scalar(0xFFFFFFFF, pa.int64()))
        values = array("I")
        values.frombytes(numbers.cast(pa.uint32()).buffers()[1][: 4 * len(numbers)])
        # without runs, as stock DuckLake writes it
        parts += [struct.pack("<i", key), BitMap(values, optimize=False).serialize()]
    body = b"".join((_MAGIC, struct.pack("<Q", len(keys)), *parts))
    if len(body) >= 1 << 32:
        raise InputError("there are too many positions for one deletion vector")
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _sort_positions(positions: pa.Array | pa.ChunkedArray | Iterable[int]) -> pa.Array:
    if isinstance(positions, pa.ChunkedArray):
        positions = positions.combine_chunks()
    array = positions if isinstance(positions, pa.Array) else pa.array(list(positions), pa.int64())
    array = array.cast(pa.int64())
    if array.null_count:
        raise InputError("a deleted position is missing")
    if len(array) > 1 and not pc.all(pc.less(array[:-1], array[1:])).as_py():
        array = pc.unique(array).sort()
    if len(array) and array[0].as_py() < 0:
        raise InputError("a deleted position is negative")
    return array


def blobs_of(data: bytes | memoryview) -> list[tuple[int | None, memoryview]]:
    """Return the vectors of a delete file, oldest first, each with its snapshot, ``None`` if it does not say.

    Blobs of other types are passed over. Raise ``CorruptFileError`` for a file without vectors.
    """
    data = memoryview(data)
    if bytes(data[:4]) != _PUFFIN:
        return [(None, data)]
    start, footer = _footer(data)
    vectors: list[tuple[int | None, memoryview]] = []
    for blob in footer:
        if _member(blob, "type", str) != _TYPE:
            continue
        if blob.get("compression-codec") is not None:
            raise CorruptFileError("a deletion vector is compressed")
        offset, length = _member(blob, "offset", int), _member(blob, "length", int)
        if offset < len(_PUFFIN) or length < 0 or offset + length > start:
            raise CorruptFileError("a Puffin file has a blob that lies outside of it")
        vectors.append((_snapshot(blob), data[offset : offset + length]))
    if not vectors:
        raise CorruptFileError("a Puffin file has no deletion vectors")
    if len({snapshot is None for snapshot, _ in vectors}) > 1:
        raise CorruptFileError("a Puffin file has deletion vectors with and without a snapshot")
    return sorted(vectors, key=lambda vector: vector[0] or 0)


def encode_file(vectors: Sequence[tuple[int | None, Any]], *, data_file: str = "") -> bytes:
    """Return a delete file: one vector as a bare blob, which every reader of 1.0 knows, several as a Puffin file.

    Raise ``InputError`` for none, and for several that do not all have a snapshot.
    """
    if len(vectors) == 1:
        return encode(vectors[0][1])
    if not vectors or any(snapshot is None for snapshot, _ in vectors):
        raise InputError("a delete file holds one vector, or several that each have a snapshot")
    blobs, entries, offset = [], [], len(_PUFFIN)
    for snapshot, positions in vectors:
        ordered = _sort_positions(positions)
        blobs.append(encode(ordered))
        entries.append(
            {
                "type": _TYPE,
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": offset,
                "length": len(blobs[-1]),
                "properties": {_REFERENCED: data_file, "cardinality": str(len(ordered)), _SNAPSHOT: str(snapshot)},
            }
        )
        offset += len(blobs[-1])
    footer = {"blobs": entries, "properties": {"created-by": "quacklake"}}
    payload = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join((_PUFFIN, *blobs, _PUFFIN, payload, struct.pack("<II", len(payload), 0), _PUFFIN))


def footer_size(data: bytes) -> int:
    """Return the size of the footer of a delete file, as the catalog has it: 0 for a bare vector.

    >>> footer_size(encode([1]))
    0
    """
    if data[:4] != _PUFFIN:
        return 0
    return len(data) - _footer(memoryview(data))[0]


def referenced_file(data: bytes) -> str:
    """Return the data file that the vectors of a Puffin file say they are of, or an empty text."""
    for blob in _footer(memoryview(data))[1] if data[:4] == _PUFFIN else ():
        properties = blob.get("properties")
        if isinstance(properties, dict) and isinstance(properties.get(_REFERENCED), str):
            return str(properties[_REFERENCED])
    return ""


def referenced_blobs(data: bytes) -> list[tuple[str, memoryview]]:
    """Return the vectors of a Puffin file, each with the data file that it is of, or raise ``CorruptFileError``."""
    blobs = [blob for _, blob in blobs_of(data)]
    entries = [blob for blob in _footer(memoryview(data))[1] if blob["type"] == _TYPE]
    # both are in the order of the footer: vectors of other formats have no snapshots to be sorted by
    names = [str((blob.get("properties") or {}).get(_REFERENCED, "")) for blob in entries]
    if not all(names):
        raise CorruptFileError("a Puffin file has a deletion vector that does not name its data file")
    return list(zip(names, blobs, strict=True))


def _footer(data: memoryview) -> tuple[int, list[dict[str, Any]]]:
    """Return where the blobs of a Puffin file end, and what the footer says of them."""
    if len(data) < 2 * len(_PUFFIN) + _TAIL or bytes(data[-4:]) != _PUFFIN:
        raise CorruptFileError("a Puffin file does not end as one")
    size, flags = struct.unpack_from("<II", data, len(data) - _TAIL)
    if flags:
        raise CorruptFileError("the footer of a Puffin file is compressed, or of a later version")
    payload = len(data) - _TAIL - size
    start = payload - len(_PUFFIN)
    if start < len(_PUFFIN) or bytes(data[start:payload]) != _PUFFIN:
        raise CorruptFileError("a Puffin file has no footer")
    try:
        blobs = json.loads(bytes(data[payload : payload + size]))["blobs"]
    except (KeyError, RecursionError, TypeError, ValueError):
        raise CorruptFileError("the footer of a Puffin file cannot be read") from None
    if not isinstance(blobs, list) or len(blobs) > _MAX_BLOBS or not all(isinstance(blob, dict) for blob in blobs):
        raise CorruptFileError("the footer of a Puffin file has no list of blobs")
    return start, blobs


def _member(blob: dict[str, Any], name: str, kind: type) -> Any:
    value = blob.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CorruptFileError(f"a Puffin file has a blob without its {name}")
    return value


def _snapshot(blob: dict[str, Any]) -> int | None:
    properties = blob.get("properties")
    text = properties.get(_SNAPSHOT) if isinstance(properties, dict) else None
    if text is None:
        return None
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 19:
        raise CorruptFileError("a Puffin file has a blob with a snapshot that is not a number")
    return int(text)
