"""Backups of a pond: those of its lake, its large files by their hashes, and a manifest that is written last.

A place of backups has this layout::

    data/…                   the backups of the lake, as ``quacklake backup`` makes them
    large/_large_files/…     the large files by the hash of their bytes; all backups share them
    lists/<id>.json          the hashes of the large files that a backup needs, written before they are copied
    ponds/<id>.json          the manifest of a backup of the pond: without it, it does not exist
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from quacklake import telemetry
from quacklake.config import Config
from quacklake.errors import AlreadyExistsError, CommitConflict, CorruptFileError, InputError, NotFoundError
from quacklake.extend import reporting
from quacklake.extend.backups import Backups
from quacklake.extend.reporting import Progress, silent
from quacklake.extend.stores import Store, find_store
from quacklake.lake.connect import replace_from_backup, restore_backup
from quacklake.lake.lake import Lake
from quacklake.pond.control import TXNS, ControlLog
from quacklake.pond.large_files import LargeFiles, sharded
from quacklake.pond.places import DATA, LakePlace, PondPlace
from quacklake.pond.pond import MARK, Pond

LARGE = "large"
_MANIFESTS, LISTS = "ponds/", "lists/"
_FORMAT = 2
_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class PondBackup:
    """A backup of a pond: the last transaction it has, and the id of the backup of its lake."""

    id: str
    time: str
    pond_id: str
    txn_seq: int
    txn_id: str
    data: str
    large_files: int


@dataclass(frozen=True, slots=True)
class BackupDone:
    """The report of a backup: what it is, and what was new to the place."""

    backup: PondBackup
    files: int
    copied: int
    bytes_copied: int


@dataclass(frozen=True)
class BackupPlace:
    """A place of backups of one pond: a folder or an ``s3://`` URL. The settings have its keys."""

    url: str
    config: Config

    @property
    def lakes(self) -> Backups:
        """The backups of the lake."""
        return Backups.open(f"{self.url.rstrip('/')}/{DATA}", self.config)

    @property
    def whole(self) -> Backups:
        """The place itself, which a mark holds while any part of it is pruned."""
        return Backups.open(self.url, self.config)

    def store(self) -> Store:
        """Return the store of the place."""
        return self.whole.store

    @cached_property
    def large_files(self) -> LargeFiles:
        """The large files of all backups."""
        return LargeFiles(Backups.open(f"{self.url.rstrip('/')}/{LARGE}", self.config).store)

    def backups(self) -> list[PondBackup]:
        """Return the backups, oldest first."""
        store = self.store()
        paths = [entry.path for entry in store.list(_MANIFESTS) if entry.path.endswith(".json")]
        return sorted((_read(store, path) for path in paths), key=lambda each: (each.time, each.id))

    def choose(self, id_: str | None = None) -> PondBackup:
        """Return a backup by its id, or the newest. Raise ``NotFoundError``."""
        found = [each for each in self.backups() if id_ is None or each.id == id_]
        if not found:
            what = "backup" if id_ is None else f"backup {id_}"
            raise NotFoundError(f"there is no {what} in {self.url}", hint="`pond backups` lists them")
        return found[-1]


def manifest_of(id_: str) -> str:
    """Return the path of the manifest of a backup."""
    return f"{_MANIFESTS}{id_}.json"


def _read(store: Store, path: str) -> PondBackup:
    try:
        found = json.loads(store.read(path, limit=_LIMIT))
        if found.pop("format") != _FORMAT:
            raise CorruptFileError(
                f"the backup {path} in {store.root} has the format of another version of quacklake",
                hint="restore it with that version; back up into an empty place with this one",
            )
        return PondBackup(**found)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"the manifest {path} in {store.root} cannot be read", hint="is the backup encrypted? set the key"
        ) from error


# -- there -------------------------------------------------------------------------------------------------------------


def backup(pond: Pond, place: BackupPlace, progress: Progress = silent) -> BackupDone:
    """Back up a pond: what the place has already is not copied again. An interrupted one does not exist.

    Raise ``AlreadyExistsError`` for the place of another pond, and ``CommitConflict`` when the place is ahead.
    """
    pond_id = pond.control.pond_id()
    known = place.backups()
    if any(each.pond_id != pond_id for each in known):
        raise AlreadyExistsError("pond backup already exists", hint=f"{place.url} has backups of another pond")
    if known:
        _check_ahead(pond, known[-1])
    with telemetry.timed("pond.backup", place.url):
        data = place.lakes.add(pond.lake, progress)
        last = pond.last_commit(data.snapshot)
        reporting.reach("pond.backup.data")
        hashes = sorted(sha256 for sha256, _ in pond.large_files.stored())
        place.store().write(f"{LISTS}{data.id}.json", json.dumps(hashes).encode())
        count, copied, size = _copy_large(pond.large_files, place.large_files, progress)
        place.whole.check_not_pruned()  # files that the place had already might be gone
        made = PondBackup(
            id=data.id,
            time=dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"),
            pond_id=pond_id,
            txn_seq=last.txn_seq,
            txn_id=last.txn_id,
            data=data.id,
            large_files=count,
        )
        reporting.reach("pond.backup.manifest")
        content = json.dumps({"format": _FORMAT, **asdict(made)}, indent=1).encode()
        place.store().write(manifest_of(made.id), content)
    return BackupDone(made, data.files + count, data.copied + copied, data.bytes_copied + size)


