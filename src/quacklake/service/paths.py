"""Paths of requests, whose parts may contain any character: an encoded slash (``%2F``) is one of a name.

Servers decode a path as a whole, and then a slash in the name of a table looks like one between two parts. So the path
is decoded again part by part, and slashes in parts are written in another way until a route has taken the path apart.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.convertors import Convertor
from starlette.types import Scope

__all__ = ["PartConvertor", "divide", "part_of", "shown_path"]

_MARK = "\ue000"
_SLASH, _ITSELF = f"{_MARK}s", f"{_MARK}m"
"""A slash in a part, and the mark of it: no two names look alike."""


_WRITTEN = re.compile(f"{_MARK}[sm]")


def divide(scope: Scope) -> None:
    """Let the path of a request have slashes only between its parts."""
    raw = scope.get("raw_path")
    if isinstance(raw, bytes) and b"%" in raw:
        parts = raw.partition(b"?")[0].decode("latin-1").split("/")
        scope["path"] = "/".join(unquote(part).replace(_MARK, _ITSELF).replace("/", _SLASH) for part in parts)


def part_of(text: str) -> str:
    """Return a part as it was sent.

    >>> part_of(f"a{_SLASH}b{_ITSELF}s") == f"a/b{_MARK}s"
    True
    """
    return _WRITTEN.sub(lambda found: "/" if found[0] == _SLASH else _MARK, text) if _MARK in text else text


def shown_path(scope: Scope) -> str:
    """Return the path of a request for a log: as it was sent, so that it is one line whatever it names."""
    raw = scope.get("raw_path")
    path = raw.partition(b"?")[0].decode("latin-1") if isinstance(raw, bytes) else str(scope["path"])
    return path.encode("unicode_escape").decode()


class PartConvertor(Convertor[str]):
    """A part of a path in the template of a route: ``/tables/{table:part}``."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the part as it was sent."""
        return part_of(value)

    def to_string(self, value: str) -> str:
        """Return a part as ``divide`` writes it."""
        return value.replace(_MARK, _ITSELF).replace("/", _SLASH)
