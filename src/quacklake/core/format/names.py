"""Names: what is allowed, how they compare, how SQL spells them; the folders and files that are named after them.

Schemas may be inside of schemas, which 1.1 has: one at the top has its own name, one below ``"a"."b"``. The name of a
catalog (tenant) becomes a folder below the data path, so that it must be one on every store, and no two may be the same
one: not by case, not by a look-alike, which ASCII letters, digits and ``_ - .`` leave none of.
A path of a column, ``a.b``, is the field ``b`` of the struct ``a``; the value of a list is called ``element``, those of
a map ``key`` and ``value``.
"""

from __future__ import annotations

import os
import re
import string
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from urllib.parse import unquote

from quacklake.errors import InvalidNameError, PathError

MAX_NAME = 1024
"""The longest name we make, in characters. The format has no limit, databases and directories do."""

EVERY_COLUMN: Collection[str] = ("*",)
"""Stands for the names of all columns."""

_QUOTED = re.compile(r'"((?:[^"]|"")+)"')
_NESTED = re.compile(r'"(?:[^"]|"")+"(?:\."(?:[^"]|"")+")+')
_ASCII_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def fold(name: str) -> str:
    """Return the form under which names are compared: only ASCII letters lose their case, as in DuckDB.

    >>> fold("Größe"), fold("ÄB")
    ('größe', 'Äb')
    """
    return name.translate(_ASCII_LOWER)


def quote(name: str) -> str:
    """Return an SQL identifier.

    >>> quote('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def check_name(name: str, what: str = "name") -> str:
    """Return the name if a ``what`` may be called so; raise ``InvalidNameError`` if not.

    >>> check_name("events", "table")
    'events'
    """
    if not isinstance(name, str):
        raise InvalidNameError(f"the {what} name must be text, not {type(name).__name__}")
    if not name:
        raise InvalidNameError(f"the {what} name is empty")
    if len(name) > MAX_NAME:
        raise InvalidNameError(f"the {what} name is longer than {MAX_NAME} characters")
    if "\0" in name:
        raise InvalidNameError(f"the {what} name contains a NUL character")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidNameError(f"the {what} name is not valid Unicode text") from None
    return name


def literal(text: str) -> str:
    """Return an SQL string literal.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def sql_value(value: object) -> str:
    """Return a value as SQL: a text, number or truth value, a list, or a dictionary as a struct.

    >>> sql_value([True, 1, "it's", {"a": None}])
    "[true, 1, 'it''s', {'a': NULL}]"
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case list() | tuple():
            return f"[{', '.join(map(sql_value, value))}]"
        case dict():
            return f"{{{', '.join(f'{literal(str(key))}: {sql_value(each)}' for key, each in value.items())}}}"
        case _:
            return literal(str(value))


def full_name(parts: Sequence[str]) -> str:
    """Return the name of a schema by those of the schemas above it and its own.

    >>> full_name(["a"]), full_name(["a", "b"])
    ('a', '"a"."b"')
    """
    return parts[0] if len(parts) == 1 else ".".join(map(quote, parts))


def parts_of(name: str) -> list[str]:
    """Return the parts of a name that :func:`full_name` made.

    >>> parts_of("a.b"), parts_of('"a"."b"')
    (['a.b'], ['a', 'b'])
    """
    if not _NESTED.fullmatch(name):
        return [name]
    return [part.replace('""', '"') for part in _QUOTED.findall(name)]


def above(name: str) -> list[str]:
    """Return the names of the schemas above one, from the top."""
    parts = parts_of(name)
    return [full_name(parts[:count]) for count in range(1, len(parts))]


def full_names(rows: Iterable[tuple[int, str, int | None]]) -> Mapping[int, str]:
    """Return the full names of schemas, given the id, own name and parent of each; one without its parent has none.

    >>> dict(full_names([(0, "a", None), (1, "b", 0), (2, "c", 9), (3, "d", 2)]))
    {0: 'a', 1: '"a"."b"'}
    """
    known = {id_: (name, parent) for id_, name, parent in rows}
    found: dict[int, str] = {}
    for id_ in known:
        parts: list[str] = []
        at: int | None = id_
        while at is not None and at in known and len(parts) <= len(known):
            parts.insert(0, known[at][0])
            at = known[at][1]
        if at is None:
            found[id_] = full_name(parts)
    return found


_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # of a URL, or the letter of a drive


def object_dir(name: str, uuid: str) -> str:
    """Return the directory of a new schema or table: its name when that is plain ASCII, else its uuid.

    >>> object_dir("sales_2024", "u"), object_dir("a b", "u")
    ('sales_2024/', 'u/')
    """
    return f"{name if _PLAIN.fullmatch(name) else uuid}/"


def checked_relative(path: str) -> str:
    """Return the path, when it is relative and stays below where it starts; raise ``PathError`` when not.

    What percent-encoding hides must not lead out either, but may be anything else: partition values are encoded.
    """
    if not path:
        raise PathError("the path is empty")
    if "\\" in path or any(ord(character) < 32 for character in path):
        raise PathError(f"the path {path!r} contains a backslash or a control character")
    if not all(segment.strip(" ") for segment in path.removesuffix("/").split("/")):
        raise PathError(f"the path {path!r} is absolute or has an empty part")
    decoded = path
    while True:
        parts = decoded.replace("\\", "/").split("/")
        if not parts[0] or _SCHEME.match(decoded) or "\0" in decoded:
            raise PathError(f"the path {path!r} is not relative")
        if any(part.strip(" ") in (".", "..") for part in parts):
            raise PathError(f"the path {path!r} would leave its directory")
        further = unquote(decoded, errors="replace")
        if further == decoded:
            return path
        decoded = further


def data_file_name() -> str:
    """Return a fresh name for a data file; later ones sort after earlier ones."""
    return f"ducklake-{uuid7()}.parquet"


def delete_file_name(format: str = "parquet") -> str:
    """Return a fresh name for a delete file of the given format."""
    return f"ducklake-{uuid7()}-delete.{format}"


_lock = threading.Lock()
_last = 0


def uuid7() -> uuid.UUID:
    """Return a version 7 UUID: milliseconds since the epoch, then random bits; ascending within a process.

    >>> uuid7().version, uuid7() < uuid7()
    (7, True)
    """
    global _last
    with _lock:
        # The 12 bits after the milliseconds count, so that ids of one millisecond ascend too.
        _last = max(_last + 1, (time.time_ns() // 1_000_000) << 12)
        stamp = _last
    high = (stamp >> 12) << 16 | 0x7000 | (stamp & 0xFFF)
    low = int.from_bytes(os.urandom(8)) & (1 << 62) - 1 | 1 << 63
    return uuid.UUID(int=(high << 64) | low)


MAX_TENANT_NAME = 63
"""The longest name, in characters: what every database takes for the name of a schema or role."""

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}
_RESERVED = _DEVICES | {"information_schema", "pg_catalog", "system", "temp"}
_TAKEN = ("ducklake_", "quacklake_", "__ducklake", "pg_")
_APART = "~"
"""Stands in no name, so that what is made with it is never another's."""


