"""Paths of the tree: ``/sensors/dock.series``. They are text; nothing here looks at the tree."""

from __future__ import annotations

from quacklake.errors import InvalidNameError
from quacklake.extend.names import quote

ROOT = "/"
DATA_SCHEMA = "pond_data"
"""The schema of the lake whose tables are the tables and series of the pond, each called by its path."""
_MAX_NAME = 255


def parts(path: str) -> list[str]:
    """Split a path at its slashes; ``.`` and empty parts are left out, ``..`` stays.

    >>> parts("/a//b/./c/../d/")
    ['a', 'b', 'c', '..', 'd']
    """
    if not isinstance(path, str):
        raise InvalidNameError(f"a path is text, not {type(path).__name__}")
    if "\0" in path:
        raise InvalidNameError("a path cannot have a NUL character")
    return [part for part in path.split("/") if part not in ("", ".")]


def check_name(name: str) -> str:
    """Return the name of a new node. Raise ``InvalidNameError`` for one that a node cannot have."""
    if name in ("", ".", ".."):
        raise InvalidNameError(f"a node cannot be called {name!r}")
    if "/" in name or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise InvalidNameError(f"the name {name!r} has a slash or a control character")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidNameError("the name is not valid Unicode text") from None
    if size > _MAX_NAME:
        raise InvalidNameError(f"a name has at most {_MAX_NAME} bytes, and {name[:20]!r}… has {size}")
    return name


def join(directory: str, name: str) -> str:
    """Return the path of a name in a directory.

    >>> join("/", "a"), join("/a", "b")
    ('/a', '/a/b')
    """
    return f"{directory.rstrip('/')}/{name}"


def is_folder(path: str) -> bool:
    """Return whether a path ends with a slash, and so names a directory."""
    return path.endswith("/")


def table_of(path: str) -> str:
    """Return the name of the lake table that holds the rows of a table or series.

    >>> table_of("/sensors/dock.series")
    'pond_data."/sensors/dock.series"'
    """
    return f"{DATA_SCHEMA}.{quote(path)}"
