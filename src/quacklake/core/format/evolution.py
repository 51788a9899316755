"""Changes of a table's schema, as functions from one schema to the next, and the catalog rows they end and begin.

New columns get ids from ``next_column_id`` on, above every id the table ever had: an id belongs to its column for ever.
Refusals have the words of the reference implementation.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from quacklake.core.format.names import Path, check_name, fold
from quacklake.core.format.schema import Column, ColumnRow, TableSchema, flatten
from quacklake.core.format.texts import literal_text
from quacklake.core.format.types import can_store, can_widen
from quacklake.errors import CatalogError, InputError, InternalError, InvalidNameError, SchemaMismatchError, nearest


def child_named(columns: Sequence[Column], name: str) -> Column | None:
    """Return the column of that name among others, ignoring case, or ``None``."""
    return next((column for column in columns if fold(column.name) == fold(name)), None)


def find_column(schema: TableSchema, path: Path) -> Column:
    """Return the column or nested field of that path, ignoring case. Raise :class:`InputError` when there is none."""
    column, siblings = None, schema.columns
    for name in path:
        column = child_named(siblings, name)
        if column is None:
            raise InputError(
                f'Column "{".".join(path)}" does not exist', hint=nearest(name, (sibling.name for sibling in siblings))
            )
        siblings = column.children
    if column is None:
        raise InputError("the column path is empty")
    return column


def replace_column(schema: TableSchema, path: Path, change: Callable[[Column], Column | None]) -> TableSchema:
    """Return the schema in which ``change`` has replaced the column of that path, or removed it by giving ``None``."""
    target = find_column(schema, path).id

    def rebuild(columns: tuple[Column, ...], depth: int) -> Iterator[Column]:
        for column in columns:
            if column.id == target:
                changed = change(column)
                if changed is not None:
                    yield changed
            elif depth < len(path) - 1 and fold(column.name) == fold(path[depth]):
                yield replace(column, children=tuple(rebuild(column.children, depth + 1)))
            else:
                yield column

    return TableSchema(tuple(rebuild(schema.columns, 0)))


@dataclass(frozen=True, slots=True)
class DefaultExpression:
    """SQL that computes a column's default for every row, such as ``now()``."""

    sql: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The rows of ``ducklake_column`` that a change ends, by column id, and those that it begins."""

    ended: tuple[int, ...] = ()
    started: tuple[ColumnRow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.ended or self.started)


def add_column(
    schema: TableSchema, parent: Path, column: Column, *, next_column_id: int, default: Any = None
) -> TableSchema:
    """Return the schema with a column at the end of the table, or with a field at the end of the struct ``parent``.

    ``column`` gives the name, type and children; the new one may be NULL, and both its defaults are the literal
    ``default``. Raise ``InputError`` for a name in use and a default that is no literal.
    """
    ids = _fresh_ids(schema, next_column_id)
    check_name(column.name, "column")
    if not column.nullable:
        raise InputError("Adding columns with constraints not yet supported")
    if isinstance(default, DefaultExpression):
        raise InputError(
            "We cannot add a column with a non-literal default value. Add the column and then explicitly set the "
            'default for new values using "ALTER ... SET DEFAULT"'
        )
    text = _default_text(default, column)
    fresh = replace(_number_column(column, ids), initial_default=text, default=text)
    if not parent:
        if schema.get(fresh.name) is not None:
            raise InputError(f"Column with name {fresh.name} already exists!")
        return TableSchema((*schema.columns, fresh))
    struct = find_column(schema, parent)
    if struct.type != "struct":
        raise InputError(f"Fields can only be added to structs - {struct.name} is a {struct.duckdb_type()}")
    if child_named(struct.children, fresh.name) is not None:
        raise InputError(f'Failed to add field - field "{fresh.name}" already exists in column "{parent[-1]}"')
    added = replace(struct, children=(*struct.children, fresh))
    return replace_column(schema, parent, lambda old: added)


def drop_column(
    schema: TableSchema, path: Path, *, partitioned_by: Collection[int] = (), sorted_by: Collection[int] = ()
) -> TableSchema:
    """Return the schema without a column, or without a field of a struct.

    Raise ``InputError`` for the last one, for values of a list or map, and for keys of the layout (``…_by``).
    """
    column = find_column(schema, path)
    if len(path) == 1:
        if len(schema.columns) == 1:
            raise InputError("Cannot drop column: table only has one column remaining!")
        for ids, layout, what in (
            (partitioned_by, "partitioned", "partitioning"),
            (sorted_by, "sorted", "sort order"),
        ):
            if column.id in ids:
                raise InputError(
                    f'Cannot drop column "{column.name}" - the table is {layout} by this column. Reset or change the '
                    f"{what} on this table in order to drop this column"
                )
    else:
        parent = find_column(schema, path[:-1])
        if parent.type != "struct":
            raise InputError(f"Cannot drop field '{column.name}' from column '{parent.name}' - it's not a struct")
        if len(parent.children) == 1:
            # The reference implementation does drop it, and can then no longer open the lake.
            raise InputError(f"Cannot drop field '{column.name}' from column '{parent.name}' - it is the only one")
    return replace_column(schema, path, lambda old: None)


def rename_column(schema: TableSchema, path: Path, name: str) -> TableSchema:
    """Return the schema with another name for a column or field. Raise :class:`InputError` for one in use."""
    if len(path) == 1 and child_named(schema.columns, path[0]) is None:
        raise InputError(
            f"Failed to rename column - column {path[0]} does not exist", hint=nearest(path[0], schema.names)
        )
    column = find_column(schema, path)
    check_name(name, "column")
    siblings = schema.columns
    if len(path) > 1:
        parent = find_column(schema, path[:-1])
        if parent.type != "struct":
            raise InputError("Only rename on top-level struct fields is supported currently")
        siblings = parent.children
    other = child_named(siblings, name)
    if other is not None and other.id != column.id:
        if len(path) == 1:
            raise InputError(f"Column with name {name} already exists!")
        raise InputError(
            f'Failed to rename field "{path[-1]}" to "{name}" - field with this name already exists in column '
            f'"{".".join(path[:-1])}"'
        )
    return replace_column(schema, path, lambda old: replace(old, name=name))


def set_type(schema: TableSchema, path: Path, target: Column, *, next_column_id: int) -> TableSchema:
    """Return the schema with the type of ``target``, whose own name and ids do not count.

    Fields of structs are matched by name at every depth: new ones come last with fresh ids, missing ones go, those
    that stay may widen. Raise ``InputError`` for every other change of a type.
    """
    ids = _fresh_ids(schema, next_column_id)
    return replace_column(schema, path, lambda old: _change_type(old, target, ids))


def set_default(schema: TableSchema, path: Path, default: Any) -> TableSchema:
    """Return the schema with another default for new rows: a literal, :class:`DefaultExpression` or ``None``."""
    column = _own_column(schema, path, "a default")
    text = _default_text(default, column)
    kind = "expression" if isinstance(default, DefaultExpression) else "literal"
    return replace_column(schema, path, lambda old: replace(old, default=text, default_kind=kind))


def set_nullable(schema: TableSchema, path: Path, nullable: bool) -> TableSchema:
    """Return the schema in which a column may or may not be NULL; that no row is, the caller makes sure."""
    column = _own_column(schema, path, "a NOT NULL constraint")
    if column.nullable == nullable:
        raise InputError(
            f"Cannot DROP NULL on column {column.name} - it has no NOT NULL constraint defined"
            if nullable
            else f"Cannot SET NOT NULL on column {column.name} - it already has a NOT NULL constraint"
        )
    return replace_column(schema, path, lambda old: replace(old, nullable=nullable))


def difference(old: TableSchema, new: TableSchema) -> SchemaChange:
    """Return the catalog rows that turn one schema into another; a column that differs gets a new row under its id."""
    before = {row.column_id: row for row in flatten(old)}
    after = {row.column_id: row for row in flatten(new)}
    return SchemaChange(
        tuple(id for id, row in before.items() if after.get(id) != row),
        tuple(row for id, row in after.items() if before.get(id) != row),
    )


def evolve_to(schema: TableSchema, rows: TableSchema, next_column_id: int) -> TableSchema:
    """Return the schema that holds the table's rows and ``rows`` too: columns added, types widened, nothing else.

    Names match; the type ``unknown`` fits every column. Raise ``SchemaMismatchError`` that tells every difference.
    """
    ids, problems = _fresh_ids(schema, next_column_id), list[str]()
    columns = _fitted_all(schema.columns, rows.columns, "", ids, problems)
    problems += [
        f'"{column.name}" is missing and cannot be NULL'
        for column in schema.columns
        if not column.nullable and column.default is None and rows.get(column.name) is None
    ]
    if problems:
        raise SchemaMismatchError(f"the rows do not fit the table: {'; '.join(problems)}")
    return TableSchema(columns)


def _fitted_all(
    own: tuple[Column, ...], given: tuple[Column, ...], prefix: str, ids: Iterator[int], problems: list[str]
) -> tuple[Column, ...]:
    by_name = {fold(column.name): column for column in given}
    fitted = [
        _fit_column(column, by_name.pop(fold(column.name)), f"{prefix}{column.name}", ids, problems)
        if fold(column.name) in by_name
        else column
        for column in own
    ]
    return (*fitted, *(_number_column(column, ids) for column in by_name.values()))


def _fit_column(own: Column, given: Column, path: str, ids: Iterator[int], problems: list[str]) -> Column:
    if given.type == "unknown":
        return own
    if own.type == given.type == "struct":
        return replace(own, children=_fitted_all(own.children, given.children, f"{path}.", ids, problems))
    if own.nested and own.type == given.type:
        pairs = zip(own.children, given.children, strict=True)
        children = (_fit_column(one, two, f"{path}.{one.name}", ids, problems) for one, two in pairs)
        return replace(own, children=tuple(children))
    if not own.nested and not given.nested:
        if can_widen(own.type, given.type):
            return replace(own, type=given.type)
        if can_store(given.type, own.type):
            return own
    problems.append(f'"{path}" is {given.duckdb_type()}, the table has {own.duckdb_type()}')
    return own


def _fresh_ids(schema: TableSchema, next_column_id: int) -> Iterator[int]:
    if next_column_id <= schema.max_id:
        raise InternalError(f"the column id {next_column_id} is in use already")
    return itertools.count(next_column_id)


def _number_column(column: Column, ids: Iterator[int]) -> Column:
    """Return the column as a new one: fresh ids, given depth first, no constraints, no defaults."""
    id = next(ids)
    names = [fold(child.name) for child in column.children]
    if len(set(names)) < len(names):
        raise InvalidNameError(f'Duplicate child name found in column "{column.name}"')
    # A column that is always NULL has the type DuckDB gives a bare NULL.
    kind = "int32" if column.type == "unknown" else column.type
    return Column(id, column.name, kind, children=tuple([_number_column(child, ids) for child in column.children]))


def _change_type(old: Column, target: Column, ids: Iterator[int]) -> Column:
    if old.type == target.type and not old.nested:
        return old
    if old.nested and old.type != target.type:
        raise InputError(
            f"Type evolution is not supported from type {old.duckdb_type()} to type {target.duckdb_type()}"
        )
    if not old.nested:
        if target.nested or not can_widen(old.type, target.type):
            raise InputError(
                f"Cannot change type of column {old.name} from {old.duckdb_type()} to {target.duckdb_type()} - "
                "only widening type promotions are allowed"
            )
        return replace(old, type=target.type)
    if old.type != "struct":
        pairs = zip(old.children, target.children, strict=True)
        return replace(old, children=tuple([_change_type(one, two, ids) for one, two in pairs]))
    kept: dict[int, Column] = {}
    added: list[Column] = []
    for child in target.children:
        own = child_named(old.children, child.name)
        if own is None:
            added.append(_number_column(child, ids))
        else:
            kept[own.id] = _change_type(own, child, ids)
    # The order of fields is that of their ids, whatever the order in the target.
    return replace(old, children=(*(kept[child.id] for child in old.children if child.id in kept), *added))


def _own_column(schema: TableSchema, path: Path, what: str) -> Column:
    column = find_column(schema, path)
    if len(path) > 1:
        raise InputError(f'"{".".join(path)}" is a field: only the columns of the table have {what}')
    return column


def _default_text(default: Any, column: Column) -> str | None:
    if default is not None and column.nested:
        raise InputError(f"Default value for {column.type.upper()} type not supported")
    return default.sql if isinstance(default, DefaultExpression) else literal_text(default, column.type)


@dataclass(frozen=True, slots=True)
class OldColumns:
    """The columns to go back to.

    ``kept`` keep a wider type than they had, because files written since need it. ``lossy`` tells that some were
    dropped, so that files written since lack their values.
    """

    schema: TableSchema
    kept: tuple[str, ...] = ()
    lossy: bool = False


def missing_ids(now: TableSchema, old: TableSchema) -> list[int]:
    """Return the columns and nodes of an older state that no longer exist."""
    known = {node.id for node in now.walk()}
    return [node.id for node in old.walk() if node.id not in known]


def old_columns(now: TableSchema, old: TableSchema, newest: Mapping[int, str]) -> OldColumns:
    """Return the columns of ``old`` for a table that has those of ``now``, and of those gone the ``newest`` types."""
    types = {**newest, **{node.id: node.type for node in now.walk()}}
    kept: list[str] = []

    def go_back(column: Column, path: str) -> Column:
        children = tuple(go_back(child, f"{path}.{child.name}") for child in column.children)
        latest = types.get(column.id, column.type)
        if latest != column.type and not column.nested and can_widen(column.type, latest):
            kept.append(path)
            return replace(column, type=latest)
        return replace(column, children=children)

    schema = TableSchema(tuple(go_back(column, column.name) for column in old.columns))
    return OldColumns(schema, tuple(kept), bool(missing_ids(now, old)))


PRIMARY_KEY = "quacklake_primary_key"
"""The tag; its value is the field ids of the columns as a JSON list, so that renaming a column does not matter."""

_NO_KEYS = ("list", "map", "struct", "variant", "geometry")


def key_tag(schema: TableSchema, names: Sequence[str]) -> str:
    """Return the value of the tag for these columns. Raise ``InputError`` for columns that cannot be a key."""
    columns = [schema.find(name) for name in names]
    if not columns or len({column.id for column in columns}) != len(columns):
        raise InputError("a primary key needs columns, each once")
    for column in columns:
        if column.type in _NO_KEYS:
            raise InputError(f'the column "{column.name}" of type {column.type} cannot be part of a primary key')
    return json.dumps([column.id for column in columns])


def with_required(schema: TableSchema, names: Sequence[str]) -> TableSchema:
    """Return the schema with columns that take no NULL."""
    ids = {schema.find(name).id for name in names}
    return TableSchema(
        tuple(replace(column, nullable=column.nullable and column.id not in ids) for column in schema.columns)
    )


def key_columns(schema: TableSchema, value: str | None) -> tuple[str, ...]:
    """Return the names of the columns of a key; none without a tag, or when a column is gone."""
    if value is None:
        return ()
    try:
        ids = [int(id_) for id_ in json.loads(value)]
    except (ValueError, TypeError):
        raise CatalogError(f"the primary key of a table is {value!r}, which is not a list of field ids") from None
    names = {column.id: column.name for column in schema.columns}
    return tuple(names[id_] for id_ in ids) if all(id_ in names for id_ in ids) else ()
