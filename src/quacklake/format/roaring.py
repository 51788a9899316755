"""Roaring bitmaps of 32-bit numbers in their portable serialisation, as Arrow arrays.

Numbers are grouped by their upper 16 bits. A group is stored as an array of the lower 16 bits, as a bitset when it has
more than 4096 numbers, or as runs. See https://github.com/RoaringBitmap/RoaringFormatSpec; everything read is checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import CorruptFileError

__all__ = ["decode_bitmap", "encode_bitmap"]

_PLAIN, _WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4  # groups from which a bitmap with runs has offsets
_MAX_ARRAY = 4096
_BITSET = 8192
_GROUP = 1 << 16


def decode_bitmap(data: bytes | memoryview, start: int, limit: int) -> tuple[pa.Array, int]:
    """The numbers of the bitmap at an offset, ascending, as ``int64``; and the offset after it.

    Raises :class:`CorruptFileError` for what is no bitmap and for one of more than ``limit`` numbers.
    """
    reader = _Reader(data, start)
    groups, sizes, runs = _header(reader)
    if sum(sizes) > limit:
        raise CorruptFileError(f"a deletion vector has more than {limit} positions")
    arrays: list[pa.Array] = []
    for group, size, run in zip(groups, sizes, runs, strict=True):
        low = _runs(reader, size) if run else _bitset(reader) if size > _MAX_ARRAY else reader.shorts(size)
        if len(low) != size:
            raise CorruptFileError("a deletion vector does not have as many positions as it says")
        arrays.append(pc.add(low.cast(pa.int64()), pa.scalar(group * _GROUP, pa.int64())))
    numbers = pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())
    if len(numbers) > 1 and not pc.all(pc.less(numbers[:-1], numbers[1:])).as_py():
        raise CorruptFileError("the positions of a deletion vector are not in order")
    return numbers, reader.offset


def encode_bitmap(numbers: pa.Array) -> bytes:
    """The bitmap of ascending, different numbers below 2^32, without runs."""
    groups = list(_groups(numbers))
    header = struct.pack("<II", _PLAIN, len(groups))
    keys = b"".join(struct.pack("<HH", group, len(low) - 1) for group, low in groups)
    bodies = [_packed(low) for _, low in groups]
    offset = len(header) + len(keys) + 4 * len(groups)
    offsets = []
    for body in bodies:
        offsets.append(struct.pack("<I", offset))
        offset += len(body)
    return b"".join((header, keys, *offsets, *bodies))


class _Reader:
    """Bytes read one after the other, never past their end."""

    def __init__(self, data: bytes | memoryview, offset: int) -> None:
        self._data = memoryview(data)
        self.offset = offset

    def take(self, size: int) -> memoryview:
        piece = self._data[self.offset : self.offset + size]
        if len(piece) != size:
            raise CorruptFileError("a deletion vector ends too early")
        self.offset += size
        return piece

    def number(self, format: str) -> int:
        (value,) = struct.unpack(format, self.take(struct.calcsize(format)))
        return int(value)

    def shorts(self, count: int) -> pa.Array:
        return pa.Array.from_buffers(pa.uint16(), count, [None, self.buffer(2 * count)])

    def buffer(self, size: int) -> pa.Buffer:
        # A copy: Arrow wants its numbers at even addresses.
        return pa.py_buffer(bytes(self.take(size)))


def _header(reader: _Reader) -> tuple[list[int], list[int], list[bool]]:
    """The upper 16 bits of every group, how many numbers it has, and whether it is stored as runs."""
    cookie = reader.number("<I")
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = reader.take((count + 7) // 8)
        runs = [bool(flags[index // 8] >> index % 8 & 1) for index in range(count)]
    elif cookie == _PLAIN:
        count = reader.number("<I")
        if count > _GROUP:
            raise CorruptFileError("a deletion vector has too many groups")
        runs = [False] * count
    else:
        raise CorruptFileError("a deletion vector holds no roaring bitmap")
    pairs = list(struct.iter_unpack("<HH", reader.take(4 * count)))
    if cookie == _PLAIN or count >= _OFFSETS_FROM:
        reader.take(4 * count)  # groups follow one another, so their offsets tell nothing new
    return [group for group, _ in pairs], [size + 1 for _, size in pairs], runs


def _bitset(reader: _Reader) -> pa.Array:
    return pc.indices_nonzero(pa.Array.from_buffers(pa.bool_(), _GROUP, [None, reader.buffer(_BITSET)]))


def _runs(reader: _Reader, size: int) -> pa.Array:
    """The numbers of a group of runs, each stored as its first number and how many follow it."""
    pairs = list(struct.iter_unpack("<HH", reader.take(4 * reader.number("<H"))))
    if sum(more + 1 for _, more in pairs) > size or any(first + more >= _GROUP for first, more in pairs):
        raise CorruptFileError("a deletion vector has more positions than it says")
    return pa.array([number for first, more in pairs for number in range(first, first + more + 1)], pa.int64())


def _groups(numbers: pa.Array) -> Iterator[tuple[int, pa.Array]]:
    if not len(numbers):
        return
    numbers = numbers.cast(pa.uint32())
    low = pc.bit_wise_and(numbers, pa.scalar(_GROUP - 1, pa.uint32())).cast(pa.uint16())
    high = pc.run_end_encode(pc.shift_right(numbers, pa.scalar(16, pa.uint32())).cast(pa.int32()))
    start = 0
    for group, end in zip(high.values.to_pylist(), high.run_ends.to_pylist(), strict=True):
        yield group, low[start:end]
        start = end


def _packed(low: pa.Array) -> bytes:
    if len(low) <= _MAX_ARRAY:
        return bytes(low.buffers()[1][2 * low.offset : 2 * (low.offset + len(low))])
    # Where runs of neighbours begin and end, zeros and ones change places; Arrow's bits are in the order of a bitset.
    numbers = low.cast(pa.int32())
    apart = pc.greater(pc.subtract(numbers[1:], numbers[:-1]), 1)
    firsts = pa.concat_arrays([numbers[:1], numbers[1:].filter(apart)])
    lasts = pa.concat_arrays([numbers[:-1].filter(apart), numbers[-1:]])
    edges = pa.concat_arrays([firsts, pc.add(lasts, pa.scalar(1, pa.int32()))]).sort()
    bit = edges[0].as_py() == 0
    edges = pa.concat_arrays([edges[1:] if bit else edges, pa.array([_GROUP], pa.int32())])
    if len(edges) > 1 and edges[-2].as_py() == _GROUP:
        edges = edges[:-1]
    turns = (b"\x55" if bit else b"\xaa") * (len(edges) // 8 + 1)
    bits = pa.Array.from_buffers(pa.bool_(), len(edges), [None, pa.py_buffer(turns)])
    return bytes(pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(edges, bits)).buffers()[1])[:_BITSET]
