"""The folders that exports fill: of this machine, which get their name at the end, and of object stores.

An object store renames nothing. There, a mark says from the beginning which export fills the folder, and another one at
the end that it is complete; an export of the same snapshot goes on where one that was killed has stopped.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from quacklake import Lake, LakeAt
from quacklake.connectors.object_store import spelled
from quacklake.errors import AlreadyExistsError, InputError
from quacklake.extend import reporting
from quacklake.extend.stores import Store, check_outside, find_store
from quacklake.transfer.places import REPLACE, local

COMPLETE = "_SUCCESS"
"""The file of a folder in an object store whose tables are all there, as Hadoop and Spark leave it."""
_BEGUN = "_export.json"
_COPY_BYTES = 8 * 2**20


class ExportFolder(Protocol):
    """A folder that one export fills."""

    @property
    def shown(self) -> str:
        """The folder as reports name it."""

    @property
    def storage(self) -> Mapping[str, str]:
        """The options with which connectors write there."""

    def begin(self, what: str) -> None:
        """Prepare the folder for an export, which ``what`` tells from all others."""

    def location(self, *parts: str) -> str:
        """Return the path or URL of a folder inside, for those who write there themselves."""

    def has(self, *parts: str) -> bool:
        """Return whether there are files in a folder inside."""

    def is_complete(self, *parts: str) -> bool:
        """Return whether an interrupted export has filled a folder inside; remove what it holds otherwise."""

    def filling(self, *parts: str) -> AbstractContextManager[Path]:
        """Yield the path of a folder inside that does not exist yet, and keep the files that are in it afterwards."""

    def clear(self, *parts: str) -> None:
        """Remove what an interrupted export has left in a folder inside."""

    def publish(self) -> None:
        """Show the folder."""

    def remove(self) -> None:
        """Undo what can be undone after a failure."""


def open_folder(lake: Lake | LakeAt, place: str, *, replace: bool) -> ExportFolder:
    """Return the folder of a target. Raise ``AlreadyExistsError``, or ``PathError`` for one of a lake."""
    if "://" not in place:
        path = local(place)
        check_outside(lake, path)
        return NewFolder(path, replace=replace)
    if replace:
        raise InputError(
            "an export replaces nothing in an object store", hint="remove what is there, or name another folder"
        )
    return RemoteFolder(remote_store(lake, place))


def remote_store(lake: Lake | LakeAt, place: str) -> Store:
    """Return the store of a target, with the keys of the lake. Raise ``PathError`` for one where a lake has files."""
    store = find_store(lake, place)
    check_outside(lake, store)
    return store


class NewFolder:
    """A folder that is filled under another name, and gets its own at the end."""

    def __init__(self, path: Path, *, replace: bool) -> None:
        self.path, self._replace = path, replace
        if path.exists() and not path.is_dir():
            raise AlreadyExistsError(f"{path} is a file", hint="name a folder")
        if path.exists() and any(path.iterdir()) and not replace:
            raise AlreadyExistsError(f"the folder {path} is not empty", hint=REPLACE)
        if not path.parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist", hint="create it first")
        self.inside = path.with_name(f".{path.name}.{uuid4().hex}")

    @property
    def shown(self) -> str:
        """The folder as reports name it."""
        return str(self.path)

    @property
    def storage(self) -> Mapping[str, str]:
        """No options."""
        return {}

    def begin(self, what: str) -> None:
        """Do nothing: every export begins anew."""

    def location(self, *parts: str) -> str:
        """Return the path of a folder inside, whose parent exists."""
        found = self.inside.joinpath(*parts)
        found.parent.mkdir(parents=True, exist_ok=True)
        return str(found)

    def has(self, *parts: str) -> bool:
        """Return False: every export begins anew."""
        return False

    def is_complete(self, *parts: str) -> bool:
        """Return False: every export begins anew."""
        return False

    def clear(self, *parts: str) -> None:
        """Do nothing: every export begins anew."""

    @contextmanager
    def filling(self, *parts: str) -> Iterator[Path]:
        """Yield the path of a folder inside."""
        yield Path(self.location(*parts))

    def publish(self) -> None:
        """Give the folder its name; what was there before is gone afterwards."""
        self.inside.mkdir(exist_ok=True)
        parent = Store.open(str(self.path.parent))
        written = [self.inside, *self.inside.rglob("*")]
        parent.sync([str(each.relative_to(self.path.parent)) for each in written])
        old = self.path.with_name(f".{self.path.name}.{uuid4().hex}.old")
        reporting.reach("export.publish.before")
        if self.path.exists() and any(self.path.iterdir()):
            self.path.rename(old)
        self.inside.rename(self.path)
        parent.sync([self.path.name])
        reporting.reach("export.publish.after")
        shutil.rmtree(old, ignore_errors=True)

    def remove(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.inside, ignore_errors=True)


class RemoteFolder:
    """A folder of an object store, complete when it has the file ``_SUCCESS``."""

    def __init__(self, store: Store) -> None:
        self.store = store
        if next(store.list(limit=1), None) is None:
            return
        if store.exists(COMPLETE) or not store.exists(_BEGUN):
            raise AlreadyExistsError(
                f"the folder {store.root} is not empty", hint="remove what is there, or name another folder"
            )

    @property
    def shown(self) -> str:
        """The URL."""
        return self.store.root.rstrip("/")

    @property
    def storage(self) -> Mapping[str, str]:
        """The server and the keys that the lake has for the place."""
        return spelled(self.store.s3)

    def begin(self, what: str) -> None:
        """Claim the folder. Raise ``AlreadyExistsError`` if another export was interrupted there."""
        if not self.store.exists(_BEGUN):
            self.store.write(_BEGUN, json.dumps({"export": what}).encode())
            return
        found = json.loads(self.store.read(_BEGUN)).get("export")
        if found != what:
            raise AlreadyExistsError(
                f"another export to {self.shown} was interrupted: {found}",
                hint="repeat that one to go on with it, or remove the folder",
            )

    def location(self, *parts: str) -> str:
        """Return the URL of a folder inside."""
        return "/".join((self.shown, *parts))

    def has(self, *parts: str) -> bool:
        """Return whether there are files in a folder inside."""
        return next(self.store.list("/".join(parts), limit=1), None) is not None

    @contextmanager
    def filling(self, *parts: str) -> Iterator[Path]:
        """Yield the path of a folder of this machine, and copy its files."""
        with tempfile.TemporaryDirectory(prefix="quacklake-export-") as near:
            folder = Path(near) / "files"
            yield folder
            for file in sorted(each for each in folder.rglob("*") if each.is_file()):
                self._copy(file, "/".join((*parts, *file.relative_to(folder).parts)))
                reporting.reach("export.copied")
                file.unlink()
        self.store.write("/".join((*parts, COMPLETE)), b"")

    def is_complete(self, *parts: str) -> bool:
        """Return whether a folder inside has its mark; remove what it holds otherwise."""
        if self.store.exists("/".join((*parts, COMPLETE))):
            return True
        self.clear(*parts)
        return False

    def _copy(self, file: Path, path: str) -> None:
        with file.open("rb") as source, self.store.open_output(path) as target:
            while chunk := source.read(_COPY_BYTES):
                target.write(chunk)

    def clear(self, *parts: str) -> None:
        """Remove what an interrupted export has left in a folder inside."""
        self.store.delete([entry.path for entry in self.store.list("/".join(parts)) if entry.path != _BEGUN])

    def publish(self) -> None:
        """Write the mark of a complete folder."""
        reporting.reach("export.publish.before")
        self.store.write(COMPLETE, b"")
        reporting.reach("export.publish.after")
        self.store.delete([_BEGUN])

    def remove(self) -> None:
        """Leave what was written: the export can be repeated, and goes on there."""


def described(kind: str, snapshot_id: int, keys: Sequence[str], tables: Mapping[str, str]) -> str:
    """Return what tells one export from another, as errors show it; ``tables`` are names with their UUIDs.

    Tables of two lakes may have the same names and snapshots, but not the same UUIDs.
    """
    parted = f" by {', '.join(keys)}" if keys else ""
    which = hashlib.sha256("\n".join(tables.values()).encode()).hexdigest()[:12]
    return f"snapshot {snapshot_id} as {kind}{parted}, tables {', '.join(tables)} ({which})"
