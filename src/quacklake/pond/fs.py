"""The file system of a pond: ``FS`` is one state of it or one transaction, ``WD`` a directory to work in."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, BinaryIO

from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    PathError,
    QuacklakeError,
    ReadOnlyError,
    ResultTooLargeError,
    nearest,
)
from quacklake.pond.backend import Backend
from quacklake.pond.factories import registry
from quacklake.pond.factories.mount import Mount
from quacklake.pond.factories.options import plain
from quacklake.pond.large_files import Readable
from quacklake.pond.nodes import CONFIG, FACTORY, ROWS, SCHEDULE, SETTINGS, STATE, TARGET, EntryType, Node, new_id
from quacklake.pond.paths import ROOT, check_name, is_folder, parts, table_of
from quacklake.pond.patterns import Part, compile_pattern
from quacklake.pond.tree import Place, Tree, matches, walk
from quacklake.telemetry import error_facts

_log = logging.getLogger("quacklake.pond")


@dataclass(frozen=True, slots=True)
class NodePath:
    """A node and where it is. ``captures`` are what the wildcards of a pattern stand for."""

    place: Place
    versions: tuple[Node, ...]
    captures: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path from the root, without links and dots."""
        return self.place.path

    @property
    def node(self) -> Node:
        """The newest version."""
        return self.place.node

    @property
    def entry_type(self) -> EntryType:
        """The type that readers see: for a dynamic node that of what its factory makes."""
        return registry.looks_like(self.node)

    @property
    def is_directory(self) -> bool:
        """True for a directory, computed or not."""
        return self.entry_type is EntryType.DIRECTORY

    @property
    def size(self) -> int | None:
        """The bytes of a file; for a series those of all versions."""
        sizes = [row.size for row in self.versions if row.size is not None]
        return sum(sizes) if sizes else None

    @property
    def rows(self) -> int | None:
        """The rows of a table or series; None for anything else and for a computed one."""
        counts = [row.attribute(ROWS) for row in self.versions if row.attribute(ROWS) is not None]
        return sum(counts) if counts and self.node.file_type.has_rows else None


