"""A scan plan as DuckDB SQL.

The form follows from measurement: one ``read_parquet`` over all files of the same shape, mapped by field id, deletes as
an anti-join on one integer key for the files that have any, inlined rows as a branch of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.engines.duckdb.mapped import Field, literal, mapped_columns
from quacklake.errors import UnsupportedFeatureError
from quacklake.format.names import fold, quote
from quacklake.format.objects import FIELD_POS, FIELD_ROW_ID, FIELD_SNAPSHOT_ID
from quacklake.format.schema import Column
from quacklake.scan.plan import ScanPlan, column_key
from quacklake.storage import Store

__all__ = ["ROW_COLUMNS", "Branch", "ScanSql", "scan_sql"]

#: Columns that identify a row, given on request: its id, and where it is (a file or a version of inlined rows).
ROW_COLUMNS = ("_ql_row_id", "_ql_file_id", "_ql_version", "_ql_position")

_NO_MAPPING = -(1 << 62)
_SHIFT = 40
"""Bits for a position in a file: a data file has fewer than 2^40 rows."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Files of one shape. ``indexes`` are their rows in the plan; files from elsewhere have a name mapping."""

    indexes: tuple[int, ...]
    deletes: bool
    partial: bool
    mapping: int | None = None


@dataclass(frozen=True, slots=True)
class ScanSql:
    """The query of a plan and what it needs first: keys to lend, tables to register, statements to run.

    The queries have the keys from the variable ``keys_variable``, a list in the order of ``keys``.
    """

    query: str
    tables: tuple[tuple[str, pa.Table], ...]
    setup: tuple[str, ...]
    keys_variable: str = ""
    keys: tuple[str, ...] = field(default=(), repr=False)


class _Reads:
    """Makes the ``read_parquet`` calls of one query, and collects the keys they need."""

    def __init__(self, store: Store, variable: str) -> None:
        self.store = store
        self.variable = variable
        self.keys: dict[str, int] = {}

    def source(
        self, paths: Sequence[str], keys: Sequence[str | None], fields: Sequence[Field], rows: int | None
    ) -> str:
        """A FROM item with the columns of ``fields``, ``file_index`` (into ``paths``) and ``file_row_number``.

        A call takes one key, so that there is one for each: those of one write share theirs.
        """
        if not any(keys):
            return _read_parquet(self.store.urls(paths), fields, rows)
        groups: dict[str | None, list[int]] = {}
        for index, key in enumerate(keys):
            groups.setdefault(key, []).append(index)
        names = ", ".join(found.name for found in fields)
        parts = []
        for key, indexes in groups.items():
            urls = self.store.urls([paths[index] for index in indexes])
            source = _read_parquet(urls, fields, rows, None if key is None else self._config(key))
            place = f"{_list(indexes)}[file_index::BIGINT + 1]" if len(indexes) > 1 else f"{indexes[0]:d}::BIGINT"
            parts.append(f"SELECT {names}, {place} AS file_index, file_row_number FROM {source}")
        return f"({' UNION ALL '.join(parts)})"

    def _config(self, key: str) -> str:
        number = self.keys.setdefault(key, len(self.keys) + 1)
        return f"{{footer_key_value: getvariable('{self.variable}')[{number:d}]}}"


