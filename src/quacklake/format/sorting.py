"""The order in which a table's rows lie in its files: keys, how they are spelled, and what they speak of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quacklake.errors import InputError, nearest
from quacklake.format.names import fold
from quacklake.format.schema import TableSchema

if TYPE_CHECKING:
    from sqlglot import exp

_DIALECT = "duckdb"
_DIRECTION = re.compile(r"(\s+(ASC|DESC))?(\s+NULLS\s+(FIRST|LAST))?\s*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of an order: SQL over a row, its direction, and where NULL comes.

    ``direction`` is ``ASC`` or ``DESC``, ``null_order`` is ``NULLS_FIRST`` or ``NULLS_LAST``.
    """

    expression: str
    direction: str = "ASC"
    null_order: str = "NULLS_LAST"
    dialect: str = _DIALECT

    def __str__(self) -> str:
        return f"{self.expression} {self.direction} {self.null_order.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class SortSpec:
    """How new files of a table are sorted from one snapshot on."""

    id: int
    keys: tuple[SortKey, ...]


def parse_sort(text: str, schema: TableSchema) -> SortKey:
    """Return the key of a text such as ``ts DESC NULLS LAST`` or ``lower(name)``.

    Raises :class:`InputError` unless it is one expression over columns of the table, without a subquery, an aggregate
    or a window.
    """
    from sqlglot import exp

    ordered = _parse(text)
    found = ordered.this.find(exp.Query, exp.AggFunc, exp.Window, exp.Placeholder, exp.Parameter, exp.Star)
    if found is not None:
        raise InputError(f"the sort key {text!r} must be computed from one row, without {found.sql(dialect=_DIALECT)}")
    columns = list(ordered.this.find_all(exp.Column))
    if not columns:
        raise InputError(f"the sort key {text!r} speaks of no column")
    if any(len(column.parts) > 1 for column in columns):
        raise InputError(f"the sort key {text!r} has a qualified name - only names of columns are supported")
    _check_columns([text], schema)
    return SortKey(
        _expression(text, ordered.this),
        "DESC" if ordered.args.get("desc") else "ASC",
        "NULLS_FIRST" if ordered.args.get("nulls_first") else "NULLS_LAST",
    )


def _check_columns(keys: Iterable[str], schema: TableSchema) -> None:
    """Raise :class:`InputError` that names every column which the table does not have."""
    from sqlglot import exp

    names = [column.name for key in keys for column in _parse(key).this.find_all(exp.Column, bfs=False)]
    unmatched = list(dict.fromkeys(name for name in names if schema.get(name) is None))
    if unmatched:
        raise InputError(
            "Columns in the SET SORTED BY statement were not found in the DuckLake table. Unmatched columns were:"
            f" {', '.join(unmatched)}",
            hint=nearest(unmatched[0], schema.names),
        )


def _expression(text: str, tree: exp.Expr) -> str:
    """Return the text without its direction, or as the parser writes it where that is not plain to see."""
    own = _DIRECTION.sub("", text).strip()
    try:
        same = _parse(own).this == tree and "--" not in own and "/*" not in own
    except InputError:
        same = False
    return own if same else tree.sql(dialect=_DIALECT, comments=False)


def _parse(text: str) -> exp.Ordered:
    import sqlglot
    from sqlglot import exp

    try:
        parsed = sqlglot.parse(f"SELECT 1 ORDER BY {text}", dialect=_DIALECT)
    except (sqlglot.errors.SqlglotError, RecursionError):
        parsed = []
    select = parsed[0] if len(parsed) == 1 else None
    order = select.args.get("order") if isinstance(select, exp.Select) else None
    known = ("expressions", "order", "kind")
    only = select is not None and not any(value for key, value in select.args.items() if key not in known)
    if not only or not isinstance(order, exp.Order) or len(order.expressions) != 1:
        raise InputError(f"the sort key {text!r} is not one expression", hint='write for example "ts DESC"')
    ordered: exp.Ordered = order.expressions[0]
    return ordered


def make_sort(
    id: int, keys: Iterable[str], schema: TableSchema, canonical: Callable[[str], str] = lambda text: text
) -> SortSpec:
    """Return the order that texts for :func:`parse_sort` describe; ``canonical`` gives the text to be stored."""
    texts = list(keys)
    _check_columns(texts, schema)
    parsed = (parse_sort(text, schema) for text in texts)
    return SortSpec(id, tuple(replace(key, expression=canonical(key.expression)) for key in parsed))


def readable_keys(spec: SortSpec) -> list[SortKey]:
    """Return the keys that are in DuckDB's dialect; those of another one are passed over."""
    return [key for key in spec.keys if key.dialect == _DIALECT]


def sort_columns(spec: SortSpec | None, schema: TableSchema) -> frozenset[int]:
    """Return the ids of the columns that an order speaks of: they cannot be dropped."""
    if spec is None:
        return frozenset()
    from sqlglot import exp

    named = (schema.get(column.name) for key in _readable(spec) for column in _parse(str(key)).find_all(exp.Column))
    return frozenset(column.id for column in named if column is not None)


def sort_of_stored(
    spec: SortSpec | None, schema: TableSchema, stored: TableSchema
) -> tuple[TableSchema, SortSpec | None]:
    """Return the columns of older files under the present names of a table, and its order where they have it all.

    Without such an order the columns are as they were.
    """
    if spec is None or stored.names == schema.names:
        return stored, spec
    now = {column.id: column.name for column in schema.columns}
    columns = tuple(replace(column, name=now.get(column.id, column.name)) for column in stored.columns)
    distinct = len({fold(column.name) for column in columns}) == len(columns)
    has_all = sort_columns(spec, schema) <= {column.id for column in columns} and len(_readable(spec)) == len(spec.keys)
    return (TableSchema(columns), spec) if distinct and has_all else (stored, None)


def rename_column(spec: SortSpec, before: str, after: str) -> SortSpec:
    """Return the order with another name for a column."""
    from sqlglot import exp

    readable, keys = _readable(spec), []
    for key in spec.keys:
        tree = _parse(str(key)).this if key in readable else None
        found = [] if tree is None else [each for each in tree.find_all(exp.Column) if fold(each.name) == fold(before)]
        for column in found:
            column.set("this", exp.to_identifier(after, quoted=True))
        keys.append(replace(key, expression=tree.sql(dialect=_DIALECT)) if tree is not None and found else key)
    return replace(spec, keys=tuple(keys))


def _readable(spec: SortSpec) -> list[SortKey]:
    """Return the keys whose expression can be taken apart; others come from another client and are left alone."""
    found = []
    for key in readable_keys(spec):
        with suppress(InputError):
            _parse(str(key))
            found.append(key)
    return found
