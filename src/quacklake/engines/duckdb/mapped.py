"""Files from elsewhere in SQL: columns found by their names in the file, at every depth, or in the names of folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quacklake.format.mappings import MappedColumn, NameMapping, hive_values
from quacklake.format.names import quote
from quacklake.format.schema import Column

__all__ = ["Field", "literal", "mapped_columns"]


def literal(text: str) -> str:
    """An SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Field:
    """A column to read from files: by field id or by its name there, under a name of ours."""

    key: int | str
    name: str
    type: str
    default: str | None = None

    @property
    def sql(self) -> str:
        """The entry in the schema of ``read_parquet``."""
        key = f"{self.key:d}" if isinstance(self.key, int) else literal(self.key)
        value = "NULL" if self.default is None else literal(self.default)
        return f"{key}: {{name: {literal(self.name)}, type: {literal(self.type)}, default_value: {value}}}"


def mapped_columns(
    mapping: NameMapping, columns: Sequence[Column], urls: Sequence[str]
) -> tuple[list[Field], list[str]]:
    """The fields to read from files of one mapping, and the select list that makes the table's columns of them."""
    # DuckDB wants at least one field; a name of a file's own column would do no harm, as nothing selects it
    fields = [Field("_ql_nothing", "_ql_nothing", "BOOLEAN")]
    select = []
    folders: list[dict[str, str | None]] | None = None
    for column in columns:
        entry = mapping.by_target.get(column.id)
        if entry is None:
            expression = _constant(column)
        elif entry.is_partition:
            folders = [hive_values(url) for url in urls] if folders is None else folders
            expression = _folder_value(column, [found.get(entry.source_name) for found in folders])
        else:
            name = f"c{column.id}"
            fields.append(Field(entry.source_name, name, _source_type(column, entry)))
            expression = _remapped(f"p.{name}", column, entry)
        select.append(f"{expression} AS {quote(column.name)}")
    return fields, select


def _constant(column: Column) -> str:
    """What a column is in files that do not have it."""
    value = "NULL" if column.initial_default is None else literal(column.initial_default)
    return f"CAST({value} AS {column.duckdb_type()})"


def _folder_value(column: Column, texts: Sequence[str | None]) -> str:
    """The value in the name of a file's folder, the same for all of its rows."""
    texts = [None if text == "" and column.type not in ("varchar", "json", "blob") else text for text in texts]
    values = ["NULL" if text is None else literal(text) for text in texts]
    if len(set(values)) == 1:
        return f"CAST({values[0]} AS {column.duckdb_type()})"
    return f"(CAST([{', '.join(values)}] AS {column.duckdb_type()}[]))[p.file_index::BIGINT + 1]"


def _pairs(column: Column, entry: MappedColumn) -> list[tuple[Column, MappedColumn | None]]:
    """The nodes inside a column, each with what the file calls it, if it has it."""
    by_target = {child.target_id: child for child in entry.children}
    return [(child, by_target.get(child.id)) for child in column.children]


def _source_type(column: Column, entry: MappedColumn) -> str:
    """The type to read a column with: the table's, under the names of the file, without what the file lacks."""
    if not column.children:
        return column.duckdb_type()
    parts = [(found.source_name, _source_type(child, found)) for child, found in _pairs(column, entry) if found]
    match column.type:
        case "list" if len(parts) == 1:
            return f"{parts[0][1]}[]"
        case "map" if len(parts) == 2:
            return f"MAP({parts[0][1]}, {parts[1][1]})"
        case "struct" if parts:
            return "STRUCT(" + ", ".join(f"{quote(name)} {type_}" for name, type_ in parts) + ")"
        case _:
            return column.duckdb_type()


def _remapped(value: str, column: Column, entry: MappedColumn, depth: int = 0) -> str:
    """An expression that makes the table's nested value of the file's."""
    if _same(column, entry):
        return value
    pairs = _pairs(column, entry)
    item = f"x{depth}"
    match column.type:
        case "struct":
            fields = [
                f"{quote(child.name)} := "
                + (
                    _constant(child)
                    if found is None
                    else _remapped(f"{value}.{quote(found.source_name)}", child, found, depth)
                )
                for child, found in pairs
            ]
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"
        case "list" if pairs[0][1] is not None:
            return f"list_transform({value}, lambda {item}: {_remapped(item, pairs[0][0], pairs[0][1], depth + 1)})"
        case "map" if pairs[0][1] is not None and pairs[1][1] is not None:
            key = _remapped(f"{item}.key", pairs[0][0], pairs[0][1], depth + 1)
            content = _remapped(f"{item}.value", pairs[1][0], pairs[1][1], depth + 1)
            return (
                f"map_from_entries(list_transform(map_entries({value}),"
                f" lambda {item}: struct_pack(key := {key}, value := {content})))"
            )
        case _:
            return value


def _same(column: Column, entry: MappedColumn) -> bool:
    """True when the file's value is the table's without any change."""
    if not column.children:
        return True
    pairs = _pairs(column, entry)
    if column.type == "struct" and any(found is None or found.source_name != child.name for child, found in pairs):
        return False
    return all(found is None or _same(child, found) for child, found in pairs)
