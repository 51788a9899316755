"""Adopt a table of another format: register the files of its current version in a table of the lake, and follow it.

Files stay where they are and belong to their owner. A tag of the table remembers which version of which foreign table
it has; the tag is committed with the files, and goes back with them when the table is restored.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from quacklake.core import faults
from quacklake.core.catalog.objects import tag_since
from quacklake.core.engines.duckdb.connections import file_name
from quacklake.core.format.bounds import ANYTHING
from quacklake.core.format.layout import sort_columns
from quacklake.core.format.mappings import hive_values
from quacklake.core.format.names import fold
from quacklake.core.format.objects import TableInfo
from quacklake.core.format.schema import Column, TableSchema
from quacklake.core.format.snapshots import ChangeKind, Operation
from quacklake.core.operations.add_files import (
    AddedFile,
    AddOptions,
    Matching,
    Node,
    Nodes,
    Shapes,
    check_own,
    check_unencrypted,
    folder_stats,
    new_file,
)
from quacklake.core.operations.context import LakeContext
from quacklake.core.operations.evolution import alter
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.operations.reference import TableRef
from quacklake.core.progress import Report
from quacklake.core.scan import ScanPlan
from quacklake.core.scan.plan import POSITIONS
from quacklake.core.storage import Links, read_footers
from quacklake.core.transaction import DeleteTarget, NewDataFile, Transaction, touched_files
from quacklake.errors import (
    AlreadyExistsError,
    CatalogError,
    PathError,
    SchemaMismatchError,
    StreamMismatchError,
    UnsupportedFeatureError,
)

#: Returns the deleted positions of a file, ascending, as ``int64``; it takes the number of rows of the file.
Deleted = Callable[[int], pa.Array]


@dataclass(frozen=True, slots=True)
class ForeignField:
    """A column of a foreign table, or a node inside one; files have it under ``id`` or one of the ``names``.

    >>> ForeignField("renamed", "int64", id=1, names=("first",)).type
    'int64'
    """

    name: str
    type: str
    nullable: bool = True
    id: int | None = None
    names: tuple[str, ...] = ()
    children: tuple[ForeignField, ...] = ()

    def column(self, ids: Iterator[int], *, top: bool = True) -> Column:
        """Return the column of a lake; nodes inside nested columns are always nullable there."""
        id_ = next(ids)
        children = tuple(child.column(ids, top=False) for child in self.children)
        return Column(id_, self.name, self.type, self.nullable or not top, children=children)


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A Parquet file of a foreign table; ``values`` are those of columns that are not in it, by name, as texts.

    >>> ForeignFile("/tables/t/day=1/part-0.parquet", {"day": "1"}).deleted is None
    True
    """

    url: str
    values: Mapping[str, str | None] = field(default_factory=dict)
    deleted: Deleted | None = None


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """One version of a foreign table.

    ``id`` is what its format gives a table when it is made, ``source`` what the user calls it, ``location`` its folder.
    ``folders`` are the columns that are not in the files, each with the name it has in the names of folders. ``by_id``
    says that columns of files are found by field ids, as long as a file has any.

    >>> fields = (ForeignField("id", "int64", names=("id",)),)
    >>> ForeignTable("delta:/t", "/t", "a UUID", 3, fields, (ForeignFile("/t/part-0.parquet"),)).version
    3
    """

    source: str
    location: str
    id: str
    version: int
    fields: tuple[ForeignField, ...]
    files: tuple[ForeignFile, ...]
    folders: Mapping[str, str] = field(default_factory=dict)
    by_id: bool = False

    def schema(self, first_id: int = 1) -> TableSchema:
        """Return the columns of a lake's table, with ids from ``first_id``."""
        ids = itertools.count(first_id)
        return TableSchema(tuple(each.column(ids) for each in self.fields))

    def fingerprint(self) -> str:
        """Return a text that is another one when files have to be read in another way."""
        facts = [[asdict(each) for each in self.fields], dict(self.folders), self.by_id]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def rename(self, url: str, nodes: Nodes) -> Nodes:
        """Give the columns of a file their present names, and leave out others. Raise ``UnsupportedFeatureError``."""
        by_id = self.by_id and _has_ids(nodes)
        if self.by_id and not by_id and not any(each.names for each in self.fields):
            raise UnsupportedFeatureError(
                f'File "{url}" has no field ids, and the table no name mapping', hint="append the rows instead"
            )
        return self._rename_nodes(url, nodes, self.fields, by_id=by_id)

    def _rename_nodes(self, url: str, nodes: Nodes, fields: Sequence[ForeignField], *, by_id: bool) -> Nodes:
        known: dict[object, ForeignField] = (
            {each.id: each for each in fields if each.id is not None}
            if by_id
            else {fold(name): each for each in fields for name in each.names}
        )
        found = []
        for node in nodes:
            match = known.get(node.field_id if by_id else fold(node.stored))
            if match is not None:
                found.append(self._inside(url, replace(node, name=match.name), match, by_id=by_id))
        return tuple(found)

    def _inside(self, url: str, node: Node, match: ForeignField, *, by_id: bool) -> Node:
        if node.kind != match.type or not match.children:
            return node  # a leaf, or of another type, which mapping refuses
        if node.kind != "struct":
            pairs = zip(node.children, match.children, strict=True)
            return replace(node, children=tuple(self._inside(url, child, each, by_id=by_id) for child, each in pairs))
        children = self._rename_nodes(url, node.children, match.children, by_id=by_id)
        if not children:
            raise SchemaMismatchError(
                f'File "{url}" has none of the present fields of "{match.name}", so that its NULLs are not known',
                hint="rewrite the file with the engine that owns the table, or append the rows instead",
            )
        return replace(node, children=children)


