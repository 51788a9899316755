"""A scan plan as a DataFrame.

Spark's own Parquet reader reads files under the column names that they have, in one branch for all files of one shape.
Deleted rows are removed from files that have any. Inlined rows are a branch of their own, and so are encrypted files,
which Spark cannot read by itself. No setting of the session has an effect when the DataFrame runs; only the type TIME
has one when it is created.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from quacklake.core.engines.duckdb import DuckDBEngine
from quacklake.core.format.mappings import MappedColumn, NameMapping, hive_values
from quacklake.core.format.objects import NAME_ROW_ID, NAME_SNAPSHOT_ID
from quacklake.core.format.schema import FIELD_ID
from quacklake.core.operations.keyed_changes import FEED_NAMES
from quacklake.core.scan.plan import INLINED_META, SECRET, column_key
from quacklake.core.storage import Footer, FooterColumn, read_footers
from quacklake.core.storage.parquet import child_fields
from quacklake.errors import UnsupportedFeatureError
from quacklake.extend.names import fold
from quacklake.extend.plans import FeedPlan, ScanPlan
from quacklake.extend.schemas import Column
from quacklake.spark.read.file_index import Deletes, free_name, read_files
from quacklake.spark.read.slices import state_slices
from quacklake.spark.runtime.failures import reaching
from quacklake.spark.runtime.local import carried, inlined_columns, inlined_rows, shown_columns, shown_rows, to_frame
from quacklake.spark.runtime.session import has_time, require_types
from quacklake.spark.runtime.types import initial_value, quote, read_type, shown, shown_type

if TYPE_CHECKING:
    from quacklake.extend.stores import Store

_HERE = 1000  # the most footers that this process reads faster than Spark starts Python on the executors
_A_TASK = 250


def all_footers(session: SparkSession, store: Store, paths: Sequence[str]) -> list[Footer]:
    """Return the footer of each file. Executors need ``quacklake``, and get access to the store only."""
    if len(paths) <= _HERE:
        return read_footers(store, paths)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [pickle.dumps(footer) for footer in read_footers(store, batch.column("path").to_pylist())]
            yield pa.record_batch({"number": batch.column("number"), "footer": pa.array(found, pa.binary())})

    listed = pa.table({"number": pa.array(range(len(paths)), pa.int64()), "path": pa.array(paths, pa.string())})
    tasks = -(-len(paths) // _A_TASK)
    rows = to_frame(session, listed).repartition(tasks, "number").mapInArrow(read, "number BIGINT, footer BINARY")
    found = rows.toLocalIterator(prefetchPartitions=True)
    footers: dict[int, Footer] = {row["number"]: pickle.loads(row["footer"]) for row in found}
    return [footers[number] for number in range(len(paths))]


#: The columns of the table that a file has: (id of the table's column, the file's column).
Shape = tuple[tuple[int, Column], ...]


class FileShapes:
    """A cache of the columns of files, which never change. Safe to share between threads.

    Spark needs the names in the files: the table's own in files newer than every change of a column, else the footer's.
    """

    def __init__(self, session: SparkSession, store: Store, size: int = 100_000) -> None:
        self._session = session
        self._store = store
        self._size = size
        self._known: dict[str, tuple[Column, ...]] = {}
        self._lock = threading.Lock()

    def find(self, plan: ScanPlan) -> list[Shape]:
        """Return the shape of each file of a plan. Equal shapes are the same object."""
        own: Shape = tuple((column.id, column) for column in plan.schema.columns)
        shapes: list[Shape] = [own] * plan.files.num_rows
        indexes = _doubtful(plan)
        if not indexes:
            return shapes
        paths: list[str] = plan.files.column("path").take(pa.array(indexes, pa.int64())).to_pylist()
        mappings: list[int | None] = plan.files.column("mapping_id").to_pylist()
        trees = self._trees(paths)
        made: dict[tuple[int | None, tuple[Column, ...]], Shape] = {}
        known: dict[Shape, Shape] = {own: own}
        for index, path in zip(indexes, paths, strict=True):
            key = (mappings[index], trees[path])
            if key not in made:
                mapping = None if key[0] is None else plan.mapping(key[0])
                shape = _shape(key[1], plan.schema.columns, mapping)
                made[key] = known.setdefault(shape, shape)
            shapes[index] = made[key]
        return shapes

    def _trees(self, paths: Sequence[str]) -> Mapping[str, tuple[Column, ...]]:
        with self._lock:
            known = {path: self._known[path] for path in paths if path in self._known}
        missing = [path for path in paths if path not in known]
        for path, footer in zip(missing, all_footers(self._session, self._store, missing), strict=True):
            leaves = iter(footer.columns)
            known[path] = tuple(_column(field, leaves) for field in footer.schema)
        with self._lock:
            if len(self._known) + len(missing) > self._size:
                self._known.clear()
            self._known |= {path: known[path] for path in missing}
        return known


def _doubtful(plan: ScanPlan) -> list[int]:
    """Return the files that may have other columns than the table: old, compacted, or from elsewhere."""
    if plan.columns_since is None:
        return list(range(plan.files.num_rows))
    begins, first = plan.files.column("begin_snapshot"), plan.files.column("row_id_start")
    young = pc.fill_null(pc.greater(begins, plan.columns_since), False)
    sure = pc.and_(pc.and_(young, pc.is_valid(first)), pc.is_null(plan.files.column("mapping_id")))
    found: list[int] = pc.indices_nonzero(pc.invert(sure)).to_pylist()
    return found


def _column(field: pa.Field, leaves: Iterator[FooterColumn]) -> Column:
    """Return a column of a file. Its id is -1 without a field id, its type ``unknown`` if Spark cannot read it."""
    text = (field.metadata or {}).get(FIELD_ID)
    id_ = -1 if text is None else int(text)
    type_ = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    fields = child_fields(type_)
    if not fields:
        leaf = next(leaves)
        kind = "timestamptz" if leaf.type.physical == "INT96" else leaf.lake_type
        return Column(id_, field.name, kind or "unknown")
    children = tuple(_column(child, leaves) for child in fields)
    kind = "map" if pa.types.is_map(type_) else "struct" if pa.types.is_struct(type_) else "list"
    return Column(id_, field.name, kind, children=children)


def _shape(tree: Sequence[Column], columns: Sequence[Column], mapping: NameMapping | None) -> Shape:
    if mapping is not None:
        by_name = {column.name: column for column in tree}
        entries = mapping.by_target
        tree = [
            _map_column(by_name[entries[column.id].source_name], entries[column.id])
            for column in columns
            if column.id in entries and entries[column.id].source_name in by_name
        ]
    by_id = {column.id: column for column in tree if column.id >= 0}
    found = ((column, by_id.get(column.id)) for column in columns)
    return tuple((column.id, _fit_column(stored, column)) for column, stored in found if stored is not None)


def _map_column(stored: Column, entry: MappedColumn) -> Column:
    if stored.type == "struct":
        targets = {child.source_name: child for child in entry.children}
        children = tuple(
            _map_column(child, targets[child.name]) if child.name in targets else replace(child, id=-1)
            for child in stored.children
        )
    else:
        children = tuple(_map_column(child, one) for child, one in zip(stored.children, entry.children, strict=False))
    return replace(stored, id=entry.target_id, children=children)


def _fit_column(stored: Column, wanted: Column) -> Column:
    """Return a column of a file as it is read: without fields that the table lacks, with value groups kept whole."""
    if wanted.type == "variant" and stored.type == "struct":
        return replace(stored, type="variant", children=())
    if wanted.type == "timetz" and stored.type == "time":
        return replace(stored, type="timetz")
    if not wanted.nested or stored.type != wanted.type:
        return stored
    if wanted.type != "struct":
        pairs = zip(stored.children, wanted.children, strict=True)
        return replace(stored, children=tuple(_fit_column(one, two) for one, two in pairs))
    known = {child.id: child for child in wanted.children}
    kept = tuple(_fit_column(child, known[child.id]) for child in stored.children if child.id in known)
    # one field of a struct that shares none with the table, so that NULL differs from other values
    return replace(stored, children=kept or stored.children[:1])


ROW_ID, FILE_ID, VERSION = "_ql_row_id", "_ql_file_id", "_ql_version"
POSITION, SNAPSHOT = "_ql_position", "_ql_snapshot"
#: Columns that identify a row, on request: its id, its place (a file or a version of inlined rows, and its position
#: there), and the snapshot that added it.
ROW_COLUMNS = (ROW_ID, FILE_ID, VERSION, POSITION, SNAPSHOT)
_FACTS = ("data_file_id", "row_id_start", "begin_snapshot")


class _Branch(NamedTuple):
    """Files of one shape, either all with deletes or all without."""

    indexes: Sequence[int]
    shape: Shape
    mapping: NameMapping | None
    partial: bool
    deleted: bool


class SparkScan:
    """Creates DataFrames of the scan plans of one lake. Safe to share between threads."""

    def __init__(self, session: SparkSession, store: Store) -> None:
        self.session = session
        self.store = store
        self._shapes = FileShapes(session, store)

    def frame(self, plan: ScanPlan, *, rows: bool = False) -> DataFrame:
        """Return the rows of a plan, with ``rows`` then ``ROW_COLUMNS``. Reads only footers of old files.

        Raise ``UnsupportedFeatureError`` for a column with one of these names, or of a type that this Spark lacks.
        """
        return reduce(DataFrame.union, self.parts(plan, rows=rows))

    def parts(self, plan: ScanPlan, *, rows: bool = False) -> list[DataFrame]:
        """Return a plan as at least one DataFrame. Filter them before a union, which costs as much as reading."""
        taken = next((name for name in plan.schema.names if rows and fold(name) in ROW_COLUMNS), None)
        if taken is not None:
            raise _not_beside(plan, taken)
        require_types(self.session, plan.schema.columns, shown=["json", "time"])
        plan, secret = _apart(plan)
        time = has_time(self.session)
        with reaching():
            parts = [self._files(plan, branch, time=time, rows=rows) for branch in self._branches(plan)]
        if plan.inlined is not None and plan.inlined.num_rows:
            columns, meta = plan.schema.columns, INLINED_META if rows else ()
            select = shown_columns(columns, time=time)
            if rows:
                select += [f"row_id AS {ROW_ID}", f"CAST(NULL AS BIGINT) AS {FILE_ID}", f"schema_version AS {VERSION}"]
                select += [f"row_id AS {POSITION}", f"begin_snapshot AS {SNAPSHOT}"]
            parts.append(inlined_rows(self.session, plan.inlined, columns, meta=meta).selectExpr(*select))
        if secret.files.num_rows:
            parts.append(sealed_frame(self.session, self.store, secret, rows))
        if not parts:
            types = [(quote(column.name), shown_type(column, time=time)) for column in plan.schema.columns]
            types += [(name, "BIGINT") for name in ROW_COLUMNS if rows]
            parts.append(
                self.session.range(0).selectExpr(*(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in types))
            )
        return parts

    def _branches(self, plan: ScanPlan) -> list[_Branch]:
        shapes = self._shapes.find(plan)
        # equal shapes are one object; comparing shapes would take long for very many files
        keys = list(zip(map(id, shapes), plan.kinds, strict=True))
        found: dict[tuple[int, tuple[bool, bool, int | None]], list[int]] = {key: [] for key in dict.fromkeys(keys)}
        if len(found) == 1:
            found[keys[0]] = list(range(len(keys)))
        else:
            for index, key in enumerate(keys):
                found[key].append(index)
        branches: list[_Branch] = []
        for (_, (with_deletes, some, mapping_id)), indexes in found.items():
            mapping = None if mapping_id is None else plan.mapping(mapping_id)
            branches.append(_Branch(indexes, shapes[indexes[0]], mapping, some and mapping is None, with_deletes))
        return branches

    def _files(self, plan: ScanPlan, branch: _Branch, *, time: bool, rows: bool) -> DataFrame:
        every = len(branch.indexes) == plan.files.num_rows
        files = plan.files if every else plan.files.take(pa.array(branch.indexes, pa.int64()))
        urls = self.store.readable_urls(files.column("path").to_pylist())
        stored = [column for _, column in branch.shape]
        fields = [f"{quote(column.name)} {read_type(column, time=time)}" for column in stored]
        own = branch.mapping is None
        if branch.partial or (rows and own):
            fields.append(f"{quote(NAME_SNAPSHOT_ID)} BIGINT")
        if rows and own:
            fields.append(f"{quote(NAME_ROW_ID)} BIGINT")
        facts = _folder_facts(branch, urls, plan.schema.columns)
        if rows:
            facts |= {f"_ql_fact_{name}": files.column(name).combine_chunks() for name in _FACTS}
        taken = [column.name for column in stored]
        position, number = (free_name(name, taken) for name in ("_ql_position", "_ql_number"))
        deletes = Deletes(self.session, self.store, plan, files)
        if branch.deleted:
            facts[number] = deletes.numbers
        hidden = next((name for name in taken if fold(name) in facts), None)
        if hidden is not None:  # otherwise it would get the values of the fact
            raise _not_beside(plan, hidden)
        # a file without any column of the table still has rows to count
        schema = ", ".join(fields) or "_ql_nothing BOOLEAN"
        numbered = position if rows or branch.deleted else None
        found = read_files(self.session, self.store, files, urls, schema, facts, numbered)
        read = deletes.without(found, number, position) if branch.deleted else found.rows
        if branch.partial:
            name = quote(NAME_SNAPSHOT_ID)
            read = read.filter(f"{name} IS NULL OR {name} <= {plan.snapshot_id:d}")
        by_id = dict(branch.shape)
        select = [_select(column, by_id, facts, time=time) for column in plan.schema.columns]
        return read.selectExpr(*select, *(_row_columns(position, own=own) if rows else ()))


def _not_beside(plan: ScanPlan, name: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f'the rows of "{plan.table_name}" cannot be told apart beside its column "{name}"', hint="rename the column"
    )


def _apart(plan: ScanPlan) -> tuple[ScanPlan, ScanPlan]:
    keys = (plan.files.column(name) for name in SECRET)
    secret = reduce(pc.or_, map(pc.is_valid, keys))
    files = plan.files.filter(secret)
    if not files.num_rows:
        return plan, replace(plan, files=files, inlined=None)
    theirs = pc.is_in(plan.deletes.column("file_id"), value_set=files.column("data_file_id").combine_chunks())
    rest = replace(plan, files=plan.files.filter(pc.invert(secret)), deletes=plan.deletes.filter(pc.invert(theirs)))
    return rest, replace(plan, files=files, deletes=plan.deletes.filter(theirs), inlined=None)


def _folder_facts(branch: _Branch, urls: Sequence[str], columns: Sequence[Column]) -> dict[str, pa.Array]:
    """Return the texts in the folder names of each file, for each column that has its values there."""
    entries = {} if branch.mapping is None else branch.mapping.by_target
    folders = [column for column in columns if column.id in entries and entries[column.id].is_partition]
    values = [hive_values(url) for url in urls] if folders else []
    found: dict[str, pa.Array] = {}
    for column in folders:
        texts = [each.get(entries[column.id].source_name) for each in values]
        texts = [None if text == "" and column.type != "varchar" else text for text in texts]
        found[_folder_key(column)] = pa.array(texts, pa.string())
    return found


def _row_columns(position: str, *, own: bool) -> list[str]:
    """Return ``ROW_COLUMNS`` of rows in files. Files from elsewhere (not ``own``) have none of them inside."""
    row_id, snapshot = f"_ql_fact_row_id_start + {position}", "_ql_fact_begin_snapshot"
    if own:
        row_id = f"coalesce({quote(NAME_ROW_ID)}, {row_id})"
        snapshot = f"coalesce({quote(NAME_SNAPSHOT_ID)}, {snapshot})"
    return [
        f"{row_id} AS {ROW_ID}",
        f"_ql_fact_data_file_id AS {FILE_ID}",
        f"CAST(NULL AS BIGINT) AS {VERSION}",
        f"{position} AS {POSITION}",
        f"{snapshot} AS {SNAPSHOT}",
    ]


def _folder_key(column: Column) -> str:
    return f"_ql_folder_{column.id}"


def _select(column: Column, by_id: dict[int, Column], facts: Mapping[str, pa.Array], *, time: bool) -> str:
    stored = by_id.get(column.id)
    if _folder_key(column) in facts:
        text = Column(column.id, column.name, "varchar")
        value = shown(_folder_key(column), text, column, time=time)
    elif stored is None:
        value = initial_value(column, time=time)
    else:
        value = shown(quote(stored.name), stored, column, time=time)
    return f"{value} AS {quote(column.name)}"


# -- slices ------------------------------------------------------------------------------------------------------------
#
# Parts of tables and feeds that tasks read by themselves, with DuckDB. A slice has everything that its task needs,
# including the keys of its own encrypted files, but no access to the catalog.

_BATCH_ROWS = 50_000
_TIMES = pa.schema([("id", pa.int64()), ("time", pa.int64())])


@dataclass(frozen=True, repr=False)
class Slice:
    """Rows for one task.

    ``names`` are the columns as the plan names them. With ``shown``, rows are in the form that users see, and ``time``
    says whether their session has the type TIME; otherwise they are in transport form, under names with their ids.
    With ``places`` a scan has ``ROW_COLUMNS``; with ``changes`` a feed has the kind of each change. ``where`` is for
    scans only.
    """

    store: Store
    plan: ScanPlan | FeedPlan
    columns: tuple[Column, ...]
    names: tuple[str, ...]
    changes: bool = False
    times: pa.Table = field(default_factory=_TIMES.empty_table)
    where: str | None = None
    shown: bool = False
    time: bool = False
    places: bool = False

    def __repr__(self) -> str:
        return f"<Slice of {self.plan!r}>"


def read_slice(part: Slice) -> Iterator[pa.RecordBatch]:
    engine = DuckDBEngine(part.store, threads=1)
    keys = [column_key(column) for column in part.columns]
    try:
        for batch in _scan_slice(engine, part):
            rows = pa.Table.from_batches([batch])
            own = rows.select(range(len(part.columns))).rename_columns(keys)
            if part.shown:
                table = shown_rows(own, part.columns, time=part.time)
                table = table.rename_columns([column.name for column in part.columns])
            else:
                table = carried(own, part.columns)
            for name in ROW_COLUMNS if part.places else ():
                table = table.append_column(name, rows.column(name))
            if part.changes:
                if isinstance(part.plan, ScanPlan):
                    kinds: pa.ChunkedArray | pa.Array = pa.array(["insert"] * rows.num_rows, pa.string())
                    versions: pa.ChunkedArray | pa.Array = pa.array([part.plan.snapshot_id] * rows.num_rows, pa.int64())
                else:
                    kinds, versions = rows.column("change_type").cast(pa.string()), rows.column("snapshot_id")
                places = pc.index_in(versions, value_set=part.times.column("id").combine_chunks())
                times = part.times.column("time").take(places).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
                for name, values in zip(FEED_NAMES, (kinds, versions, times), strict=True):
                    table = table.append_column(name, values)
            yield from table.combine_chunks().to_batches()
    finally:
        engine.close()


def _scan_slice(engine: DuckDBEngine, part: Slice) -> pa.RecordBatchReader:
    if isinstance(part.plan, ScanPlan):
        return engine.scan(
            part.plan, columns=part.names, where=part.where, places=part.places, batch_rows=_BATCH_ROWS
        ).reader
    feed = part.plan.schema.columns[3:]
    called = {column.name: name.name for column, name in zip(part.plan.rows.schema.columns, feed, strict=True)}
    columns = [*(called[name] for name in part.names), "change_type", "snapshot_id"]
    only = None if part.changes or not part.plan.updates else "change_type = 'insert'"
    return engine.feed(part.plan, deletes=part.changes, columns=columns, where=only, batch_rows=_BATCH_ROWS).reader


def carrier_fields(columns: Sequence[Column]) -> list[str]:
    """Return columns in transport form, in Spark SQL."""
    stored = zip(columns, inlined_columns(columns), strict=True)
    return [f"{column_key(column)} {read_type(carrier, time=False)}" for column, carrier in stored]


def sliced_frame(session: SparkSession, parts: Sequence[Slice], schema: str) -> DataFrame:
    """Return slices as a DataFrame. Each is a row of bytes in the plan, which goes to the one task that reads it."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for data in batch.column("part").to_pylist():
                yield from read_slice(pickle.loads(data))

    if not parts:
        return session.createDataFrame([], schema)
    packed = pa.table({"part": pa.array([pickle.dumps(part) for part in parts], pa.binary())})
    return to_frame(session, packed).mapInArrow(read, schema)


def sealed_frame(session: SparkSession, store: Store, plan: ScanPlan, rows: bool) -> DataFrame:
    """Return the rows of encrypted files, which only DuckDB reads; with ``rows``, then ``ROW_COLUMNS``."""
    columns = plan.schema.columns
    parts = [Slice(store, part, columns, plan.schema.names, places=rows) for part in state_slices(plan)]
    beside = ROW_COLUMNS if rows else ()
    fields = [*carrier_fields(columns), *(f"{name} BIGINT" for name in beside)]
    raw = sliced_frame(session, parts, ", ".join(fields))
    return raw.selectExpr(*shown_columns(columns, time=has_time(session)), *beside)
