"""Columns as they were: which fields a file has, and SQL that gives its values the form that the column has now.

Fields are matched by id at every depth. DuckDB matches those of structs by name, which is wrong after a field was
renamed, or dropped and added again. A file that tells names only is read with the history of the table. A name may have
had several ids; which one the file means follows from the snapshot it began with, as long as that is sure. Otherwise
nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from quacklake.format.names import literal, quote
from quacklake.format.schema import Column, TableSchema

#: The columns of a table as they were, each from a snapshot on, in order; local changes are dated in the future.
Past = tuple[tuple[int, TableSchema], ...]


def same_shape(one: Column, two: Column) -> bool:
    """Return True when both have the same fields by id and name at every depth; own names and types do not count."""
    if one.nested != two.nested or len(one.children) != len(two.children):
        return False
    pairs = zip(one.children, two.children, strict=True)
    return all((a.id, a.name) == (b.id, b.name) and same_shape(a, b) for a, b in pairs)


def same_shapes(old: TableSchema, new: TableSchema) -> bool:
    """Return True when every nested column that both schemas have has the same shape in both."""
    known = {column.id: column for column in old.columns}
    return all(same_shape(known[column.id], column) for column in new.columns if column.nested and column.id in known)


def stored_alike(old: TableSchema, new: TableSchema) -> bool:
    """Return True when rows of one schema can be stored as rows of the other: the same columns by id, name and type."""
    one, two = ([(node.id, node.name, node.type) for node in schema.walk()] for schema in (old, new))
    return one == two


def initial_value(column: Column) -> str:
    """Return the SQL of what a column has in rows that are older than itself."""
    if column.initial_default is None:
        return f"NULL::{column.duckdb_type()}"
    return f"CAST({literal(column.initial_default)} AS {column.duckdb_type()})"


def reshaped(value: str, stored: Column, wanted: Column) -> str:
    """Return SQL that turns ``value`` from the type of ``stored`` into that of ``wanted``, which has the same id."""
    if not same_shape(stored, wanted):
        value = _rebuilt(value, stored, wanted, 0)
    elif stored.duckdb_type() == wanted.duckdb_type():
        return value
    return f"CAST({value} AS {wanted.duckdb_type()})"


def _rebuilt(value: str, stored: Column, wanted: Column, depth: int) -> str:
    if same_shape(stored, wanted):
        return value
    item = f"ql_{depth}"
    match wanted.type:
        case "list":
            inner = _rebuilt(item, stored.children[0], wanted.children[0], depth + 1)
            return f"list_transform({value}, lambda {item}: {inner})"
        case "map":
            parts = zip(("key", "value"), stored.children, wanted.children, strict=True)
            fields = [f"{name} := {_rebuilt(f'{item}.{name}', old, new, depth + 1)}" for name, old, new in parts]
            entries = f"list_transform(map_entries({value}), lambda {item}: struct_pack({', '.join(fields)}))"
            return f"map_from_entries({entries})"
        case _:
            known = {child.id: child for child in stored.children}
            fields = [f"{quote(new.name)} := {_field(value, known.get(new.id), new, depth)}" for new in wanted.children]
            return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"


def _field(struct: str, stored: Column | None, wanted: Column, depth: int) -> str:
    if stored is None:
        return initial_value(wanted)
    return _rebuilt(f"struct_extract({struct}, {literal(stored.name)})", stored, wanted, depth)


def with_ids(names: Mapping[str, Column], wanted: Column, past: Past, begin: int | None) -> Column | None:
    """Return a column of the table as it is in a file, given the columns of the file by name, whose ids mean nothing.

    ``begin`` is the snapshot whose columns the file has, None for one that may have those of any. Scalars that the
    table has too get its types. None when the file has not got the column. Raises ``LookupError`` when the history
    does not tell, or tells more than one story.
    """
    then, ever = _at(past, begin), [schema for _, schema in past]
    others = {column.name for schema in then for column in schema.columns if column.id != wanted.id}
    called = {version.name for version in _versions(ever, wanted.id)}
    if not (called & names.keys()) - others:
        return None  # what has its name there, if anything, is another column
    for schemas in (then, ever):
        found = {_identified(names.get(version.name), version, wanted) for version in _versions(schemas, wanted.id)}
        fitting = [column for column in found if column is not None]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            break
    raise LookupError(wanted.name)


def _at(past: Past, begin: int | None) -> list[TableSchema]:
    """Return the columns a file of a snapshot may have: its transaction may write before and after changing them."""
    before = [schema for since, schema in past if begin is not None and since < begin]
    return [*before[-1:], *(schema for since, schema in past if since == begin)]


def _versions(schemas: Iterable[TableSchema], id_: int) -> list[Column]:
    return [column for schema in schemas for column in schema.columns if column.id == id_]


def _identified(stored: Column | None, version: Column, wanted: Column | None) -> Column | None:
    """Return the column of a file with the ids of a past column, or None if their names differ."""
    if stored is None or stored.nested != version.nested:
        return None
    if not version.nested:
        known = wanted is not None and not wanted.nested
        return replace(wanted if known and wanted else Column(0, "", stored.type), id=version.id, name=stored.name)
    if stored.type != version.type:
        return None
    children = tuple(_children(stored, version, wanted))
    if None in children or len(children) != len(version.children):
        return None
    return Column(version.id, stored.name, stored.type, children=tuple(child for child in children if child))


def _children(stored: Column, version: Column, wanted: Column | None) -> Iterator[Column | None]:
    known = {} if wanted is None else {child.id: child for child in wanted.children}
    names = {child.name: child for child in version.children}
    for place, child in enumerate(stored.children):
        # what is inside lists and maps has its name from its place
        one = names.get(child.name) if version.type == "struct" else version.children[place]
        yield None if one is None else _identified(child, one, known.get(one.id))