def _check_ahead(pond: Pond, newest: PondBackup) -> None:
    if not pond.control.has_completed(newest.txn_id):
        raise CommitConflict(
            "local and remote states are not equal, repair needed",
            hint=f"the backup {newest.id} has transaction #{newest.txn_seq:03d}, which this pond does not: pull first",
        )


def _copy_large(source: LargeFiles, target: LargeFiles, progress: Progress) -> tuple[int, int, int]:
    """Copy the large files that are missing, and return how many there are, how many were copied, and their bytes."""
    have = dict(target.stored())
    count = copied = size = 0
    for sha256, bytes_ in source.stored():
        count += 1
        if have.get(sha256) == bytes_:
            continue
        path = source.find(sha256)
        if path is None:
            continue  # removed meanwhile, because nothing names it
        reporting.reach("pond.backup.large")
        source.store.copy_to(path, target.store, sharded(sha256), sha256)
        copied, size = copied + 1, size + bytes_
        progress("copying large files", copied, None)
    return count, copied, size


# -- and back ----------------------------------------------------------------------------------------------------------


def restore(
    place: BackupPlace, to: PondPlace, id_: str | None = None, progress: Progress = silent, **settings: Any
) -> Pond:
    """Make a pond of a backup, by default the newest, in databases of any kind. All is verified on its way.

    An interrupted restore goes on where it ended. Raise ``AlreadyExistsError`` when there is another pond.
    """
    chosen = place.choose(id_)
    key = place.config.backup_key
    given = settings if key is None else {**settings, "backup_key": key.reveal()}
    with telemetry.timed("pond.restore", place.url):
        lake = _find_started(to.lake, chosen, settings) or _restore(place, to.lake, chosen.data, given, progress)
        try:
            _copy_large(place.large_files, LargeFiles(find_store(lake)), progress)
            reporting.reach("pond.restore.large")
            return Pond(lake)
        except BaseException:
            lake.close()
            raise


def _restore(place: BackupPlace, to: LakePlace, id_: str, settings: dict[str, Any], progress: Progress) -> Lake:
    if to.data_path is None:
        raise InputError("no data path was given for the pond", hint="add ?data_path=s3://bucket/pond to its URL")
    to.make_folder()
    return restore_backup(
        f"{place.url.rstrip('/')}/{DATA}", to.url, to.data_path, backup=id_, progress=progress, catalog="", **settings
    )


def _find_started(to: LakePlace, chosen: PondBackup, settings: dict[str, Any]) -> Lake | None:
    """Return the lake of a restore that was interrupted after it, to go on; None when there is none."""
    try:
        lake = to.open(**settings)
    except NotFoundError:
        return None
    if TXNS not in lake or ControlLog(lake).last_commit().txn_id != chosen.txn_id:
        lake.close()
        raise AlreadyExistsError("Pond already exists", hint="restore into an empty place")
    return lake


def pull(pond: Pond, place: BackupPlace, progress: Progress = silent) -> PondBackup | None:
    """Bring a pond to the state of the newest backup of the same pond; None when it has that already.

    Raise ``CommitConflict`` when both have transactions that the other lacks.
    """
    newest = place.choose()
    if newest.pond_id != pond.control.pond_id():
        raise AlreadyExistsError("pond backup already exists", hint=f"{place.url} has backups of another pond")
    if pond.control.has_completed(newest.txn_id):
        return None
    mine = pond.last_commit()
    with telemetry.timed("pond.pull", place.url):
        if mine.txn_id not in _remote_ids(place, newest):
            raise CommitConflict(
                "local and remote states are not equal, repair needed",
                hint=f"transaction #{mine.txn_seq:03d} of this pond is not in the backup; restore it elsewhere",
            )
        _copy_large(place.large_files, pond.large_files, progress)
        reporting.reach("pond.pull.large")
        replace_from_backup(pond.lake, f"{place.url.rstrip('/')}/{DATA}", newest.data, place.config, progress)
        reporting.reach("pond.pull.data")
    return newest


def _remote_ids(place: BackupPlace, newest: PondBackup) -> set[str]:
    """Return the ids of the transactions that a backup has."""
    found: set[str] = set()
    for batch in place.lakes.read_table(newest.data, "ducklake_snapshot_changes"):
        found.update(_ids(batch.column("commit_extra_info").to_pylist()))
    return found


def _ids(texts: list[str | None]) -> Iterator[str]:
    for text in texts:
        try:
            yield json.loads(text or "{}")[MARK]["txn_id"]
        except (ValueError, KeyError, TypeError):
            continue
