"""Places of imports and exports, and those of lakes that they must leave alone."""

from __future__ import annotations

from pathlib import Path

from quacklake.core.operations.context import LakeContext
from quacklake.core.storage.store_pairs import overlap
from quacklake.errors import InputError, PathError
from quacklake.extend.stores import Store

REPLACE = "it stays unless you say --force, or replace in Python"


def local(place: str) -> Path:
    """Return a path of this machine. Raises ``InputError`` for a URL."""
    if "://" in place:
        raise InputError(f"{place.partition('@')[0]} is not a folder of this machine", hint="export there, and copy it")
    return Path(place).expanduser().absolute()


def check_source(context: LakeContext, place: str) -> None:
    """Raise ``PathError`` for a place where other catalogs of a shared lake have their files."""
    path = place if "://" in place else str(Path(place).expanduser().absolute())
    if context.store.hides(path):
        raise PathError("catalogs of the shared lake have their files there", hint="name another folder")


def check_target(context: LakeContext, path: Path) -> None:
    """Raise ``PathError`` for a path in, around or at the files of a lake or its catalog."""
    catalog = context.catalog.url.path
    beside = catalog is not None and (path == catalog.absolute() or path.resolve() in catalog.resolve().parents)
    store = context.store
    if path.is_file():
        inside = store.is_local and Path(store.root).resolve() in path.resolve().parents
    else:
        inside = overlap(store, Store.open(str(path)))
    if beside or inside or store.hides(str(path)):
        raise PathError("the target is where a lake has its files", hint="name another folder")


def check_remote(context: LakeContext, store: Store) -> None:
    """Raise ``PathError`` for a place of an object store in, around or at the files of a lake."""
    if overlap(context.store, store) or context.store.hides(store.root):
        raise PathError("the target is where a lake has its files", hint="name another folder")
