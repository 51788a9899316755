"""A dialect of SQLAlchemy: ``create_engine("quacklake+sqlite:///lake.db?data_path=data/")``.

The URL is that of the lake behind ``quacklake+``; its query holds settings of ``quacklake.connect``. Statements are
compiled for DuckDB's dialect, and tables are reflected from ``information_schema``.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import exc, pool, types
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGDDLCompiler, PGTypeCompiler
from sqlalchemy.engine import URL, default, reflection
from sqlalchemy.sql import text
from sqlalchemy.sql.compiler import IdentifierPreparer
from sqlalchemy.sql.sqltypes import _AbstractInterval
from sqlalchemy.sql.type_api import NativeForEmulated

from quacklake import dbapi as quacklake_dbapi
from quacklake import duckdb_versions
from quacklake.format.names import literal

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIModule

__all__ = [
    "HUGEINT",
    "INTERVAL",
    "TINYINT",
    "UBIGINT",
    "UINTEGER",
    "USMALLINT",
    "UTINYINT",
    "NestedType",
    "QuacklakeDialect",
]


# -- types -------------------------------------------------------------------------------------------------------------


class TINYINT(types.Integer):
    """One byte."""

    __visit_name__ = "TINYINT"


class UTINYINT(types.Integer):
    """One byte without a sign."""

    __visit_name__ = "UTINYINT"


class USMALLINT(types.Integer):
    """Two bytes without a sign."""

    __visit_name__ = "USMALLINT"


class UINTEGER(types.Integer):
    """Four bytes without a sign."""

    __visit_name__ = "UINTEGER"


class UBIGINT(types.Integer):
    """Eight bytes without a sign."""

    __visit_name__ = "UBIGINT"


class HUGEINT(types.Integer):
    """Sixteen bytes."""

    __visit_name__ = "HUGEINT"


class NestedType(types.UserDefinedType[Any]):
    """A type that SQLAlchemy has no name for, such as ``STRUCT(a INTEGER)`` or ``MAP(VARCHAR, DATE)``."""

    cache_ok = True

    def __init__(self, spelling: str) -> None:
        self.spelling = spelling

    def get_col_spec(self, **_: Any) -> str:
        """Return the type as DuckDB spells it."""
        return self.spelling


class _Uuid(types.Uuid[Any]):
    def bind_processor(self, dialect: Any) -> Callable[[Any], Any]:
        return lambda value: None if value is None else str(value)

    def result_processor(self, dialect: Any, coltype: object) -> Callable[[Any], Any] | None:
        if not self.as_uuid:
            return None
        return lambda value: value if value is None or isinstance(value, uuid.UUID) else uuid.UUID(value)


class INTERVAL(NativeForEmulated, _AbstractInterval):
    """A duration. One of months, which have no fixed length, is not a ``timedelta``."""

    __visit_name__ = "INTERVAL"
    native = True

    @classmethod
    def adapt_emulated_to_native(cls, impl: Any, **kw: Any) -> INTERVAL:
        """Return the type for SQLAlchemy's own."""
        return cls()

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        """Return a function that makes a ``timedelta``."""

        def duration(value: Any) -> Any:
            if value is None or isinstance(value, dt.timedelta) or value.months:
                return value
            return dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)

        return duration


_TYPES: dict[str, type[types.TypeEngine[Any]]] = {
    "BIGINT": types.BIGINT,
    "BLOB": types.BLOB,
    "BOOLEAN": types.BOOLEAN,
    "DATE": types.DATE,
    "DOUBLE": types.DOUBLE,
    "FLOAT": types.REAL,
    "HUGEINT": HUGEINT,
    "INTEGER": types.INTEGER,
    "INTERVAL": INTERVAL,
    "JSON": types.JSON,
    "SMALLINT": types.SMALLINT,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMP_MS": types.TIMESTAMP,
    "TIMESTAMP_NS": types.TIMESTAMP,
    "TIMESTAMP_S": types.TIMESTAMP,
    "TINYINT": TINYINT,
    "UBIGINT": UBIGINT,
    "UINTEGER": UINTEGER,
    "USMALLINT": USMALLINT,
    "UTINYINT": UTINYINT,
    "UUID": types.UUID,
    "VARCHAR": types.VARCHAR,
}