def _has_ids(nodes: Nodes) -> bool:
    return any(node.field_id is not None or _has_ids(node.children) for node in nodes)


ADOPTED = "quacklake_adopted"
"""The tag of a table that has the files of a foreign one; its value is a JSON object."""

_NO_INLINED = pa.schema([("schema_version", pa.int64()), ("row_id", pa.int64())])
_ROWS_CHANGED = (
    ChangeKind.INSERTED_INTO_TABLE,
    ChangeKind.DELETED_FROM_TABLE,
    ChangeKind.INLINED_INSERT,
    ChangeKind.INLINED_DELETE,
)
_ZONE = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_EVERYTHING = AddOptions(allow_missing=True, ignore_extra_columns=True)


@dataclass(frozen=True, slots=True)
class AdoptReport(Report):
    """The result of an adoption; ``added_rows`` leaves out deleted ones, ``version`` is that of the foreign table."""

    table: str
    source: str
    version: int
    created: bool = False
    added_files: int = 0
    added_rows: int = 0
    removed_files: int = 0
    changed_files: int = 0
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Mark:
    """The foreign table that a table has adopted, as the tag keeps it."""

    source: str
    id: str
    version: int
    schema: str

    @classmethod
    def of(cls, foreign: ForeignTable) -> _Mark:
        return cls(foreign.source, foreign.id, foreign.version, foreign.fingerprint())

    @classmethod
    def parse(cls, text: str) -> _Mark:
        try:
            found = json.loads(text)
            return cls(str(found["source"]), str(found["id"]), int(found["version"]), str(found["schema"]))
        except (KeyError, TypeError, ValueError):
            raise CatalogError(f"the tag {ADOPTED} of a table cannot be read") from None

    def text(self) -> str:
        return json.dumps({"source": self.source, "id": self.id, "version": self.version, "schema": self.schema})


