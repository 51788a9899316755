"""Keep the text that a user wrote: replace table names in it, and name its columns.

DuckDB can also render a tree as text, but not quite the same text: constants lose their types, and columns without a
name get titles from the replaced names. So a query keeps its own text wherever only the names of tables and their
columns have to be replaced. The new text is parsed again, and used only if its tree is the expected one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import duckdb

from quacklake.core.format.names import fold, quote
from quacklake.core.sql import tree
from quacklake.core.sql.titles import Naming
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor, words_of
from quacklake.errors import SqlError

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
        text = _apply_edits(sql, edits, aliases)
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


def _apply_edits(sql: str, edits: list[_Edit], aliases: list[tuple[int, str]]) -> str | None:
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
# another relation is called ``t`` too, the name of an alias that nothing else has. It gets such an alias also where
# ``t.id`` could mean a field of a column ``t``: in a subquery, or in the macro whose argument it is.


@dataclass(frozen=True, slots=True)
class Mention:
    """A table or view of a lake in FROM: its node, its place, and its columns if they are known.

    ``rows`` are those columns that have fields.
    """

    node: Node
    catalog: str
    schema: str
    name: str
    aliased: bool = False
    columns: frozenset[str] | None = None
    rows: frozenset[str] = frozenset()

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The qualified names that refer to the table, the longest first."""
        if self.aliased:
            return ()
        return (self.catalog, self.schema, self.name), (self.schema, self.name), (self.catalog, self.name)


@dataclass(slots=True)
class _Relation:
    node: Node
    alias: str
    mention: Mention | None
    renamed: bool = False
    certain: bool = True
    """False when it is not known whether some name refers to this relation or to a column."""

    def matched(self, names: Sequence[str]) -> int:
        """Return how many of the leading names refer to this relation; 0 when they refer to another, or to a column."""
        for path in self.mention.paths if self.mention is not None else ():
            if tuple(names[: len(path)]) == path:
                return len(path)
        return int(bool(self.alias) and names[0] == self.alias)

    def has(self, name: str) -> bool | None:
        """Return whether the relation has a column, or None if that is not known."""
        if self.mention is None or self.mention.columns is None or self.node.get("column_name_alias"):
            return None
        return name in self.mention.columns

    def has_fields(self, name: str) -> bool | None:
        """Return whether the relation has a column with fields, or None if that is not known."""
        found = self.has(name)
        return found and self.mention is not None and name in self.mention.rows

    @property
    def own(self) -> bool:
        """True for a table or view of a lake without an alias."""
        return self.mention is not None and not self.mention.aliased


_Scopes = tuple[list[_Relation], ...]


Aliases = dict[tuple[str, ...], str]
"""The alias that each table has in a statement where its own name does not do: one, so that names find the nearest."""


def settle_names(
    parsed: Node, mentions: Iterable[Mention], rows: Set[str], aliases: Aliases, *, in_macro: bool = False
) -> None:
    """Rewrite names that qualify a table by schema or catalog.

    ``rows`` are the columns with fields of all tables that the statement reads, in its macros too.
    """
    found = _Names({id(mention.node): mention for mention in mentions}, rows, aliases, in_macro=in_macro)
    found.visit(parsed, ())
    found.rewrite()


