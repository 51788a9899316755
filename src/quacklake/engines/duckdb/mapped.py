"""Files from elsewhere in SQL: their columns are found by name, at every depth, or in the names of folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quacklake.format.mappings import MappedColumn, NameMapping, hive_values
from quacklake.format.names import literal, quote
from quacklake.format.schema import Column, initial_value, reshaped


@dataclass(frozen=True, slots=True)
class Field:
    """A column to read from files: by field id or by its name there, under another name."""

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
    """Return the fields to read from files of one mapping, and the select list for the table's columns."""
    # DuckDB needs at least one field; a column of that name in a file does no harm, as nothing selects it
    fields = [Field("_ql_nothing", "_ql_nothing", "BOOLEAN")]
    select = []
    folders: list[dict[str, str | None]] | None = None
    for column in columns:
        entry = mapping.by_target.get(column.id)
        stored = None if entry is None or entry.is_partition else _stored(column, entry)
        if entry is not None and entry.is_partition:
            folders = [hive_values(url) for url in urls] if folders is None else folders
            expression = _folder_value(column, [folder.get(entry.source_name) for folder in folders])
        elif stored is None:
            expression = initial_value(column)
        else:
            name = f"c{column.id}"
            fields.append(Field(stored.name, name, stored.duckdb_type()))
            expression = reshaped(f"p.{name}", stored, column)
        select.append(f"{expression} AS {quote(column.name)}")
    return fields, select


def _folder_value(column: Column, texts: Sequence[str | None]) -> str:
    """Return the value in the name of a file's folder, the same for all of its rows."""
    texts = [None if text == "" and column.type != "varchar" else text for text in texts]
    values = ["NULL" if text is None else literal(text) for text in texts]
    if len(set(values)) == 1:
        return f"CAST({values[0]} AS {column.duckdb_type()})"
    return f"(CAST([{', '.join(values)}] AS {column.duckdb_type()}[]))[p.file_index::BIGINT + 1]"


def _stored(column: Column, entry: MappedColumn) -> Column | None:
    """Return a column as a file has it: the table's types under the file's names; None when nothing of it is there."""
    if not column.children:
        return replace(column, name=entry.source_name)
    by_target = {child.target_id: child for child in entry.children}
    stored = [_stored(child, by_target[child.id]) for child in column.children if child.id in by_target]
    children = tuple(child for child in stored if child is not None)
    if not children or (column.type != "struct" and len(children) != len(column.children)):
        return None
    if column.type != "struct":  # the parts of lists and maps have the same names everywhere
        children = tuple(replace(child, name=own.name) for child, own in zip(children, column.children, strict=True))
    return replace(column, name=entry.source_name, children=children)
