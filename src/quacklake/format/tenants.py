"""The names of the catalogs (tenants) of a shared lake, and the folders of their files.

A name becomes a folder below the data path, so that it must be one on every store, and no two may be the same one: not
by case, not by a look-alike. Only ASCII letters, digits and ``_ - .`` are allowed, which leaves no look-alikes.
"""

from __future__ import annotations

import re

from quacklake.errors import InvalidNameError
from quacklake.format.names import fold

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


def folder_of(name: str, catalog_id: int, *, taken: bool) -> str:
    """Return the folder of a new catalog; ``taken`` when an older catalog has the one of its name."""
    return f"{name}{_APART}{catalog_id}" if taken else name


def tombstone(name: str, catalog_id: int) -> str:
    """Return the name of a catalog that was dropped, which leaves its own to others."""
    return f"{name}{_APART}{catalog_id}"


def former_name(name: str) -> str:
    """Return the name that a catalog had before it was dropped.

    >>> former_name(tombstone("acme", 7))
    'acme'
    """
    return name.partition(_APART)[0]