def adopt(handle: LakeHandle, read: Callable[[], ForeignTable], name: str, *, sync: bool, dry_run: bool) -> AdoptReport:
    """Register the files of a foreign table in one commit; with ``sync``, bring a table that has adopted it up to date.

    ``read`` gives the foreign table as it is. It is called again after a conflict with another commit: that may have
    brought the table to a later version, from which it must not go back.

    Raise ``AlreadyExistsError`` when the table is there and may not be followed, ``StreamMismatchError`` when it has
    adopted another foreign table or its rows were changed here, and ``PathError``, ``SchemaMismatchError`` or
    ``UnsupportedFeatureError`` for what a lake cannot read; nothing is changed then.
    """
    ref = TableRef.parse(name)

    def work(tx: Transaction) -> AdoptReport:
        return _adopt(handle.context, tx, read(), ref, sync=sync)

    if not dry_run:
        return handle.run(work)
    tx = handle.begin()
    try:
        return replace(work(tx), dry_run=True)
    finally:
        tx.rollback()


def _adopt(context: LakeContext, tx: Transaction, foreign: ForeignTable, ref: TableRef, *, sync: bool) -> AdoptReport:
    check_unencrypted(context)
    _check_outside(context, [foreign.location])
    tx.check_writable()
    mark = _Mark.of(foreign)
    table = tx.get_table(ref.schema, ref.name)
    created = table is None
    same_columns = True
    if table is None:
        table = tx.create_table(ref.schema, ref.name, foreign.schema())
    else:
        known = _known_mark(tx, table, foreign, sync=sync)
        _check_untouched(tx, table)
        if (known.version, known.schema) == (mark.version, mark.schema):
            return AdoptReport(table.qualified_name, foreign.source, foreign.version)
        same_columns = known.schema == mark.schema
    tx.asks(Operation.ADD_FILES)
    follower = _Follower(context, tx, table, foreign)
    report = follower.run(same_columns=same_columns)
    tx.objects.set_tags(follower.table, {ADOPTED: mark.text()})
    faults.reach("adopt.planned")
    return replace(report, created=created)


def _known_mark(tx: Transaction, table: TableInfo, foreign: ForeignTable, *, sync: bool) -> _Mark:
    text = tx.objects.tags(table).own.get(ADOPTED)
    if text is None or not sync:
        raise AlreadyExistsError(
            f"the table {table.qualified_name} exists already",
            hint="choose another name" if text is None else "pass sync=True to follow the foreign table",
        )
    known = _Mark.parse(text)
    if known.id != foreign.id:
        raise StreamMismatchError(
            f"{table.qualified_name} follows {known.source} with the id {known.id}, and {foreign.source} has the id"
            f" {foreign.id}: it is another table",
            hint="adopt it under another name, or drop the table first",
        )
    if table.partition is not None and table.partition.keys:
        raise UnsupportedFeatureError(
            f"{table.qualified_name} has been partitioned, and the files of the foreign table are not",
            hint="call reset_partitioned_by() first",
        )
    return known


def _check_untouched(tx: Transaction, table: TableInfo) -> None:
    """Raise ``StreamMismatchError`` when rows were changed since the tag was set; compactions only move them."""
    with tx.catalog.read() as reader:
        since = tag_since(reader, tx.base, table.id, ADOPTED)
        changes = [] if since is None else reader.snapshots.changes_since(since)
    for snapshot, made in changes:
        if snapshot <= tx.base.id and any(each.id == table.id and each.kind in _ROWS_CHANGED for each in made):
            raise StreamMismatchError(
                f"rows of {table.qualified_name} were changed in snapshot {snapshot}, and to follow the foreign table"
                " would undo that",
                hint="drop the table and adopt the foreign one again, or adopt it under another name",
            )


def _check_outside(context: LakeContext, urls: Iterable[str]) -> None:
    """Raise ``PathError`` for a place that the lake's own maintenance, or that of another catalog, may empty."""
    for url in urls:
        if context.store.locate(url) is not None:
            raise PathError(
                f"{url} lies in the data path of the lake, and what is there belongs to the lake",
                hint="move the foreign table out of it, or append its rows",
            )
        check_own(context, url, url)


