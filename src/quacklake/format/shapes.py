"""Values of a column as it was, as SQL gives them the form the column has now: fields are matched by id at every depth.

DuckDB matches the fields of structs by name, which is wrong after a field was renamed, or dropped and added again.
"""

from __future__ import annotations

from quacklake.format.names import literal, quote
from quacklake.format.schema import Column, TableSchema

__all__ = ["initial_value", "reshaped", "same_shape", "same_shapes", "stored_alike"]


def same_shape(one: Column, two: Column) -> bool:
    """True when both have the same fields, by id and name, at every depth; their own names and types do not count."""
    if one.nested != two.nested or len(one.children) != len(two.children):
        return False
    pairs = zip(one.children, two.children, strict=True)
    return all((a.id, a.name) == (b.id, b.name) and same_shape(a, b) for a, b in pairs)


def same_shapes(old: TableSchema, new: TableSchema) -> bool:
    """True when every nested column that both schemas have has the same shape in both."""
    known = {column.id: column for column in old.columns}
    return all(same_shape(known[column.id], column) for column in new.columns if column.nested and column.id in known)


def stored_alike(old: TableSchema, new: TableSchema) -> bool:
    """True when rows of one schema can be stored as rows of the other: the same columns by id, name and type."""
    one, two = ([(node.id, node.name, node.type) for node in schema.walk()] for schema in (old, new))
    return one == two


def initial_value(column: Column) -> str:
    """The SQL of what a column has in rows that are older than itself."""
    if column.initial_default is None:
        return f"NULL::{column.duckdb_type()}"
    return f"CAST({literal(column.initial_default)} AS {column.duckdb_type()})"


def reshaped(value: str, stored: Column, wanted: Column) -> str:
    """SQL that turns ``value``, of the type of ``stored``, into the type of ``wanted``, which has the same id."""
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
