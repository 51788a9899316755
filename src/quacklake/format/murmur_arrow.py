"""The hash behind bucket partitions, of whole Arrow arrays at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.errors import InputError
from quacklake.format.literals import literal_text
from quacklake.format.murmur import Hashing, hashing, murmur3_32
from quacklake.format.types import NESTED, TypeName, parse_type

__all__ = ["hash_array"]

_WORD = 0xFFFFFFFF
_C1, _C2, _C3 = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_F1, _F2 = 0x85EBCA6B, 0xC2B2AE35
_BLOCKWISE = 64  # bytes up to which values are hashed for all rows at once


def hash_array(array: pa.Array, type: str) -> pa.Array:
    """The hashes of an Arrow array that holds values of a column of that type, NULL for NULL.

    Raises :class:`InputError` for types whose values Arrow does not show as DuckDB hashes them: nested ones,
    intervals, times with a zone, variants and geometries.
    """
    name, how = parse_type(type), hashing(type)
    if how is None or name.base in NESTED or name.base in ("interval", "variant"):
        raise InputError(f"the hash of a {name} column is computed by DuckDB only")
    if how is Hashing.INTEGER:
        return _hash_words(_integers(array, name))
    if how is Hashing.FLOAT:
        doubles = pc.cast(array, pa.float64())
        doubles = pc.if_else(pc.equal(doubles, 0.0), pa.scalar(0.0), doubles)
        return _hash_words(doubles.view(pa.int64()))
    if name.base == "uint128":
        # Arrow has no such type: DuckDB gives the upper half as negative numbers.
        texts = [None if value is None else str(int(value) % (1 << 128)) for value in array.to_pylist()]
        array = pa.array(texts, pa.string())
    elif name.base.startswith("uint"):
        array = pc.cast(array, pa.string())
    elif how is Hashing.TEXT:
        array = pa.array([literal_text(value, type) for value in array.to_pylist()], pa.string())
    return _hash_bytes(array.cast(pa.large_binary()))


def _integers(array: pa.Array, name: TypeName) -> pa.Array:
    if name.base == "decimal":
        # The value without its point is the low half of Arrow's 128 bits.
        array = array.cast(pa.decimal128(38, name.scale))
        halves = pa.Array.from_buffers(pa.int64(), 2 * len(array), [None, array.buffers()[1]], offset=2 * array.offset)
        low = halves.take(pa.array(range(0, 2 * len(array), 2), pa.int64()))
        return pc.if_else(array.is_valid(), low, pa.scalar(None, pa.int64()))
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())
    return array.cast(pa.int64())


def _hash_words(numbers: pa.Array) -> pa.Array:
    """The hashes of 64-bit integers: two blocks each."""
    bits = numbers.view(pa.uint64())
    state = _constant(bits, 0)
    for half in (
        pc.bit_wise_and(bits, pa.scalar(_WORD, pa.uint64())),
        pc.shift_right(bits, pa.scalar(32, pa.uint64())),
    ):
        state = _step_all(pc.bit_wise_xor(state, _mix_all(half.cast(pa.uint32()))))
    return _finish_all(state, _constant(bits, 8))


def _hash_bytes(array: pa.Array) -> pa.Array:
    """The hashes of large binaries, block by block for all rows at once; of long ones each for itself."""
    lengths = pc.binary_length(array)
    longest = pc.max(lengths).as_py() or 0
    if longest > _BLOCKWISE:
        short = pc.less_equal(lengths, _BLOCKWISE)
        hashes = iter(murmur3_32(value) for value in array.filter(pc.invert(short)).to_pylist())
        rest = pa.array([next(hashes) if long else None for long in pc.invert(short).to_pylist()], pa.int32())
        return pc.coalesce(_hash_bytes(pc.if_else(short, array, pa.scalar(None, pa.large_binary()))), rest)
    _, offsets, data = array.buffers()
    starts = pa.Array.from_buffers(pa.int64(), len(array), [None, offsets], offset=array.offset)
    content = pa.Array.from_buffers(pa.uint8(), data.size if data else 0, [None, data]) if data else None
    state = _constant(lengths, 0)

    def byte(position: pa.Array, within: pa.Array) -> pa.Array:
        if content is None or not len(content):
            return _constant(lengths, 0)
        found = content.take(pc.if_else(within, pc.add(starts, position), 0)).cast(pa.uint32())
        return pc.if_else(within, found, pa.scalar(0, pa.uint32()))

    def block(position: pa.Array, count: pa.Array) -> pa.Array:
        word = _constant(lengths, 0)
        for index in range(4):
            part = byte(pc.add(position, index), pc.greater(count, index))
            word = pc.bit_wise_or(word, pc.shift_left(part, pa.scalar(8 * index, pa.uint32())))
        return word

    rests = pc.bit_wise_and(lengths, 3)
    wholes = pc.subtract(lengths, rests)
    for position in range(0, longest // 4 * 4, 4):
        inside = pc.greater(wholes, position)
        here = _constant(lengths, position).cast(pa.int64())
        mixed = _mix_all(block(here, pc.if_else(inside, 4, 0)))
        state = pc.if_else(inside, _step_all(pc.bit_wise_xor(state, mixed)), state)
    state = pc.bit_wise_xor(state, _mix_all(block(wholes, rests)))
    return _finish_all(state, lengths.cast(pa.uint32()))


def _constant(like: pa.Array, value: int) -> pa.Array:
    """An array of one 32-bit value, NULL where another array is."""
    return pc.if_else(like.is_valid(), pa.scalar(value, pa.uint32()), pa.scalar(None, pa.uint32()))


def _times(array: pa.Array, factor: int) -> pa.Array:
    return pc.multiply(array, pa.scalar(factor, pa.uint32()))


def _rotated(array: pa.Array, bits: int) -> pa.Array:
    left = pc.shift_left(array, pa.scalar(bits, pa.uint32()))
    return pc.bit_wise_or(left, pc.shift_right(array, pa.scalar(32 - bits, pa.uint32())))


def _mix_all(blocks: pa.Array) -> pa.Array:
    return _times(_rotated(_times(blocks, _C1), 15), _C2)


def _step_all(state: pa.Array) -> pa.Array:
    return pc.add(_times(_rotated(state, 13), 5), pa.scalar(_C3, pa.uint32()))


def _finish_all(state: pa.Array, lengths: pa.Array) -> pa.Array:
    state = pc.bit_wise_xor(state, lengths)
    for shift, factor in ((16, _F1), (13, _F2)):
        state = _times(pc.bit_wise_xor(state, pc.shift_right(state, pa.scalar(shift, pa.uint32()))), factor)
    return pc.bit_wise_xor(state, pc.shift_right(state, pa.scalar(16, pa.uint32()))).view(pa.int32())
