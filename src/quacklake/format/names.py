"""Names of schemas, tables and columns: what is allowed, how they compare, how SQL spells them.

Schemas may be inside of schemas, which 1.1 has: one at the top has its own name, one below ``"a"."b"``.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence

from quacklake.errors import InvalidNameError

MAX_NAME = 1024
"""The longest name we make, in characters. The format has no limit, databases and directories do."""

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
    """Return the name if a ``what`` may be called so; raise :class:`InvalidNameError` if not."""
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
    """Return an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


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
