"""The metadata tables of DuckLake as data, and as SQLAlchemy tables of one lake; the versions of the format.

``SPEC`` is the one place that names the stock tables and their columns. A lake of an older format version lacks some of
them; ``Tables`` knows which, so that readers select NULL in their place (``Tables.column``). In a shared lake tables
have one column more, of which only ``quacklake.core.catalog.scoped`` and ``quacklake.core.catalog.shared_tables`` know.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

from quacklake.core.catalog import scoped
from quacklake.core.catalog.indexes import COVERED, INDEXES
from quacklake.core.catalog.name_keys import name_indexes
from quacklake.core.format.snapshots import format_time, parse_time
from quacklake.errors import CatalogError

VERSION = "1.0"
"""The version of a new lake, unless another is asked for."""
NEXT = "1.1"
DEVELOPMENT = "1.1-dev1"
"""The extension's name for 1.1 before its release."""

WRITABLE_VERSIONS = (VERSION, NEXT, DEVELOPMENT)
READABLE_VERSIONS = ("0.1", "0.2", "0.3-dev1", "0.3", "0.4-dev1", "0.4", *WRITABLE_VERSIONS)

Part = tuple[str, str | None]
"""A column of a table, or the whole table."""

#: The columns that 1.1 adds, always last: stock DuckLake inserts by position.
ADDED_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "schema": "parent_schema_id:id",
        "data_file": "row_group_count:id",
        "delete_file": "row_group_count:id",
        "file_column_stats": "min_is_exact:flag max_is_exact:flag",
        "table_column_stats": "min_is_exact:flag max_is_exact:flag",
    }
)
ADDED_TABLES: Mapping[str, str] = MappingProxyType(
    {"view_column_tag": "view_id:id column_name:text begin_snapshot:id end_snapshot:id key:text value:text"}
)
#: All of it.
PARTS: frozenset[Part] = frozenset(
    [(table, column.split(":")[0]) for table, columns in ADDED_COLUMNS.items() for column in columns.split()]
    + [(table, None) for table in ADDED_TABLES]
)


def has_next(version: str) -> bool:
    """Return true for 1.1, also before its release.

    >>> [has_next(version) for version in ("0.4", "1.0", "1.1-dev1", "1.1")]
    [False, False, True, True]
    """
    return version.split("-")[0] == NEXT


def database_of(dialect: Dialect) -> str:
    """Return the database behind a dialect: ``sqlite``, ``duckdb``, ``postgres`` or ``mysql``."""
    return {"postgresql": "postgres", "mariadb": "mysql"}.get(dialect.name, dialect.name)


class TextBytes(sa.LargeBinary):
    """A column of bytes that are a text in UTF-8."""


class NamedType(UserDefinedType[Any]):
    """A column type by its SQL name; values pass through unchanged."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


# Stock DuckLake keeps booleans as integers, times and UUIDs as text on SQLite; elsewhere they have types of their
# own. MySQL, which stock DuckLake does not support, follows SQLite. In Python they are always ``bool``, an aware UTC
# ``datetime`` and ``str``.


class Id(TypeDecorator[int]):
    """A 64-bit integer."""

    impl = sa.BigInteger
    cache_ok = True


class Text(TypeDecorator[str]):
    """Text of any length, compared byte by byte."""

    impl = sa.String
    cache_ok = True
    length: int | None = None

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if database_of(dialect) != "mysql":
            return dialect.type_descriptor(sa.String())
        from sqlalchemy.dialects import mysql

        options: Any = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
        long = self.length is None
        return dialect.type_descriptor(mysql.LONGTEXT(**options) if long else mysql.VARCHAR(self.length, **options))


class Name(Text):
    """A short text that may be a key, compared byte by byte."""

    cache_ok = True
    length = 190


class Flag(TypeDecorator[bool]):
    """A boolean."""

    impl = sa.Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if database_of(dialect) in ("sqlite", "mysql"):
            return dialect.type_descriptor(sa.BigInteger())
        return dialect.type_descriptor(sa.Boolean())

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        return int(value) if database_of(dialect) in ("sqlite", "mysql") else bool(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], bool | None]:
        return flag


def flag(value: Any) -> bool | None:
    """Return the boolean that a database has stored in one way or another."""
    # sqlite_scanner stores booleans that other clients wrote as text ('true') too
    if isinstance(value, str):
        return value.lower() in ("1", "true", "t")
    return None if value is None else bool(value)


def _text_unless_duckdb(dialect: Dialect, name: str) -> TypeEngine[Any]:
    database = database_of(dialect)
    if database == "duckdb":
        return dialect.type_descriptor(NamedType(name))
    return dialect.type_descriptor(sa.VARCHAR(64) if database == "mysql" else sa.String())


class Uid(TypeDecorator[str]):
    """A UUID, as text in Python."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if database_of(dialect) == "postgres":
            from sqlalchemy.dialects import postgresql

            return dialect.type_descriptor(postgresql.UUID(as_uuid=False))
        return _text_unless_duckdb(dialect, "UUID")

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else str(value)