class _Follower:
    """Makes the rows of a table those of a foreign table, as changes of a transaction."""

    def __init__(self, context: LakeContext, tx: Transaction, table: TableInfo, foreign: ForeignTable) -> None:
        self._context, self._tx, self.table, self._foreign = context, tx, table, foreign

    def run(self, *, same_columns: bool) -> AdoptReport:
        """Compare the files here and there; end and add what differs."""
        plan = self._tx.plan(self.table)
        store, links = self._context.store, Links()
        there = {store.resolve(file.url, False, links=links): file for file in self._foreign.files}
        here: dict[str, int] = dict(
            zip(plan.files.column("path").to_pylist(), plan.files.column("data_file_id").to_pylist(), strict=True)
        )
        kept = {place: id_ for place, id_ in here.items() if place in there} if same_columns else {}
        more = self._more_deletes(plan, {id_: there[place] for place, id_ in kept.items()})
        again = {id_ for id_, positions in more.items() if positions is None}
        kept = {place: id_ for place, id_ in kept.items() if id_ not in again}
        ended = set(here.values()) - set(kept.values())
        pending = self._tx.pending(self.table)
        pending.add_read(ANYTHING)
        self._end(plan, ended)
        if not same_columns:
            self.table = self._reshape()
        added = self._register({place: file for place, file in there.items() if place not in kept})
        pending.files.extend(file for file, _ in added)
        changed = {id_: positions for id_, positions in more.items() if positions is not None and len(positions)}
        fresh = {file.id: source.deleted(file.record_count) for file, source in added if source.deleted is not None}
        self._delete(changed | fresh)
        moved = len(again) if same_columns else len(there.keys() & here.keys())
        return AdoptReport(
            self.table.qualified_name,
            self._foreign.source,
            self._foreign.version,
            added_files=len(added) - moved,
            added_rows=sum(file.record_count for file, _ in added) - sum(map(len, fresh.values())),
            removed_files=len(ended) - moved,
            changed_files=len(changed) + moved,
        )

    def _more_deletes(self, plan: ScanPlan, kept: Mapping[int, ForeignFile]) -> dict[int, pa.Array | None]:
        """Return the positions that are deleted there and not yet here; None where some are deleted here alone."""
        more: dict[int, pa.Array | None] = {}
        for id_, file in touched_files(plan, set(kept)).items():
            foreign = kept[id_].deleted
            if foreign is None and file.delete_path is None and not file.inlined:
                continue
            assert file.record_count is not None
            wanted = pa.array([], pa.int64()) if foreign is None else foreign(file.record_count)
            own = plan.deletes.filter(pc.equal(plan.deletes.column("file_id"), id_)).column("row_id").combine_chunks()
            if file.delete_path is not None:
                stored = self._context.writer.deleted_positions(file, self._tx.base.id).combine_chunks()
                own = pa.concat_arrays([own.cast(pa.int64()), stored.cast(pa.int64())])
            if pc.all(pc.is_in(own, value_set=wanted)).as_py():
                more[id_] = wanted.filter(pc.invert(pc.is_in(wanted, value_set=own)))
            else:
                more[id_] = None
        return more

    def _end(self, plan: ScanPlan, ended: set[int]) -> None:
        pending = self._tx.pending(self.table)
        if ended:
            pending.end_files(plan, ended)
        if plan.inlined is not None and plan.inlined.num_rows:
            rows = plan.inlined.select(_NO_INLINED.names).cast(_NO_INLINED)
            pending.delete(plan, DeleteTarget(POSITIONS.empty_table(), rows))

    def _reshape(self) -> TableInfo:
        """Let the table have the columns of the foreign one; those that are the same keep their ids and places."""
        table = self.table
        wanted = self._foreign.schema(self._tx.next_column_id(table))
        by_name = {fold(column.name): column for column in wanted.columns}
        kept: list[Column] = []
        for column in table.schema.columns:
            new = by_name.get(fold(column.name))
            if new is not None and _shape(new) == _shape(column):
                kept.append(replace(column, name=new.name, nullable=new.nullable))
                del by_name[fold(column.name)]
        gone = {column.id for column in table.schema.columns} - {column.id for column in kept}
        if gone & set(sort_columns(table.sort, table.schema)):
            raise UnsupportedFeatureError(
                f"{table.qualified_name} is sorted by a column that the foreign table has changed or dropped",
                hint="call reset_sorted_by() first",
            )
        return alter(self._context, self._tx, table, TableSchema((*kept, *by_name.values())))

    def _register(self, files: Mapping[str, ForeignFile]) -> list[tuple[NewDataFile, ForeignFile]]:
        """Read the footers of files and return them as new files of the table; files without rows are left out."""
        context, tx, table, foreign = self._context, self._tx, self.table, self._foreign
        _check_outside(context, (file.url for file in files.values()))
        for file in files.values():
            file_name(file.url)  # raises for a file that could not be read later
        footers = read_footers(context.store, list(files))
        shapes = Shapes(tx, table, _EVERYTHING, matching=Matching(foreign.rename, foreign.folders))
        rows = [
            (AddedFile(file.url, place, footer, shapes.of(file.url, footer)), file)
            for (place, file), footer in zip(files.items(), footers, strict=True)
            if footer.rows
        ]
        for added, file in rows:
            for name, value in file.values.items():  # which only the foreign table knows
                if value is not None and table.schema.find(name).id not in added.shape.mapping.by_target:
                    raise _other_folder(file, table.schema.find(name))
        _check_folders(context, table, foreign, [file for _, file in rows])
        values = folder_stats(context, [added for added, _ in rows])
        tx.pending(table).mappings.extend(shapes.new)
        return [(new_file(tx, table, added, values), file) for added, file in rows]

    def _delete(self, deleted: Mapping[int, pa.Array]) -> None:
        ids = [pa.repeat(pa.scalar(id_, pa.int64()), len(positions)) for id_, positions in deleted.items()]
        if sum(map(len, ids)):
            positions = pa.concat_arrays([each.cast(pa.int64()) for each in deleted.values()])
            target = pa.table([pa.concat_arrays(ids), positions], schema=POSITIONS)
            plan = self._tx.plan(self.table)
            self._tx.pending(self.table).delete(plan, DeleteTarget(target, _NO_INLINED.empty_table()))


