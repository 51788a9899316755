"""Encodings of text files: detect them, suggest one, and rewrite text as UTF-8, which DuckDB reads."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, TextIO

from quacklake.errors import InputError

OpenBytes = Callable[[], AbstractContextManager[BinaryIO]]
"""Opens the bytes of a file, from its beginning and decompressed."""

OpenText = Callable[[], AbstractContextManager[TextIO]]
"""Opens a file as text, from its beginning."""

_BLOCK = 1 << 20
_BEGIN = 4096
_MAX_LINE = 1 << 24
"""The most characters of a line or a quoted field in which line ends are looked for."""
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)


def check_encoding(name: str) -> str:
    """Return the name by which Python knows a text encoding. Raise ``InputError`` for any other.

    >>> check_encoding("Latin1"), check_encoding("windows-1252")
    ('iso8859-1', 'cp1252')
    """
    try:
        "".encode(name)  # encodings that are not of text, such as base64, are refused here
        return codecs.lookup(name).name
    except (LookupError, ValueError, UnicodeError):
        raise InputError(
            f"there is no text encoding {name!r}", hint="such as utf-8, utf-16, utf-16le, latin-1 or windows-1252"
        ) from None


def encoding_of(open_bytes: OpenBytes, wanted: str | None, name: str) -> str:
    """Return the encoding of a file: that of its byte order mark, else the wanted one, else UTF-8.

    Raise ``InputError`` for text without a mark that looks like UTF-16 when no encoding is wanted.
    """
    with open_bytes() as file:
        begin = file.read(_BEGIN)
    marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if begin.startswith(mark)), None)
    if marked or wanted:
        return marked or check_encoding(wanted or "")
    wide = _wide_encoding(begin)
    if wide is not None:
        raise InputError(f"cannot read {name}: it is UTF-16 text, not UTF-8", hint=_advice(wide))
    return "utf-8"


def _wide_encoding(begin: bytes) -> str | None:
    """Return the encoding of UTF-16 text without a mark, whose letters have bytes of zero; None for other text."""
    half = len(begin) // 2
    for first, encoding in ((1, "utf-16le"), (0, "utf-16be")):
        zeros, others = begin[first::2].count(0), begin[1 - first :: 2].count(0)
        if half and zeros > half // 2 and not others:
            return encoding
    return None


def transcode(open_bytes: OpenBytes, encoding: str, target: Path, name: str) -> None:
    """Write the text of a file as UTF-8, block by block. Raise ``InputError`` for bytes of another encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    begun = False
    with open_bytes() as source, target.open("wb") as sink:
        block = b"begin"
        while block:
            block = source.read(_BLOCK)
            try:
                text = decoder.decode(block, final=not block)
                if text and not begun:
                    text, begun = text.removeprefix("\ufeff"), True
                sink.write(text.encode())
            except UnicodeError:
                break
        else:
            return
    line = 1 if (found := undecodable(open_bytes, encoding)) is None else found[0]
    raise InputError(f"cannot read {name}: line {line} is not {encoding} text", hint=suggest(open_bytes))


def undecodable(open_bytes: OpenBytes, encoding: str = "utf-8") -> tuple[int, bool] | None:
    """Return the first line that is not text of an encoding, and whether text before it goes beyond ASCII.

    None if all of it is.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    line, beyond = 1, False
    with open_bytes() as file:
        block = b"begin"
        while block:
            block = file.read(_BLOCK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                text = error.object[: error.start].decode(error.encoding, "replace")
                return line + text.count("\n"), beyond or not text.isascii()
            line, beyond = line + text.count("\n"), beyond or not text.isascii()
    return None


def suggest(open_bytes: OpenBytes) -> str:
    """Return a hint for a file that cannot be decoded: the encoding that fits its bytes."""
    with open_bytes() as file:
        wide = _wide_encoding(file.read(_BEGIN))
    if wide is not None:
        return _advice(wide)
    found = undecodable(open_bytes)
    if found is None:
        return _advice("utf-8")
    if found[1]:
        return f"the text before line {found[0]} is UTF-8: correct that line"
    if undecodable(open_bytes, "cp1252") is None:
        return _advice("windows-1252")
    return "say in which encoding it is written, as in --encoding shift_jis; it is neither UTF-8 nor windows-1252"


def _advice(encoding: str) -> str:
    return f'pass --encoding {encoding}, or in Python CsvOptions(encoding="{encoding}")'


def unify_line_ends(
    open_text: OpenText, delimiter: str, quote: str, escape: str, target: Path, *, skip: int = 0
) -> bool:
    """Write the text of a CSV file with one kind of line end, and return whether it had several.

    Line ends in quoted fields stay as they are. The first ``skip`` lines become blank.
    """
    mark, before, other = re.escape(quote), re.escape(delimiter), re.escape(escape)
    plain, pair = (f"[^{mark}]*", mark * 2) if escape == quote else (f"[^{mark}{other}]*", f"{other}.")
    quoted = rf"(?<![^{before}\r\n]){mark}{plain}(?:{pair}{plain})*(?:{mark}|\Z)"
    token = re.compile(rf"(?P<quoted>{quoted})|\r\n?|\n", re.DOTALL)
    kinds: set[str] = set()

    def end(found: re.Match[str]) -> str:
        if found["quoted"] is not None:
            return found[0]
        kinds.add(found[0])
        return "\n"

    rest, block = "", "begin"
    with open_text() as source, target.open("w", encoding="utf-8", newline="") as sink:
        for _ in range(skip):
            line = source.readline()
            kinds.add(line[len(line.rstrip("\r\n")) :])
            sink.write("\n")
        while block:
            block = source.read(_BLOCK)
            text = rest + block
            settled = _find_settled(token, text) if block else len(text)
            rest = text[settled:]
            if len(rest) > _MAX_LINE:
                return False
            sink.write(token.sub(end, text[:settled]))
    return len(kinds) > 1


def _find_settled(token: re.Pattern[str], text: str) -> int:
    """Return how much of a text more text cannot change: the part up to its last line end, but for a final one."""
    settled = 0
    for found in token.finditer(text):
        if found["quoted"] is None and found.end() < len(text):
            settled = found.end()
    return settled
