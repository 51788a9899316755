"""The places of the files that the catalog names."""

from __future__ import annotations

from collections.abc import Iterable

from quacklake.catalog import Reader
from quacklake.catalog.file_names import NamedFile, absolute_files, named_among
from quacklake.errors import PathError
from quacklake.storage import Store


def place(store: Store, file: NamedFile) -> str | None:
    """Return the path of a file below the data root, or None if elsewhere. Raises ``PathError`` like ``locate``."""
    if file.is_relative and not file.folder_is_relative:
        return locate(store, f"{file.folder.rstrip('/')}/{file.path}", False)
    return locate(store, file.path, file.is_relative, file.folder if file.is_relative else "")


def locate(store: Store, path: str, is_relative: bool, base: str = "") -> str | None:
    """Return the normalized path below the data root, or None if it is elsewhere.

    Raises ``PathError`` for a relative path that leaves the root.
    """
    return store.resolve(path, True, base) if is_relative else store.locate(path)


def absolute_places(reader: Reader, store: Store) -> set[str]:
    """Return the files below the data root that the catalog names by an absolute path; usually there are none."""
    found = (_place(store, file) for page in absolute_files(reader) for file in page)
    return {path for path in found if path is not None}


def named(reader: Reader, store: Store, paths: Iterable[str], absolute: set[str]) -> set[str]:
    """Return which of these files below the data root a data or delete file row still names."""
    wanted = set(paths)
    tails = {tail for path in wanted for tail in _tails(path)}
    found = (_place(store, file) for file in named_among(reader, sorted(tails)))
    return (wanted & absolute) | wanted.intersection(path for path in found if path is not None)


def _place(store: Store, file: NamedFile) -> str | None:
    try:
        return place(store, file)
    except PathError:
        return None  # not below the root


def _tails(path: str) -> list[str]:
    """Return the spellings that a catalog may have for a path: the path, or its part below some folder."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]
