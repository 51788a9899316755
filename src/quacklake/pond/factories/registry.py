"""Factories compute nodes: directories, tables and series that exist while somebody looks at them.

A factory is a class with a name, registered here by :func:`register`. Its options are the YAML that ``pond mknod`` and
``pond apply`` keep in the node; :meth:`Factory.check` refuses wrong ones before the node is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from uuid import NAMESPACE_URL, uuid5

from quacklake.errors import NotFoundError, nearest
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


_FACTORIES: dict[str, Factory] = {}
F = TypeVar("F", bound=type[Factory])


def register(factory: F) -> F:
    """Make a factory known by its name; also a decorator."""
    _FACTORIES[factory.name] = factory()
    return factory


def _load_collectors() -> None:
    """Register the collectors, which need the pond itself and are loaded when one is first looked for."""
    import quacklake.pond.collectors.registered  # noqa: F401


def factories() -> list[Factory]:
    """Return every factory, by name."""
    _load_collectors()
    return [_FACTORIES[name] for name in sorted(_FACTORIES) if not _FACTORIES[name].is_internal]


def find(name: str) -> Factory:
    """Return a factory. Raises ``NotFoundError`` that suggests another name."""
    if name not in _FACTORIES:
        _load_collectors()
    found = _FACTORIES.get(name)
    if found is None:
        hint = nearest(name, _FACTORIES) or "`pond list-factories` shows those there are"
        raise NotFoundError(f"there is no factory {name!r}", hint=hint)
    return found


def factory_of(node: Node) -> Factory:
    """Return the factory of a dynamic node."""
    return find(str(node.attribute(FACTORY)))


def looks_like(node: Node) -> EntryType:
    """Return what a node is to its readers: for a dynamic node what its factory makes, else its type."""
    return factory_of(node).kind if node.file_type is EntryType.DYNAMIC else node.file_type


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
