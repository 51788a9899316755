"""The storage of a pond's tree and contents.

The lake is in a folder, a database or an object store, or in memory for tests: nothing above knows which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from quacklake import telemetry
from quacklake.errors import CorruptFileError, NotFoundError, ReadOnlyError
from quacklake.extend.names import literal
from quacklake.lake.lake import LakeTransaction
from quacklake.pond.large_files import LargeFiles
from quacklake.pond.nodes import (
    COLUMNS,
    NODES,
    SCHEMA,
    WITHOUT_CONTENT,
    EntryType,
    Node,
    attributes_text,
    from_arrow,
    root,
    to_arrow,
)
from quacklake.pond.paths import DATA_SCHEMA
from quacklake.pond.tree import Tree

if TYPE_CHECKING:
    from quacklake.lake.writing import LakeReader
    from quacklake.pond.mounts import Mounts

STATE = "pond.state"
"""The table with the number of the last transaction. Every one replaces its rows, so two at once cannot both commit."""


@dataclass
class Backend:
    """Keeps a pond in a lake, at one state or in one transaction: the tree is the table ``pond.nodes``."""

    lake: LakeReader
    large_files: LargeFiles
    mounts: Mounts | None = None

    @property
    def changes(self) -> LakeTransaction:
        """The open transaction. Raise ``ReadOnlyError`` when there is none."""
        if not isinstance(self.lake, LakeTransaction):
            raise ReadOnlyError("this state of the pond is read-only", hint="use pond.transaction(…)")
        return self.lake

    def load(self) -> Tree:
        """Return the tree, without contents."""
        with telemetry.timed("pond.load"):
            return Tree(self._nodes(None))

    def nodes_named(self, names: Sequence[str]) -> list[Node]:
        """Return every version of the root and of the nodes that have one of these names, in any directory."""
        return self._nodes(f"name IN ({', '.join(map(literal, ['', *names]))})")

    def nodes_in(self, directory: Node) -> list[Node]:
        """Return every version of the nodes in a directory."""
        return self._nodes(f"part_id = {literal(directory.node_id)}")

    def _nodes(self, where: str | None) -> list[Node]:
        return list(from_arrow(self.lake.table(NODES).scan(WITHOUT_CONTENT, where).to_arrow()))

    def content(self, node: Node) -> bytes:
        """Return the bytes of a small file."""
        where = f"node_id = {literal(node.node_id)} AND version = {node.version}"
        found = self.lake.table(NODES).scan(["content"], where).to_arrow().column("content").to_pylist()
        if not found or found[0] is None:
            raise CorruptFileError(f"the node {node.node_id} has no content", hint="run `pond verify`")
        content: bytes = found[0]
        return content

    def save(self, tree: Tree) -> Changes:
        """Write what was changed in the tree, and return it."""
        changes = Changes.of(tree)
        table = self.changes.table(NODES)
        if changes.ended:
            table.delete(" OR ".join(f"(node_id = {literal(id_)} AND version = {v})" for id_, v in changes.ended))
        for node in changes.altered:
            values = {
                "part_id": node.part_id,
                "name": node.name,
                "extended_attributes": attributes_text(node.extended_attributes),
                "txn_seq": node.txn_seq,
            }
            table.update(values, f"node_id = {literal(node.node_id)} AND version = {node.version}")
        if changes.added:
            table.append(to_arrow(changes.added))
        telemetry.count("pond.nodes.written", sum(changes.counts.values()))
        return changes


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows of the tree that a transaction ends, alters in place, and adds."""

    ended: tuple[tuple[str, int], ...]
    altered: tuple[Node, ...]
    added: tuple[Node, ...]

    @classmethod
    def of(cls, tree: Tree) -> Changes:
        """Return the difference between a tree and what it was."""
        ended: list[tuple[str, int]] = []
        altered: list[Node] = []
        added: list[Node] = []
        for before, now in tree.touched():
            old, new = {row.key: row for row in before}, {row.key: row for row in now}
            ended += [key for key in old if key not in new]
            altered += [row for key, row in new.items() if key in old and row != old[key]]
            added += [row for key, row in new.items() if key not in old]
        return cls(tuple(ended), tuple(altered), tuple(added))

    def __bool__(self) -> bool:
        return bool(self.ended or self.altered or self.added)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of rows."""
        return {"added": len(self.added), "changed": len(self.altered), "removed": len(self.ended)}


def create(tx: LakeTransaction, txn_seq: int) -> None:
    """Make the tables of a new pond, with its root directory."""
    for schema in ("pond", DATA_SCHEMA):
        tx.create_schema(schema)
    tx.create_table(NODES, dict(COLUMNS))
    tx.create_table(STATE, {"txn_seq": "BIGINT NOT NULL"})
    tx.table(STATE).append([{"txn_seq": txn_seq}])
    tx.table(NODES).append(to_arrow([root(txn_seq)]))


def exists(lake: LakeReader) -> bool:
    """Return whether a lake is a pond."""
    return NODES in lake


def missing() -> NotFoundError:
    """Return the error for a lake that is not a pond."""
    return NotFoundError("Pond does not exist. Run 'pond init' first.")


def last_sequence(lake: LakeReader) -> int:
    """Return the number of the last transaction. Raise ``NotFoundError`` when the lake is not a pond."""
    try:
        numbers = lake.table(STATE).to_arrow().column("txn_seq")
    except NotFoundError:
        raise missing() from None
    return max(numbers.to_pylist(), default=0)


def advance(tx: LakeTransaction, txn_seq: int) -> None:
    """Let a number be that of the last transaction. Two transactions that do so from the same state conflict.

    The numbers of commands that failed meanwhile are no lower, and so they do not conflict.
    """
    tx.table(STATE).overwrite(pa.table({"txn_seq": [txn_seq]}), f"txn_seq <= {txn_seq - 1:d}")


def contents(lake: LakeReader) -> Iterable[Node]:
    """Return every small file with its content, in batches of bounded size."""
    scan = lake.table(NODES).scan(SCHEMA.names, f"file_type = {literal(EntryType.DATA)} AND content IS NOT NULL")
    return (node for batch in scan.to_batches(64) for node in from_arrow(batch))
