"""Places of imports and exports, and those of lakes that they must leave alone."""

from __future__ import annotations

from pathlib import Path

from quacklake import Lake
from quacklake.errors import InputError, PathError
from quacklake.extend.stores import find_store

REPLACE = "it stays unless you say --force, or replace in Python"


def local(place: str) -> Path:
    """Return a path of this machine. Raise ``InputError`` for a URL."""
    if "://" in place:
        raise InputError(f"{place.partition('@')[0]} is not a folder of this machine", hint="export there, and copy it")
    return Path(place).expanduser().absolute()


def check_source(lake: Lake, place: str) -> None:
    """Raise ``PathError`` for a place where other catalogs of a shared lake have their files."""
    path = place if "://" in place else str(Path(place).expanduser().absolute())
    if find_store(lake).hides(path):
        raise PathError("catalogs of the shared lake have their files there", hint="name another folder")
