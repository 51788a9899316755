"""Reading data files, the delete files that go with them, and their name mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from quacklake.catalog.reading import partitions, pruning
from quacklake.catalog.reading.inlined import InlinedQueries
from quacklake.catalog.statements import CatalogStatements, arrow_table, visible
from quacklake.format.bounds import ANYTHING, Predicate, coarse, columns_of
from quacklake.format.layout import PartitionSpec
from quacklake.format.mappings import MappingRow, NameMapping, unflatten_mappings
from quacklake.format.objects import TableInfo
from quacklake.format.partition_pruning import pruner, wanted_buckets
from quacklake.format.snapshots import Snapshot

#: The columns of ``Reader.files``: a data file with the delete file that is visible with it.
FILE_COLUMNS: Mapping[str, pa.DataType] = {
    "data_file_id": pa.int64(),
    "path": pa.string(),
    "path_is_relative": pa.bool_(),
    "record_count": pa.int64(),
    "file_size_bytes": pa.int64(),
    "footer_size": pa.int64(),
    "row_id_start": pa.int64(),
    "begin_snapshot": pa.int64(),
    "partial_max": pa.int64(),
    "partition_id": pa.int64(),
    "mapping_id": pa.int64(),
    "encryption_key": pa.string(),
    "delete_file_id": pa.int64(),
    "delete_path": pa.string(),
    "delete_path_is_relative": pa.bool_(),
    "delete_format": pa.string(),
    "delete_count": pa.int64(),
    "delete_begin_snapshot": pa.int64(),
    "delete_partial_max": pa.int64(),
    "delete_encryption_key": pa.string(),
    "delete_file_size_bytes": pa.int64(),
}


class FileQueries:
    """Reads the files of tables."""

    def __init__(self, sql: CatalogStatements, inlined: InlinedQueries) -> None:
        self._sql = sql
        self._t = sql._t
        self._database = sql._database
        self._inlined = inlined

    def matching(self, snapshot: Snapshot, table: TableInfo, predicate: Predicate = ANYTHING) -> pa.Table:
        """Return the data files of a table that may hold matching rows, each with its delete file.

        One statement, and one more when partition values can rule out further ones (the first time up to three).
        """
        buckets = self._wanted_buckets(table, predicate)
        coarser = coarse(predicate)  # databases are slow with many comparisons, or refuse them
        key = ("files", pruning.shape(coarser), *buckets)
        statement = self._sql.cached(key, lambda: self._select_files(coarser, list(buckets)))
        parameters = {"snapshot": snapshot.id, "table": table.id, **pruning.values(coarser)}
        parameters |= {f"b{number}": values for number, values in enumerate(buckets.values())}
        files = arrow_table(self._sql.run("files", statement, parameters), FILE_COLUMNS)
        return files if predicate == ANYTHING else self._prune_partitions(files, table, predicate)

    def _wanted_buckets(self, table: TableInfo, predicate: Predicate) -> dict[tuple[int, int], list[int]]:
        """Return the buckets of the table's partitioning that matching rows are in, by partitioning and key index.

        Statistics say nothing of buckets, so the database filters by these, and most files stay there.
        """
        spec = table.partition
        if spec is None or spec.id < 0 or not wanted_buckets(predicate, spec, table.schema):
            return {}
        wanted = wanted_buckets(predicate, spec, table.schema, self._constant_columns(table))
        return {(spec.id, index): sorted(numbers) for index, numbers in wanted.items()}

    def _prune_partitions(self, files: pa.Table, table: TableInfo, predicate: Predicate) -> pa.Table:
        """Return those of the files that statistics leave whose partition values allow a match."""
        ids = {id_ for id_ in files.column("partition_id").unique().to_pylist() if id_ is not None}
        if not ids:
            return files
        specs = partitions.useful(predicate, self._partition_specs(table, ids))
        if not specs:
            return files
        constant = self._constant_columns(table)
        tests = {spec.id: pruner(predicate, spec, table.schema, constant) for spec in specs}
        partitioned = files.filter(
            pc.is_in(files.column("partition_id"), value_set=pa.array(sorted(tests), pa.int64()))
        )
        file_ids = partitioned.column("data_file_id").to_pylist()
        return partitions.prune(files, tests, self.partition_values(table.id, file_ids))

    def _partition_specs(self, table: TableInfo, ids: set[int]) -> list[PartitionSpec]:
        """Return partitionings of a table by their ids; one that exists never changes."""
        key = ("partition_specs", table.id)
        known: dict[int, PartitionSpec] = self._sql._cache.setdefault(key, {})
        if table.partition is not None and table.partition.id >= 0:
            known[table.partition.id] = table.partition
        if not ids <= known.keys():
            rows = self._sql.run("partition_specs", partitions.select_specs(self._t, table.id))
            known.update((spec.id, spec) for spec in partitions.specs(rows))
        return [known[id_] for id_ in ids if id_ in known]

    def _constant_columns(self, table: TableInfo) -> frozenset[int]:
        """Return the columns of a table that never had another type than they have now."""
        key = ("constant_columns", table.id, table.schema_version)
        types: dict[int, str] = self._sql.cached(
            key, lambda: partitions.constant(self._sql.run("column_types", partitions.select_types(self._t, table.id)))
        )
        # an open transaction may have changed a type
        return frozenset(column.id for column in table.schema.columns if types.get(column.id) == column.type)

    def _select_files(self, predicate: Predicate, buckets: Sequence[tuple[int, int]]) -> sa.Select[Any]:
        """Return the statement of ``matching`` for predicates of one shape and bucket keys (partitioning, index)."""
        f, d = self._t["data_file"], self._t["delete_file"]
        snapshot, table = sa.bindparam("snapshot", type_=sa.BigInteger()), sa.bindparam("table", type_=sa.BigInteger())
        source: sa.FromClause = f
        where: list[sa.ColumnElement[bool]] = [f.c.table_id == table, visible(f, snapshot)]
        if predicate != ANYTHING:
            stats = self._t["file_column_stats"]
            bounds: dict[int, sa.FromClause] = {id_: stats.alias(f"s{id_}") for id_ in sorted(columns_of(predicate))}
            for id_, alias in bounds.items():
                mine = sa.and_(alias.c.table_id == table, alias.c.column_id == id_)
                source = source.outerjoin(alias, sa.and_(mine, alias.c.data_file_id == f.c.data_file_id))
            where.append(pruning.condition(predicate, bounds, self._database))
        where += [
            partitions.in_buckets(self._t, self._database, *key, sa.bindparam(f"b{number}", expanding=True))
            for number, key in enumerate(buckets)
        ]
        # joined after the statistics, so that only the remaining files are looked up
        with_deletes = sa.and_(d.c.table_id == table, d.c.data_file_id == f.c.data_file_id)
        source = source.outerjoin(d, sa.and_(with_deletes, visible(d, snapshot)))
        return sa.select(*self._file_columns()).select_from(source).where(*where).order_by(f.c.data_file_id)

    def _file_columns(self) -> list[sa.ColumnElement[Any]]:
        """Return ``FILE_COLUMNS`` of data files joined with delete files."""
        f, d, column = self._t["data_file"], self._t["delete_file"], self._t.column
        return [
            f.c.data_file_id,
            f.c.path,
            f.c.path_is_relative,
            f.c.record_count,
            f.c.file_size_bytes,
            f.c.footer_size,
            f.c.row_id_start,
            f.c.begin_snapshot,
            column("data_file", "partial_max").label("partial_max"),
            f.c.partition_id,
            column("data_file", "mapping_id").label("mapping_id"),
            f.c.encryption_key,
            d.c.delete_file_id,
            d.c.path.label("delete_path"),
            d.c.path_is_relative.label("delete_path_is_relative"),
            d.c.format.label("delete_format"),
            d.c.delete_count,
            d.c.begin_snapshot.label("delete_begin_snapshot"),
            column("delete_file", "partial_max").label("delete_partial_max"),
            d.c.encryption_key.label("delete_encryption_key"),
            d.c.file_size_bytes.label("delete_file_size_bytes"),
        ]

    def changed(self, table: TableInfo, since: int, until: int) -> pa.Table:
        """Return the data files that rows came with or went from in some snapshots, with every delete file they had.

        One row for each data file and delete file; ``FILE_COLUMNS`` and the end of the data file.
        """
        f, d, column = self._t["data_file"], self._t["delete_file"], self._t.column
        any_delete = d.alias("any_delete")
        last = sa.func.coalesce(any_delete.c.get("partial_max", sa.null()), any_delete.c.begin_snapshot)
        with_deletes = sa.select(any_delete.c.data_file_id).where(
            any_delete.c.table_id == table.id, any_delete.c.begin_snapshot <= until, last >= since
        )
        changed = [
            f.c.begin_snapshot >= since,
            column("data_file", "partial_max") >= since,
            f.c.end_snapshot.between(since, until),
            f.c.data_file_id.in_(with_deletes),
        ]
        if self._inlined.has_deletes(table.id, until):
            sql = self._sql.delete_table(table.id)
            changed.append(
                f.c.data_file_id.in_(sa.select(sql.c.file_id).where(sql.c.begin_snapshot.between(since, until)))
            )
        mine = sa.and_(d.c.table_id == table.id, d.c.data_file_id == f.c.data_file_id, d.c.begin_snapshot <= until)
        statement = (
            sa.select(*self._file_columns(), f.c.end_snapshot)
            .select_from(f.outerjoin(d, mine))
            .where(f.c.table_id == table.id, f.c.begin_snapshot <= until, sa.or_(*changed))
            .order_by(f.c.data_file_id, d.c.delete_file_id)
        )
        return arrow_table(self._sql.run("changed_files", statement), {**FILE_COLUMNS, "end_snapshot": pa.int64()})

    def partition_values(self, table_id: int, file_ids: Sequence[int]) -> dict[int, dict[int, str | None]]:
        """Return the partition values of files of a table: data file -> key index -> text."""
        statement = partitions.select_values(self._t, table_id, file_ids)
        return partitions.values_by_file(self._sql.run("partition_values", statement))

    def once_deleted(self, table_id: int) -> set[int]:
        """Return the data files of a table that had a delete file which has ended."""
        d = self._t["delete_file"]
        statement = sa.select(d.c.data_file_id).where(d.c.table_id == table_id, d.c.end_snapshot.is_not(None))
        return {row[0] for row in self._sql.run("once_deleted", statement)}

    def name_mappings(self, ids: Sequence[int]) -> tuple[NameMapping, ...]:
        """Return name mappings of files from elsewhere, by their ids."""
        t = self._t["name_mapping"]
        partition = self._t.column("name_mapping", "is_partition").label("is_partition")

        def build() -> Any:
            return sa.select(
                t.c.mapping_id, t.c.column_id, t.c.source_name, t.c.target_field_id, t.c.parent_column, partition
            ).where(t.c.mapping_id.in_(sa.bindparam("ids", expanding=True)))

        rows = self._sql.run("name_mappings", self._sql.cached("name_mappings", build), {"ids": list(ids)})
        return unflatten_mappings(MappingRow(*row) for row in rows)

    def table_mappings(self, table_id: int) -> tuple[NameMapping, ...]:
        """Return every name mapping that files of a table have had."""
        t = self._t["column_mapping"]
        ids = sa.select(t.c.mapping_id).where(t.c.table_id == table_id)
        return self.name_mappings([row[0] for row in self._sql.run("table_mappings", ids)])

    def added_since(self, table_id: int, version: int) -> set[str]:
        """Return the paths of files from elsewhere that a table has got after a snapshot and still has."""
        t = self._t["data_file"]
        statement = sa.select(t.c.path).where(
            t.c.table_id == table_id,
            t.c.begin_snapshot > version,
            t.c.end_snapshot.is_(None),
            t.c.mapping_id.is_not(None),
        )
        return {row[0] for row in self._sql.run("added_since", statement)}

    def live(self, table_id: int, file_ids: Sequence[int], until: int | None = None) -> dict[int, int | None]:
        """Return those of these data files that have not ended, each with the id of its live delete file.

        With ``until`` only those that hold nothing of later snapshots, neither rows nor deletes. A file that replaces
        others has what all their snapshots had, and so belongs to older snapshots, too.
        """
        f, d = self._t["data_file"], self._t["delete_file"]
        statement = (
            sa.select(f.c.data_file_id, d.c.delete_file_id)
            .select_from(f.outerjoin(d, sa.and_(d.c.data_file_id == f.c.data_file_id, d.c.end_snapshot.is_(None))))
            .where(f.c.table_id == table_id, f.c.end_snapshot.is_(None), f.c.data_file_id.in_(file_ids))
        )
        if until is not None:
            rows, deletes = (self._t.column(table, "partial_max") for table in ("data_file", "delete_file"))
            statement = statement.where(sa.func.coalesce(rows, 0) <= until, sa.func.coalesce(deletes, 0) <= until)
        return {row[0]: row[1] for row in self._sql.run("live_files", statement)}

    def count_ended(self, table_id: int, snapshot: int) -> tuple[int, int]:
        """Return how many data files and delete files of a table ended with a snapshot."""
        counts = []
        for name in ("data_file", "delete_file"):
            t = self._t[name]
            statement = sa.select(sa.func.count()).where(t.c.table_id == table_id, t.c.end_snapshot == snapshot)
            counts.append(int(self._sql.run(f"ended_{name}s", statement).scalar_one()))
        return counts[0], counts[1]

    def ends(self, data_files: Sequence[int], delete_files: Sequence[int]) -> list[int | None]:
        """Return when files ended, None for each that has not."""
        ends: list[int | None] = []
        for name, ids in (("data_file", data_files), ("delete_file", delete_files)):
            if ids:
                t = self._t[name]
                statement = sa.select(t.c.end_snapshot).where(t.c[f"{name}_id"].in_(list(ids)))
                ends += [row[0] for row in self._sql.run(f"{name}_ends", statement)]
        return ends
