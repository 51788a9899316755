"""Give the columns of tables and series types that hold more, and keep everything else that the tables are."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from quacklake.errors import InputError, SchemaMismatchError
from quacklake.extend.names import TableRef, fold, quote
from quacklake.extend.schemas import Column, TableSchema, to_column
from quacklake.extend.writes import Change
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.nodes import TIMESTAMP_COLUMN, EntryType
from quacklake.pond.paths import table_of

_EXACT = 1 << 53
"""The largest whole number up to which a double holds each exactly."""


def widen_column(fs: FS, path: str, column: str, type: str) -> NodePath:
    """Give a column of a series or table a type that holds all of its values. Raise ``InputError`` for any other."""
    found = fs.get(path)
    if not found.entry_type.has_rows or found.node.file_type is EntryType.DYNAMIC:
        raise InputError(f"{found.path} is a {found.entry_type}, not a series or table")
    table = fs.backend.changes.table(table_of(found.path))
    known = table.info.schema.find(column)
    if fold(known.name) == fold(str(found.node.attribute(TIMESTAMP_COLUMN))):
        raise InputError(f"{known.name} holds the times of {found.path}, and keeps its type")
    wanted = to_column(known.name, type)
    if known.nested or wanted.nested:
        raise InputError(f'the column "{known.name}" is nested: its type cannot be changed')
    if known.widens_to(wanted):
        table.alter_column(quote(known.name), type)
    elif known.type != wanted.type:
        change_types(fs, found.path, {known.name: wanted})
    fs.put(found.place, *(replace(row, txn_seq=fs.txn_seq) for row in found.versions))
    return fs.get(path)


def change_types(fs: FS, path: str, wanted: Mapping[str, Column]) -> None:
    """Give columns of a series or table, by their names, the types of others, and write its rows again.

    The format lets a type grow within a family only, such as INTEGER to BIGINT, so that files with the old type stay
    readable; other types need new files. Columns keep their ids, and with them comments, defaults and access rules.
    Raise ``SchemaMismatchError`` for values that would not be the same; nothing is changed then.
    """
    changes, ref = fs.backend.changes, TableRef.parse(table_of(path))
    before = changes.table(table_of(path)).info.schema
    types = {name: column.type for name, column in wanted.items()}
    for name, column in wanted.items():
        _check_values(fs, path, ref.sql, before.find(name), column)
    values = ", ".join(
        f"CAST({quote(name)} AS {column.duckdb_type()}) AS {quote(name)}" for name, column in wanted.items()
    )
    rows = changes.sql(f"SELECT * REPLACE ({values}) FROM {ref.sql}").to_reader()
    columns = tuple(replace(each, type=types.get(each.name, each.type)) for each in before.columns)
    Change(changes).overwrite(ref.sql, rows, TableSchema(columns))


def _check_values(fs: FS, path: str, relation: str, old: Column, wanted: Column) -> None:
    """Raise ``SchemaMismatchError`` for the first value that another type cannot hold exactly."""
    value, type_ = quote(old.name), wanted.duckdb_type()
    lost = f"TRY_CAST(TRY_CAST({value} AS {type_}) AS {old.duckdb_type()}) IS DISTINCT FROM {value}"
    if pa.types.is_integer(old.arrow_type()) and type_ == "DOUBLE":
        lost += f" OR {value} NOT BETWEEN {-_EXACT:d} AND {_EXACT:d}"
    wrong = fs.backend.changes.sql(f"SELECT {value}::VARCHAR FROM {relation} WHERE {lost} LIMIT 1").fetchall()
    if wrong:
        raise SchemaMismatchError(
            f'the column "{old.name}" of {path} has {wrong[0][0]}, which {type_} cannot hold exactly',
            hint=f"{advise(path, old.name, 'TYPE')} takes a type that holds all, such as DECIMAL(38,6)",
        )


def takes_fractions(column: Column) -> bool:
    """Return whether the type of a column holds numbers that are not whole."""
    type_ = column.arrow_type()
    return bool(pa.types.is_floating(type_) or (pa.types.is_decimal(type_) and type_.scale > 0))


def advise(path: str, column: str, type: str = "VARCHAR") -> str:
    """Return the command that widens a column, for hints.

    >>> advise("/dock.series", "level")
    '`pond widen /dock.series level VARCHAR`'
    """
    return f"`pond widen {shlex.join([path, column])} {type}`"
