"""Loads of dlt as commits of a lake, each once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.client import HasFollowupJobs, LoadJob, PreparedTableSchema, RunnableLoadJob
from dlt.common.destination.exceptions import DestinationTerminalException
from dlt.common.schema import Schema
from dlt.common.schema.typing import TColumnSchema, TColumnType
from dlt.common.storages.load_package import ParsedLoadJobFileName
from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset, SqlLoadJob

from dlt_quacklake.configuration import QuacklakeClientConfiguration
from dlt_quacklake.sql_client import QuacklakeSqlClient


class QuacklakeLoadJob(RunnableLoadJob, HasFollowupJobs):
    """Appends the rows of a Parquet file to a table."""

    _job_client: QuacklakeClient

    def run(self) -> None:
        """Append the rows in a commit that says that they are there."""
        client = self._job_client.sql_client
        table = client.make_qualified_table_name(self.load_table_name)
        with client.once(self._load_id, _job_id(self._file_path)) as due:
            if due:
                client.execute_sql(f"INSERT INTO {table} BY NAME SELECT * FROM read_parquet(%s)", self._file_path)


class QuacklakeSqlJob(SqlLoadJob):
    """Runs the statements that merge or replace rows."""

    _job_client: QuacklakeClient

    @contextlib.contextmanager
    def maybe_transaction(self, sql: str) -> Iterator[None]:
        """Run the statements as one commit: a merge from the same staged rows can be repeated."""
        with self._job_client.sql_client.begin_transaction():
            yield


class QuacklakeClient(SqlJobClientWithStagingDataset):
    """dlt on a lake."""

    sql_client: QuacklakeSqlClient  # type: ignore[assignment]

    def __init__(
        self, schema: Schema, config: QuacklakeClientConfiguration, capabilities: DestinationCapabilitiesContext
    ) -> None:
        names = SqlJobClientWithStagingDataset.create_dataset_names(schema, config)
        super().__init__(schema, config, QuacklakeSqlClient(*names, config.credentials, capabilities))
        self.type_mapper = self.capabilities.get_type_mapper()

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Create the schema of the dataset and the table of finished jobs, or remove all rows of tables."""
        super().initialize_storage(truncate_tables)  # type: ignore[arg-type]
        if not self.sql_client.is_staging_dataset_active:
            self.sql_client.create_marks()

    def create_load_job(
        self, table: PreparedTableSchema, file_path: str, load_id: str, restore: bool = False
    ) -> LoadJob:
        """Return the job that loads a file."""
        return QuacklakeSqlJob(file_path) if SqlLoadJob.is_sql_job(file_path) else QuacklakeLoadJob(file_path)

    def complete_load(self, load_id: str) -> None:
        """Say once that a load is complete, and forget its jobs."""
        client = self.sql_client
        loads = client.make_qualified_table_name(self.schema.loads_table_name)
        (column,) = self._norm_and_escape_columns("load_id")
        with client.begin_transaction():
            if not client.execute_sql(f"SELECT 1 FROM {loads} WHERE {column} = %s", load_id):
                super().complete_load(load_id)
            client.forget(load_id)

    def _get_table_update_sql(
        self, table_name: str, new_columns: Sequence[TColumnSchema], generate_alter: bool
    ) -> list[str]:
        """Return statements that create a table or add columns to it."""
        table = self.sql_client.make_qualified_table_name(table_name)
        links = [column["name"] for column in new_columns if column.get("root_key")]
        if generate_alter and links and self.sql_client.execute_sql(f"SELECT 1 FROM {table} LIMIT 1"):
            raise DestinationTerminalException(
                f"{table} has rows without {links[0]}, so that a merge could not find them: drop the table, or load the"
                " data again with refresh='drop_resources'"
            )
        return super()._get_table_update_sql(table_name, new_columns, generate_alter)

    def _make_add_column_sql(
        self, new_columns: Sequence[TColumnSchema], table: PreparedTableSchema | None = None
    ) -> list[str]:
        """Return clauses that add columns, which are NULL in the rows that are there."""
        nullable: list[Any] = [{**column, "nullable": True} for column in new_columns]
        return super()._make_add_column_sql(nullable, table)  # type: ignore[arg-type]

    def _from_db_type(self, db_type: str, precision: int | None, scale: int | None) -> TColumnType:
        return self.type_mapper.from_destination_type(db_type, precision, scale)


def _job_id(path: Any) -> str:
    """Return the name of a job, which stays the same when dlt tries again."""
    return ParsedLoadJobFileName.parse(path).job_id()