def readable_time(time: sa.ColumnElement[Any], database: str, name: str) -> sa.ColumnElement[Any]:
    """Return a time, called ``name``, in a form that can be read: duckdb's Python client needs pytz for zoned ones."""
    return sa.type_coerce(sa.cast(time, sa.String), Instant()).label(name) if database == "duckdb" else time


class Instant(TypeDecorator[dt.datetime]):
    """A point in time with microseconds, UTC."""

    impl = sa.String
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if database_of(dialect) == "postgres":
            return dialect.type_descriptor(sa.DateTime(timezone=True))
        return _text_unless_duckdb(dialect, "TIMESTAMP WITH TIME ZONE")

    def process_bind_param(self, value: dt.datetime | None, dialect: Dialect) -> Any:
        if value is None or database_of(dialect) == "postgres":
            return value
        return format_time(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> dt.datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            return parse_time(value)
        try:
            return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else None
        except OverflowError:
            raise CatalogError(f"the time {value} is beyond all years") from None


class ClaimedInstant(Instant):
    """A point in time for those who look at many catalogs; None where a catalog has written none that can be read."""

    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> dt.datetime | None:
        try:
            return super().process_result_value(value, dialect)
        except CatalogError:
            return None


_EARLIEST, _LATEST = dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(9000, 1, 1, tzinfo=dt.UTC)


def claimed_time(time: sa.ColumnElement[Any], database: str, name: str) -> sa.ColumnElement[Any]:
    """Like ``readable_time``, but NULL for a time that cannot be read, such as one of PostgreSQL beyond all years."""
    if database == "postgres":
        time = sa.case((time.between(_EARLIEST, _LATEST), time))
    return sa.type_coerce(readable_time(time, database, name), ClaimedInstant()).label(name)


KINDS: Mapping[str, type[sa.types.TypeEngine[Any]]] = {
    "id": Id,
    "text": Text,
    "flag": Flag,
    "name": Name,
    "uid": Uid,
    "time": Instant,
}
_LIFE = "begin_snapshot:id end_snapshot:id"

_TABLES = {
    "metadata": "key:text! value:text! scope:text scope_id:id",
    "snapshot": "snapshot_id:id* snapshot_time:time schema_version:id next_catalog_id:id next_file_id:id",
    "snapshot_changes": "snapshot_id:id* changes_made:text author:text commit_message:text commit_extra_info:text",
    "schema": f"schema_id:id* schema_uuid:uid {_LIFE} schema_name:text path:text path_is_relative:flag",
    "table": f"table_id:id table_uuid:uid {_LIFE} schema_id:id table_name:text path:text path_is_relative:flag",
    "view": f"view_id:id view_uuid:uid {_LIFE} schema_id:id view_name:text dialect:text sql:text column_aliases:text",
    "tag": f"object_id:id {_LIFE} key:text value:text",
    "column_tag": f"table_id:id column_id:id {_LIFE} key:text value:text",
    "data_file": f"data_file_id:id* table_id:id {_LIFE} file_order:id path:text path_is_relative:flag file_format:text"
    " record_count:id file_size_bytes:id footer_size:id row_id_start:id partition_id:id encryption_key:text"
    " mapping_id:id partial_max:id",
    "file_column_stats": "data_file_id:id table_id:id column_id:id column_size_bytes:id value_count:id null_count:id"
    " min_value:text max_value:text contains_nan:flag extra_stats:text",
    "file_variant_stats": "data_file_id:id table_id:id column_id:id variant_path:text shredded_type:text"
    " column_size_bytes:id value_count:id null_count:id min_value:text max_value:text contains_nan:flag"
    " extra_stats:text",
    "delete_file": f"delete_file_id:id* table_id:id {_LIFE} data_file_id:id path:text path_is_relative:flag format:text"
    " delete_count:id file_size_bytes:id footer_size:id encryption_key:text partial_max:id",
    "column": f"column_id:id {_LIFE} table_id:id column_order:id column_name:text column_type:text initial_default:text"
    " default_value:text nulls_allowed:flag parent_column:id default_value_type:text default_value_dialect:text",
    "table_stats": "table_id:id record_count:id next_row_id:id file_size_bytes:id",
    "table_column_stats": "table_id:id column_id:id contains_null:flag contains_nan:flag min_value:text max_value:text"
    " extra_stats:text",
    "partition_info": f"partition_id:id table_id:id {_LIFE}",
    "partition_column": "partition_id:id table_id:id partition_key_index:id column_id:id transform:text",
    "file_partition_value": "data_file_id:id table_id:id partition_key_index:id partition_value:text",
    "files_scheduled_for_deletion": "data_file_id:id path:text path_is_relative:flag schedule_start:time",
    "inlined_data_tables": "table_id:id table_name:text schema_version:id",
    "column_mapping": "mapping_id:id table_id:id type:text",
    "name_mapping": "mapping_id:id column_id:id source_name:text target_field_id:id parent_column:id is_partition:flag",
    "schema_versions": "begin_snapshot:id schema_version:id table_id:id",
    "macro": f"schema_id:id macro_id:id macro_name:text {_LIFE}",
    "macro_impl": "macro_id:id impl_id:id dialect:text sql:text type:text",
    "macro_parameters": "macro_id:id impl_id:id column_id:id parameter_name:text parameter_type:text default_value:text"
    " default_value_type:text",
    "sort_info": f"sort_id:id table_id:id {_LIFE}",
    "sort_expression": "sort_id:id table_id:id sort_key_index:id expression:text dialect:text sort_direction:text"
    " null_order:text",
}
#: Our own tables, never read by stock DuckLake.
OWN_TABLES: Mapping[str, str] = MappingProxyType(
    {
        "commits": "token:uid* snapshot_id:id",
        "snapshot_tags": "name:name* snapshot_id:id created:time",
        "retention": "table_id:id* keep:text",
        "leases": "lease_id:id* holder:uid! expires_ms:id!",
        "streams": "name:name* query:text! run:text! epoch:id! position:text snapshot_id:id",
        "checkpoints": "stream:name* checkpoint_id:id* state:name! manifest:text! created:time",
        "definitions": "kind:name* name:name* body:text! state:name! created:time",
        "principals": "name:name* state:name! created:time",
        "tokens": "token_id:name* principal:name! hash:text! expires_ms:id created:time",
        "roles": "role:name* member:name* created:time",
        "privileges": "grant_id:uid* grantee:name! privilege:name! scope:name! schema_id:id object_id:id column_id:id"
        " created:time",
        "policies": "policy_id:uid* kind:name! name:name! table_id:id! schema_name:name! table_name:name!"
        " column_id:id column_name:text role:name expression:text! columns:text! created:time",
    }
)

#: Those of our own tables that shared lakes of older versions lack.
ADDED_LATER = ("checkpoints", "definitions", "principals", "tokens", "roles", "privileges", "policies")

#: The additions of each older format version: table -> columns, or None for the whole table.
ADDED_BY: Mapping[str, Mapping[str, tuple[str, ...] | None]] = {
    "0.2": {
        "column_mapping": None,
        "name_mapping": None,
        "schema": ("path", "path_is_relative"),
        "table": ("path", "path_is_relative"),
        "metadata": ("scope", "scope_id"),
        "data_file": ("mapping_id",),
    },
    "0.3": {
        "schema_versions": None,
        "name_mapping": ("is_partition",),
        "snapshot_changes": ("author", "commit_message", "commit_extra_info"),
        "file_column_stats": ("extra_stats",),
        "table_column_stats": ("extra_stats",),
    },
    "0.4": {
        **dict.fromkeys(("macro", "macro_impl", "macro_parameters", "sort_info", "sort_expression"), None),
        "file_variant_stats": None,
        "column": ("default_value_type", "default_value_dialect"),
        "schema_versions": ("table_id",),
        "data_file": ("partial_max",),
        "delete_file": ("partial_max",),
    },
}
_RENAMED_02 = {"file_column_stats": "ducklake_file_column_statistics"}

#: Values for columns that a version lacks, if not NULL.
_ASSUMED: Mapping[str, Any] = {"path": "", "path_is_relative": True}

#: In place of ``partial_max``, up to 0.3: a text such as ``partial_max:7``.
_PARTIAL = "partial_file_info"
_PARTIAL_MAX = "partial_max:"

#: A catalog that was dropped has no snapshots any more, and so nothing at all.
_ALIVE = "EXISTS (SELECT 1 FROM {schema}ducklake_catalog c WHERE c.catalog_id = {catalog} AND c.dropped_ms IS NULL)"


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column of a metadata table."""

    name: str
    kind: str
    primary_key: bool
    required: bool

    @classmethod
    def parse(cls, text: str) -> ColumnSpec:
        name, kind = text.split(":")
        return cls(name, kind.rstrip("*!"), kind.endswith("*"), kind.endswith("!"))

    def made(self) -> sa.Column[Any]:
        """Return a new column of a table."""
        return sa.Column(
            self.name,
            KINDS[self.kind](),
            primary_key=self.primary_key,
            autoincrement=False,
            nullable=not (self.required or self.primary_key),
        )


def _parse_columns(columns: str) -> tuple[ColumnSpec, ...]:
    return tuple(ColumnSpec.parse(part) for part in columns.split())


class _LateTables(Mapping[str, sa.Table]):
    """Tables by name, each made when it is first asked for: a statement needs a few of eighty."""

    def __init__(self, makers: Mapping[str, Callable[[], sa.Table]]) -> None:
        self._makers = makers
        self._made: dict[str, sa.Table] = {}

    def __getitem__(self, name: str) -> sa.Table:
        found = self._made.get(name)
        return self._made.setdefault(name, self._makers[name]()) if found is None else found

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


Spec = Mapping[str, tuple[ColumnSpec, ...]]

#: Every stock table of 1.0, without its ``ducklake_`` prefix, with its columns in order.
SPEC: Spec = MappingProxyType({name: _parse_columns(columns) for name, columns in _TABLES.items()})
#: The same for 1.1.
WIDE_SPEC: Spec = MappingProxyType(
    {
        **{name: columns + _parse_columns(ADDED_COLUMNS.get(name, "")) for name, columns in SPEC.items()},
        **{name: _parse_columns(columns) for name, columns in ADDED_TABLES.items()},
    }
)


class Tables:
    """The tables of a lake: a schema name, a format version, and what exists in it. ``of`` makes them once."""

    @staticmethod
    def of(
        version: str = VERSION,
        metadata_schema: str | None = None,
        *,
        shared: bool = False,
        lacking: frozenset[Part] = frozenset(),
    ) -> Tables:
        """Return the tables of all lakes of a version in a schema of that name, which share compiled statements."""
        return _tables(version, metadata_schema, shared, lacking)

    def __init__(
        self, version: str, metadata_schema: str | None = None, shared: bool = False, lacking: Iterable[Part] = ()
    ) -> None:
        self.version = version
        self.shared = shared
        #: True for a lake of the format version 1.1.
        self.is_next = has_next(version)
        #: The parts of 1.1 that the lake has.
        self.parts = PARTS.difference(lacking) if self.is_next else frozenset()
        self.metadata = sa.MetaData(schema=metadata_schema)
        #: Statements over these tables; values are parameters, so that all lakes of this form share them.
        self.statements: dict[Any, Any] = {}
        #: The texts that make these tables and our indexes, by the kind and version of the database.
        self.definitions: dict[Any, str] = {}
        base = version.split("-")[0]
        missing: dict[str, tuple[str, ...] | None] = {}
        for later, added in ADDED_BY.items():
            for name, names in added.items() if later > base else ():
                before = missing.get(name, ())
                missing[name] = None if names is None or before is None else (*before, *names)
        renamed = _RENAMED_02 if base <= "0.2" else {}
        stock: dict[str, Callable[[], sa.Table]] = {}
        self._indexes: dict[str, list[sa.Index]] = {}
        for name, columns in WIDE_SPEC.items():
            absent = missing.get(name, ())
            if absent is not None and not self._lacks(name, None):
                present = tuple(
                    column for column in columns if column.name not in absent and not self._lacks(name, column.name)
                )
                if name == "data_file" and base <= "0.3":
                    present += (ColumnSpec.parse(f"{_PARTIAL}:text"),)
                stock[name] = functools.partial(self._table, renamed.get(name, f"ducklake_{name}"), present)
        own = {name: functools.partial(self._table, f"quacklake_{name}", text) for name, text in OWN_TABLES.items()}
        self._tables = _LateTables(stock)
        self.own: Mapping[str, sa.Table] = _LateTables(own)

    def _lacks(self, table: str, column: str | None) -> bool:
        part = (table, column)
        return part in PARTS and part not in self.parts

    def _table(self, name: str, columns: str | tuple[ColumnSpec, ...]) -> sa.Table:
        # metadata of its own: two threads may make a table at once, and the first one made is that of all
        alone = sa.MetaData(schema=self.metadata.schema)
        specs = _parse_columns(columns) if isinstance(columns, str) else columns
        table = sa.Table(name, alone, *(column.made() for column in specs))
        if self.shared:
            scoped.place(table, scoped.physical(table), alive=_ALIVE if name == "ducklake_snapshot" else None)
        return table

    def __getitem__(self, name: str) -> sa.Table:
        return self._tables[name]

    def get(self, name: str) -> sa.Table | None:
        """Return a table, or None where this format version has none."""
        return self._tables.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._tables

    def column(self, table: str, name: str) -> sa.ColumnElement[Any]:
        """Return a column, or what holds in its place where this format version has none: mostly NULL."""
        known = self._tables[table].c.get(name) if table in self._tables else None
        if known is not None:
            return known
        if name == "partial_max" and _PARTIAL in self._tables[table].c:
            return partial_max(self._tables[table].c[_PARTIAL]).label(name)
        kind = KINDS[next(column.kind for column in WIDE_SPEC[table] if column.name == name)]()
        if name in _ASSUMED:
            return sa.literal(_ASSUMED[name], kind).label(name)
        return sa.cast(sa.null(), kind).label(name)

    def columns(self, table: str, names: str) -> list[sa.ColumnElement[Any]]:
        """Return some columns of a table as ``column`` does."""
        return [self.column(table, name) for name in names.split()]

    def stock(self) -> list[sa.Table]:
        """Return the stock tables, in creation order."""
        return list(self._tables.values())

    def indexes(self, database: str) -> list[sa.Index]:
        """Return our indexes over these tables, the same objects each time: a table keeps every index made for it."""
        if database not in self._indexes:
            # only SQLite can index text of any length, and then reads the index alone
            covered = COVERED if database == "sqlite" else {}
            self._indexes[database] = [
                sa.Index(name, *(self._tables[table].c[column] for column in (*columns, *covered.get(name, ()))))
                for name, (table, columns) in INDEXES.items()
            ] + name_indexes(self._tables, database)
        return self._indexes[database]


_tables = functools.lru_cache(maxsize=64)(Tables)


def partial_max(info: sa.ColumnElement[str]) -> sa.ColumnElement[Any]:
    """Return the newest snapshot in a file of several, from the text that said so up to version 0.3."""
    number = sa.func.substr(info, len(_PARTIAL_MAX) + 1)
    return sa.case((info.like(f"{_PARTIAL_MAX}%"), sa.cast(number, sa.BigInteger)))