def scan_sql(plan: ScanPlan, store: Store, prefix: str, columns: Sequence[Column], *, rows: bool = False) -> ScanSql:
    """The SQL that yields ``columns`` of a plan; with ``rows`` also ``ROW_COLUMNS``. ``prefix`` keeps names apart.

    Raises ``UnsupportedFeatureError`` when the table has a column of its own with the name of one of those.
    """
    taken = next((column.name for column in columns if rows and fold(column.name) in ROW_COLUMNS), None)
    if taken is not None:
        raise UnsupportedFeatureError(
            f'the rows of "{plan.table_name}" cannot be told apart beside its column "{taken}"',
            hint="rename the column",
        )
    tables: list[tuple[str, pa.Table]] = []
    setup: list[str] = []
    parts: list[str] = []
    reads = _Reads(store, f"{prefix}_keys")
    for number, branch in enumerate(_branches(plan)):
        deleted = None
        if branch.deletes:
            deleted = f"{prefix}_del{number}"
            setup.append(_deleted_keys(plan, reads, branch, deleted, tables))
        parts.append(_files_query(plan, reads, branch, columns, deleted, rows=rows))
    if plan.inlined is not None and plan.inlined.num_rows:
        name = f"{prefix}_rows"
        if any(column.type.startswith("float") for column in columns):
            # DuckDB lets Arrow filter a registered table, and to Arrow NaN is not above every number
            tables.append((f"{name}_arrow", plan.inlined))
            setup.append(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {name}_arrow")
        else:
            tables.append((name, plan.inlined))
        parts.append(_inlined_query(name, columns, rows=rows))
    if not parts:
        parts.append(_empty_query(columns, rows=rows))
    return ScanSql(" UNION ALL ".join(parts), tuple(tables), tuple(setup), reads.variable, tuple(reads.keys))


def _branches(plan: ScanPlan) -> list[Branch]:
    """The files grouped by shape, each group in plan order."""
    groups: dict[tuple[bool, bool, int], list[int]] = {}
    with_deletes = pc.or_(
        pc.is_valid(plan.files.column("delete_path")),
        pc.is_in(plan.files.column("data_file_id"), value_set=plan.deletes.column("file_id").combine_chunks()),
    ).to_pylist()
    partial = pc.fill_null(pc.greater(plan.files.column("partial_max"), plan.snapshot_id), False).to_pylist()
    mappings = pc.fill_null(plan.files.column("mapping_id"), _NO_MAPPING).to_pylist()
    for index, key in enumerate(zip(with_deletes, partial, mappings, strict=True)):
        groups.setdefault(key, []).append(index)
    return [
        Branch(tuple(indexes), deletes, some, None if mapping == _NO_MAPPING else mapping)
        for (deletes, some, mapping), indexes in sorted(groups.items())
    ]


def _files_query(
    plan: ScanPlan, reads: _Reads, branch: Branch, columns: Sequence[Column], deleted: str | None, *, rows: bool
) -> str:
    files = plan.files.take(pa.array(branch.indexes, pa.int64()))
    paths = files.column("path").to_pylist()
    if branch.mapping is None:
        # named by id: a user's column may be called file_index too
        fields = [Field(c.id, column_key(c), c.duckdb_type(), c.initial_default) for c in columns]
        select = [f"p.{column_key(column)} AS {quote(column.name)}" for column in columns]
    else:
        fields, select = mapped_columns(plan.mapping(branch.mapping), columns, reads.store.urls(paths))
    stored = "NULL"  # a file from elsewhere has no row ids of ours
    if rows and branch.mapping is None:
        fields.append(Field(FIELD_ROW_ID, "_ql_stored_row_id", "BIGINT"))
        stored = "p._ql_stored_row_id"
    if branch.partial:
        fields.append(Field(FIELD_SNAPSHOT_ID, "_ql_snapshot_id", "BIGINT"))
    if rows:
        starts, ids = (_list(files.column(name).to_pylist()) for name in ("row_id_start", "data_file_id"))
        select += [
            f"coalesce({stored}, {starts}[p.file_index::BIGINT + 1] + p.file_row_number) AS _ql_row_id",
            f"{ids}[p.file_index::BIGINT + 1] AS _ql_file_id",
            "NULL::BIGINT AS _ql_version",
            "p.file_row_number::BIGINT AS _ql_position",
        ]
    keys = files.column("encryption_key").to_pylist()
    source = reads.source(paths, keys, fields, pc.sum(files.column("record_count")).as_py())
    query = f"SELECT {', '.join(select) or '1'} FROM {source} p"
    if deleted is not None:
        query += f" ANTI JOIN {deleted} d ON ((p.file_index::BIGINT << {_SHIFT}) | p.file_row_number) = d.key"
    if branch.partial:
        query += f" WHERE p._ql_snapshot_id IS NULL OR p._ql_snapshot_id <= {plan.snapshot_id:d}"
    return f"({query})"


def _read_parquet(urls: Iterable[str], fields: Sequence[Field], rows: int | None, config: str | None = None) -> str:
    paths = ", ".join(literal(url) for url in urls)
    schema = ", ".join(found.sql for found in fields)
    clauses = [f"schema=MAP {{{schema}}}", f"explicit_cardinality={max(rows or 0, 1):d}"]
    if config is not None:
        clauses.append(f"encryption_config={config}")
    return f"read_parquet([{paths}], {', '.join(clauses)})"


def _list(values: Sequence[int | None]) -> str:
    return "([" + ", ".join("NULL" if value is None else str(int(value)) for value in values) + "]::BIGINT[])"


def _deleted_keys(plan: ScanPlan, reads: _Reads, branch: Branch, name: str, tables: list[tuple[str, pa.Table]]) -> str:
    """A statement that makes the temporary table of deleted rows: ``(file index << 40) | position``."""
    files = plan.files.take(pa.array(branch.indexes, pa.int64()))
    parts = []
    paths = files.column("delete_path").to_pylist()
    with_file = [index for index, path in enumerate(paths) if path is not None]
    if with_file:
        fields = [Field(FIELD_POS, "pos", "BIGINT"), Field(FIELD_SNAPSHOT_ID, "snapshot_id", "BIGINT")]
        keys = files.column("delete_encryption_key").to_pylist()
        some = [paths[index] for index in with_file]
        source = reads.source(some, [keys[index] for index in with_file], fields, None)
        parts.append(
            f"SELECT ({_list(with_file)}[file_index::BIGINT + 1] << {_SHIFT}) | pos AS key FROM {source}"
            f" WHERE snapshot_id IS NULL OR snapshot_id <= {plan.snapshot_id:d}"
        )
    ids = files.column("data_file_id").combine_chunks()
    index = pc.index_in(plan.deletes.column("file_id"), value_set=ids)
    inline = pa.table({"file_index": index, "position": plan.deletes.column("row_id")}).filter(pc.is_valid(index))
    if inline.num_rows:
        tables.append((f"{name}_inline", inline))
        parts.append(f"SELECT (file_index::BIGINT << {_SHIFT}) | position AS key FROM {name}_inline")
    return f"CREATE OR REPLACE TEMP TABLE {name} AS {' UNION ALL '.join(parts)}"


def _inlined_query(name: str, columns: Sequence[Column], *, rows: bool) -> str:
    select = [f"CAST({column_key(column)} AS {column.duckdb_type()}) AS {quote(column.name)}" for column in columns]
    if rows:
        select += [
            "row_id AS _ql_row_id",
            "NULL::BIGINT AS _ql_file_id",
            "schema_version AS _ql_version",
            "row_id AS _ql_position",
        ]
    return f"(SELECT {', '.join(select) or '1'} FROM {name})"


def _empty_query(columns: Sequence[Column], *, rows: bool) -> str:
    select = [f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in columns]
    if rows:
        select += [f"NULL::BIGINT AS {name}" for name in ROW_COLUMNS]
    return f"(SELECT {', '.join(select) or '1'} WHERE false)"
