"""What moves between the layers: schemas, tables and files, as the catalog knows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from quacklake.format.partitions import PartitionSpec
from quacklake.format.schema import TableSchema
from quacklake.format.sorting import SortSpec

EXPRESSION = "expression"
"""The type of a macro's default that is an expression, which 1.1 has."""

FIELD_ROW_ID = 2147483540
FIELD_SNAPSHOT_ID = 2147483539
FIELD_FILE_PATH = 2147483646
FIELD_POS = 2147483645

NAME_ROW_ID = "_ducklake_internal_row_id"
NAME_SNAPSHOT_ID = "_ducklake_internal_snapshot_id"
NAME_FILE_PATH = "file_path"
NAME_POS = "pos"

RESERVED_FIELDS = {
    FIELD_ROW_ID: NAME_ROW_ID,
    FIELD_SNAPSHOT_ID: NAME_SNAPSHOT_ID,
    FIELD_FILE_PATH: NAME_FILE_PATH,
    FIELD_POS: NAME_POS,
}
"""The Parquet field ids that are never a column's, and the names that go with them."""


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema at one snapshot; ``path`` is below the data root unless ``path_is_relative`` is false.

    One inside another, which 1.1 has, names that in ``parent_id`` and has a full name; see ``format.names``.
    """

    id: int
    uuid: str
    name: str
    path: str
    path_is_relative: bool
    parent_id: int | None = None


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A view at one snapshot; ``aliases`` name its columns, the first ones at least, where the query does not."""

    id: int
    uuid: str
    schema_id: int
    schema_name: str
    name: str
    sql: str
    aliases: tuple[str, ...] = ()
    dialect: str = "duckdb"

    @property
    def qualified_name(self) -> str:
        return f"{self.schema_name}.{self.name}"


@dataclass(frozen=True, slots=True)
class MacroParameter:
    """A parameter of a macro: a type of ours or ``unknown``, and the text of its default, if it has one."""

    name: str
    type: str = "unknown"
    default: str | None = None
    default_type: str = "unknown"


@dataclass(frozen=True, slots=True)
class MacroVariant:
    """One form of a macro: its parameters and the expression, or the query of a table macro."""

    parameters: tuple[MacroParameter, ...]
    sql: str
    dialect: str = "duckdb"


@dataclass(frozen=True, slots=True)
class MacroInfo:
    """A macro at one snapshot; ``is_table`` when it yields rows instead of a value."""

    id: int
    schema_id: int
    schema_name: str
    name: str
    is_table: bool
    variants: tuple[MacroVariant, ...]

    @property
    def qualified_name(self) -> str:
        return f"{self.schema_name}.{self.name}"


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table at one snapshot; ``path`` is below its schema's unless ``path_is_relative`` is false.

    ``partition`` and ``sort`` say how new files are laid out; a partitioning that was reset is one without keys.
    ``columns_since`` is the snapshot of the last change of a column that is still there; None when it is not known.
    """

    id: int
    uuid: str
    schema_id: int
    schema_name: str
    name: str
    path: str
    path_is_relative: bool
    schema: TableSchema
    schema_version: int
    schema_path: str = ""
    schema_path_is_relative: bool = True
    partition: PartitionSpec | None = None
    sort: SortSpec | None = None
    columns_since: int | None = field(default=None, compare=False)

    @property
    def location(self) -> str:
        """The folder of the table's files: below the data root, or absolute."""
        if not self.path_is_relative:
            return self.path
        return self.schema_path + self.path

    @property
    def qualified_name(self) -> str:
        return f"{self.schema_name}.{self.name}"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file; ``path`` is below its table's unless ``path_is_relative`` is false.

    ``row_id_start`` is ``None`` when the rows carry their ids in the file, ``partial_max`` the newest
    snapshot among rows of several snapshots. The encryption key never appears in ``repr()``.
    """

    id: int
    table_id: int
    begin_snapshot: int
    end_snapshot: int | None
    path: str
    path_is_relative: bool
    record_count: int
    file_size_bytes: int
    footer_size: int | None = None
    row_id_start: int | None = None
    partition_id: int | None = None
    encryption_key: str | None = field(default=None, repr=False)
    mapping_id: int | None = None
    partial_max: int | None = None
    row_groups: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The deleted positions of one data file; ``format`` is ``parquet`` or ``puffin``."""

    id: int
    table_id: int
    data_file_id: int
    begin_snapshot: int
    end_snapshot: int | None
    path: str
    path_is_relative: bool
    format: str
    delete_count: int
    file_size_bytes: int
    footer_size: int | None = None
    encryption_key: str | None = field(default=None, repr=False)
    partial_max: int | None = None
    row_groups: int | None = None
