"""Bodies of requests, read with a limit: with a length, in chunks, and compressed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import BinaryIO

from quacklake.errors import InputError, ResultTooLargeError

_LINE = 1024
_BLOCK = 1 << 16


def read_body(stream: BinaryIO, headers: Mapping[str, str], limit: int) -> bytes:
    """Return the body of a request. Raise ``ResultTooLargeError`` above the limit, compressed or not."""
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        raw = _chunks(stream, limit)
    else:
        text = headers.get("Content-Length", "")
        if not text.isdigit():
            raise InputError("the request has no length")
        if int(text) > limit:
            raise _too_large(limit)
        raw = _exactly(stream, int(text))
    encoding = headers.get("Content-Encoding", "").lower()
    if encoding in ("", "identity"):
        return raw
    if encoding != "gzip":
        raise InputError(f"the encoding {encoding[:20]!r} is not known", hint="gzip, or none")
    unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        body = unpacked.decompress(raw, limit + 1)
    except zlib.error:
        raise InputError("the body is not gzip") from None
    if len(body) > limit or unpacked.unconsumed_tail:
        raise _too_large(limit)
    if not unpacked.eof:
        raise InputError("the gzip body ends early")
    return body


def _chunks(stream: BinaryIO, limit: int) -> bytes:
    found = bytearray()
    while True:
        head = stream.readline(_LINE).partition(b";")[0].strip()
        try:
            size = int(head, 16)
        except ValueError:
            raise InputError("the body is not in chunks") from None
        if size < 0 or len(found) + size > limit:
            raise _too_large(limit)
        if size == 0:
            while stream.readline(_LINE).strip():
                pass
            return bytes(found)
        found += _exactly(stream, size)
        stream.readline(_LINE)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        block = stream.read(min(_BLOCK, size - len(found)))
        if not block:
            raise InputError("the body ends early")
        found += block
    return bytes(found)


def _too_large(limit: int) -> ResultTooLargeError:
    return ResultTooLargeError(f"the request has more than {limit} bytes", hint="send smaller batches")
