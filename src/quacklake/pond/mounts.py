"""Ponds that are mounted in another pond: opened when they are first looked at, and never written to."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol
from uuid import NAMESPACE_URL, uuid5

from quacklake.config import resolve
from quacklake.connectors.options import resolved
from quacklake.errors import InputError, NotFoundError, PathError
from quacklake.extend.names import uuid7
from quacklake.extend.stores import find_store
from quacklake.lake.connect import connect, lend_backup, restore_backup
from quacklake.lake.lake import Lake
from quacklake.pond.factories import registry
from quacklake.pond.factories.mount import Inside, Mount, MountFile, MountSeries, MountTable
from quacklake.pond.large_files import LargeFiles
from quacklake.pond.nodes import CONFIG, FACTORY, EntryType, Node
from quacklake.pond.paths import join
from quacklake.pond.places import DATA, find

if TYPE_CHECKING:
    from quacklake.pond.fs import FS, NodePath

_KINDS = {
    EntryType.DIRECTORY: Mount.name,
    EntryType.TABLE: MountTable.name,
    EntryType.SERIES: MountSeries.name,
    EntryType.DATA: MountFile.name,
}


_Key = tuple[str, str, str]
"""The options of a mount that tell which pond it is: ``pond``, ``backup`` and ``key``."""
_DEPTH = 8
"""Mounts within mounts that are followed."""


class OpenState(Protocol):
    """Opens the newest state of the tree of a lake, with the ponds that are mounted in it."""

    def __call__(self, lake: Lake, large_files: LargeFiles, mounts: Mounts) -> FS: ...


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mounted pond that is open: its lake, and its tree as it was when it was opened."""

    alias: str
    lake: Lake
    fs: FS


class Mounts:
    """The mounted ponds of an open pond, and those mounted in them, with what they compute.

    ``above`` are the mounts that lead here; a mount of one of them would hold itself, and is not shown.
    """

    def __init__(self, open_state: OpenState, config_file: str | None = None, above: tuple[_Key, ...] = ()) -> None:
        self._open_state, self._config_file, self._above = open_state, config_file, above
        self._opened: dict[_Key, Mounted] = {}
        self._stack = ExitStack()
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close every mounted pond."""
        self._opened.clear()
        self._stack.close()

    def children(self, node: Node) -> dict[str, Node]:
        """Return the nodes of a mounted directory by name. Links are shown as what they lead to in their own pond."""
        found, path = self._at(node)
        if not found.is_directory:
            raise InputError(f"{path} of the mounted pond is not a directory")
        mounted = self._of(node)
        nodes = {}
        for name in mounted.fs.children(found.node) or {}:
            inner = _follow_link(mounted.fs, join(path, name))
            if inner is not None and (inner.node.file_type in _KINDS or self._may_show(node, inner.node)):
                nodes[name] = _show_node(node, name, join(path, name), inner)
        return nodes

    def _may_show(self, node: Node, inner: Node) -> bool:
        """Return whether a dynamic node of a mounted pond is computed, or in a mount that does not lead back here."""
        if registry.looks_like(inner) is EntryType.DYNAMIC:
            return False
        factory = registry.factory_of(inner)
        if not isinstance(factory, Mount | Inside):
            return isinstance(factory, registry.DirectoryFactory | registry.RowsFactory)
        above = (*self._above, _key(node))
        return len(above) < _DEPTH and _key(inner) not in above

    def open(self, node: Node) -> BinaryIO:
        """Return the bytes of a file of a mounted pond; large ones are verified first."""
        return self._of(node).fs.open(self._at(node)[0])

    def locate(self, node: Node) -> tuple[Mounted, NodePath]:
        """Return the pond that a node of a mounted pond is stored or computed in, and the node there."""
        mounted, found = self._of(node), self._at(node)[0]
        if found.node.file_type is EntryType.DYNAMIC and isinstance(registry.factory_of(found.node), Inside):
            assert mounted.fs.backend.mounts is not None
            return mounted.fs.backend.mounts.locate(found.node)
        return mounted, found

    def _at(self, node: Node) -> tuple[NodePath, str]:
        path = str((node.attribute(CONFIG) or {}).get("path", "/"))
        return self._of(node).fs.get(path), path

    def _of(self, node: Node) -> Mounted:
        key = _key(node)
        with self._lock:
            if key not in self._opened:
                self._opened[key] = self._open(key)
            return self._opened[key]

    def _open(self, options: _Key) -> Mounted:
        pond, backup, key = (resolved(text, Mount.name) for text in options)
        if pond:
            place = find(pond)
            if not place.may_exist():
                raise place.missing()
            lake = self._stack.enter_context(place.lake.open(read_only=True, config_file=self._config_file))
            large_files = LargeFiles(find_store(lake))
        else:
            lake, large_files = self._lend(backup, key)
        inner = Mounts(self._open_state, self._config_file, (*self._above, options))
        self._stack.callback(inner.close)
        return Mounted(f"mount_{uuid7().hex}", lake, self._open_state(lake, large_files, inner))

    def _lend(self, url: str, key: str) -> tuple[Lake, LargeFiles]:
        """Open the newest backup of a pond, whose files are read where they are.

        The tables of an encrypted one are decrypted into a temporary folder that only this user may read.
        """
        from quacklake.pond.backup import BackupPlace

        place = BackupPlace(url, resolve({"backup_key": key} if key else {}, config_file=self._config_file))
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="pond-mount-"))
        catalog, source, chosen = f"sqlite:///{Path(folder, 'lake.db')}", f"{url.rstrip('/')}/{DATA}", place.choose()
        secret = place.config.backup_key
        if secret is not None and place.store().is_sealed:
            files = str(Path(folder, "files"))
            restore_backup(
                source,
                catalog,
                files,
                backup=chosen.data,
                config_file=self._config_file,
                catalog="",
                backup_key=secret.reveal(),
            ).close()
        else:
            lend_backup(source, catalog, chosen.data, place.config)
        lake = connect(catalog, catalog="", create=False, read_only=True, config_file=self._config_file)
        return self._stack.enter_context(lake), place.large_files


def _key(node: Node) -> _Key:
    config: Mapping[str, Any] = node.attribute(CONFIG) or {}
    return str(config.get("pond", "")), str(config.get("backup", "")), str(config.get("key", ""))


def _follow_link(fs: FS, path: str) -> NodePath | None:
    """Return a node, or what a link leads to; None for a link that leads nowhere."""
    try:
        return fs.get(path)
    except (NotFoundError, PathError, InputError):
        return None


def _show_node(above: Node, name: str, path: str, inner: NodePath) -> Node:
    """Return a node of a mounted pond as one of this pond."""
    attributes = {key: value for key, value in inner.node.extended_attributes.items() if key not in (FACTORY, CONFIG)}
    config = {**(above.attribute(CONFIG) or {}), "path": path}
    return replace(
        inner.node,
        node_id=str(uuid5(NAMESPACE_URL, f"pond:{above.node_id}/{name}")),
        part_id=above.node_id,
        name=name,
        file_type=EntryType.DYNAMIC,
        size=inner.size,
        content=None,
        extended_attributes={**attributes, FACTORY: _KINDS[inner.entry_type], CONFIG: config},
    )