def _reflected(spelling: str) -> types.TypeEngine[Any]:
    """Return a type of DuckDB as one of SQLAlchemy."""
    if spelling in _TYPES:
        return _TYPES[spelling]()
    if spelling.endswith("[]"):
        item = _reflected(spelling[:-2])
        return types.ARRAY(item) if not isinstance(item, NestedType | types.ARRAY) else NestedType(spelling)
    if spelling.startswith("DECIMAL("):
        precision, scale = spelling[8:-1].split(",")
        return types.DECIMAL(int(precision), int(scale))
    if spelling.endswith("WITH TIME ZONE"):
        return types.TIME(timezone=True) if spelling.startswith("TIME ") else types.TIMESTAMP(timezone=True)
    return NestedType(spelling)


# -- compilers ---------------------------------------------------------------------------------------------------------


class _TypeCompiler(PGTypeCompiler):
    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        """Return a type of eight bytes, as Python's float: DuckDB's FLOAT has four."""
        return "FLOAT" if type_.precision is not None and type_.precision <= 24 else "DOUBLE"

    def visit_DOUBLE(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    visit_DOUBLE_PRECISION = visit_DOUBLE

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        """Return a decimal; without a precision, one that has room for what databases without limits take."""
        if type_.precision is None:
            return "DECIMAL(38, 10)"
        return f"DECIMAL({type_.precision:d}, {type_.scale or 0:d})"

    visit_DECIMAL = visit_NUMERIC

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    visit_CHAR = visit_NVARCHAR = visit_NCHAR = visit_TEXT = visit_CLOB = visit_VARCHAR

    def visit_enum(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_large_binary(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    visit_BLOB = visit_BINARY = visit_VARBINARY = visit_BYTEA = visit_large_binary

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:
        return "TIMESTAMPTZ" if type_.timezone else "TIMESTAMP"

    visit_DATETIME = visit_datetime = visit_TIMESTAMP

    def visit_TIME(self, type_: Any, **kw: Any) -> str:
        return "TIMETZ" if type_.timezone else "TIME"

    def visit_interval(self, type_: Any, **kw: Any) -> str:
        return "INTERVAL"

    visit_INTERVAL = visit_interval

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "UUID"

    visit_UUID = visit_uuid

    def visit_JSON(self, type_: Any, **kw: Any) -> str:
        return "JSON"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:
        return f"{self.process(type_.item_type, **kw)}{'[]' * (type_.dimensions or 1)}"

    def __getattr__(self, name: str) -> Callable[..., str]:
        """Compile the integers that only DuckDB has: their names are what they are called."""
        if name.removeprefix("visit_") in _TYPES:
            return lambda type_, **kw: name.removeprefix("visit_")
        raise AttributeError(name)


class _DdlCompiler(PGDDLCompiler):
    def get_column_specification(self, column: Any, **kwargs: Any) -> str:
        parts = [self.preparer.format_column(column), self.dialect.type_compiler_instance.process(column.type)]
        value = self.get_column_default_string(column)
        if value is not None:
            parts.append(f"DEFAULT {value}")
        if column.computed is not None:
            raise exc.CompileError("a lake has no computed columns: create a view")
        if not column.nullable:
            parts.append("NOT NULL")
        return " ".join(parts)

    def visit_foreign_key_constraint(self, constraint: Any, **kw: Any) -> Any:
        return self._left_out("foreign key")

    def visit_unique_constraint(self, constraint: Any, **kw: Any) -> Any:
        return self._left_out("UNIQUE")

    def visit_check_constraint(self, constraint: Any, **kw: Any) -> Any:
        return self._left_out("CHECK")

    visit_column_check_constraint = visit_check_constraint

    def _left_out(self, kind: str) -> Any:
        if self.dialect.ignore_constraints:  # type: ignore[attr-defined]
            return None  # SQLAlchemy leaves it out of the statement
        raise exc.CompileError(
            f"a lake keeps no {kind} constraint: remove it, or pass ignore_constraints=True to create_engine"
        )

    def visit_create_index(
        self, create: Any, include_schema: bool = False, include_table_schema: bool = True, **kw: Any
    ) -> str:
        if self.dialect.ignore_constraints:  # type: ignore[attr-defined]
            return "SELECT NULL"
        raise exc.CompileError("a lake has no indexes: partition or sort the table instead")

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        return "SELECT NULL"

    def visit_set_table_comment(self, create: Any, **kw: Any) -> str:
        return f"COMMENT ON TABLE {self.preparer.format_table(create.element)} IS {_text(create.element.comment)}"

    def visit_set_column_comment(self, create: Any, **kw: Any) -> str:
        name = self.preparer.format_column(create.element, use_table=True, use_schema=True)
        return f"COMMENT ON COLUMN {name} IS {_text(create.element.comment)}"


def _text(value: str | None) -> str:
    return "NULL" if value is None else literal(value)


@cache
def _reserved() -> frozenset[str]:
    """Return the words that DuckDB takes for names only in quotes."""
    with duckdb_versions.connect() as connection:
        query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        return frozenset(name for (name,) in connection.execute(query).fetchall())


class _Preparer(IdentifierPreparer):
    def __init__(self, dialect: Any, **kw: Any) -> None:
        super().__init__(dialect, **kw)
        self.reserved_words = {*_reserved(), "at"}


class _Compiler(PGCompiler):
    def for_update_clause(self, select: Any, **kw: Any) -> str:
        """Return nothing: a transaction reads one snapshot, and conflicts show at the commit."""
        return ""


# -- the dialect -------------------------------------------------------------------------------------------------------


class QuacklakeDialect(default.DefaultDialect):
    """SQLAlchemy's view of a lake."""

    name = "quacklake"
    driver = "quacklake"
    default_paramstyle = "qmark"
    default_schema_name = "main"
    supports_statement_cache = True
    supports_schemas = True
    supports_comments = True
    supports_default_values = True
    supports_empty_insert = False
    supports_multivalues_insert = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_uuid = True
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = True
    supports_alter = True
    supports_is_distinct_from = True
    postfetch_lastrowid = False
    insert_returning = True
    update_returning = True
    delete_returning = True
    use_insertmanyvalues = True
    div_is_floordiv = False
    _backslash_escapes = False
    max_identifier_length = 1024
    statement_compiler = _Compiler
    ddl_compiler = _DdlCompiler
    preparer: type[IdentifierPreparer] = _Preparer
    type_compiler_cls = _TypeCompiler
    colspecs = {types.Uuid: _Uuid, types.Interval: INTERVAL}  # noqa: RUF012 - as SQLAlchemy has it

    def __init__(self, ignore_constraints: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ignore_constraints = ignore_constraints
        self._json_serializer = json.dumps
        self._json_deserializer = json.loads

    @classmethod
    def import_dbapi(cls) -> DBAPIModule:
        """Return the module of PEP 249."""
        module: ModuleType = quacklake_dbapi
        return module

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """Return a pool in which each thread has connections of its own."""
        return pool.QueuePool

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Return the arguments of ``dbapi.connect``: the lake's own URL, and settings."""
        kind = url.drivername.partition("+")[2]
        if not kind:
            raise exc.ArgumentError("name the catalog's database in the URL, as in quacklake+sqlite:///lake.db")
        settings: dict[str, Any] = dict(url.query)
        if settings.pop("ignore_constraints", "false") == "true":
            self.ignore_constraints = True
        lake = url.set(drivername=kind, query={}).render_as_string(hide_password=False)
        return [lake], settings

    def _get_server_version_info(self, connection: Connection) -> tuple[int, ...]:
        return (1, 0)

    def _get_default_schema_name(self, connection: Connection) -> str:
        return "main"

    def get_isolation_level_values(self, dbapi_connection: Any) -> Sequence[Any]:
        """Return the isolation levels: snapshots, or none."""
        return ("SNAPSHOT", "AUTOCOMMIT")

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        """Return the isolation level of a connection."""
        return "AUTOCOMMIT" if dbapi_connection.autocommit else "SNAPSHOT"

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        """Return the isolation level of a new connection."""
        return "SNAPSHOT"

    def set_isolation_level(self, dbapi_connection: Any, level: Any) -> None:
        """Set the isolation level of a connection."""
        dbapi_connection.autocommit = level == "AUTOCOMMIT"

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """Return whether a connection can no longer be used."""
        return isinstance(e, quacklake_dbapi.InterfaceError) and "connection is closed" in str(e)

    # -- reflection ----------------------------------------------------------------------------------------------------

    def _names(self, connection: Connection, query: str, **values: Any) -> list[str]:
        return [row[0] for row in connection.execute(text(query), values)]

    @reflection.cache
    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """Return the names of the schemas."""
        query = "SELECT schema_name FROM information_schema.schemata WHERE catalog_name = current_database() ORDER BY 1"
        return self._names(connection, query)

    def _relations(self, connection: Connection, schema: str | None, kind: str) -> list[str]:
        query = """SELECT table_name FROM information_schema.tables WHERE table_catalog = current_database()
            AND table_schema = :schema AND table_type = :kind ORDER BY 1"""
        return self._names(connection, query, schema=schema or "main", kind=kind)

    @reflection.cache
    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Return the names of the tables of a schema."""
        return self._relations(connection, schema, "BASE TABLE")

    @reflection.cache
    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Return the names of the views of a schema."""
        return self._relations(connection, schema, "VIEW")

    def has_schema(self, connection: Connection, schema_name: str, **kw: Any) -> bool:
        """Return whether a schema exists."""
        return schema_name in self.get_schema_names(connection, **kw)

    @reflection.cache
    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        """Return whether a table or view exists."""
        query = """SELECT table_name FROM information_schema.tables WHERE table_catalog = current_database()
            AND table_schema = :schema AND table_name = :name"""
        return bool(self._names(connection, query, schema=schema or "main", name=table_name))

    def _check_exists(self, connection: Connection, table: str, schema: str | None, **kw: Any) -> None:
        if not self.has_table(connection, table, schema, **kw):
            raise exc.NoSuchTableError(f"{schema}.{table}" if schema else table)

    @reflection.cache
    def get_columns(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return the columns of a table or view."""
        query = """SELECT column_name, data_type, is_nullable, column_default, "COLUMN_COMMENT"
            FROM information_schema.columns WHERE table_catalog = current_database() AND table_schema = :schema
            AND table_name = :name ORDER BY ordinal_position"""
        rows = connection.execute(text(query), {"schema": schema or "main", "name": table_name}).fetchall()
        if not rows:
            self._check_exists(connection, table_name, schema, **kw)
        return [
            {
                "name": name,
                "type": _reflected(type_),
                "nullable": nullable == "YES",
                "default": value,
                "comment": comment,
            }
            for name, type_, nullable, value, comment in rows
        ]

    @reflection.cache
    def get_pk_constraint(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return the columns of the primary key, by which merges find rows."""
        self._check_exists(connection, table_name, schema, **kw)
        driver: Any = connection.connection.driver_connection
        return {"constrained_columns": list(driver.primary_key(schema or "main", table_name)), "name": None}

    @reflection.cache
    def get_foreign_keys(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return nothing: a lake has no foreign keys."""
        self._check_exists(connection, table_name, schema, **kw)
        return []

    get_indexes = get_unique_constraints = get_check_constraints = get_foreign_keys

    @reflection.cache
    def get_table_comment(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return the comment of a table."""
        self._check_exists(connection, table_name, schema, **kw)
        query = """SELECT comment FROM duckdb_tables() WHERE database_name = current_database()
            AND schema_name = :schema AND table_name = :name"""
        found = self._names(connection, query, schema=schema or "main", name=table_name)
        return {"text": found[0] if found else None}

    @reflection.cache
    def get_view_definition(self, connection: Connection, view_name: str, schema: str | None = None, **kw: Any) -> Any:
        """Return the statement that creates a view."""
        query = """SELECT sql FROM duckdb_views() WHERE database_name = current_database() AND schema_name = :schema
            AND view_name = :name"""
        found = self._names(connection, query, schema=schema or "main", name=view_name)
        if not found:
            raise exc.NoSuchTableError(f"{schema}.{view_name}" if schema else view_name)
        return found[0]
