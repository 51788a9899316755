"""The adapter: answers of a lake to what dbt asks of a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dbt.adapters.base import ConstraintSupport, available
from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.quacklake.connections import DATABASE, TEMPORARY, QuacklakeConnectionManager
from dbt.adapters.quacklake.relation import QuacklakeColumn, QuacklakeRelation
from dbt.adapters.sql import SQLAdapter
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.contracts.metadata import CatalogTable, ColumnMetadata, StatsItem, TableMetadata
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.utils import md5

from quacklake import Lake, Table, dbapi

if TYPE_CHECKING:
    import agate

logger = AdapterLogger("Quacklake")

_RELATIONS = """
    SELECT table_name, table_type FROM information_schema.tables
    WHERE table_catalog = ? AND lower(table_schema) = lower(?)"""
_COLUMNS = """
    SELECT column_name, data_type FROM information_schema.columns
    WHERE table_catalog = ? AND lower(table_schema) = lower(?) AND lower(table_name) = lower(?)
    ORDER BY ordinal_position"""
_CATALOG = """
    SELECT t.table_type, t.table_comment, c.column_name, c.data_type, c.ordinal_position, c.column_comment
    FROM information_schema.columns AS c
    JOIN information_schema.tables AS t USING (table_catalog, table_schema, table_name)
    WHERE c.table_catalog = ? AND lower(c.table_schema) = lower(?) AND lower(c.table_name) = lower(?)
    ORDER BY c.ordinal_position"""
_TAG = "dbt_query"
"""The tag of a materialized view with the hash of its text."""
_SCHEMAS = "SELECT DISTINCT schema_name FROM information_schema.schemata WHERE catalog_name = ?"


class QuacklakeAdapter(SQLAdapter):
    """dbt on a lake."""

    ConnectionManager = QuacklakeConnectionManager
    connections: QuacklakeConnectionManager
    Relation = QuacklakeRelation
    Column = QuacklakeColumn

    CONSTRAINT_SUPPORT = {  # noqa: RUF012 - dbt's own name
        ConstraintType.check: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.NOT_ENFORCED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }
    _capabilities = CapabilityDict({Capability.MicrobatchConcurrency: CapabilitySupport(support=Support.Full)})

    @classmethod
    def date_function(cls) -> str:
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return True

    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "merge", "delete+insert", "microbatch"]

    # -- types of seeds ------------------------------------------------------------------------------------------------

    @classmethod
    def convert_text_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "varchar"

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        import agate

        return "double" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "bigint"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "bigint"

    @classmethod
    def convert_datetime_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "timestamp"

    # -- what there is -------------------------------------------------------------------------------------------------

    def _ask(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        _, cursor = self.connections.add_query(sql, auto_begin=False, bindings=values)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    def _lake(self) -> Lake:
        lake: Lake = self.connections.get_thread_connection().handle.lake
        return lake

    def list_schemas(self, database: str) -> list[str]:
        return [name for (name,) in self._ask(_SCHEMAS, DATABASE)]

    def check_schema_exists(self, database: str, schema: str) -> bool:
        return schema.lower() in (name.lower() for name in self.list_schemas(database))

    @available.parse(lambda *_: [])
    def materialized_views(self) -> list[str]:
        """Return the names of the materialized views, with their schemas, in small letters."""
        return sorted(name.lower() for name in self._lake().materialized_views.names())

    @available.parse(lambda *_: False)
    def views_have_column_comments(self) -> bool:
        """Return whether columns of views can have comments."""
        return self._lake().version != "1.0"

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        schema = str(schema_relation.schema)
        kept = self.materialized_views()
        quoting = {"database": True, "schema": True, "identifier": True}
        return [
            self.Relation.create(
                database=DATABASE,
                schema=schema_relation.schema,
                identifier=name,
                quote_policy=quoting,
                type=self.Relation.get_relation_type(
                    "view" if kind == "VIEW" else "materialized_view" if f"{schema}.{name}".lower() in kept else "table"
                ),
            )
            for name, kind in self._ask(_RELATIONS, DATABASE, schema)
        ]

    def get_columns_in_relation(self, relation: BaseRelation) -> list[QuacklakeColumn]:
        place = (relation.database or DATABASE, str(relation.schema), str(relation.identifier))
        return [QuacklakeColumn(name, kind) for name, kind in self._ask(_COLUMNS, *place)]

    def get_catalog_for_single_relation(self, relation: BaseRelation) -> CatalogTable | None:
        """Return what the documentation says of a table or view, or None if there is none."""
        place = (relation.database or DATABASE, str(relation.schema), str(relation.identifier))
        rows = self._ask(_CATALOG, *place)
        if not rows:
            return None
        kind, comment = rows[0][:2]
        if ".".join(place[1:]).lower() in self.materialized_views():
            kind = "MATERIALIZED VIEW"
        metadata = TableMetadata(kind, *place[1:], database=place[0], comment=comment, owner=None)
        columns = {name: ColumnMetadata(type_, index, name, said) for _, _, name, type_, index, said in rows}
        stats = StatsItem(
            "has_stats", "Has Stats?", False, False, "Indicates whether there are statistics for this table"
        )
        return CatalogTable(metadata, columns, {"has_stats": stats})

    @available
    def temporary(self, relation: BaseRelation, suffix: str) -> BaseRelation:
        """Return the temporary table that belongs to a relation, which is gone with the connection."""
        path = {"database": TEMPORARY, "schema": "main", "identifier": f"{relation.identifier}{suffix}"}
        return relation.incorporate(path=path, type=self.Relation.Table)

    @available.parse(lambda *_: False)
    def follows(self, relation: BaseRelation, sql: str) -> bool:
        """Return True when a materialized view of this name was made from this text."""
        table = self._view(relation)
        return table is not None and table.tags.get(_TAG) == md5(sql)

    @available.parse_none
    def remember(self, relation: BaseRelation, sql: str) -> None:
        """Note the text that a materialized view was made from."""
        table = self._view(relation)
        if table is not None:
            table.set_tags({_TAG: md5(sql)})

    def _view(self, relation: BaseRelation) -> Table | None:
        name = f"{relation.schema}.{relation.identifier}"
        known = (view.lower() for view in self._lake().materialized_views.names())
        return self._lake().table(name) if name.lower() in known else None

    # -- what changes the lake -----------------------------------------------------------------------------------------

    @available.parse_none
    def end_transaction(self) -> None:
        """Commit the open transaction, if there is one: what follows cannot be part of it."""
        connection = self.connections.get_if_exists()
        if connection is not None and connection.transaction_open:
            self.connections.commit()

    @available.parse_none
    def change_type(self, relation: BaseRelation, column: str, spare: str, type_: str) -> None:
        """Change the type of a column, both as SQL writes them: in place if all values fit, or by converting them."""
        table, connection = relation.render(), self.connections.get_thread_connection()
        if not connection.transaction_open:
            self.connections.begin()
        cursor = connection.handle.cursor()
        try:
            cursor.execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {type_}")
            return
        except dbapi.DatabaseError:
            logger.debug(f"{column} of {table} cannot become {type_} in place: its values are converted")
        with self.connections.exception_handler(f"change of the type of {column}"):
            cursor.execute(f"ALTER TABLE {table} ADD COLUMN {spare} {type_}")
            cursor.execute(f"UPDATE {table} SET {spare} = CAST({column} AS {type_})")
            cursor.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            cursor.execute(f"ALTER TABLE {table} RENAME COLUMN {spare} TO {column}")

    @available.parse_none
    def insert_rows(self, relation: BaseRelation, table: agate.Table, columns: str) -> str:
        """Insert the rows of a seed, and return the statement."""
        marks = ", ".join("?" * len(table.column_names))
        sql = f"insert into {relation.render()} ({columns}) values ({marks})"
        connection = self.connections.get_thread_connection()
        if not connection.transaction_open:
            self.connections.begin()
        with self.connections.exception_handler(sql):
            connection.handle.cursor().executemany(sql, [tuple(row) for row in table.rows])
        return sql

    @available.parse(lambda *_: [])
    def grants_on(self, relation: BaseRelation) -> list[tuple[str, str]]:
        """Return the privileges on a table or view, each with who has it."""
        name = f"{relation.schema}.{relation.identifier}".lower()
        return sorted(
            (str(row["privilege"]), str(row["grantee"]))
            for row in self._lake().sql("SHOW GRANTS").to_arrow().to_pylist()
            if row["scope"] == "table" and str(row["object"]).lower() == name
            if row["column"] is None and row["state"] == "current"
        )

    @available.parse_none
    def grant_as_configured(
        self, relation: BaseRelation, grants: Mapping[str, Sequence[str] | str], revoke: bool
    ) -> None:
        """Grant what a model's config says, after the open transaction, and revoke what it does not say."""
        name = f"{relation.schema}.{relation.identifier}"
        wanted = {
            (privilege.upper(), grantee)
            for privilege, grantees in grants.items()
            for grantee in ([grantees] if isinstance(grantees, str) else grantees)
        }

        def work() -> None:
            with self.connections.exception_handler(f"grants on {name}"):
                access, known = self._lake().access, set(self.grants_on(relation))
                for privilege, grantee in sorted(known - wanted) if revoke else ():
                    logger.debug(f"revoke {privilege} on {name} from {grantee}")
                    access.revoke(privilege, grantee, table=name)
                for privilege, grantee in sorted(wanted - known):
                    logger.debug(f"grant {privilege} on {name} to {grantee}")
                    access.grant(privilege, grantee, table=name)

        self.connections.after_commit(work)

    @available.parse_none
    def create_on_spark(self, relation: BaseRelation, sql: str) -> None:
        """Create or replace a table with the rows of a query that Spark runs."""
        try:
            from quacklake.spark.lake import spark
        except ImportError as error:
            raise DbtRuntimeError("engine='spark' needs pyspark: pip install 'quacklake[spark]'") from error
        with self.connections.exception_handler(sql):
            session = spark(self._lake())
            session.sql(f"CREATE OR REPLACE TABLE {relation.schema}.{relation.identifier} AS {sql}")

    # -- tests of dbt --------------------------------------------------------------------------------------------------

    def timestamp_add_sql(self, add_to: str, number: int = 1, interval: str = "hour") -> str:
        return f"{add_to} + interval '{number}' {interval}"
