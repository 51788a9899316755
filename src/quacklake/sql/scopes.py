"""Resolve qualified names in a query, once the tables of lakes are temporary relations.

A temporary relation has neither the schema nor the catalog of its table. So ``main.t.id`` becomes ``t.id``, or, where
another relation of the statement is called ``t`` too, the name of an alias that nothing else has. Names are looked up
as in DuckDB: in the innermost query block first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quacklake.errors import SqlError
from quacklake.format.names import fold
from quacklake.sql.tree import Node


@dataclass(frozen=True, slots=True)
class Mention:
    """A table of a lake in FROM without an alias: its node, and the names that refer to it."""

    node: Node
    catalog: str
    schema: str
    name: str

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The qualified names that refer to the table, the longest first."""
        return (self.catalog, self.schema, self.name), (self.schema, self.name), (self.catalog, self.name)


@dataclass(slots=True)
class _Relation:
    node: Node
    alias: str
    mention: Mention | None
    renamed: bool = False

    def matched(self, names: Sequence[str]) -> int:
        """Return how many of the leading names refer to this relation; 0 when they refer to another, or to a column."""
        for path in self.mention.paths if self.mention is not None else ():
            if tuple(names[: len(path)]) == path:
                return len(path)
        return int(bool(self.alias) and names[0] == self.alias)


_Scopes = tuple[list[_Relation], ...]


def settle_names(parsed: Node, mentions: Iterable[Mention]) -> None:
    """Rewrite names that qualify a table by schema or catalog."""
    found = _Names({id(mention.node): mention for mention in mentions})
    found.visit(parsed, ())
    found.rewrite()


class _Names:
    def __init__(self, mentions: Mapping[int, Mention]) -> None:
        self._mentions = mentions
        self._relations: list[_Relation] = []
        self._columns: list[tuple[Node, _Relation, int]] = []
        self._stars: list[tuple[Node, _Relation]] = []

    def visit(self, node: Any, scopes: _Scopes) -> None:
        """Note which relation each name refers to."""
        if isinstance(node, list):
            for item in node:
                self.visit(item, scopes)
            return
        if not isinstance(node, dict):
            return
        self.visit((node.get("cte_map") or {}).get("map"), scopes)
        if node.get("type") == "SELECT_NODE":
            relations = []
            for item in _leaves(node["from_table"]):
                called = (item.get("function") or {}).get("function_name")
                alias = fold(item.get("alias") or item.get("table_name") or called or "")
                relations.append(_Relation(item, alias, self._mentions.get(id(item))))
            self._relations += relations
            scopes = (relations, *scopes)
        if node.get("class") == "COLUMN_REF":
            names = [fold(name) for name in node["column_names"]]
            relation = _find(scopes, names)
            if relation is not None:
                self._columns.append((node, relation, relation.matched(names)))
        elif node.get("class") == "STAR" and node.get("relation_name"):
            relation = _find(scopes, [fold(node["relation_name"])])
            if relation is not None:
                self._stars.append((node, relation))
        for key, value in node.items():
            if key != "cte_map":
                self.visit(value, scopes)

    def rewrite(self) -> None:
        """Give relations that share an alias new ones where names would be ambiguous, and update all names."""
        aliases = Counter(relation.alias for relation in self._relations)
        # aliases that several tables share which the user wrote without an alias
        own = Counter(relation.alias for relation in self._relations if relation.mention is not None)
        qualified = {relation.alias for _, relation, length in self._columns if length > 1}
        qualified |= {alias for alias, count in own.items() if count > 1}
        number = 0
        for relation in self._relations:
            if relation.mention is not None and aliases[relation.alias] > 1 and relation.alias in qualified:
                number += 1
                relation.renamed = True
                relation.node["alias"] = f"_ql_r{number}"
        for node, relation, length in self._columns:
            if relation.renamed or length > 1:
                first = relation.node["alias"] if relation.renamed else node["column_names"][length - 1]
                node["column_names"] = [first, *node["column_names"][length:]]
        for node, relation in self._stars:
            if relation.renamed:
                node["relation_name"] = relation.node["alias"]


def _find(scopes: _Scopes, names: Sequence[str]) -> _Relation | None:
    """Return the only match in the innermost query block that has a match."""
    for relations in scopes:
        lengths = [(relation.matched(names), relation) for relation in relations]
        longest = max((length for length, _ in lengths), default=0)
        found = [relation for length, relation in lengths if length == longest]
        if longest and len(found) == 1:
            return found[0]
        if longest and len(names) > longest and any(relation.mention is not None for relation in found):
            raise SqlError(f'Binder Error: Ambiguous reference to table "{names[longest - 1]}"', hint="name its schema")
        if longest:
            return None
    return None


def _leaves(source: Node | None) -> Iterator[Node]:
    """Yield the relations of a FROM clause."""
    if source is None:
        return
    if source.get("type") == "JOIN":
        yield from _leaves(source["left"])
        yield from _leaves(source["right"])
    else:
        yield source