def _shape(column: Column) -> object:
    """Return what must be equal for a column to stay: its type, and the names and types inside."""
    return column.type, [(fold(child.name), _shape(child)) for child in column.children]


def _check_folders(context: LakeContext, table: TableInfo, foreign: ForeignTable, files: Sequence[ForeignFile]) -> None:
    """Raise ``UnsupportedFeatureError`` unless folders tell the values of columns that are not in the files."""
    for name, key in foreign.folders.items():
        column = table.schema.find(name)
        pairs: list[tuple[ForeignFile, str | None, str | None]] = []
        for file in files:
            found = hive_values(file.url)
            text = found.get(key)
            # the value of bytes, or of a time without its zone, would depend on who reads it
            vague = column.type == "blob" or (column.type == "timestamptz" and not _ZONE.search(text or ""))
            if key not in found or (text is not None and vague):
                raise _other_folder(file, column)
            pairs.append((file, file.values.get(name), text))
        texts = list(dict.fromkeys(itertools.chain.from_iterable((one, two) for _, one, two in pairs)))
        values = dict(zip(texts, context.engine.cast(pa.array(texts, pa.string()), column).to_pylist(), strict=True))
        for file, wanted, text in pairs:
            lost = any(each is not None and values[each] is None for each in (wanted, text))
            if lost or values[wanted] != values[text]:
                raise _other_folder(file, column)


def _other_folder(file: ForeignFile, column: Column) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f'the folder of {file.url} does not say the value of the column "{column.name}", which is not in the file',
        hint="append the rows instead: a lake can take such values from the names of folders only",
    )
