"""Keep the text that a user wrote: replace table names in it, and name its columns.

DuckDB can also render a tree as text, but not quite the same text: constants lose their types, and columns without a
name get titles from the replaced names. So a query keeps its own text wherever only the names of tables and their
columns have to be replaced. The new text is parsed again, and used only if its tree is the expected one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from quacklake.errors import SqlError
from quacklake.format.names import fold, quote
from quacklake.sql import tree
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


def with_names(connection: duckdb.DuckDBPyConnection, sql: str, before: Node, after: Node) -> str | None:
    """Return the text of ``before`` changed to mean ``after``, or None when more than names has changed."""
    edits: list[_Edit] = []
    try:
        if not _compare(before, after, edits):
            return None
        text = _edited(sql, edits)
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


def _edited(sql: str, edits: list[_Edit]) -> str | None:
    words = words_of(sql)
    if not words or words[-1].end != len(sql):
        return None  # a comment at the end would swallow the text that is appended to the query
    starts = {len(sql[: word.start].encode()): number for number, word in enumerate(words)}
    parts: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.location):
        number = starts.get(edit.location)
        if number is None:
            return None
        cursor = Cursor(sql, words)
        cursor.at = number
        names = cursor.names()
        start, end = words[number].start, words[cursor.at - 1].end
        if [fold(name) for name in names] != [fold(name) for name in edit.names] or start < done:
            return None
        parts += [sql[done:start], edit.text]
        done = end
        if edit.past:
            cursor.until("AT")
            if not cursor.sees("AT", "(") or cursor.at - number > len(names) * 2 + 2:
                return None
            parts.append(sql[done : cursor.words[cursor.at].start])
            cursor.take()
            cursor.skip_group()
            done = words[cursor.at - 1].end
    return "".join([*parts, sql[done:]])


# -- titles ------------------------------------------------------------------------------------------------------------

_SCALE = re.compile(r"(\bDECIMAL\(\d+),(\d+\))")
_SPACED_SCALE = re.compile(r"\bDECIMAL\(\d+, \d+\)")
_INFINITE = "_ql_infinite"


@dataclass(frozen=True, slots=True)
class Title:
    """The text of an expression as the user wrote it, and as it runs."""

    written: str
    run: str

    def of(self, given: str) -> str:
        """Return the title, where ``given`` is the title in the text that runs.

        DuckDB writes a type as it was parsed, with or without quotes, and ``DECIMAL(9, 2)`` with a space. The tree does
        not show the difference.
        """
        words, others = words_of(self.run), words_of(given)
        if len(words) != len(others):
            return self.written
        quoted = {word.text for word, other in zip(words, others, strict=True) if other.text == f'"{word.text}"'}
        pattern = r"\bAS (" + "|".join(map(re.escape, sorted(quoted))) + r")\b"
        written = re.sub(pattern, r'AS "\1"', self.written) if quoted else self.written
        return _SCALE.sub(r"\1, \2", written) if _SPACED_SCALE.search(given) else written


def retitled(schema: pa.Schema, found: Mapping[int, Title]) -> pa.Schema:
    """Return the schema of a result with the titles of ``titles``."""
    fields = [
        field.with_name(found[place].of(field.name)) if place in found else field for place, field in enumerate(schema)
    ]
    return pa.schema(fields, metadata=schema.metadata)


def titles(connection: duckdb.DuckDBPyConnection, before: Node, after: Node, *, rendered: bool) -> Mapping[int, Title]:
    """Return the titles of columns, by position, that the text that runs would name differently.

    ``before`` is the tree of the user's text, ``after`` the tree that runs. ``rendered`` says that DuckDB rendered the
    text, in which constants look different too.
    """
    old, new = _first_select(before["node"]), _first_select(after["node"])
    if old is None or new is None or len(old["select_list"]) != len(new["select_list"]):
        return {}
    found: dict[int, Title] = {}
    for place, (item, other) in enumerate(zip(old["select_list"], new["select_list"], strict=True)):
        if any(node.get("class") == "STAR" for node in tree.nodes(item)):
            break  # the number of columns is unknown
        if item["alias"] or other["alias"] or not (rendered or item != other):
            continue
        plain = item.get("class") == "COLUMN_REF"
        written = item["column_names"][-1] if plain else _text(connection, item)
        found[place] = Title(written, "" if plain else _text(connection, other, rendered=rendered))
    return found


def _first_select(node: Node) -> Node | None:
    """Return the query block that names the columns."""
    while node.get("type") == "SET_OPERATION_NODE":
        children = node.get("children")
        node = children[0] if children else node["left"]
    return node if node.get("type") == "SELECT_NODE" else None


def _text(connection: duckdb.DuckDBPyConnection, item: Node, *, rendered: bool = False) -> str:
    query = tree.query_of(connection, item if rendered else _finite(item))
    text = tree.render(connection, query) if rendered else tree.written(connection, query)
    return text.removeprefix("SELECT ").replace(_INFINITE, "1e1000")


def _finite(node: Any) -> Any:
    """Return a tree with a name in place of numbers like 1e400, which DuckDB does not read from a tree."""
    if isinstance(node, list):
        return [_finite(item) for item in node]
    if not isinstance(node, dict):
        return node
    value = node["value"].get("value") if node.get("class") == "CONSTANT" and "value" in node else None
    if isinstance(value, float) and not math.isfinite(value):
        same = {key: node[key] for key in ("alias", "query_location")}
        return {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [_INFINITE], **same}
    return {key: _finite(item) for key, item in node.items()}


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
