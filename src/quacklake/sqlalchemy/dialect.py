"""The dialect: answers to what SQLAlchemy asks a lake."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sqlalchemy import exc, pool, types
from sqlalchemy.engine import URL, default, reflection
from sqlalchemy.sql import text
from sqlalchemy.sql.compiler import IdentifierPreparer

from quacklake import dbapi as quacklake_dbapi
from quacklake.sqlalchemy.compilers import Compiler, DdlCompiler, Preparer, TypeCompiler
from quacklake.sqlalchemy.types import (
    INTERVAL,
    ExactNumber,
    JsonIndex,
    JsonIndexInteger,
    JsonIndexText,
    JsonPath,
    UuidText,
    reflected,
)

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection
    from sqlalchemy.engine.interfaces import ConnectArgsType, DBAPIModule


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
    statement_compiler = Compiler
    ddl_compiler = DdlCompiler
    preparer: type[IdentifierPreparer] = Preparer
    type_compiler_cls = TypeCompiler
    colspecs = {  # noqa: RUF012 - as SQLAlchemy has it
        types.Uuid: UuidText,
        types.Interval: INTERVAL,
        types.Numeric: ExactNumber,
        types.Float: types.Float,
        types.JSON.JSONIndexType: JsonIndex,
        types.JSON.JSONIntIndexType: JsonIndexInteger,
        types.JSON.JSONStrIndexType: JsonIndexText,
        types.JSON.JSONPathType: JsonPath,
    }

    def __init__(
        self,
        ignore_constraints: bool = False,
        json_serializer: Callable[[Any], str] | None = None,
        json_deserializer: Callable[[str], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ignore_constraints = ignore_constraints
        self._json_serializer = json_serializer or json.dumps
        self._json_deserializer = json_deserializer or json.loads

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

    def detect_autocommit_setting(self, dbapi_conn: Any) -> bool:
        """Return whether each statement of a connection is committed by itself."""
        return bool(dbapi_conn.autocommit)

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
                "type": reflected(type_),
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