class FS:
    """One state of a pond's tree. In a transaction, it also changes the tree.

    Paths are absolute, or relative to the root. Every method raises ``NotFoundError`` for what does not exist,
    ``PathError`` for a path that leads out of the pond or in a circle, and changes nothing then.
    """

    def __init__(self, backend: Backend, txn_seq: int = 0) -> None:
        self.backend = backend
        self.txn_seq = txn_seq
        self._open: set[str] = set()

    @cached_property
    def tree(self) -> Tree:
        """The nodes, read when they are first needed."""
        return self.backend.load()

    # -- looking -------------------------------------------------------------------------------------------------------

    def root(self) -> WD:
        """Return the root as a working directory."""
        return WD(self, Place((self.tree.root,)))

    def working_directory(self, path: str = ROOT) -> WD:
        """Return a directory to work in. Raise ``InputError`` for anything else."""
        found = self.get(path)
        if not found.is_directory:
            raise InputError(f"{found.path} is not a directory")
        return WD(self, found.place)

    def children(self, node: Node) -> Mapping[str, Node] | None:
        """Return the nodes in a directory by name, computed ones too; None for any other node."""
        if node.file_type is EntryType.DIRECTORY:
            if self._may_read_parts:
                return Tree(self.backend.nodes_in(node)).children(node.node_id)
            return self.tree.children(node.node_id)
        if node.file_type is EntryType.DYNAMIC and registry.looks_like(node) is EntryType.DIRECTORY:
            if isinstance(registry.factory_of(node), Mount):
                return {} if self.backend.mounts is None else self.backend.mounts.children(node)
            return self._compute_children(node)
        return None

    def _reachable(self, node: Node) -> Mapping[str, Node] | None:
        """Return the nodes in a directory; none of a mounted pond that cannot be opened, which is only told."""
        try:
            return self.children(node)
        except QuacklakeError as error:
            if node.file_type is not EntryType.DYNAMIC or not isinstance(registry.factory_of(node), Mount):
                raise
            facts = error_facts(error, mount=node.name)
            _log.warning("the mount %s cannot be opened: %s", node.name, error.message, extra=facts)
            return {}

    @property
    def _may_read_parts(self) -> bool:
        """True for a state that is only read, as long as nobody needed all of its tree."""
        return "tree" not in self.__dict__ and not self.txn_seq

    def _at(self, path: str, *, follow: bool) -> NodePath | None:
        """Return a node by reading only the nodes that have a name of its path; None when that does not tell.

        A link may lead to other names, and what is missing may be missing only among these nodes.
        """
        branch = Tree(self.backend.nodes_named([name for name in parts(path) if name != ".."]))
        try:
            place = walk(path, Place((branch.root,)), partial(self._inside, branch), follow=follow)
        except QuacklakeError:
            return None
        return None if place.missing else self._node_path(place, branch)

    def _inside(self, branch: Tree, node: Node) -> Mapping[str, Node] | None:
        if node.file_type is EntryType.DIRECTORY:
            return branch.children(node.node_id)
        return self.children(node)

    def _compute_children(self, node: Node) -> Mapping[str, Node]:
        """Return what a dynamic directory holds; nothing while it is being found out, so that it never holds itself."""
        if node.node_id in self._open:
            return {}
        self._open.add(node.node_id)
        try:
            return registry.computed_children(self, node)
        finally:
            self._open.discard(node.node_id)

    def find(self, path: str, *, follow: bool = True, start: Place | None = None) -> NodePath | None:
        """Return the node at a path, or None."""
        if self._may_read_parts and start is None:
            found = self._at(path, follow=follow)
            if found is not None:
                return found
        place = self.place(path, follow=follow, start=start)
        return None if place.missing else self._node_path(place)

    def get(self, path: str, *, follow: bool = True, start: Place | None = None) -> NodePath:
        """Return the node at a path. Raise ``NotFoundError`` that suggests a name."""
        if self._may_read_parts and start is None:
            found = self._at(path, follow=follow)
            if found is not None:
                return found
        place = self.place(path, follow=follow, start=start)
        if place.missing:
            names = self.children(place.node) or {}
            hint = _nearest_name(place.missing[0], names) or "`pond list` shows what there is"
            raise NotFoundError(f"there is no {place.path}", hint=hint)
        return self._node_path(place)

    def exists(self, path: str) -> bool:
        """Return whether there is a node at a path."""
        return self.find(path) is not None

    def glob(self, pattern: str, *, start: Place | None = None) -> list[NodePath]:
        """Return the nodes that a pattern names, in the order of paths: ``/sensors/*.series``, ``**/*``.

        A path without wildcards names itself.
        """
        parsed = compile_pattern(pattern)
        if self._may_read_parts and start is None:
            few = self._few(parsed)
            if few is not None:
                return few
        here = Place((self.tree.root,)) if start is None or pattern.startswith(ROOT) else start
        found = matches(parsed, here, self._reachable, lambda at, name: self.place(name, start=at))
        paths = [replace(self._node_path(place), captures=captures) for place, captures in found]
        return sorted(paths, key=lambda each: each.path.split("/"))

    def _few(self, pattern: tuple[Part, ...]) -> list[NodePath] | None:
        """Return the nodes of a pattern that has wildcards in its last name only; None for any other."""
        if (
            not pattern
            or any(part.any_depth or part.regex is not None for part in pattern[:-1])
            or pattern[-1].any_depth
        ):
            return None
        above = self._at(ROOT + "/".join(part.text for part in pattern[:-1]), follow=True)
        if above is None or above.node.file_type is not EntryType.DIRECTORY:
            return None
        inside = Tree(self.backend.nodes_in(above.node))
        names = {
            name: found
            for name in inside.children(above.node.node_id)
            if (found := pattern[-1].match(name)) is not None
        }
        return [
            replace(self._node_path(Place((*above.place.nodes, node)), inside), captures=names[name])
            for name, node in inside.children(above.node.node_id).items()
            if name in names
        ]

    def place(self, path: str, *, follow: bool = True, start: Place | None = None) -> Place:
        """Return where a path leads, with the names that do not exist."""
        return walk(path, start or Place((self.tree.root,)), self.children, follow=follow)

    def _node_path(self, place: Place, tree: Tree | None = None) -> NodePath:
        known = self.tree if tree is None else tree
        return NodePath(place, known.versions(place.node.node_id) or (place.node,))

    def open(self, path: str | NodePath) -> BinaryIO:
        """Return a file's bytes, open for reading at any position. Large ones are verified first.

        Raise ``CorruptFileError`` for a damaged one, and ``InputError`` for a node without bytes.
        """
        found = path if isinstance(path, NodePath) else self.get(path)
        node = found.node
        if node.file_type is EntryType.DYNAMIC:
            is_file = registry.factory_of(node).kind is EntryType.DATA
            if is_file and self.backend.mounts is not None:
                return self.backend.mounts.open(node)
        if node.file_type is not EntryType.DATA:
            kind = {EntryType.DIRECTORY: "a directory"}.get(found.entry_type, f"a {found.entry_type}")
            raise InputError(f"{found.path} is {kind}, not a file of bytes")
        assert node.size is not None
        assert node.sha256 is not None
        if node.extended_attributes.get("external"):
            return self.backend.large_files.open(node.sha256, node.size, found.path)
        return io.BytesIO(self.backend.content(node) if node.content is None else node.content)

    def read(self, path: str | NodePath) -> bytes:
        """Return the bytes of a small file whole; ``open`` reads files of any size.

        Raise ``ResultTooLargeError`` for a file with more bytes than the setting ``pond_read_bytes``.
        """
        found = path if isinstance(path, NodePath) else self.get(path)
        size, limit = found.node.size or 0, self.backend.lake.handle.context.config.pond_read_bytes
        if size > limit:
            raise ResultTooLargeError(
                f"{found.path} has {size} bytes, more than the {limit} that are read at once",
                hint=f"read it in blocks: with fs.open({found.path!r}) as file; or raise the setting pond_read_bytes",
            )
        with self.open(found) as file:
            return file.read()

    # -- changing ------------------------------------------------------------------------------------------------------

    def make_directory(self, path: str, *, parents: bool = False, start: Place | None = None) -> NodePath:
        """Make a directory; with ``parents`` also those above it, and an existing one is fine."""
        place = self.place(path, start=start)
        if not place.missing:
            found = self._node_path(place)
            if parents and found.is_directory:
                return found
            raise AlreadyExistsError(f"{found.path} exists already")
        if len(place.missing) > 1 and not parents:
            raise NotFoundError(
                f"there is no {Place(place.nodes, place.missing[:1]).path}", hint="pass -p to make it, too"
            )
        for name in place.missing:
            place = self.add(place, name, EntryType.DIRECTORY)
        return self._node_path(place)

    def write_file(
        self, path: str, source: bytes | Readable, *, replace: bool = False, start: Place | None = None
    ) -> NodePath:
        """Make a file of bytes from bytes or a stream. An existing one gets a new version if ``replace`` is true."""
        place = self.new_place(path, start=start, replace=EntryType.DATA if replace else None)
        content = self.backend.large_files.write(io.BytesIO(source) if isinstance(source, bytes) else source)
        values: dict[str, Any] = {
            "content": content.inline,
            "sha256": content.sha256,
            "size": content.size,
            "extended_attributes": {} if content.inline is not None else {"external": True},
        }
        if place.missing:
            return self._node_path(self.add(place, place.missing[0], EntryType.DATA, **values))
        old = place.node
        if (old.sha256, old.size) == (content.sha256, content.size):
            return self._node_path(place)
        return self._node_path(self.put(place, _next(old, self.txn_seq, **values)))

    def make_link(self, path: str, target: str, *, start: Place | None = None) -> NodePath:
        """Make a symbolic link. Its target need not exist, and may be relative to the directory of the link."""
        if not target or "\0" in target:
            raise InputError("a link needs a target")
        place = self.new_place(path, start=start)
        made = self.add(place, place.missing[0], EntryType.SYMLINK, extended_attributes={TARGET: target})
        walk(target, Place(place.nodes), self.children, follow=False)  # a target that leads out of the pond is refused
        return self._node_path(made)

    def make_node(
        self,
        path: str,
        factory: str,
        config: Mapping[str, Any],
        *,
        schedule: str | None = None,
        replace: bool = False,
        start: Place | None = None,
    ) -> NodePath:
        """Make a dynamic node: what a factory computes from its options, or runs on a schedule.

        A node that is replaced keeps how far it has come, unless it gets another factory.
        """
        config = plain(config)
        registry.find(factory).check(config)
        place = self.new_place(path, start=start, replace=EntryType.DYNAMIC if replace else None)
        attributes: dict[str, Any] = {FACTORY: factory, CONFIG: config}
        if schedule is not None:
            attributes[SCHEDULE] = schedule
        if not place.missing and place.node.attribute(FACTORY) == factory and place.node.attribute(STATE) is not None:
            attributes[STATE] = place.node.attribute(STATE)
        if place.missing:
            made = self.add(place, place.missing[0], EntryType.DYNAMIC, extended_attributes=attributes)
            return self._node_path(made)
        if place.node.extended_attributes == attributes:
            return self._node_path(place)
        return self._node_path(self.put(place, _next(place.node, self.txn_seq, extended_attributes=attributes)))

    def set_attribute(self, found: NodePath, name: str, value: Any) -> NodePath:
        """Set an attribute of a node other than a series. Nothing changes when it has the value already."""
        if found.node.attribute(name) == value:
            return found
        attributes = {**found.node.extended_attributes, name: value}
        return self._node_path(self.put(found.place, _next(found.node, self.txn_seq, extended_attributes=attributes)))

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the pond, which the root directory keeps."""
        return dict(self.tree.root.attribute(SETTINGS) or {})

    def change_setting(self, name: str, value: str | None) -> None:
        """Set a setting of the pond; None removes it."""
        found = {**self.settings, name: value}
        self.set_attribute(self.get(ROOT), SETTINGS, {key: each for key, each in found.items() if each is not None})

    def move(self, source: str, target: str) -> NodePath:
        """Move a node, with all below it, to a new path or into an existing directory. Nothing is copied."""
        found = self.get(source, follow=False)
        node = found.node
        if node.is_root or node.node_id not in self.tree:
            raise ReadOnlyError(f"{found.path} cannot be moved", hint="it is the root, or computed by a factory")
        place = self.place(target)
        if not place.missing and self.children(place.node) is not None:
            place = Place(place.nodes, (node.name,))
            if self.tree.child(place.node.node_id, node.name) is not None:
                raise AlreadyExistsError(f"{place.path} exists already")
        self._check_new(place, target)
        if any(each.node_id == node.node_id for each in place.nodes):
            raise InputError(f"{found.path} cannot be moved into itself")
        below = [each for each in self.tree.below(node.node_id) if each.file_type.has_rows]
        before = {each.node_id: self.tree.path(each.node_id) for each in below}
        name = check_name(place.missing[0])
        rows = self.tree.versions(node.node_id)
        moved = [replace(row, part_id=place.node.node_id, name=name, txn_seq=self.txn_seq) for row in rows]
        self.tree.put(*moved)
        self._rename_tables({path: self.tree.path(each) for each, path in before.items()})
        return self._node_path(Place((*place.nodes, moved[-1])))

    def _rename_tables(self, names: Mapping[str, str]) -> None:
        for old, new in names.items():
            self.backend.changes.rename_table(table_of(old), table_of(new))

    def remove(self, path: str, *, recursive: bool = False) -> int:
        """Remove a node and return the number of nodes removed. Older states keep it.

        A directory with anything in it takes ``recursive``. A link is removed, not what it leads to.
        """
        found = self.get(path, follow=False)
        if found.node.is_root or found.node.node_id not in self.tree:
            raise ReadOnlyError(f"{found.path} cannot be removed", hint="it is the root, or computed by a factory")
        below = self.tree.below(found.node.node_id)
        if len(below) > 1 and not recursive:
            raise InputError(f"{found.path} is not empty", hint="pass -r to remove all that is in it")
        for node in reversed(below):
            if node.file_type.has_rows:
                self.backend.changes.drop_table(table_of(self.tree.path(node.node_id)))
            self.tree.remove(node.node_id)
        return len(below)

    # -- shared by all that make nodes ---------------------------------------------------------------------------------

    def new_place(self, path: str, *, start: Place | None = None, replace: EntryType | None = None) -> Place:
        """Return the place of a new node in an existing directory, or with ``replace`` of one of that type.

        Raise ``AlreadyExistsError`` when the name is taken.
        """
        if is_folder(path) or not parts(path):
            raise InputError(f"{path!r} names a directory, and a file is expected")
        place = self.place(path, start=start, follow=replace is not None)
        if not place.missing and place.node.file_type is replace:
            return place
        self._check_new(place, path)
        check_name(place.missing[0])
        return place

    def _check_new(self, place: Place, path: str) -> None:
        if not place.missing:
            raise AlreadyExistsError(f"{place.path} exists already", hint="remove it first, or choose another name")
        if len(place.missing) > 1:
            missing = Place(place.nodes, place.missing[:-1]).path
            raise NotFoundError(f"there is no directory {missing} for {path}", hint=f"pond mkdir -p {missing}")
        if place.node.file_type is not EntryType.DIRECTORY:
            raise ReadOnlyError(f"the directory {Place(place.nodes).path} is computed by a factory")

    def add(self, place: Place, name: str, file_type: EntryType, **values: Any) -> Place:
        """Make a node in the directory at a place."""
        node = Node(new_id(), place.node.node_id, check_name(name), file_type, txn_seq=self.txn_seq, **values)
        if place.node.file_type is EntryType.DYNAMIC:
            raise ReadOnlyError(f"the directory {Place(place.nodes).path} is computed by a factory")
        if self.children(place.node) is None:
            raise PathError(f"{place.path} is not a directory")
        self.backend.changes  # noqa: B018 (raises outside of a transaction)
        self.tree.put(node)
        return Place((*place.nodes, node))

    def put(self, place: Place, *rows: Node) -> Place:
        """Set the rows of the node at a place."""
        self.backend.changes  # noqa: B018 (raises outside of a transaction)
        self.tree.put(*rows)
        return Place((*place.nodes[:-1], rows[-1]))


class WD:
    """A directory to work in: the methods of :class:`FS` with paths that begin here."""

    def __init__(self, fs: FS, place: Place) -> None:
        self.fs = fs
        self.place = place

    @property
    def path(self) -> str:
        """The path of the directory."""
        return self.place.path

    def cd(self, path: str) -> WD:
        """Return another working directory."""
        found = self.fs.get(path, start=self.place)
        if not found.is_directory:
            raise InputError(f"{found.path} is not a directory")
        return WD(self.fs, found.place)

    def get(self, path: str) -> NodePath:
        """Return the node at a path."""
        return self.fs.get(path, start=self.place)

    def exists(self, path: str) -> bool:
        """Return whether there is a node at a path."""
        return self.fs.find(path, start=self.place) is not None

    def entries(self) -> list[NodePath]:
        """Return the nodes in the directory, by name."""
        return self.glob("*")

    def glob(self, pattern: str) -> list[NodePath]:
        """Return the nodes that a pattern names, with what its wildcards stand for."""
        return self.fs.glob(pattern, start=self.place)

    def read(self, path: str) -> bytes:
        """Return the bytes of a small file whole; see ``FS.read``."""
        return self.fs.read(self.get(path))

    def open(self, path: str) -> BinaryIO:
        """Return a file's bytes, open for reading at any position; see ``FS.open``."""
        return self.fs.open(self.get(path))

    def make_directory(self, path: str, *, parents: bool = False) -> NodePath:
        """Make a directory."""
        return self.fs.make_directory(path, parents=parents, start=self.place)

    def write_file(self, path: str, source: bytes | Readable, *, replace: bool = False) -> NodePath:
        """Make a file of bytes from bytes or a stream."""
        return self.fs.write_file(path, source, replace=replace, start=self.place)

    def make_link(self, path: str, target: str) -> NodePath:
        """Make a symbolic link."""
        return self.fs.make_link(path, target, start=self.place)


def _nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return a hint that names what was probably meant; an ending that names share, as ``.series``, tells nothing."""
    stem, dot, ending = name.rpartition(".")
    same = {each.rpartition(".")[0]: each for each in names if dot and each.rpartition(".")[2] == ending}
    found = nearest(stem, same) if same else None
    for short, whole in same.items():
        found = None if found is None else found.replace(f'"{short}"', f'"{whole}"')
    return found or nearest(name, [each for each in names if each not in same.values()])


def _next(old: Node, txn_seq: int, **values: Any) -> Node:
    """Return the next version of a node that is replaced."""
    fresh = Node(old.node_id, old.part_id, old.name, old.file_type)
    return replace(fresh, version=old.version + 1, txn_seq=txn_seq, **values)
