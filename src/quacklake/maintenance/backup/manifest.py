"""The manifests of backups."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import asdict, dataclass, replace

from quacklake.errors import CorruptFileError, NotFoundError
from quacklake.storage import FileEntry, Store

_FORMAT = 1
MANIFEST = "manifest.json"
_LIMIT = 64 << 20
ABANDONED = dt.timedelta(days=1)
"""The age at which a backup without a manifest counts as abandoned."""


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """A backup: its time, its snapshot and its size.

    ``missing`` lists files that were already gone at the time of the backup; reading them fails, as it did then.
    """

    id: str
    time: str
    snapshot: int
    version: str
    database: str
    data_path: str
    encrypted: bool
    files: int
    bytes: int
    images: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()


def folder_of(id_: str) -> str:
    return f"backups/{id_}/"


def new_id(snapshot: int) -> str:
    """Return the id of a new backup; ids sort by time."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%S%f}Z-s{snapshot}"


def write_manifest(store: Store, info: BackupInfo) -> None:
    """Write the manifest, which makes the backup exist."""
    text = json.dumps({"format": _FORMAT, **asdict(info)}, indent=1)
    store.write(folder_of(info.id) + MANIFEST, text.encode())


def read_manifest(store: Store, id_: str) -> BackupInfo:
    """Return a backup by its id, which is the name of its folder. Raises ``NotFoundError`` or ``CorruptFileError``.

    The id inside the manifest is ignored, so that a copied or renamed folder is a backup of its own.
    """
    path = folder_of(id_) + MANIFEST
    if not store.exists(path):
        raise NotFoundError(
            f"there is no backup {id_} in {store.root}", hint="quacklake.backups(…) lists those there are"
        )
    try:
        found = json.loads(store.read(path, limit=_LIMIT))
        if found.pop("format") != _FORMAT:
            raise CorruptFileError(f"the backup {id_} was made by a newer version of quacklake")
        info = BackupInfo(**{**found, "images": tuple(found["images"]), "missing": tuple(found["missing"])})
        _made(info)
        return replace(info, id=id_)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"the manifest of the backup {id_} cannot be read") from error


def folders(store: Store) -> dict[str, list[FileEntry]]:
    """Return the files of each backup by id, complete or not."""
    found: dict[str, list[FileEntry]] = {}
    for entry in store.list("backups/"):
        found.setdefault(entry.path.split("/")[1], []).append(entry)
    return found


def remove_unfinished(store: Store) -> None:
    """Remove the remains of backups that were interrupted long ago."""
    old = dt.datetime.now(dt.UTC) - ABANDONED
    for entries in folders(store).values():
        whole = any(entry.path.endswith(f"/{MANIFEST}") for entry in entries)
        if not whole and all(entry.mtime is not None and entry.mtime < old for entry in entries):
            store.delete([entry.path for entry in entries])


def list_backups(store: Store) -> list[BackupInfo]:
    """Return every complete backup, oldest first."""
    ids = {entry.path.split("/")[1] for entry in store.list("backups/") if entry.path.endswith(f"/{MANIFEST}")}
    return sorted((read_manifest(store, id_) for id_ in ids), key=lambda info: (_made(info), info.id))


def _made(info: BackupInfo) -> dt.datetime:
    time = dt.datetime.fromisoformat(info.time)
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)


def choose(store: Store, id_: str | None) -> BackupInfo:
    """Return a backup by id, or the newest. Raises ``NotFoundError``."""
    if id_ is not None:
        return read_manifest(store, id_)
    found = list_backups(store)
    if not found:
        raise NotFoundError(f"there is no backup in {store.root}", hint="one that was interrupted does not count")
    return found[-1]