class _Names:
    def __init__(self, mentions: Mapping[int, Mention], rows: Set[str], aliases: Aliases, *, in_macro: bool) -> None:
        self._mentions = mentions
        self._rows = rows
        self._aliases = aliases
        self._in_macro = in_macro
        self._relations: list[_Relation] = []
        self._columns: list[tuple[Node, _Relation, int]] = []
        self._stars: list[tuple[Node, _Relation]] = []
        self._parameters: set[str] = set()

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
            for item in leaves(node["from_table"]):
                called = (item.get("function") or {}).get("function_name")
                alias = fold(item.get("alias") or item.get("table_name") or called or "")
                relations.append(_Relation(item, alias, self._mentions.get(id(item))))
            self._relations += [relation for relation in relations if relation.node.get("type") != "EMPTY"]
            scopes = (relations, *scopes)
        if node.get("class") == "COLUMN_REF":
            names = [fold(name) for name in node["column_names"]]
            relation = _find(scopes, names)
            if relation is not None:
                self._columns.append((node, relation, relation.matched(names)))
        elif node.get("class") == "STAR" and node.get("relation_name"):
            relation = _find(scopes, [fold(node["relation_name"])], is_table=True)
            if relation is not None:
                self._stars.append((node, relation))
        elif node.get("class") == "LAMBDA":
            inside = (found["column_names"] for found in tree.nodes(node.get("lhs")) if "column_names" in found)
            self._parameters |= {fold(names[0]) for names in inside}
        for key, value in node.items():
            if key != "cte_map":
                self.visit(value, scopes)

    def rewrite(self) -> None:
        """Give relations that share an alias new ones where names would be ambiguous, and update all names."""
        aliases = Counter(relation.alias for relation in self._relations)
        # aliases that several tables share which the user wrote without an alias
        own = Counter(relation.alias for relation in self._relations if relation.own)
        qualified = {relation.alias for _, relation, length in self._columns if length > 1}
        qualified |= {alias for alias, count in own.items() if count > 1}
        visited = {id(relation.node) for relation in self._relations}
        # names that an argument of a macro would meet in it
        inside = {mention.name for key, mention in self._mentions.items() if key not in visited}
        hidden = self._rows | inside
        for relation in self._relations:
            shared = aliases[relation.alias] > 1 and relation.alias in qualified
            hides = (self._in_macro or relation.alias in hidden) and relation.alias not in self._parameters
            if relation.mention is not None and relation.own and (shared or (hides and relation.certain)):
                relation.renamed = True
                relation.node["alias"] = self._aliases.setdefault(
                    relation.mention.paths[0], f"_ql_r{len(self._aliases) + 1}"
                )
        for node, relation, length in self._columns:
            if relation.renamed or length > 1:
                first = relation.node["alias"] if relation.renamed else node["column_names"][length - 1]
                node["column_names"] = [first, *node["column_names"][length:]]
        for node, relation in self._stars:
            if relation.renamed:
                node["relation_name"] = relation.node["alias"]


def _find(scopes: _Scopes, names: Sequence[str], *, is_table: bool = False) -> _Relation | None:
    """Return the only match in the innermost query block that has a match, and None for the name of a column.

    ``is_table`` says that the names are those of a table.
    """
    certain = True
    for relations in scopes:
        lengths = [(relation.matched(names), relation) for relation in relations]
        longest = max((length for length, _ in lengths), default=0)
        found = [relation for length, relation in lengths if length == longest]
        if not is_table and not any(_binds(relation, names, longest) for relation in found if longest):
            is_column = [r.has(names[0]) if len(names) == 1 else r.has_fields(names[0]) for r in relations]
            if True in is_column:
                return None
            certain = certain and None not in is_column
        if longest:
            for relation in found:
                relation.certain = relation.certain and certain
        if longest and len(found) == 1:
            return found[0]
        if longest and len(names) > longest and any(relation.own for relation in found):
            raise SqlError(f'Binder Error: Ambiguous reference to table "{names[longest - 1]}"', hint="name its schema")
        if longest:
            return None
    return None


def _binds(relation: _Relation, names: Sequence[str], length: int) -> bool:
    """Return True when the relation has the column that follows its name."""
    return len(names) > length and relation.has(names[length]) is True


def leaves(source: Node | None) -> Iterator[Node]:
    """Yield the relations of a FROM clause."""
    if source is None:
        return
    if source.get("type") == "JOIN":
        yield from leaves(source["left"])
        yield from leaves(source["right"])
    else:
        yield source
