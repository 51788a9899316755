"""A scan plan as DuckDB SQL.

The form follows from measurement: one ``read_parquet`` over all files of the same shape, mapped by field id, deletes as
an anti-join on one integer key for the files that have any, inlined rows as a branch of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.duckdb_versions import IS_2
from quacklake.core.engines.duckdb.connections import file_literal
from quacklake.core.engines.duckdb.shapes import Shape
from quacklake.core.format.inline import data_table_name
from quacklake.core.format.mappings import MappedColumn, NameMapping, hive_values
from quacklake.core.format.names import EVERY_COLUMN, fold, literal, quote
from quacklake.core.format.objects import FIELD_ROW_ID, FIELD_SNAPSHOT_ID, NAME_POS, NAME_SNAPSHOT_ID
from quacklake.core.format.schema import Column, initial_value, reshaped
from quacklake.core.scan.plan import LOCAL_VERSION, UNREADABLE, VIRTUAL, ScanPlan, column_key, unreadable_key
from quacklake.core.storage import Store
from quacklake.core.storage.vectors import deleted_positions
from quacklake.errors import UnsupportedFeatureError


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
        stored = None if entry is None or entry.is_partition else _map_column(column, entry)
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


def _map_column(column: Column, entry: MappedColumn) -> Column | None:
    """Return a column as a file has it: the table's types under the file's names; None when nothing of it is there."""
    if not column.children:
        return replace(column, name=entry.source_name)
    by_target = {child.target_id: child for child in entry.children}
    stored = [_map_column(child, by_target[child.id]) for child in column.children if child.id in by_target]
    children = tuple(child for child in stored if child is not None)
    if not children or (column.type != "struct" and len(children) != len(column.children)):
        return None
    if column.type != "struct":  # the parts of lists and maps have the same names everywhere
        children = tuple(replace(child, name=own.name) for child, own in zip(children, column.children, strict=True))
    return replace(column, name=entry.source_name, children=children)


#: Columns that identify a row, given on request: its id, and where it is (a file or a version of inlined rows).
ROW_COLUMNS = ("_ql_row_id", "_ql_file_id", "_ql_version", "_ql_position")

_MANY = 256  # files from which on their values are joined: DuckDB copies a list for every vector of rows
NOTHING = Path(__file__).with_name("nothing.parquet")
"""A file without rows. DuckDB reads a list of files with all its threads, and a single one with one thread where it is
given the columns and so has not looked into the file: beside this one a file is a list."""
_ROW_GROUP = 122_880  # rows up to which there is nothing for a second thread to do
_RUNS = 8  # up to so many reads keep files of different shapes in their order, so that rows come as they were inserted
SHIFT = 40
"""Bits for a position in a file: a data file has fewer than 2^40 rows."""
_BLOCK = 5  # at most so many of them number a row within its block; larger ones were no faster
# Columns of delete files are read by name: delete files of other formats have no field ids.
_POSITION = "coalesce(pos, error('a delete file has no positions'))"


@dataclass(frozen=True, slots=True)
class Branch:
    """Files of one shape. ``indexes`` are their rows in the plan; files from elsewhere have a name mapping."""

    indexes: tuple[int, ...]
    deletes: bool
    partial: bool
    mapping: int | None
    shape: Shape

    def files(self, plan: ScanPlan) -> pa.Table:
        """Return the files of the branch, in their order."""
        if len(self.indexes) == plan.files.num_rows:  # a single branch has them all
            return plan.files
        return plan.files.take(pa.array(self.indexes, pa.int64()))


@dataclass(frozen=True, slots=True)
class ScanSql:
    """The query of a plan, and what it needs first: ``keys`` in the variable ``keys_variable``, tables, statements."""

    query: str
    tables: tuple[tuple[str, pa.Table], ...]
    setup: tuple[str, ...]
    keys_variable: str = ""
    keys: tuple[str, ...] = field(default=(), repr=False)


class Reads:
    """Makes the ``read_parquet`` calls of one query, and collects the keys they need."""

    def __init__(self, store: Store, variable: str) -> None:
        self.store = store
        self.variable = variable
        self.keys: dict[str, int] = {}

    def source(
        self, paths: Sequence[str], keys: Sequence[str | None], fields: Sequence[Field], rows: int | None
    ) -> str:
        """Return a FROM item with ``fields``, ``file_index`` (into ``paths``) and virtual columns; one call per key."""
        if not any(keys):
            return _read_parquet(self.store.readable_urls(paths), fields, rows)
        groups: dict[str | None, list[int]] = {}
        for index, key in enumerate(keys):
            groups.setdefault(key, []).append(index)
        names = ", ".join(field.name for field in fields)
        parts = []
        for key, indexes in groups.items():
            urls = self.store.readable_urls([paths[index] for index in indexes])
            config = None
            if key is not None:
                number = self.keys.setdefault(key, len(self.keys) + 1)
                config = f"{{footer_key_value: getvariable('{self.variable}')[{number:d}]}}"
            source = _read_parquet(urls, fields, rows, config)
            place = f"{_list(indexes)}[file_index::BIGINT + 1]" if len(indexes) > 1 else f"{indexes[0]:d}::BIGINT"
            parts.append(f"SELECT {names}, {place} AS file_index, file_row_number, filename FROM {source}")
        return f"({' UNION ALL '.join(parts)})"


def scan_sql(
    plan: ScanPlan,
    store: Store,
    prefix: str,
    columns: Sequence[Column],
    *,
    rows: bool = False,
    virtual: Mapping[str, str] | None = None,
    shapes: Mapping[int, Shape] = MappingProxyType({}),
    reads: Reads | None = None,
    guarded: bool = False,
    compared: Collection[str] = (),
) -> ScanSql:
    """Return the SQL of ``columns`` of a plan, with ``rows`` also ``ROW_COLUMNS``; ``prefix`` keeps names apart.

    ``virtual`` are virtual columns: name -> the name it gets. ``shapes`` are those of files whose nested columns differ
    from the table's, by row in the plan. ``reads`` is that of several scans; for ``guarded`` see ``needs_guard``, for
    ``compared`` see ``looked_up``. Raise ``UnsupportedFeatureError`` when the table has a column with one of our names.
    """
    kept = columns if guarded else looked_up(columns, compared)
    extra = virtual or {}
    refuse_names(plan, columns, {*(ROW_COLUMNS if rows else ()), *extra.values()})
    tables: list[tuple[str, pa.Table]] = []
    setup: list[str] = []
    parts: list[str] = []
    reads = Reads(store, f"{prefix}_keys") if reads is None else reads
    for number, branch in enumerate(branches(plan, shapes)):
        deleted = None
        if branch.deletes:
            deleted = f"{prefix}_del{number}"
            setup.append(_deleted_keys(plan, reads, branch, deleted, tables))
        facts = _Facts.of(plan, branch, f"{prefix}_files{number}") if rows or extra else None
        if facts is not None and facts.joined:
            tables.append((facts.name, facts.table))
        query = _files_query(plan, reads, branch, columns, deleted, facts, rows, extra, guarded=bool(kept))
        parts.append(_guard_columns(query, kept) if kept else query)
    if plan.inlined is not None and plan.inlined.num_rows:
        name = f"{prefix}_rows"
        # DuckDB would let Arrow filter a registered table, where NaN is not above every number, some comparisons
        # are missing, and times with a zone need a package
        tables.append((f"{name}_arrow", plan.inlined))
        setup.append(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {name}_arrow")
        query = _inlined_query(plan, name, columns, rows, extra, guarded=guarded)
        parts.append(_guard_columns(query, columns) if guarded else query)
    if not parts:
        select = [f"NULL::{column.duckdb_type()} AS {quote(column.name)}" for column in columns]
        select += [f"NULL::BIGINT AS {name}" for name in (ROW_COLUMNS if rows else ())]
        select += [f"NULL::{VIRTUAL[name].duckdb_type()} AS {quote(alias)}" for name, alias in extra.items()]
        parts.append(f"(SELECT {', '.join(select) or '1'} WHERE false)")
    return ScanSql(" UNION ALL ".join(parts), tuple(tables), tuple(setup), reads.variable, tuple(reads.keys))


def refuse_names(plan: ScanPlan, columns: Sequence[Column], reserved: Collection[str]) -> None:
    """Raise ``UnsupportedFeatureError`` when a column of the table has a name that is ours."""
    taken = next((column.name for column in columns if reserved and fold(column.name) in reserved), None)
    if taken is not None:
        raise UnsupportedFeatureError(
            f'the rows of "{plan.table_name}" cannot be identified beside its column "{taken}"',
            hint="rename the column",
        )


def branches(plan: ScanPlan, shapes: Mapping[int, Shape]) -> list[Branch]:
    """Return the files grouped by shape, in plan order as far as few groups can keep it."""
    groups: dict[tuple[bool, bool, int | None, Shape], list[int]] = {}
    runs: list[tuple[tuple[bool, bool, int | None, Shape], list[int]]] = []
    for index, kind in enumerate(plan.kinds):
        key = (*kind, shapes.get(index, ()))
        groups.setdefault(key, []).append(index)
        if not runs or runs[-1][0] != key:
            runs.append((key, []))
        runs[-1][1].append(index)
    return [
        Branch(tuple(indexes), deletes, some, mapping, shape)
        for (deletes, some, mapping, shape), indexes in (runs if len(runs) <= _RUNS else groups.items())
    ]


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts of each file of a branch that queries need; ``table`` has a row for each, in their order."""

    name: str
    table: pa.Table

    @classmethod
    def of(cls, plan: ScanPlan, branch: Branch, name: str) -> _Facts:
        files = branch.files(plan)
        columns = {fact: files.column(fact) for fact in ("row_id_start", "begin_snapshot", "data_file_id")}
        numbers = {"number": pa.array(range(files.num_rows), pa.int64()), "place": pa.array(branch.indexes, pa.int64())}
        return cls(name, pa.table({**numbers, **columns}))

    @property
    def joined(self) -> bool:
        """True when the query joins the table as ``f``; the facts of few files are in its text."""
        return bool(self.table.num_rows >= _MANY)

    def sql(self, fact: str) -> str:
        return f"f.{fact}" if self.joined else _of_file(self.table.column(fact).to_pylist())


