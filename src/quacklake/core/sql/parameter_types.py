"""The types of the parameters of a statement, as DuckDB's binder infers them. No row is read, and none is changed.

DuckDB tells them in the plan that it serializes, and serializes none while the type of one parameter is open. So the
query is planned with some of its parameters and NULL in place of the others. A parameter that stays open gets the type
with which the binder has to cast the least.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb

from quacklake.core.duckdb_versions import first_row
from quacklake.core.format.names import fold, literal, quote
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.types import SCALARS
from quacklake.core.operations.expression import Expression
from quacklake.core.operations.statements import Insert
from quacklake.core.sql import statements, tree
from quacklake.core.sql.binder import Binder
from quacklake.core.sql.statements import inserting, queries, rows
from quacklake.core.sql.tree import Node
from quacklake.core.sql.words import Cursor
from quacklake.errors import SqlError

if TYPE_CHECKING:
    from quacklake.core.sql.session import Session

__all__ = ["OPEN", "parameter_types"]

OPEN = "VARCHAR"
"""The type of a parameter whose type is not known."""
_NUMBERS = ("DOUBLE", "BIGINT", "INTEGER")
_OTHERS = ("TIMESTAMP", "DATE", "TIME", "BOOLEAN", "BLOB")
"""The types of a parameter that can be neither a text nor a number."""
_UNKNOWN = frozenset({"INVALID", "NULL", "UNKNOWN"})
_SIMPLE = frozenset(scalar.duckdb for scalar in SCALARS.values())
_MAX_PLANS = 60
"""Plans of one statement; parameters that are open after them are texts."""


def parameter_types(session: Session, cursor: Cursor) -> dict[str, str]:
    """Return the type of each parameter of an admitted statement by its name or number.

    A nested type is told by its kind alone, such as ``LIST``. Raise ``SqlError`` or ``NotFoundError`` for a statement
    that cannot be bound.
    """
    names = {fold(word.text[1:]) for word in cursor.words if word.kind == "parameter"}
    plans = [Plans(session, query) for query in _queries(session, cursor)] if names else []
    found: dict[str, set[str]] = {name: set() for name in names}
    for plan in plans:
        for name, type_ in plan.infer():
            found[name].add(type_)
    known = {name: _common(session, types) for name, types in found.items() if types}
    for plan in plans:
        plan.guess(known)
    parameters = [word for word in cursor.words if word.kind == "parameter"]
    return {word.parameter: known.get(fold(word.text[1:]), OPEN) for word in parameters}


def _common(session: Session, types: Collection[str]) -> str:
    """Return the type that values of all these types can be cast to."""
    if len(types) < 2:
        return next(iter(types), OPEN)
    if not all(map(_is_simple, types)):
        return OPEN
    values = ", ".join(f"CAST(NULL AS {type_})" for type_ in sorted(types))
    try:
        row = first_row(session.connection, f"SELECT typeof(coalesce({values}))")
    except duckdb.Error:
        return OPEN
    return OPEN if row is None else str(row[0])


# -- queries of a statement --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Query:
    """A query in which the parameters of a statement meet what they meet in it."""

    sql: str
    change: Callable[[Node], None] | None = None


def _queries(session: Session, cursor: Cursor) -> list[_Query]:
    handler = statements.handler(cursor)
    words = Cursor(cursor.text, cursor.words)
    if handler is queries.query:
        return [_Query(cursor.text)]
    if handler is inserting.insert:
        return _of_insert(session, words)
    if handler is inserting.merge:
        return _of_merge(session, words)
    if handler is rows.update:
        return _of_update(session, words)
    return _of_delete(session, words) if handler is rows.delete else []


def _of_insert(session: Session, cursor: Cursor) -> list[_Query]:
    parsed = inserting.parse_insert(session, cursor)
    if parsed is None:
        return []
    place, statement = parsed
    table = _table(session, place)
    found = []
    if statement.query is not None:
        found.append(_Query(statement.query, partial(_fit, session, table, statement)))
    conflict = statement.conflict
    if conflict is not None and conflict.columns:
        kept = ", ".join(f"{quote(column.name)} := {quote(column.name)}" for column in table.schema.columns)
        proposed = f"(SELECT struct_pack({kept}) AS excluded FROM {place.named}) AS _ql_proposed"
        parts = [*_cast_values(table, conflict.columns, conflict.values), *_conditions(conflict.condition)]
        found.append(_Query(f"SELECT {', '.join(parts)} FROM {place.text}, {proposed}"))
    return found


def _fit(session: Session, table: TableInfo, statement: Insert, parsed: Node) -> None:
    """Cast the values of an INSERT, and the parameters that it selects, to the types of their columns."""
    columns = inserting.chosen_columns(table, statement.columns)
    inserting.fit_values(session, parsed, table, columns, statement.by_name)
    named = {fold(column.name): column for column in columns}
    for place, item in enumerate(parsed["node"].get("select_list") or ()):
        if item.get("class") == "STAR" and not statement.by_name:
            return
        column = columns[place] if place < len(columns) else None
        if statement.by_name:
            column = named.get(fold(item.get("alias", "")))
        if column is not None and item.get("class") == "PARAMETER":
            cast = tree.cast({**item, "alias": ""}, tree.type_node(session.connection, column.duckdb_type()))
            tree.replace(item, {**cast, "alias": item["alias"]})


def _of_merge(session: Session, cursor: Cursor) -> list[_Query]:
    parsed = inserting.parse_merge(session, cursor)
    if parsed is None:
        return []
    place, statement, source = parsed
    table = _table(session, place)
    parts = _conditions(statement.on)
    if isinstance(statement.on, tuple):
        parts = [f"{place.own}.{quote(name)} = {source.name}.{quote(name)}" for name in statement.on]
    for clause in statement.clauses:
        parts += _conditions(clause.condition)
        columns = clause.columns or [column.name for column in table.schema.columns]
        parts += _cast_values(table, columns, clause.values or ())
    return [_Query(f"{source.prefix}SELECT {', '.join(parts)} FROM {place.text}, {source.text}")]


def _of_update(session: Session, cursor: Cursor) -> list[_Query]:
    parsed = rows.parse_update(session, cursor)
    if parsed is None:
        return []
    place, statement, prefix = parsed
    parts = _cast_values(_table(session, place), statement.columns, statement.values)
    return [_select(prefix, [*parts, *_conditions(statement.where)], place, statement.others)]


def _of_delete(session: Session, cursor: Cursor) -> list[_Query]:
    parsed = rows.parse_delete(session, cursor)
    if parsed is None:
        return []
    place, statement, prefix = parsed
    return [_select(prefix, _conditions(statement.where), place, statement.others)]


def _select(prefix: str, parts: Sequence[str], place: rows.Place, others: str) -> _Query:
    beside = f", {others}" if others else ""
    return _Query(f"{prefix}SELECT {', '.join(parts) or '1'} FROM {place.text}{beside}")


def _table(session: Session, place: rows.Place) -> TableInfo:
    return rows.find_table(place.target, session.view(place.target.attached))


def _cast_values(table: TableInfo, columns: Sequence[str], values: Sequence[Expression]) -> list[str]:
    """Return the values as they are cast to their columns."""
    return [
        f"CAST(({value.sql}\n) AS {table.schema.find(column).duckdb_type()})"
        for column, value in zip(columns, values, strict=False)
        if value.sql.strip().upper() != "DEFAULT"
    ]


def _conditions(condition: Any) -> list[str]:
    return [f"({condition.sql}\n)"] if isinstance(condition, Expression) else []


# -- plans of a query --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    types: Mapping[int, str]
    """The types of the parameters by their places."""
    casts: Sequence[str]
    """The types that the plan casts to."""


@dataclass
class Plans:
    """Plans one query with types for its parameters. Each place of a parameter in the text counts by itself."""

    session: Session
    query: _Query
    left: int = _MAX_PLANS
    _places: list[tuple[Node, Node]] = field(default_factory=list)
    """The node at each place, and the parameter that it was."""
    _names: list[str] = field(default_factory=list)
    _known: Mapping[str, str] = field(default_factory=dict)
    _open: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parsed, self._planner = Binder(self.session).without_rows(self.query.sql, self.query.change)
        for node in [node for node in tree.nodes(self._parsed) if node.get("class") == "PARAMETER"]:
            self._names.append(fold(str(node["identifier"])))
            self._places.append((node, {**node, "identifier": str(len(self._names))}))
        self._null = tree.expression_of(self.session.connection, "NULL")

    def infer(self) -> Iterator[tuple[str, str]]:
        """Yield the names of parameters and the types that DuckDB infers for them."""
        if not self._places or self._plan((), {}) is None:  # DuckDB does not serialize the plan of this query
            return
        known = self._resolve(range(len(self._places)))
        self._open = [place for place in range(len(self._places)) if place not in known]
        yield from ((self._names[place], type_) for place, type_ in known.items())

    def _resolve(self, places: Sequence[int]) -> dict[int, str]:
        """Return the types that DuckDB infers, by halves if it does not for all together."""
        plan = self._plan(places, {})
        if plan is not None:
            return {place: type_ for place, type_ in plan.types.items() if type_ not in _UNKNOWN}
        if len(places) == 1:
            return {}
        half = len(places) // 2
        return {**self._resolve(places[:half]), **self._resolve(places[half:])}

    def guess(self, known: dict[str, str]) -> None:
        """Add the types of parameters for which DuckDB infers none."""
        self._known = known
        places = [place for place in self._open if self._names[place] not in known]
        texts = self._plan((), dict.fromkeys(places, OPEN)) if places else None
        for place in places:
            if self._names[place] not in known:
                known[self._names[place]] = OPEN if texts is not None and not texts.casts else self._guess(place)

    def _guess(self, place: int) -> str:
        beside = self._plan((place,), {})  # beside values of known types instead of NULL
        if beside is not None and beside.types.get(place, "NULL") not in _UNKNOWN:
            return beside.types[place]
        text = self._plan((), {place: OPEN})
        guesses = [sorted(filter(_is_simple, set(text.casts)))] if text is not None else [_NUMBERS, _OTHERS]
        fitting = {} if text is None else {OPEN: len(text.casts)}
        for types in guesses:
            plans = {type_: self._plan((), {place: type_}) for type_ in types}
            fitting |= {type_: len(plan.casts) for type_, plan in plans.items() if plan is not None}
            if fitting:
                break
        best = min(fitting, key=lambda type_: fitting[type_], default=OPEN)
        # some clients cut off what does not fit into an INTEGER
        return next(number for number in _NUMBERS if number in fitting) if best == "INTEGER" else best

    def _plan(self, places: Sequence[int], types: Mapping[int, str]) -> _Plan | None:
        """Return the plan with some parameters as they are and some of given types; None if there is no such plan."""
        if not self.left:
            return None
        self.left -= 1
        self.session.running.check()
        connection = self.session.connection
        for place, (node, parameter) in enumerate(self._places):
            type_ = types.get(place, self._known.get(self._names[place]))
            content = parameter if type_ is not None and _is_simple(type_) else self._null
            if place in places:
                content = parameter
            elif content is parameter and type_ is not None:
                content = tree.cast({**parameter, "alias": ""}, tree.type_node(connection, type_))
            tree.replace(node, {**content, "alias": parameter["alias"]})
        try:
            text = tree.render(connection, self._parsed)
            options = "skip_null := true, skip_empty := true, skip_default := true"
            row = first_row(self._planner, f"SELECT json_serialize_plan(CAST({literal(text)} AS VARCHAR), {options})")
        except (SqlError, duckdb.Error):
            return None
        document = {"error": True} if row is None else json.loads(row[0])
        return None if document["error"] else _read(document)


def _read(document: Node) -> _Plan:
    """Return what a plan says of its parameters."""
    types: dict[int, set[str]] = {}
    casts = []
    for node in tree.nodes(document):
        if node.get("expression_class") == "BOUND_PARAMETER":
            types.setdefault(int(node["identifier"]) - 1, set()).add(_type_text(node["return_type"]))
        elif node.get("type") == "OPERATOR_CAST":
            casts.append(_type_text(node["return_type"]))
    return _Plan({place: found.pop() if len(found) == 1 else OPEN for place, found in types.items()}, casts)


def _is_simple(type_: str) -> bool:
    """Return True for a type whose name tells all of it."""
    return type_ in _SIMPLE or type_.startswith("DECIMAL(")


def _type_text(type_: Node) -> str:
    if type_["id"] != "DECIMAL":
        return str(type_["id"])
    info = type_["type_info"]
    return f"DECIMAL({info['width']},{info.get('scale', 0)})"
