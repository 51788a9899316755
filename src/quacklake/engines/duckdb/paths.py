"""Names of files for DuckDB's functions: never a pattern."""

from __future__ import annotations

import re

from quacklake.errors import PathError
from quacklake.format.names import literal

_MAGIC = re.compile(r"[*?\[]")


def file_name(url: str) -> str:
    """Return the pattern that fits this one file.

    Raise ``PathError`` for a name with a backslash beside ``*``, ``?`` or ``[``, for which DuckDB has no pattern, and
    for an object with ``?`` in its name, behind which DuckDB looks for options.
    """
    if _MAGIC.search(url) is None:
        return url
    if "?" in url and "://" in url:
        raise PathError(f"DuckDB cannot open {url!r}, which has a question mark", hint="rename the object")
    if "\\" in url:
        raise PathError(
            f"DuckDB cannot open {url!r}, which has a backslash beside a pattern character", hint="rename the file"
        )
    return _MAGIC.sub(r"[\g<0>]", url)


def file_literal(url: str) -> str:
    """Return ``file_name`` as SQL."""
    return literal(file_name(url))