def _files_query(
    plan: ScanPlan,
    reads: Reads,
    branch: Branch,
    columns: Sequence[Column],
    deleted: str | None,
    facts: _Facts | None,
    rows: bool,
    virtual: Mapping[str, str],
    *,
    guarded: bool,
) -> str:
    files = branch.files(plan)
    paths = files.column("path").to_pylist()
    if branch.mapping is None:
        fields, select = own_columns(branch, columns)
        if rows or "rowid" in virtual:
            fields.append(Field(FIELD_ROW_ID, "_ql_stored_row_id", "BIGINT"))
        if branch.partial or "snapshot_id" in virtual:
            fields.append(Field(FIELD_SNAPSHOT_ID, "_ql_snapshot_id", "BIGINT"))
    else:
        fields, select = mapped_columns(plan.mapping(branch.mapping), columns, reads.store.urls(paths))
    if rows and facts is not None:
        select += [
            f"{_virtual('rowid', facts, branch)} AS _ql_row_id",
            f"{facts.sql('data_file_id')} AS _ql_file_id",
            "NULL::BIGINT AS _ql_version",
            "p.file_row_number::BIGINT AS _ql_position",
        ]
    if facts is not None:
        select += [f"{_virtual(name, facts, branch)} AS {quote(alias)}" for name, alias in virtual.items()]
    select += [f"p.file_row_number AS {_GUARD}"] if guarded else []
    keys = files.column("encryption_key").to_pylist()
    source = reads.source(paths, keys, fields, pc.sum(files.column("record_count")).as_py())
    query = f"SELECT {', '.join(select) or '1'} FROM {source} p"
    if facts is not None and facts.joined:
        query += f" JOIN {facts.name} f ON f.number = p.file_index::BIGINT"
    if deleted is not None:
        query += f" ANTI JOIN {deleted} d ON {_is_deleted(files, plan)}"
    if branch.partial and branch.mapping is None:
        query += f" WHERE p._ql_snapshot_id IS NULL OR p._ql_snapshot_id <= {plan.snapshot_id:d}"
    return f"({query})"


