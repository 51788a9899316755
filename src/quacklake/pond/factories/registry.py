"""Factories compute nodes: directories, tables and series that exist while somebody looks at them.

A factory is a class with a name, registered here by :func:`register`. Its options are the YAML that ``pond mknod`` and
``pond apply`` keep in the node; :meth:`Factory.check` refuses wrong ones before the node is made.

A factory of another package is an entry point of the group ``quacklake.pond_factories``: its name is that of the
factory, and its module registers the factory when it is imported. It is imported when the factory is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from uuid import NAMESPACE_URL, uuid5

from quacklake.errors import ConfigError, NotFoundError, nearest
from quacklake.plugins import find_plugins, load_plugin
from quacklake.pond.nodes import CONFIG, FACTORY, EntryType, Node

if TYPE_CHECKING:
    from quacklake.pond.fs import FS
    from quacklake.pond.queries import Relations


class Factory(ABC):
    """Computes nodes of one kind."""

    name: ClassVar[str]
    description: ClassVar[str]
    kind: ClassVar[EntryType]
    """The type that its nodes have for readers: a directory, a table, a series or a file."""
    is_internal: ClassVar[bool] = False
    """True for a factory that only other factories use."""
    resource: ClassVar[str | None] = None
    """The kind of the resources in YAML that describe its nodes, for a collector of another package."""

    @abstractmethod
    def check(self, config: Mapping[str, Any]) -> None:
        """Raise ``ConfigError`` for options that this factory does not take."""


class DirectoryFactory(Factory):
    """Computes a directory."""

    kind = EntryType.DIRECTORY

    @abstractmethod
    def entries(self, config: Mapping[str, Any]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Return the nodes in the directory: each name with its factory and its options."""

    def entries_in(self, fs: FS, config: Mapping[str, Any]) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Return the nodes in the directory as :meth:`entries` does, for a factory that has to look at the tree."""
        return self.entries(config)


class RowsFactory(Factory):
    """Computes the rows of a table or a series."""

    @abstractmethod
    def define(self, relations: Relations, schema: str, config: Mapping[str, Any]) -> str:
        """Create what the query needs in a schema of its own, and return the query, as SQL in that schema."""


_PLUGINS = "quacklake.pond_factories"
_FACTORIES: dict[str, Factory] = {}
F = TypeVar("F", bound=type[Factory])


def register(factory: F) -> F:
    """Make a factory known by its name; also a decorator."""
    _FACTORIES[factory.name] = factory()
    return factory


def _load_collectors() -> None:
    """Register the collectors, which need the pond itself and are loaded when one is first looked for."""
    import quacklake.pond.collectors.registered  # noqa: F401


def load_all() -> dict[str, ConfigError]:
    """Register every factory, and return the errors of those that cannot be loaded, by name."""
    _load_collectors()
    failed = {}
    for entry in find_plugins(_PLUGINS):
        if entry.name not in _FACTORIES:
            try:
                load_plugin(entry)
            except ConfigError as error:
                failed[entry.name] = error
    return failed


def factories() -> list[Factory]:
    """Return every factory that can be loaded, by name."""
    load_all()
    return [_FACTORIES[name] for name in sorted(_FACTORIES) if not _FACTORIES[name].is_internal]


def find(name: str) -> Factory:
    """Return a factory.

    Raise ``NotFoundError`` that suggests another name, and ``ConfigError`` when the package that brings the factory
    cannot be loaded.
    """
    found = _find(name)
    if found is None:
        hint = nearest(name, _FACTORIES) or "`pond list-factories` lists those that are installed"
        raise NotFoundError(f"there is no factory {name!r}", hint=hint)
    return found


def _find(name: str) -> Factory | None:
    if name not in _FACTORIES:
        _load_collectors()
    if name not in _FACTORIES:
        for entry in find_plugins(_PLUGINS):
            if entry.name == name:
                load_plugin(entry)
    return _FACTORIES.get(name)


def factory_of(node: Node) -> Factory:
    """Return the factory of a dynamic node. Raise ``NotFoundError`` or ``ConfigError`` if its package is missing."""
    name = str(node.attribute(FACTORY))
    found = _find(name)
    if found is None:
        raise NotFoundError(
            f"{node.name} needs the factory {name!r}, which is not installed",
            hint="a package beside Quacklake brings it: install that package",
        )
    return found


def looks_like(node: Node) -> EntryType:
    """Return what a node is to its readers: for a dynamic node what its factory makes, else its type.

    A node whose factory is missing can be listed, and be computed or run where the package of its factory is.
    """
    if node.file_type is not EntryType.DYNAMIC:
        return node.file_type
    try:
        return factory_of(node).kind
    except (NotFoundError, ConfigError):
        return EntryType.DYNAMIC


def computed_children(fs: FS, node: Node) -> dict[str, Node]:
    """Return the nodes of a dynamic directory by name. Their ids are the same each time."""
    factory = factory_of(node)
    assert isinstance(factory, DirectoryFactory)
    found = {}
    for name, (kind, config) in sorted(factory.entries_in(fs, node.attribute(CONFIG) or {}).items()):
        found[name] = Node(
            node_id=str(uuid5(NAMESPACE_URL, f"pond:{node.node_id}/{name}")),
            part_id=node.node_id,
            name=name,
            file_type=EntryType.DYNAMIC,
            version=node.version,
            timestamp=node.timestamp,
            extended_attributes={FACTORY: kind, CONFIG: dict(config)},
            txn_seq=node.txn_seq,
        )
    return found
