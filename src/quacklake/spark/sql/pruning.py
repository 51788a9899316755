"""Find conditions that hold for all rows that a query takes from one relation, to skip files.

Only conditions with the same meaning for the lake and Spark count: a column compared with a literal, and combinations
of those with AND and OR. Spark applies the whole query in any case.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlglot import ErrorLevel, exp

from quacklake.errors import PredicateError, QuacklakeError
from quacklake.extend.names import fold
from quacklake.extend.predicates import Predicate, every, to_predicate
from quacklake.extend.schemas import TableSchema
from quacklake.spark.sql.parsing import declaration
from quacklake.spark.sql.view_queries import Named

_BARRIERS = ("group", "having", "distinct", "limit", "offset", "qualify", "windows", "laterals", "pivots", "sample")
_REJECTING = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)
_INSTANTS = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)


def predicate_of(found: Sequence[exp.Expr], schema: TableSchema, zone: Callable[[], str]) -> Predicate:
    """Return a predicate on the bounds of files from conditions on columns. ``zone`` is the zone of local times."""
    parts = []
    for each in found:
        with suppress(PredicateError):  # the condition uses functions that only Spark knows
            text = _convert_zones(each, schema, zone).sql("duckdb", unsupported_level=ErrorLevel.IGNORE)
            parts.append(to_predicate(text, schema))
    return every(parts)


def conditions(source: exp.Expr, outside: Sequence[exp.Expr] = ()) -> list[exp.Expr]:
    """Return the conditions on a relation, unqualified; ``outside`` are those on the result of a view's query."""
    reads = source.parent
    select = reads.parent if isinstance(reads, exp.From | exp.Join) else None
    alias, called = source.alias_or_name, source.args.get("alias")
    if not isinstance(select, exp.Select) or not alias or source.args.get("sample") or source.args.get("pivots"):
        return []
    if select.args.get("pivots") or (isinstance(called, exp.TableAlias) and called.columns):
        return []
    joins = select.args.get("joins") or ()
    alone, outer = not joins and not select.args.get("laterals"), any(join.side for join in joins)
    inside = (_through(each, select) for each in _from_outside(select, outside))
    every_one = (*_conjuncts(select), *(each for each in inside if each is not None))
    bare = (_bare(each, alias, alone=alone) for each in every_one if not outer or _rejects_null(each))
    return [each for each in bare if each is not None]


def _conjuncts(select: exp.Select) -> list[exp.Expr]:
    """Return conditions that every row satisfies which a query block keeps."""
    where = select.args.get("where")
    wholes = [where.this] if isinstance(where, exp.Where) else []
    wholes += [
        join.args["on"]
        for join in select.args.get("joins") or ()
        if join.args.get("on") is not None and not join.side and join.kind in ("", "INNER")
    ]
    return [part for whole in wholes for part in _parts(whole)]


def _parts(condition: exp.Expr) -> list[exp.Expr]:
    inner = condition.unnest()
    if not isinstance(inner, exp.And):
        return [inner]
    return [part for each in inner.flatten() for part in _parts(each)]


def _rejects_null(condition: exp.Expr) -> bool:
    """Return True when a row of NULLs, as an outer join adds it, does not satisfy a condition."""
    inner = condition.unnest()
    if isinstance(inner, exp.And | exp.Or):
        return all(_rejects_null(each) for each in inner.flatten())
    return isinstance(inner, _REJECTING)


def _bare(condition: exp.Expr, alias: str, *, alone: bool) -> exp.Expr | None:
    """Return a condition with unqualified columns, or None when it is about more than one relation."""
    if condition.find(exp.Query) is not None:
        return None
    for column in condition.find_all(exp.Column):
        owner = [part.name for part in column.parts[:-1]]
        mine = (len(owner) == 1 and fold(owner[0]) == fold(alias)) or (alone and not owner)
        if not mine or not isinstance(column.this, exp.Identifier):
            return None

    def bare(node: exp.Expr) -> exp.Expr:
        return exp.column(exp.to_identifier(node.name, quoted=True)) if isinstance(node, exp.Column) else node

    return condition.copy().transform(bare)


def _from_outside(select: exp.Select, outside: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the conditions of outer queries on the result of a query block."""
    computed = any(projection.find(exp.AggFunc, exp.Window, exp.UDTF) for projection in select.expressions)
    if computed or any(select.args.get(key) for key in _BARRIERS):
        return []
    parent = select.parent
    if parent is None:
        return list(outside)
    if isinstance(parent, exp.Subquery):
        return conditions(parent, outside)
    if isinstance(parent, exp.CTE) and not parent.args["alias"].columns:
        root = parent.root()
        uses = [each for each in root.find_all(exp.Table) if declaration(each) is parent]
        return conditions(uses[0], outside) if len(uses) == 1 else []
    return []


def _through(condition: exp.Expr, select: exp.Select) -> exp.Expr | None:
    """Turn a condition on the result of a query block into one on its source; None for a computed column."""
    known = {fold(each.alias_or_name): each.unalias() for each in select.expressions}
    star = any(isinstance(each, exp.Star) for each in select.expressions)
    copy = exp.paren(condition.copy())
    for column in list(copy.find_all(exp.Column)):
        inner = known.get(fold(column.name))
        if inner is None and star and len(select.expressions) == 1:
            continue
        if not isinstance(inner, exp.Column) or isinstance(inner.this, exp.Star):
            return None
        column.replace(inner.copy())
    return copy


def _convert_zones(condition: exp.Expr, schema: TableSchema, zone: Callable[[], str]) -> exp.Expr:
    """Return a condition in which local times that are compared with instants are in UTC."""
    copy = exp.paren(condition.copy())
    for column in list(copy.find_all(exp.Column)):
        found = schema.get(column.name)
        if found is None or found.type != "timestamptz" or column.parent is None:
            continue
        for value in list(column.parent.iter_expressions()):
            inner = value.this if isinstance(value, exp.Cast) and value.to.this in _INSTANTS else value
            if isinstance(inner, exp.Literal) and inner.is_string:
                instant = _instant(inner.name, zone())
                value.replace(exp.Literal.string(instant) if instant else exp.Null())
    return copy


def _instant(text: str, zone: str) -> str | None:
    try:
        found = dt.datetime.fromisoformat(text)
        local = found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))
        return local.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ") + "+00"
    except (ValueError, OverflowError, ZoneInfoNotFoundError):
        return None


def where_predicate(named: Named, schema: TableSchema) -> Predicate:
    """Return a predicate on the bounds of a table's files from the conditions of a view."""
    parts = []
    for text in named.where:
        with suppress(QuacklakeError):
            parts.append(to_predicate(text, schema))
    return every(parts)


def outside_conditions(named: Named, outside: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Turn conditions on the rows of a view into conditions on its table."""
    found: list[exp.Expr] = []
    if named.outputs is None:
        return found
    for condition in outside:
        copy = condition.copy()
        columns = list(copy.find_all(exp.Column))
        names = []  # columns of the table behind those of the view; nothing for a computed one
        for column in columns:
            otherwise = column.name if "*" in named.outputs else None
            names.append(named.outputs.get(fold(column.name), otherwise) if len(column.parts) == 1 else None)
        if all(names):
            for column, name in zip(columns, names, strict=True):
                column.set("this", exp.to_identifier(name, quoted=True))
            found.append(copy)
    return found
