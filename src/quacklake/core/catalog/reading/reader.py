"""Reading a lake's metadata: every method is a constant number of statements inside one consistent transaction.

Files and how statistics rule them out are here, the other subjects in modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from quacklake.core.catalog.databases.database import Database
from quacklake.core.catalog.reading.inlined import InlinedQueries
from quacklake.core.catalog.reading.known_bounds import BoundsMemory, KnownBounds, Window
from quacklake.core.catalog.reading.pruning import condition, shape, values
from quacklake.core.catalog.reading.tables import SnapshotQueries, TableQueries, grouped_specs
from quacklake.core.catalog.statements import SOME, CatalogStatements, Queries, Step, arrow_table, listed_table, visible
from quacklake.core.catalog.tables import Tables
from quacklake.core.format.bounds import ANYTHING, Compare, IsNull, Predicate, coarse, columns_of
from quacklake.core.format.layout import PartitionSpec
from quacklake.core.format.mappings import MappingRow, NameMapping, unflatten_mappings
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.options import OptionRow
from quacklake.core.format.partition_pruning import pruner, wanted_buckets
from quacklake.core.format.snapshots import Snapshot

_FILE = (
    "data_file_id path path_is_relative record_count file_size_bytes footer_size row_id_start begin_snapshot"
    " partial_max partition_id mapping_id encryption_key delete_file_id delete_path delete_path_is_relative"
    " delete_format delete_count delete_begin_snapshot delete_partial_max delete_encryption_key delete_file_size_bytes"
)
_TEXTS = ("path", "_format", "_key")
#: The columns of ``Reader.files``: a data file with the delete file that is visible with it.
FILE_COLUMNS: Mapping[str, pa.DataType] = {
    name: pa.bool_() if name.endswith("is_relative") else pa.string() if name.endswith(_TEXTS) else pa.int64()
    for name in _FILE.split()
}

_FLAGS = [name for name, type_ in FILE_COLUMNS.items() if pa.types.is_boolean(type_)]
_DELETE_NAMES = ("delete_file_id", "delete_count")
"""Columns that have such a name in the table of delete files, too."""

_MANY = 500
"""The files that a lake has had from which on those of a table are fetched by the column, where that is quicker."""

_Bucket = tuple[int, int]
"""A partitioning and the index of one of its keys."""


class FileQueries(Queries):
    """Reads the files of tables."""

    _sql: Reader

    def __init__(self, sql: Reader, memory: BoundsMemory | None = None) -> None:
        super().__init__(sql)
        self._memory = memory

    def matching(self, snapshot: Snapshot, table: TableInfo, predicate: Predicate = ANYTHING) -> pa.Table:
        """Return the data files of a table that may hold matching rows, each with its delete file.

        One statement, and one more when partition values can rule out further ones (the first time up to three).
        """
        buckets = self._wanted_buckets(table, predicate)
        coarser = coarse(predicate)  # databases are slow with many comparisons, or refuse them
        if predicate == ANYTHING:
            return self._run_select(snapshot, table, ANYTHING, buckets)
        known = (
            None if self._memory is None else KnownBounds(self._sql, self._memory).candidates(snapshot, table, coarser)
        )
        if known is None:
            files = self._run_select(snapshot, table, coarser, buckets)
        else:
            files = self._candidates(snapshot, table, buckets, *known)
        return self._prune_partitions(files, table, predicate)

    def in_windows(self, snapshot: Snapshot, table: TableInfo, windows: Sequence[Window]) -> pa.Table:
        """Return the data files of a table with ids in these windows, and those that have come since the snapshot.

        A compaction may have put later files in place of those that the snapshot had.
        """
        f = self.meta["data_file"]
        names = [(f"first{number}", f"last{number}") for number in range(len(windows))]

        def select() -> sa.Select[Any]:
            ranges = [f.c.data_file_id.between(sa.bindparam(first), sa.bindparam(last)) for first, last in names]
            few = sa.or_(f.c.data_file_id >= sa.bindparam("next"), *ranges)
            return self._select_files(ANYTHING, (), few)

        parameters = {"snapshot": snapshot.id, "table": table.id, "next": snapshot.next_file_id}
        for pair, window in zip(names, windows, strict=True):
            parameters |= dict(zip(pair, window, strict=True))
        statement = self._sql.cached(("files_in_windows", len(windows)), select)
        return self._fetch(snapshot, statement, parameters)

    def _candidates(
        self, snapshot: Snapshot, table: TableInfo, buckets: Mapping[_Bucket, list[int]], ids: pa.Array, among: int
    ) -> pa.Table:
        """Return those of the files with these ids that a snapshot sees; there are ``among`` files in all."""
        if len(ids) * 2 < among:
            return self._run_select(snapshot, table, ANYTHING, buckets, ids.to_pylist())
        files = self._run_select(snapshot, table, ANYTHING, buckets)
        return files.filter(pc.is_in(files.column("data_file_id"), value_set=ids))

    def _run_select(
        self,
        snapshot: Snapshot,
        table: TableInfo,
        predicate: Predicate,
        buckets: Mapping[_Bucket, list[int]],
        ids: Sequence[int] | None = None,
    ) -> pa.Table:
        key = ("files", shape(predicate), ids is None, *buckets)
        few = None if ids is None else self.backend.among_ids(self.meta["data_file"].c.data_file_id, "ids")
        statement = self._sql.cached(key, lambda: self._select_files(predicate, list(buckets), few))
        parameters = {"snapshot": snapshot.id, "table": table.id, **values(predicate)}
        parameters |= {f"b{number}": values for number, values in enumerate(buckets.values())}
        if ids is not None:
            parameters["ids"] = self.backend.listed(ids)
        elif predicate == ANYTHING:  # a filter leaves few files most often
            return self._fetch(snapshot, statement, parameters)
        return arrow_table(self._sql.run("files", statement, parameters), FILE_COLUMNS)

    def _fetch(self, snapshot: Snapshot, statement: sa.Select[Any], parameters: Mapping[str, Any]) -> pa.Table:
        """Return the files of a statement that may have very many, by their ids."""
        if self.backend.lists_columns and snapshot.next_file_id >= _MANY:
            with Step("files", statement):
                lists = self.backend.fetch_columns(self._sql.connection, statement, parameters)
            if lists is not None:
                files = listed_table(lists, FILE_COLUMNS)
                ids = files.column("data_file_id")
                ordered = pc.all(pc.less_equal(ids[:-1], ids[1:])).as_py()  # most often, as ids grow with snapshots
                return files if ordered else files.take(pc.sort_indices(ids))
        return arrow_table(self._sql.run("files", statement, parameters), FILE_COLUMNS)

    def _wanted_buckets(self, table: TableInfo, predicate: Predicate) -> dict[_Bucket, list[int]]:
        """Return the buckets that matching rows are in, by partitioning and key index: statistics do not tell."""
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
        specs = _useful(predicate, self._partition_specs(table, ids))
        if not specs:
            return files
        constant = self._constant_columns(table)
        tests = {spec.id: pruner(predicate, spec, table.schema, constant) for spec in specs}
        partitioned = files.filter(
            pc.is_in(files.column("partition_id"), value_set=pa.array(sorted(tests), pa.int64()))
        )
        file_ids = partitioned.column("data_file_id").to_pylist()
        return _prune(files, tests, self.partition_values(table.id, file_ids))

    def _partition_specs(self, table: TableInfo, ids: set[int]) -> list[PartitionSpec]:
        """Return partitionings of a table by their ids; one that exists never changes."""
        key = ("partition_specs", table.id)
        known: dict[int, PartitionSpec] = self._sql._cache.setdefault(key, {})
        if table.partition is not None and table.partition.id >= 0:
            known[table.partition.id] = table.partition
        if not ids <= known.keys():
            t = self.meta["partition_column"]
            columns = t.c["table_id", "partition_id", "partition_key_index", "column_id", "transform"]
            statement = sa.select(*columns).where(t.c.table_id == table.id)
            rows = self._sql.run("partition_specs", statement.order_by(t.c.partition_id, t.c.partition_key_index))
            known.update((spec.id, spec) for _, spec in grouped_specs(rows))
        return [known[id_] for id_ in ids if id_ in known]

    def _constant_columns(self, table: TableInfo) -> frozenset[int]:
        """Return the columns of a table that never had another type than they have now."""
        key = ("constant_columns", table.id, table.schema_version)
        types: dict[int, str] = self._sql.cached(key, lambda: self._constant_types(table.id))
        # an open transaction may have changed a type
        return frozenset(column.id for column in table.schema.columns if types.get(column.id) == column.type)

    def _constant_types(self, table_id: int) -> dict[int, str]:
        """Return the type of each column of a table that has had one type only."""
        t = self.meta["column"]
        statement = sa.select(t.c.column_id, t.c.column_type).where(t.c.table_id == table_id).distinct()
        types: dict[int, list[str]] = {}
        for id_, type_ in self._sql.run("column_types", statement):
            types.setdefault(id_, []).append(type_)
        return {id_: seen[0] for id_, seen in types.items() if len(seen) == 1}

    def _in_buckets(self, partition_id: int, index: int, numbers: sa.BindParameter[Any]) -> sa.ColumnElement[bool]:
        """Return the condition that leaves out data files of a partitioning in other buckets of a key."""
        f, v = self.meta["data_file"], self.meta["file_partition_value"]
        elsewhere = (
            sa.select(sa.literal(1))
            .where(
                f.c.partition_id == partition_id,
                v.c.table_id == f.c.table_id,
                v.c.data_file_id == f.c.data_file_id,
                v.c.partition_key_index == index,
                # a text that is not a number is unknown
                self.backend.bound(v.c.partition_value, "integer").not_in(numbers),
            )
            .correlate(f)
        )
        return ~sa.exists(elsewhere)

    def _select_files(
        self, predicate: Predicate, buckets: Sequence[_Bucket], few: sa.ColumnElement[bool] | None
    ) -> sa.Select[Any]:
        """Return the statement of ``matching`` for predicates of one shape and bucket keys, or for few ids."""
        f, d = self.meta["data_file"], self.meta["delete_file"]
        snapshot, table = sa.bindparam("snapshot", type_=sa.BigInteger()), sa.bindparam("table", type_=sa.BigInteger())
        source: sa.FromClause = f
        # few files are found by their ids: the index of tables would look at every file of this one
        mine = f.c.table_id if few is None else f.c.table_id + 0
        where: list[sa.ColumnElement[bool]] = [mine == table, visible(f, snapshot)]
        if few is not None:
            where.append(few)
        if predicate != ANYTHING:
            stats = self.meta["file_column_stats"]
            bounds: dict[int, sa.FromClause] = {id_: stats.alias(f"s{id_}") for id_ in sorted(columns_of(predicate))}
            for id_, alias in bounds.items():
                same = sa.and_(alias.c.table_id == table, alias.c.column_id == id_)
                source = source.outerjoin(alias, sa.and_(same, alias.c.data_file_id == f.c.data_file_id))
            where.append(condition(predicate, bounds, self.backend))
        where += [
            self._in_buckets(*key, sa.bindparam(f"b{number}", expanding=True)) for number, key in enumerate(buckets)
        ]
        # joined after the statistics, so that only the remaining files are looked up
        with_deletes = sa.and_(d.c.table_id == table, d.c.data_file_id == f.c.data_file_id)
        source = source.outerjoin(d, sa.and_(with_deletes, visible(d, snapshot)))
        return sa.select(*self._file_columns()).select_from(source).where(*where).order_by(f.c.data_file_id)

    def _file_columns(self) -> list[sa.ColumnElement[Any]]:
        """Return ``FILE_COLUMNS`` of data files joined with delete files."""
        columns: list[sa.ColumnElement[Any]] = []
        for name in FILE_COLUMNS:
            of_delete = name.startswith("delete_")
            own = name if name in _DELETE_NAMES else name.removeprefix("delete_")
            column = self.meta.column("delete_file" if of_delete else "data_file", own)
            # flags as they are stored, which ``arrow_table`` turns into booleans by the column
            columns.append((sa.type_coerce(column, sa.BigInteger) if name in _FLAGS else column).label(name))
        return columns

    def changed(self, table: TableInfo, since: int, until: int) -> pa.Table:
        """Return the data files that rows came with or went from in some snapshots, with every delete file they had.

        One row for each data file and delete file; ``FILE_COLUMNS`` and the end of the data file.
        """
        deletes = self._sql.inlined.has_deletes(table.id, until)
        key = ("changed_files", table.id if deletes else None)
        statement = self._sql.cached(key, lambda: self._select_changed(table.id if deletes else None))
        found = self._sql.run("changed_files", statement, {"table": table.id, "since": since, "until": until})
        return arrow_table(found, {**FILE_COLUMNS, "end_snapshot": pa.int64()})

    def _select_changed(self, deletes_of: int | None) -> sa.Select[Any]:
        """Return the statement of ``changed`` for any table, or for one with inlined deletes."""
        f, d, column = self.meta["data_file"], self.meta["delete_file"], self.meta.column
        table, since, until = (sa.bindparam(name, type_=sa.BigInteger()) for name in ("table", "since", "until"))
        any_delete = d.alias("any_delete")
        last = sa.func.coalesce(any_delete.c.get("partial_max", sa.null()), any_delete.c.begin_snapshot)
        with_deletes = sa.select(any_delete.c.data_file_id).where(
            any_delete.c.table_id == table, any_delete.c.begin_snapshot <= until, last >= since
        )
        changed = [
            f.c.begin_snapshot >= since,
            column("data_file", "partial_max") >= since,
            f.c.end_snapshot.between(since, until),
            f.c.data_file_id.in_(with_deletes),
        ]
        if deletes_of is not None:
            sql = self._sql.delete_table(deletes_of)
            changed.append(
                f.c.data_file_id.in_(sa.select(sql.c.file_id).where(sql.c.begin_snapshot.between(since, until)))
            )
        mine = sa.and_(d.c.table_id == table, d.c.data_file_id == f.c.data_file_id, d.c.begin_snapshot <= until)
        return (
            sa.select(*self._file_columns(), f.c.end_snapshot)
            .select_from(f.outerjoin(d, mine))
            .where(f.c.table_id == table, f.c.begin_snapshot <= until, sa.or_(*changed))
            .order_by(f.c.data_file_id, d.c.delete_file_id)
        )

    def partition_values(self, table_id: int, file_ids: Sequence[int]) -> dict[int, dict[int, str | None]]:
        """Return the partition values of files (of all when these are many): data file -> key index -> text."""
        t = self.meta["file_partition_value"]
        columns = t.c["data_file_id", "partition_key_index", "partition_value"]
        select = sa.select(*columns).where(t.c.table_id == table_id)
        statement = select.where(t.c.data_file_id.in_(list(file_ids))) if len(file_ids) <= SOME else select
        values: dict[int, dict[int, str | None]] = {}
        for file_id, index, text in self._sql.run("partition_values", statement):
            values.setdefault(file_id, {})[index] = text
        return values

    def once_deleted(self, table_id: int) -> set[int]:
        """Return the data files of a table that had a delete file which has ended."""
        d = self.meta["delete_file"]
        statement = sa.select(d.c.data_file_id).where(d.c.table_id == table_id, d.c.end_snapshot.is_not(None))
        return {row[0] for row in self._sql.run("once_deleted", statement)}

    def name_mappings(self, ids: Sequence[int]) -> tuple[NameMapping, ...]:
        """Return name mappings of files from elsewhere, by their ids."""
        t = self.meta["name_mapping"]
        columns = self.meta.columns("name_mapping", " ".join(MappingRow.__slots__))
        mine = t.c.mapping_id.in_(sa.bindparam("ids", expanding=True))
        statement = self._sql.cached("name_mappings", lambda: sa.select(*columns).where(mine))
        rows = self._sql.run("name_mappings", statement, {"ids": list(ids)})
        return unflatten_mappings(MappingRow(*row) for row in rows)

    def table_mappings(self, table_id: int) -> tuple[NameMapping, ...]:
        """Return every name mapping that files of a table have had."""
        t = self.meta["column_mapping"]
        ids = sa.select(t.c.mapping_id).where(t.c.table_id == table_id)
        return self.name_mappings([row[0] for row in self._sql.run("table_mappings", ids)])

    def added_since(self, table_id: int, version: int) -> set[str]:
        """Return the paths of files from elsewhere that were added to a table after a snapshot and are still there."""
        t = self.meta["data_file"]
        statement = sa.select(t.c.path).where(
            t.c.table_id == table_id,
            t.c.begin_snapshot > version,
            t.c.end_snapshot.is_(None),
            t.c.mapping_id.is_not(None),
        )
        return {row[0] for row in self._sql.run("added_since", statement)}

    def live(self, table_id: int, file_ids: Sequence[int], until: int | None = None) -> dict[int, int | None]:
        """Return those of these data files that have not ended, each with the id of its live delete file.

        With ``until`` only those without rows or deletes of later snapshots: a file that replaces others may have them.
        """
        f, d = self.meta["data_file"], self.meta["delete_file"]
        statement = (
            sa.select(f.c.data_file_id, d.c.delete_file_id)
            .select_from(f.outerjoin(d, sa.and_(d.c.data_file_id == f.c.data_file_id, d.c.end_snapshot.is_(None))))
            .where(f.c.table_id == table_id, f.c.end_snapshot.is_(None), f.c.data_file_id.in_(file_ids))
        )
        if until is not None:
            rows, deletes = (self.meta.column(table, "partial_max") for table in ("data_file", "delete_file"))
            statement = statement.where(sa.func.coalesce(rows, 0) <= until, sa.func.coalesce(deletes, 0) <= until)
        return {row[0]: row[1] for row in self._sql.run("live_files", statement)}

    def count_ended(self, table_id: int, snapshot: int) -> tuple[int, int]:
        """Return how many data files and delete files of a table ended with a snapshot."""
        counts = []
        for name in ("data_file", "delete_file"):
            t = self.meta[name]
            statement = sa.select(sa.func.count()).where(t.c.table_id == table_id, t.c.end_snapshot == snapshot)
            counts.append(int(self._sql.run(f"ended_{name}s", statement).scalar_one()))
        return counts[0], counts[1]

    def ends(self, data_files: Sequence[int], delete_files: Sequence[int]) -> list[int | None]:
        """Return when files ended, None for each that has not."""
        ends: list[int | None] = []
        for name, ids in (("data_file", data_files), ("delete_file", delete_files)):
            if ids:
                t = self.meta[name]
                statement = sa.select(t.c.end_snapshot).where(t.c[f"{name}_id"].in_(list(ids)))
                ends += [row[0] for row in self._sql.run(f"{name}_ends", statement)]
        return ends


def _useful(predicate: Predicate, known: Iterable[PartitionSpec]) -> list[PartitionSpec]:
    """Return the partitionings that speak of a column of the predicate; buckets tell nothing of a range."""
    compared, exact = columns_of(predicate), _exact_columns(predicate)
    return [
        spec
        for spec in known
        if any(key.column_id in (exact if key.transform.startswith("bucket") else compared) for key in spec.keys)
    ]


def _exact_columns(predicate: Predicate) -> frozenset[int]:
    """Return the columns that are compared with a value or NULL for equality somewhere in a predicate."""
    if isinstance(predicate, Compare):
        return frozenset([predicate.column_id] if predicate.operator == "=" else [])
    if isinstance(predicate, IsNull):
        return frozenset([predicate.column_id])
    return frozenset().union(*(_exact_columns(part) for part in predicate.parts))


def _prune(
    files: pa.Table,
    tests: Mapping[int, Callable[[Mapping[int, str | None]], bool]],
    values: Mapping[int, Mapping[int, str | None]],
) -> pa.Table:
    """Return the files that pass, and those of other partitionings or with unknown values."""
    answers: dict[tuple[int, frozenset[tuple[int, str | None]]], bool] = {}

    def passes(file_id: int, partition_id: int | None) -> bool:
        test = None if partition_id is None else tests.get(partition_id)
        known = values.get(file_id)
        if partition_id is None or test is None or known is None:
            return True
        key = (partition_id, frozenset(known.items()))
        if key not in answers:
            answers[key] = test(known)
        return answers[key]

    ids, partition_ids = (files.column(name).to_pylist() for name in ("data_file_id", "partition_id"))
    keep = [passes(*pair) for pair in zip(ids, partition_ids, strict=True)]
    return files if all(keep) else files.filter(pa.array(keep, pa.bool_()))


class Reader(CatalogStatements):
    """One read transaction, by subject. All answers describe the same state of the database."""

    def __init__(
        self,
        connection: Connection,
        tables: Tables,
        database: Database,
        cache: dict[Any, Any],
        memory: BoundsMemory | None = None,
    ) -> None:
        """Read with remembered bounds where a ``memory`` is given: never in a transaction that has written."""
        super().__init__(connection, tables, database, cache)
        self.snapshots = SnapshotQueries(self)
        self.tables = TableQueries(self)
        self.inlined = InlinedQueries(self)
        self.files = FileQueries(self, memory)

    def options(self) -> list[OptionRow]:
        """Return every option of the lake with its scope."""
        columns = self.meta.columns("metadata", "key value scope scope_id")
        statement = self.cached("options", lambda: sa.select(*columns))
        return [OptionRow(*row) for row in self.run("options", statement)]
