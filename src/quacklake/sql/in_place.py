"""Keep the text that a user wrote: replace table names in it, and name its columns.

DuckDB can also render a tree as text, but not quite the same text: constants lose their types, and columns without a
name get titles from the replaced names. So a query keeps its own text wherever only the names of tables and their
columns have to be replaced. The new text is parsed again, and used only if its tree is the expected one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from quacklake.errors import SqlError
from quacklake.format.names import fold, quote
from quacklake.sql import tree
from quacklake.sql.titles import Naming
from quacklake.sql.tree import Node
from quacklake.sql.words import Cursor, words_of

_CALLED = ("catalog", "schema", "function_name")
_NAMES = ("catalog_name", "schema_name", "table_name")


@dataclass(frozen=True, slots=True)
class _Edit:
    """A dotted name at the position that DuckDB reports, and its replacement."""

    location: int
    names: tuple[str, ...]
    text: str
    past: bool = False
    """True when AT (…) after the name and its alias is removed."""


def with_names(
    connection: duckdb.DuckDBPyConnection, sql: str, before: Node, after: Node, namings: Sequence[Naming] = ()
) -> str | None:
    """Return the text of ``before`` changed to mean ``after``, or None when more than names has changed.

    ``namings`` are the columns of ``after`` that get an alias.
    """
    edits: list[_Edit] = []
    try:
        if not _compare(before, after, edits) or any(naming.end is None for naming in namings):
            return None
        aliases = [(naming.end or 0, f" AS {quote(naming.title)}") for naming in namings]
        for naming in namings:
            naming.item["alias"] = naming.title
        text = _edited(sql, edits, aliases)
        if text is None or tree.bare(tree.parse(connection, text)) != tree.bare(after):
            return None
    except SqlError:
        return None
    return text


def _compare(before: Any, after: Any, edits: list[_Edit]) -> bool:
    """Collect the names that differ. Return False when anything else differs."""
    if isinstance(before, list):
        return (
            isinstance(after, list)
            and len(before) == len(after)
            and all(_compare(old, new, edits) for old, new in zip(before, after, strict=True))
        )
    if not isinstance(before, dict) or not isinstance(after, dict):
        return bool(before == after)
    if before.get("type") == after.get("type") == "BASE_TABLE":
        named, instead = (tuple(node[key] for key in _NAMES if node.get(key)) for node in (before, after))
        if named == instead:
            return bool(before == after)
        text = ".".join(map(quote, instead)) + ("" if before["alias"] else f" AS {quote(after['alias'])}")
        edits.append(_Edit(before["query_location"], named, text, before.get("at_clause") is not None))
        return True
    if before.get("class") == after.get("class") == "COLUMN_REF":
        if before["column_names"] != after["column_names"]:
            text = ".".join(map(quote, after["column_names"]))
            edits.append(_Edit(before["query_location"], tuple(before["column_names"]), text))
        return bool(before["alias"] == after["alias"])
    if before.get("type") == after.get("type") == "FUNCTION":
        called, instead = (tuple(node[key] for key in _CALLED if node.get(key)) for node in (before, after))
        if called != instead:
            edits.append(_Edit(before["query_location"], called, ".".join(map(quote, instead))))
            before, after = ({**node, **dict.fromkeys(_CALLED, "")} for node in (before, after))
    return before.keys() == after.keys() and all(
        key in tree.PLACES or _compare(old, after[key], edits) for key, old in before.items()
    )


def _edited(sql: str, edits: list[_Edit], aliases: list[tuple[int, str]]) -> str | None:
    """Return the text with its edits, and with an alias at each of these places."""
    words = words_of(sql)
    if not words or words[-1].end != len(sql):
        return None  # a comment at the end would swallow the text that is appended to the query
    starts = {len(sql[: word.start].encode()): number for number, word in enumerate(words)}
    changes = [(end, end, alias) for end, alias in aliases]
    for edit in edits:
        number = starts.get(edit.location)
        if number is None:
            return None
        cursor = Cursor(sql, words)
        cursor.at = number
        names = cursor.names()
        start, end = words[number].start, words[cursor.at - 1].end
        if [fold(name) for name in names] != [fold(name) for name in edit.names]:
            return None
        changes.append((start, end, edit.text))
        if edit.past:
            cursor.until("AT")
            if not cursor.sees("AT", "(") or cursor.at - number > len(names) * 2 + 2:
                return None
            start = cursor.words[cursor.at].start
            cursor.take()
            cursor.skip_group()
            changes.append((start, words[cursor.at - 1].end, ""))
    parts: list[str] = []
    done = 0
    for start, end, replacement in sorted(changes):
        if start < done:
            return None
        parts += [sql[done:start], replacement]
        done = end
    return "".join([*parts, sql[done:]])


# -- qualified names ---------------------------------------------------------------------------------------------------
# A temporary relation has neither the schema nor the catalog of its table. So ``main.t.id`` becomes ``t.id``, or, where
# another relation is called ``t`` too, the name of an alias that nothing else has.


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
