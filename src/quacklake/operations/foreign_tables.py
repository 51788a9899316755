"""Tables of other formats as data: their columns, the files of one version, and the rows deleted from each."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa

from quacklake.errors import SchemaMismatchError, UnsupportedFeatureError
from quacklake.format.names import fold
from quacklake.format.schema import Column, TableSchema
from quacklake.operations.add_files import Node, Nodes

#: Returns the deleted positions of a file, ascending, as ``int64``; it takes the number of rows of the file.
Deleted = Callable[[int], pa.Array]


@dataclass(frozen=True, slots=True)
class ForeignField:
    """A column of a foreign table, or a node inside one; files have it under ``id`` or one of the ``names``."""

    name: str
    type: str
    nullable: bool = True
    id: int | None = None
    names: tuple[str, ...] = ()
    children: tuple[ForeignField, ...] = ()

    def column(self, ids: Iterator[int], *, top: bool = True) -> Column:
        """Return the column of a lake; nodes inside nested columns are always nullable there."""
        id_ = next(ids)
        children = tuple(child.column(ids, top=False) for child in self.children)
        return Column(id_, self.name, self.type, self.nullable or not top, children=children)


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A Parquet file of a foreign table; ``values`` are those of columns that are not in it, by name, as texts."""

    url: str
    values: Mapping[str, str | None] = field(default_factory=dict)
    deleted: Deleted | None = None


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """One version of a foreign table.

    ``id`` is what its format gives a table when it is made, ``source`` what the user calls it, ``location`` its folder.
    ``folders`` are the columns that are not in the files, each with the name it has in the names of folders. ``by_id``
    says that columns of files are found by field ids, as long as a file has any.
    """

    source: str
    location: str
    id: str
    version: int
    fields: tuple[ForeignField, ...]
    files: tuple[ForeignFile, ...]
    folders: Mapping[str, str] = field(default_factory=dict)
    by_id: bool = False

    def schema(self, first_id: int = 1) -> TableSchema:
        """Return the columns of a lake's table, with ids from ``first_id``."""
        ids = itertools.count(first_id)
        return TableSchema(tuple(each.column(ids) for each in self.fields))

    def fingerprint(self) -> str:
        """Return a text that is another one when files have to be read in another way."""
        facts = [[asdict(each) for each in self.fields], dict(self.folders), self.by_id]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def rename(self, url: str, nodes: Nodes) -> Nodes:
        """Give the columns of a file their present names, and leave out others. Raises ``UnsupportedFeatureError``."""
        by_id = self.by_id and _has_ids(nodes)
        if self.by_id and not by_id and not any(each.names for each in self.fields):
            raise UnsupportedFeatureError(
                f'File "{url}" has no field ids, and the table no name mapping', hint="append the rows instead"
            )
        return self._renamed(url, nodes, self.fields, by_id=by_id)

    def _renamed(self, url: str, nodes: Nodes, fields: Sequence[ForeignField], *, by_id: bool) -> Nodes:
        known: dict[object, ForeignField] = (
            {each.id: each for each in fields if each.id is not None}
            if by_id
            else {fold(name): each for each in fields for name in each.names}
        )
        found = []
        for node in nodes:
            match = known.get(node.field_id if by_id else fold(node.stored))
            if match is not None:
                found.append(self._inside(url, replace(node, name=match.name), match, by_id=by_id))
        return tuple(found)

    def _inside(self, url: str, node: Node, match: ForeignField, *, by_id: bool) -> Node:
        if node.kind != match.type or not match.children:
            return node  # a leaf, or of another type, which mapping refuses
        if node.kind != "struct":
            pairs = zip(node.children, match.children, strict=True)
            return replace(node, children=tuple(self._inside(url, child, each, by_id=by_id) for child, each in pairs))
        children = self._renamed(url, node.children, match.children, by_id=by_id)
        if not children:
            raise SchemaMismatchError(
                f'File "{url}" has none of the present fields of "{match.name}", so that its NULLs are not known',
                hint="rewrite the file with the engine that owns the table, or append the rows instead",
            )
        return replace(node, children=children)


def _has_ids(nodes: Nodes) -> bool:
    return any(node.field_id is not None or _has_ids(node.children) for node in nodes)
