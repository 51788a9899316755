"""The tree as data in memory: nodes by id and by name, walks along paths and patterns. No input or output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from quacklake.errors import InputError, PathError
from quacklake.pond.nodes import ROOT_ID, TARGET, EntryType, Node
from quacklake.pond.paths import ROOT, join, parts
from quacklake.pond.patterns import Part

_MAX_LINKS = 40
"""Links that one path may follow before it counts as a loop, as on Linux."""


class Tree:
    """The nodes of a pond. Changes are made in place; :attr:`before` keeps the rows of each node that was touched."""

    def __init__(self, rows: Iterable[Node] = ()) -> None:
        self._rows: dict[str, tuple[Node, ...]] = {}
        self._names: dict[str, dict[str, str]] = {}
        self.before: dict[str, tuple[Node, ...]] = {}
        by_id: dict[str, list[Node]] = {}
        for row in rows:
            by_id.setdefault(row.node_id, []).append(row)
        for node_id, versions in by_id.items():
            versions.sort(key=lambda row: row.version)
            self._link(node_id, tuple(versions))

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._rows

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the newest version of every node."""
        return (rows[-1] for rows in self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def root(self) -> Node:
        """The root directory."""
        return self.get(ROOT_ID)

    def get(self, node_id: str) -> Node:
        """Return the newest version of a node."""
        return self._rows[node_id][-1]

    def versions(self, node_id: str) -> tuple[Node, ...]:
        """Return every row of a node, oldest first: one, or for a series one for each version."""
        return self._rows.get(node_id, ())

    def child(self, directory: str, name: str) -> Node | None:
        """Return the node of a name in a directory, or None."""
        found = self._names.get(directory, {}).get(name)
        return None if found is None else self.get(found)

    def children(self, directory: str) -> dict[str, Node]:
        """Return the nodes in a directory by name, in the order of the names."""
        return {name: self.get(each) for name, each in sorted(self._names.get(directory, {}).items())}

    def path(self, node_id: str) -> str:
        """Return the path of a node."""
        names: list[str] = []
        node = self.get(node_id)
        while not node.is_root:
            names.append(node.name)
            node = self.get(node.part_id)
        return ROOT + "/".join(reversed(names))

    def below(self, node_id: str) -> list[Node]:
        """Return a node and everything below it, parents first."""
        found, pending = [], [node_id]
        while pending:
            current = pending.pop()
            found.append(self.get(current))
            pending.extend(self._names.get(current, {}).values())
        return found

    def touched(self) -> Iterator[tuple[tuple[Node, ...], tuple[Node, ...]]]:
        """Yield the rows before and now of each node that was changed."""
        for node_id, rows in self.before.items():
            now = self.versions(node_id)
            if rows != now:
                yield rows, now

    # -- changes -------------------------------------------------------------------------------------------------------

    def put(self, *rows: Node) -> None:
        """Set the rows of one node, new or not."""
        node_id = rows[0].node_id
        self._note(node_id)
        self._unlink(node_id)
        self._link(node_id, rows)

    def remove(self, node_id: str) -> None:
        """Remove one node, which has nothing below it."""
        self._note(node_id)
        self._unlink(node_id)
        self._rows.pop(node_id)
        self._names.pop(node_id, None)

    def _note(self, node_id: str) -> None:
        self.before.setdefault(node_id, self._rows.get(node_id, ()))

    def _link(self, node_id: str, rows: tuple[Node, ...]) -> None:
        self._rows[node_id] = rows
        if node_id != ROOT_ID:
            self._names.setdefault(rows[-1].part_id, {})[rows[-1].name] = node_id

    def _unlink(self, node_id: str) -> None:
        rows = self._rows.get(node_id)
        if rows is not None and node_id != ROOT_ID:
            self._names.get(rows[-1].part_id, {}).pop(rows[-1].name, None)


# -- walks -------------------------------------------------------------------------------------------------------------

Children = Callable[[Node], "Mapping[str, Node] | None"]
"""Gives the nodes in a directory by name, computed ones too; None for any other node."""


@dataclass(frozen=True, slots=True)
class Place:
    """The end of a path: the nodes from the root on, and the names at its end that do not exist."""

    nodes: tuple[Node, ...]
    missing: tuple[str, ...] = ()

    @property
    def node(self) -> Node:
        """The last node that exists."""
        return self.nodes[-1]

    @property
    def path(self) -> str:
        """The path without links and dots."""
        return ROOT + "/".join([*(node.name for node in self.nodes[1:]), *self.missing])


def walk(path: str, start: Place, children: Children, *, follow: bool = True) -> Place:
    """Follow a path from a place, and links on its way; the last name is followed if ``follow`` is true.

    Raise ``PathError`` for a path that leads above the root, or a loop of links, and ``InputError`` for one that goes
    through a file. A path that ends with a slash is followed in any case.
    """
    pending = deque(parts(path))
    nodes = [start.nodes[0]] if path.startswith(ROOT) else list(start.nodes)
    follow = follow or path.endswith("/")
    links = 0
    while pending:
        name = pending.popleft()
        if name == "..":
            if len(nodes) == 1:
                raise PathError(f"the path {path!r} leads out of the pond", hint="/ is the top")
            nodes.pop()
            continue
        inside = children(nodes[-1])
        if inside is None:
            raise InputError(f"{Place(tuple(nodes)).path} is not a directory", hint=f"{path} goes through it")
        child = inside.get(name)
        if child is None:
            if ".." in pending:
                raise PathError(f"the path {path!r} leaves {name!r}, which does not exist")
            return Place(tuple(nodes), (name, *pending))
        if child.file_type is EntryType.SYMLINK and (pending or follow):
            links += 1
            if links > _MAX_LINKS:
                raise PathError(f"the links of {path!r} lead in a circle", hint="`pond list` shows where links lead")
            target = str(child.attribute(TARGET))
            if target.startswith(ROOT):
                nodes = nodes[:1]
            pending.extendleft(reversed(parts(target)))
        else:
            nodes.append(child)
    return Place(tuple(nodes))


def matches(
    pattern: tuple[Part, ...], start: Place, children: Children, follow: Callable[[Place, str], Place]
) -> Iterator[tuple[Place, tuple[str, ...]]]:
    """Yield the places that a pattern names, with what its wildcards stand for.

    ``**`` does not go through links, so that it ends; a name of the pattern does. ``follow`` returns where a name of a
    directory leads.
    """
    seen: set[tuple[str, tuple[str, ...]]] = set()
    pending: list[tuple[int, Place, tuple[str, ...], tuple[str, ...]]] = [(0, start, (), ())]
    while pending:
        at, place, captured, through = pending.pop()
        if at == len(pattern):
            if (place.path, captured) not in seen:
                seen.add((place.path, captured))
                yield place, captured
            continue
        inside = children(place.node)
        if inside is None:
            continue
        part, last = pattern[at], at + 1 == len(pattern)
        if part.any_depth:
            steps = [
                (at, Place((*place.nodes, child)), captured, (*through, name))
                for name, child in inside.items()
                if children(child) is not None
            ]
            here = (*captured, "/".join(through))
            if last:  # everything below
                steps += [
                    (at + 1, Place((*place.nodes, child)), (*captured, "/".join((*through, name))), ())
                    for name, child in inside.items()
                ]
            else:
                steps.append((at + 1, place, here, ()))
            pending.extend(reversed(steps))
            continue
        for name in sorted(inside, reverse=True):
            found = part.match(name)
            if found is None:
                continue
            child = inside[name]
            is_link = child.file_type is EntryType.SYMLINK
            target = follow(place, join(".", name)) if is_link and not last else Place((*place.nodes, child))
            if not target.missing:
                pending.append((at + 1, target, (*captured, *found), ()))