def check_tenant_name(name: str) -> str:
    """Return the name if a catalog may be called so; raise :class:`InvalidNameError` if not."""
    if not isinstance(name, str):
        raise InvalidNameError(f"the catalog name must be text, not {type(name).__name__}")
    if not name:
        raise InvalidNameError("the catalog name is empty")
    if len(name) > MAX_TENANT_NAME:
        raise InvalidNameError(f"the catalog name is longer than {MAX_TENANT_NAME} characters")
    if not _NAME.fullmatch(name) or ".." in name:
        raise InvalidNameError(
            f"the catalog name {name!a} cannot be a folder everywhere",
            hint="use ASCII letters, digits, _ - and single dots, and none of - . in front or a dot at the end",
        )
    key = tenant_key(name)
    if key.split(".")[0] in _RESERVED or key.startswith(_TAKEN):
        raise InvalidNameError(f"the catalog name {name!r} is reserved", hint="choose another")
    return name


def may_be_in_name(text: str) -> bool:
    """Return whether a name can contain a text; some texts no database takes at all."""
    return bool(_PART.fullmatch(text))


def tenant_key(name: str) -> str:
    """Return the form under which names are compared: the case of letters does not count."""
    return fold(name)


def tombstone(name: str, catalog_id: int) -> str:
    """Return the name of a catalog that was dropped, which leaves its own to others."""
    return f"{name}{_APART}{catalog_id}"


def former_name(name: str) -> str:
    """Return the name that a catalog had before it was dropped.

    >>> former_name(tombstone("acme", 7))
    'acme'
    """
    return name.partition(_APART)[0]


Path = tuple[str, ...]

_STEP = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".\s][^".]*?))\s*(\.|$)')


def parse_path(text: str) -> Path:
    """Return the names in ``a.b`` or ``"a"."b"``; quotes keep dots and blanks. Raise :class:`InvalidNameError`.

    >>> parse_path('a."b.c"')
    ('a', 'b.c')
    """
    names: list[str] = []
    position, more = 0, True
    while more:
        match = _STEP.match(text, position)
        if match is None:
            raise InvalidNameError(f"{text!r} is not a column name", hint='names are joined by dots: a.b or "a"."b"')
        names.append(check_name(match[2] or match[1].replace('""', '"'), "column"))
        position, more = match.end(), match[3] == "."
    return tuple(names)


def format_path(path: Path) -> str:
    """Return the text that :func:`parse_path` reads: every name in quotes."""
    return ".".join(quote(name) for name in path)
