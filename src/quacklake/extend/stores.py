"""Files wherever they are: those of a lake, local folders, object stores, and files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

from quacklake.core.operations.stores import open_store
from quacklake.core.storage import S3Options, Store
from quacklake.core.storage.store import replace_file
from quacklake.core.storage.store_pairs import overlap
from quacklake.errors import PathError
from quacklake.lake.lake import Lake, LakeAt, LakeTransaction

__all__ = ["S3Options", "Store", "check_outside", "find_store", "open_store", "replace_file"]


def find_store(lake: Lake | LakeAt | LakeTransaction, place: str | None = None) -> Store:
    """Return the store of the files of a lake, or open another place with the settings and keys of the lake.

    Raise ``ConfigError`` for a place that cannot be one.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     find_store(lake).root == lake.data_path, find_store(lake, "/tmp/elsewhere").root
    (True, '/tmp/elsewhere/')
    """
    context = lake.handle.context
    return context.store if place is None else open_store(place, context.config)


def check_outside(lake: Lake | LakeAt | LakeTransaction, place: Path | Store) -> None:
    """Raise ``PathError`` for a place in, around or at the files of a lake or its metadata.

    Links are followed. The files of other catalogs of a shared lake count as well.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     check_outside(lake, Path("/tmp/elsewhere"))
    ...     check_outside(lake, Path(lake.data_path, "mine.txt"))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    PathError: the folder is where a lake has its files
    """
    context = lake.handle.context
    store = context.store
    if isinstance(place, Path):
        path, file = str(place), context.catalog.url.path
        beside = file is not None and (place == file.absolute() or place.resolve() in file.resolve().parents)
    else:
        path, beside = place.root, False
    if beside or store.hides(path) or _overlaps(store, place):
        raise PathError(f"{path} is where a lake has its files", hint="name another folder")


def _overlaps(store: Store, place: Path | Store) -> bool:
    if isinstance(place, Store):
        return overlap(store, place)
    if place.is_file():
        return store.is_local and Path(store.root).resolve() in place.resolve().parents
    return overlap(store, Store.open(str(place)))