def _is_deleted(files: pa.Table, plan: ScanPlan) -> str:
    """Return the condition of the anti-join: the row is one of the deleted keys.

    A row that is not deleted ends at the first look into the hash table, and DuckDB guesses wrongly there wherever a
    place in it is taken: with 1 % deleted that was most of the cost of the join. So the hash is that of a block of
    rows, the same for several in succession, and the row itself is compared only in blocks with deleted rows.
    """
    rows = pc.sum(files.column("record_count")).as_py() or 0
    deleted = (pc.sum(files.column("delete_count")).as_py() or 0) + plan.deletes.num_rows
    # about one block of four has a deleted row: fewer are more guesses, more are more comparisons
    block = min(max((rows // (4 * max(deleted, 1))).bit_length() - 1, 0), _BLOCK)
    if not block:
        return f"((p.file_index::BIGINT << {SHIFT}) | p.file_row_number) = d.key"
    position = f"(d.key & {(1 << SHIFT) - 1:d})"
    return (
        f"((p.file_index::BIGINT << {SHIFT - block:d}) | (p.file_row_number >> {block:d})) = (d.key >> {block:d})"
        f" AND p.file_row_number <= {position} AND p.file_row_number >= {position}"
    )


def own_columns(branch: Branch, columns: Sequence[Column]) -> tuple[list[Field], list[str]]:
    """Return the fields to read from files with field ids, and the select list for the table's columns."""
    stored = dict(branch.shape)
    # named by id: a user's column may be called file_index too
    fields = [
        Field(column.id, column_key(column), stored.get(column.id, column).duckdb_type(), column.initial_default)
        for column in columns
    ]
    values = [(column, f"p.{column_key(column)}") for column in columns]
    select = [
        f"{reshaped(value, stored[column.id], column) if column.id in stored else value} AS {quote(column.name)}"
        for column, value in values
    ]
    return fields, select


def _of_file(values: Sequence[int | None]) -> str:
    """Return one of these values for each file of a ``read_parquet``."""
    return f"{_list(values)}[p.file_index::BIGINT + 1]"


def _virtual(name: str, facts: _Facts, branch: Branch) -> str:
    if name == "rowid":
        counted = f"{facts.sql('row_id_start')} + p.file_row_number"
        # a file from elsewhere has no row ids of ours in it
        return f"coalesce(p._ql_stored_row_id, {counted})" if branch.mapping is None else counted
    if name == "snapshot_id":
        begin = facts.sql("begin_snapshot")
        return f"coalesce(p._ql_snapshot_id, {begin})" if branch.mapping is None else begin
    if name == "file_index":
        return f"{facts.sql('place')}::UBIGINT"
    return f"p.{name}"


def _read_parquet(urls: Iterable[str], fields: Sequence[Field], rows: int | None, config: str | None = None) -> str:
    files = list(urls)
    if len(files) == 1 and (rows or 0) > _ROW_GROUP and config is None and NOTHING.is_file():
        files.append(str(NOTHING))
    paths = ", ".join(file_literal(url) for url in files)
    schema = ", ".join(field.sql for field in fields)
    clauses = [f"schema=MAP {{{schema}}}", f"explicit_cardinality={max(rows or 0, 1):d}"]
    if config is not None:
        clauses.append(f"encryption_config={config}")
    return f"read_parquet([{paths}], {', '.join(clauses)})"


def _list(values: Sequence[int | None]) -> str:
    return "([" + ", ".join("NULL" if value is None else str(int(value)) for value in values) + "]::BIGINT[])"


def _deleted_keys(plan: ScanPlan, reads: Reads, branch: Branch, name: str, tables: list[tuple[str, pa.Table]]) -> str:
    """Return a statement that makes the temporary table of deleted rows: ``(file index << 40) | position``."""
    files = branch.files(plan)
    parts = []
    paths = files.column("delete_path").to_pylist()
    formats = files.column("delete_format").to_pylist()
    with_file = [index for index, path in enumerate(paths) if path is not None and formats[index] != "puffin"]
    if with_file:
        fields = [Field(NAME_POS, "pos", "BIGINT"), Field(NAME_SNAPSHOT_ID, "snapshot_id", "BIGINT")]
        keys = files.column("delete_encryption_key").to_pylist()
        some = [paths[index] for index in with_file]
        source = reads.source(some, [keys[index] for index in with_file], fields, None)
        parts.append(
            f"SELECT ({_list(with_file)}[file_index::BIGINT + 1] << {SHIFT}) | {_POSITION} AS key FROM {source}"
            f" WHERE snapshot_id IS NULL OR snapshot_id <= {plan.snapshot_id:d}"
        )
    vectors = [index for index, path in enumerate(paths) if path is not None and formats[index] == "puffin"]
    if vectors:
        counts = files.column("record_count").to_pylist()
        deleted = (deleted_positions(reads.store, paths[index], counts[index], plan.snapshot_id) for index in vectors)
        keyed = [
            pc.add(each, pa.scalar(index << SHIFT, pa.int64())) for index, each in zip(vectors, deleted, strict=True)
        ]
        tables.append((f"{name}_vectors", pa.table({"key": pa.chunked_array(keyed, pa.int64())})))
        parts.append(f"SELECT key FROM {name}_vectors")
    ids = files.column("data_file_id").combine_chunks()
    index = pc.index_in(plan.deletes.column("file_id"), value_set=ids)
    inline = pa.table({"file_index": index, "position": plan.deletes.column("row_id")}).filter(pc.is_valid(index))
    if inline.num_rows:
        tables.append((f"{name}_inline", inline))
        parts.append(f"SELECT (file_index::BIGINT << {SHIFT}) | position AS key FROM {name}_inline")
    return f"CREATE OR REPLACE TEMP TABLE {name} AS {' UNION ALL '.join(parts)}"


def small_table(name: str, table: pa.Table, tables: list[tuple[str, pa.Table]]) -> str:
    """Return numbers as a FROM item: in the text when they are few, else as a registered table, noted in ``tables``."""
    if table.num_rows >= _MANY:
        tables.append((name, table))
        return name
    columns = (f"unnest({_list(table.column(key).to_pylist())}) AS {key}" for key in table.column_names)
    return f"(SELECT {', '.join(columns)})"


def dated_deletes_query(files: pa.Table, reads: Reads) -> str:
    """Return the query for positions in delete files (``DELETE_FILES`` of a feed): ``key``, ``snapshot_id``."""
    fields = [Field(NAME_POS, "pos", "BIGINT"), Field(NAME_SNAPSHOT_ID, "stored", "BIGINT")]
    ids, begins, lasts = (
        _of_file(files.column(name).to_pylist()) for name in ("data_file_id", "begin_snapshot", "last")
    )
    paths, keys = (files.column(name).to_pylist() for name in ("path", "encryption_key"))
    source = reads.source(paths, keys, fields, None)
    dated = (
        f"SELECT ({ids} << {SHIFT}) | {_POSITION} AS key, coalesce(p.stored, {begins}) AS snapshot_id, {lasts} AS last"
    )
    return f"SELECT key, snapshot_id FROM ({dated} FROM {source} p) WHERE snapshot_id <= last"


def _inlined_query(
    plan: ScanPlan, name: str, columns: Sequence[Column], rows: bool, virtual: Mapping[str, str], *, guarded: bool
) -> str:
    marks = set() if plan.inlined is None else set(plan.inlined.column_names)
    select = [f"{_inlined_value(column, marks)} AS {quote(column.name)}" for column in columns]
    if rows:
        select += [
            "row_id AS _ql_row_id",
            "NULL::BIGINT AS _ql_file_id",
            "schema_version AS _ql_version",
            "row_id AS _ql_position",
        ]
    select += [f"{_inlined_virtual(key, plan)} AS {quote(alias)}" for key, alias in virtual.items()]
    select += [f"row_id AS {_GUARD}"] if guarded else []
    return f"(SELECT {', '.join(select) or '1'} FROM {name})"


def _inlined_value(column: Column, names: Collection[str]) -> str:
    """Return a column of inlined rows; a value that cannot be read is an error for who asks for it."""
    value, mark = f"CAST({column_key(column)} AS {column.duckdb_type()})", unreadable_key(column)
    if mark not in names:
        return value
    message = literal(f'{UNREADABLE}: column "{column.name}", rowid ')
    return f"CASE WHEN {mark} THEN error({message} || row_id) ELSE {value} END"


_GUARD = "_ql_guard"
_EQUALITY = re.compile(r"(?<![<>!])=|\b(?:in|any|some)\b", re.IGNORECASE)


def needs_guard(where: object) -> bool:
    """Return True for ``IS DISTINCT FROM``: DuckDB's readers skip blocks of nothing but NULL for it, wrongly."""
    return isinstance(where, str) and "distinct" in where.lower()


def looked_up(columns: Sequence[Column], compared: Collection[str]) -> list[Column]:
    """Return the columns that filters must not reach in a reader, of those that a query compares for equality.

    DuckDB 1.5 looks for one zero in bloom filters, which may have the other one.
    """
    if IS_2 or not compared:
        return []
    every = compared is EVERY_COLUMN
    floats = (column for column in columns if column.type in ("float32", "float64"))
    return [column for column in floats if every or fold(column.name) in compared]


def compared_names(where: object, columns: Sequence[Column]) -> Collection[str]:
    """Return the names of columns that a filter may compare for equality."""
    if not isinstance(where, str) or _EQUALITY.search(where) is None:
        return ()
    text = fold(where)
    return {fold(column.name) for column in columns if fold(column.name) in text}


def guarded_columns(names: Iterable[str], number: str) -> list[str]:
    """Return columns as expressions on ``number``, never NULL, so that filters on them stay out of the readers."""
    known = f"{quote(number)} > -9223372036854775807"
    return [f"CASE WHEN {known} THEN {quote(name)} END AS {quote(name)}" for name in names]


def _guard_columns(query: str, columns: Sequence[Column]) -> str:
    kept = guarded_columns([column.name for column in columns], _GUARD)
    return f"(SELECT * EXCLUDE ({_GUARD}) REPLACE ({', '.join(kept)}) FROM {query})" if kept else query


def _inlined_virtual(name: str, plan: ScanPlan) -> str:
    """Return a virtual column of inlined rows, whose tables count as files after the others."""
    local = f"schema_version = {LOCAL_VERSION:d}"
    if name == "filename":
        stored = literal(data_table_name(plan.table_id, 0).removesuffix("0"))
        return f"CASE WHEN {local} THEN '__ducklake_inlined_transaction_local_data' ELSE {stored} || schema_version END"
    if name == "file_index":
        assert plan.inlined is not None
        versions: set[int] = set(pc.unique(plan.inlined.column("schema_version")).to_pylist())
        # rows of an open transaction come after a table of the catalog, even where that has none
        committed: list[int | None] = [*sorted(versions - {LOCAL_VERSION})] or [None]
        ordered = [*committed, LOCAL_VERSION]
        return f"(list_position({_list(ordered)}, schema_version) + {plan.files.num_rows - 1:d})::UBIGINT"
    if name == "snapshot_id":
        return "begin_snapshot"
    # rows of an open transaction have negative ids
    return f"CASE WHEN {local} THEN -1 - row_id ELSE row_id END" if name == "file_row_number" else "row_id"
