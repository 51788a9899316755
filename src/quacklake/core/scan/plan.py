"""The scan plan: everything an engine needs to answer one read at one snapshot, as pure data.

A plan is the lake's manifest. It encodes to an Arrow IPC file that any Arrow reader can open: its table lists the data
files; the schema, the snapshot, inlined rows and inlined deletes travel in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core.format.mappings import MappingRow, NameMapping, flatten_mapping, unflatten_mappings
from quacklake.core.format.names import fold
from quacklake.core.format.schema import Column, ColumnRow, Past, TableSchema, flatten, unflatten
from quacklake.errors import CatalogError, CorruptFileError, NotPermittedError, QuacklakeError

#: One row per data file; ``path`` and ``delete_path`` are below the data root.
FILES = pa.schema(
    [
        ("data_file_id", pa.int64()),
        ("path", pa.string()),
        ("record_count", pa.int64()),
        ("file_size_bytes", pa.int64()),
        ("footer_size", pa.int64()),
        ("row_id_start", pa.int64()),
        ("begin_snapshot", pa.int64()),
        ("partial_max", pa.int64()),
        ("partition_id", pa.int64()),
        ("mapping_id", pa.int64()),
        ("encryption_key", pa.string()),
        ("delete_file_id", pa.int64()),
        ("delete_path", pa.string()),
        ("delete_format", pa.string()),
        ("delete_count", pa.int64()),
        ("delete_encryption_key", pa.string()),
    ]
)
#: The columns of ``FILES`` that are nobody's business but an engine's.
SECRET = ("encryption_key", "delete_encryption_key")
#: Deleted rows of data files that are not in delete files.
POSITIONS = pa.schema([("file_id", pa.int64()), ("row_id", pa.int64())])
#: The columns of inlined rows before the table's own, which are named ``c<id>``.
INLINED_META = ("row_id", "begin_snapshot", "schema_version")
#: The schema version of inlined rows that are not committed yet.
LOCAL_VERSION = -1

_FORMAT = b"quacklake.plan"
_INLINED = b"quacklake.inlined"
_DELETES = b"quacklake.deletes"
_VERSION = 1
_FACTS = (
    "table_id", "schema_name", "table_name", "snapshot_id", "root", "pruned", "shaped_at", "reshaped", "columns_since",
)  # fmt: skip
#: Errors that bytes may cause which are not a plan.
_DAMAGE = (
    pa.ArrowException,
    QuacklakeError,
    OSError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    RecursionError,
)


@dataclass(frozen=True, repr=False)
class Restriction:
    """The part of a table that a plan shows: ``values`` are SQL by column, in the rows that satisfy ``condition``.

    Both name the columns of ``plan``, which is that of the whole table, as ``visibility.value_name`` says.
    """

    plan: ScanPlan
    condition: str | None
    values: Mapping[str, str]
    masked: bool


_SHOWN = ("path", "record_count", "file_size_bytes")
_SHOWN_FILES = 100
"""The columns and the number of files that a notebook shows of a plan."""


@dataclass(frozen=True, repr=False)
class ScanPlan:
    """The files, deletes and inlined rows that are a table at one snapshot.

    ``pruned`` tells whether ``files`` leaves any out. Files that began after ``shaped_at`` have the fields inside their
    nested columns that ``schema`` says; in others these may have other names, or be missing. When a table was
    ``reshaped`` since it was made, that holds for compacted files of any age too. Files that began after
    ``columns_since`` and have a first row id have just the columns of ``schema``, under their names. ``past`` has the
    columns as they were, for encrypted files, which do not tell field ids.

    >>> from quacklake.extend.example import example_lake
    >>> with example_lake() as lake:
    ...     tx = lake.handle.view()
    ...     plan = tx.plan(tx.find_table("main", "events"))
    ...     plan.files.num_rows, plan.inlined.num_rows
    (1, 2)
    """

    table_id: int
    schema_name: str
    table_name: str
    snapshot_id: int
    root: str
    schema: TableSchema
    files: pa.Table
    deletes: pa.Table = field(default_factory=POSITIONS.empty_table)
    inlined: pa.Table | None = None
    pruned: bool = False
    shaped_at: int | None = None
    reshaped: bool = False
    mappings: tuple[NameMapping, ...] = ()
    columns_since: int | None = None
    past: Past = ()
    restriction: Restriction | None = None
    """The part that the plan may show to its principal. Then it lists nothing itself."""

    @property
    def whole(self) -> ScanPlan:
        """The plan of the whole table, for writers: it has the files that a change touches."""
        return self if self.restriction is None else self.restriction.plan

    def __repr__(self) -> str:
        """Return a text without the tables: that of the files holds encryption keys."""
        inlined = 0 if self.inlined is None else self.inlined.num_rows
        return (
            f"<ScanPlan of {self.schema_name}.{self.table_name} at snapshot {self.snapshot_id}:"
            f" {self.files.num_rows} files, {self.deletes.num_rows} deletes and {inlined} rows of the catalog>"
        )

    def _repr_html_(self) -> str:
        """Return the files of the plan for a notebook, without their encryption keys."""
        import html

        listed = zip(*(self.files.column(name).to_pylist() for name in _SHOWN), strict=True)
        rows = [f"<tr>{''.join(f'<td>{html.escape(str(value))}</td>' for value in row)}</tr>" for row in listed]
        more = f"<p>{len(rows) - _SHOWN_FILES:,} more</p>" if len(rows) > _SHOWN_FILES else ""
        head = "".join(f"<th>{name}</th>" for name in _SHOWN)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows[:_SHOWN_FILES])}</tbody></table>{more}"
        return f"<p>{html.escape(repr(self)[1:-1])}</p>{table}"

    def mapping(self, id_: int) -> NameMapping:
        """Return the name mapping of files from elsewhere. Raise ``CatalogError`` when there is none."""
        mapping = next((each for each in self.mappings if each.id == id_), None)
        if mapping is None:
            raise CatalogError(
                f"files of {self.schema_name}.{self.table_name} need the name mapping {id_}, which is gone"
            )
        return mapping

    @cached_property
    def deleted_counts(self) -> dict[int, int]:
        """The number of rows that ``deletes`` has of each file."""
        if not self.deletes.num_rows:
            return {}
        counts = pc.value_counts(self.deletes.column("file_id")).to_pylist()
        return {entry["values"]: entry["counts"] for entry in counts}

    def count(self) -> int | None:
        """Return the number of rows, when the metadata alone can tell, else None.

        A delete file may hold deletes of snapshots after this one without saying so, and so may a file of several
        snapshots hold rows of later ones: then the rows must be counted.
        """
        if self.restriction is not None:
            return None
        unsure = pc.or_(pc.is_valid(self.files.column("partial_max")), pc.is_valid(self.files.column("delete_path")))
        if self.pruned or pc.any(unsure).as_py():
            return None
        rows = pc.sum(self.files.column("record_count")).as_py() or 0
        return int(rows - self.deletes.num_rows + (self.inlined.num_rows if self.inlined is not None else 0))

    @cached_property
    def kinds(self) -> Sequence[tuple[bool, bool, int | None]]:
        """For each file: whether it has deletes, whether it holds rows of later snapshots, and its mapping."""
        files, deleted = self.files, self.deletes.column("file_id").combine_chunks()
        with_deletes = pc.is_in(files.column("data_file_id"), value_set=deleted)
        deletes = pc.or_(pc.is_valid(files.column("delete_path")), with_deletes)
        partial = pc.fill_null(pc.greater(files.column("partial_max"), self.snapshot_id), False)
        columns = (deletes, partial, files.column("mapping_id"))
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def of_files(self, ids: Iterable[int]) -> ScanPlan:
        """Return the plan of some of the files, without inlined rows."""
        chosen = pa.array(sorted(ids), pa.int64())
        files = self.files.filter(pc.is_in(self.files.column("data_file_id"), value_set=chosen))
        deletes = self.deletes.filter(pc.is_in(self.deletes.column("file_id"), value_set=chosen))
        return replace(self, files=files, deletes=deletes, inlined=None)

    def where(self, chosen: pa.Array) -> ScanPlan:
        """Return the plan of a filter that leaves out some of the files; ``chosen`` has a flag for each file."""
        files = self.files.filter(chosen)
        deletes = self.deletes
        if deletes.num_rows:
            deletes = deletes.filter(pc.is_in(deletes.column("file_id"), value_set=files.column("data_file_id")))
        mapped = set(files.column("mapping_id").to_pylist()) if self.mappings else ()
        mappings = tuple(mapping for mapping in self.mappings if mapping.id in mapped)
        keys = files.column("encryption_key")
        past = self.past if keys.null_count < len(keys) else ()
        return replace(self, files=files, deletes=deletes, pruned=True, mappings=mappings, past=past)

    def without_inlined(self, targets: pa.Table) -> ScanPlan:
        """Return the plan less some inlined rows, named by ``schema_version`` and ``row_id``."""
        if self.inlined is None or not targets.num_rows:
            return self
        gone = set(zip(targets.column("schema_version").to_pylist(), targets.column("row_id").to_pylist(), strict=True))
        versions, ids = (self.inlined.column(name).to_pylist() for name in ("schema_version", "row_id"))
        keep = pa.array([key not in gone for key in zip(versions, ids, strict=True)], pa.bool_())
        return replace(self, inlined=self.inlined.filter(keep))

    def to_ipc(self) -> bytes:
        """Return the plan as an Arrow IPC file. That of an encrypted lake holds the keys of its files."""
        if self.restriction is not None:
            raise NotPermittedError("a plan with row filters or masks is not handed out", hint="read the rows instead")
        facts = {
            "version": _VERSION,
            **{name: getattr(self, name) for name in _FACTS},
            "columns": [asdict(row) for row in flatten(self.schema)],
            "past": [(since, [asdict(row) for row in flatten(schema)]) for since, schema in self.past],
            "mappings": [asdict(row) for mapping in self.mappings for row in flatten_mapping(mapping)],
        }
        metadata = {_FORMAT: json.dumps(facts).encode(), _DELETES: _write(self.deletes)}
        if self.inlined is not None:
            metadata[_INLINED] = _write(self.inlined)
        return _write(self.files.replace_schema_metadata(metadata))

    @classmethod
    def from_ipc(cls, data: bytes) -> ScanPlan:
        """Return the plan that ``to_ipc`` encoded. Raise ``CorruptFileError`` for anything else."""
        try:
            files = _read(data)
            metadata: dict[bytes, bytes] = files.schema.metadata or {}
            facts: dict[str, Any] = json.loads(metadata[_FORMAT])
            files = files.select(FILES.names)  # a manifest has more columns
            if facts.pop("version") != _VERSION or not files.schema.equals(FILES):
                raise ValueError("version")
            schema = unflatten(ColumnRow(**row) for row in facts.pop("columns"))
            mappings = unflatten_mappings(MappingRow(**row) for row in facts.pop("mappings", ()))
            past = [(since, unflatten(ColumnRow(**row) for row in rows)) for since, rows in facts.pop("past", ())]
            inlined = metadata.get(_INLINED)
            return cls(
                **facts,
                schema=schema,
                past=tuple(past),
                mappings=mappings,
                files=files.replace_schema_metadata(None),
                deletes=_read(metadata[_DELETES]),
                inlined=None if inlined is None else _read(inlined),
            )
        except _DAMAGE:
            raise CorruptFileError("these bytes are not an encoded scan plan") from None


UNREADABLE = "the catalog holds an inlined row that cannot be read"
"""The words of the error about such a row."""
UNREADABLE_HINT = "its other columns and all other rows can be read; DELETE … WHERE rowid = … removes the row"


def unreadable_key(column: Column) -> str:
    """Return the name of a column in ``ScanPlan.inlined`` that is true where the value of another cannot be read."""
    return f"unreadable{column.id}"


def column_key(column: Column) -> str:
    """Return the name of a column in ``ScanPlan.inlined``."""
    return f"c{column.id}"


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _read(data: bytes) -> pa.Table:
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    table.validate(full=True)  # the bytes may come from anywhere, and Arrow does not check them
    return table


PARTITION_VALUES = pa.list_(pa.struct([("key_index", pa.int64()), ("value", pa.string())]))
"""The values that all rows of a file have in the keys of its partitioning, as texts."""

STATISTICS = pa.list_(
    pa.struct(
        [
            ("column_id", pa.int64()),
            ("value_count", pa.int64()),
            ("null_count", pa.int64()),
            ("min_value", pa.string()),
            ("max_value", pa.string()),
            ("contains_nan", pa.bool_()),
        ]
    )
)
"""Statistics of the columns of a file; bounds are texts, and NULL where nothing is known."""


def encode_manifest(
    plan: ScanPlan,
    values: Mapping[int, Mapping[int, str | None]],
    statistics: Mapping[int, Sequence[Mapping[str, Any]]],
) -> bytes:
    """Return the encoded plan with ``partition_values`` and ``column_statistics``, which ``from_ipc`` leaves out."""
    ids = plan.files.column("data_file_id").to_pylist()
    keys = [[{"key_index": index, "value": text} for index, text in values.get(id_, {}).items()] for id_ in ids]
    known = [[dict(entry) for entry in statistics.get(id_, ())] for id_ in ids]
    files = plan.files.append_column("partition_values", pa.array(keys, PARTITION_VALUES))
    files = files.append_column("column_statistics", pa.array(known, STATISTICS))
    return replace(plan, files=files).to_ipc()


@dataclass(frozen=True, slots=True)
class ColumnMeasure:
    """The measured contents of a column: values outside of its bounds, NULLs, NaN."""

    outside: bool
    nulls: int
    nan: bool


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """The measured contents of a file; ``file_id`` is None for a whole table. Snapshots and row ids are extremes."""

    file_id: int | None
    rows: int
    first_snapshot: int | None
    last_snapshot: int | None
    last_row_id: int | None
    columns: Mapping[int, ColumnMeasure]


@dataclass(frozen=True, slots=True)
class PositionMeasure:
    rows: int
    lowest: int | None
    highest: int | None
    ordered: bool


#: The virtual columns by name; their ids are no field's.
VIRTUAL = {
    column.name: column
    for column in (
        Column(-1, "rowid", "int64"),
        Column(-2, "snapshot_id", "int64"),
        Column(-3, "filename", "varchar"),
        Column(-4, "file_row_number", "int64"),
        Column(-5, "file_index", "uint64"),
    )
}


def virtual_column(schema: TableSchema, name: str) -> Column | None:
    """Return the virtual column of that name; None when there is none or a column of the table hides it."""
    return VIRTUAL.get(fold(name)) if schema.get(name) is None else None


def find_column(schema: TableSchema, name: str) -> Column:
    """Return the column of that name, virtual ones among them. Raise ``InputError`` with the nearest names."""
    return virtual_column(schema, name) or schema.find(name)


def with_virtual(schema: TableSchema) -> TableSchema:
    """Return the columns a filter can speak of."""
    return TableSchema((*schema.columns, *(c for c in VIRTUAL.values() if schema.get(c.name) is None)))
