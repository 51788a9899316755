"""SQL over a pond. Names are made in a transaction that is never committed, so that a query changes nothing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from quacklake import RowType
from quacklake.errors import ConfigError, InputError, NotFoundError
from quacklake.extend.names import fold, quote
from quacklake.extend.sql import find_tables
from quacklake.lake.lake import Lake, LakeTransaction
from quacklake.lake.writing import LakeReader
from quacklake.pond import reduces
from quacklake.pond.backend import Backend
from quacklake.pond.factories import registry
from quacklake.pond.factories.mount import MountSeries, MountTable
from quacklake.pond.fs import FS, NodePath
from quacklake.pond.large_files import LargeFiles
from quacklake.pond.mounts import Mounted, Mounts
from quacklake.pond.nodes import CONFIG, TIMESTAMP_COLUMN, EntryType, to_arrow
from quacklake.pond.paths import DATA_SCHEMA, ROOT, table_of
from quacklake.pond.pond import Pond
from quacklake.pond.series import bounds_of
from quacklake.pond.times import find_column, time_filter

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")
SERIES, SOURCE = "series", "source"
"""The names by which a query of ``cat`` calls the rows it is about."""


def no_rows(found: NodePath) -> InputError:
    """Return the error for a node that is asked for its rows and has none. Raise when its factory is missing."""
    if found.node.file_type is EntryType.DYNAMIC:
        registry.factory_of(found.node)
    hint = f"`pond list '{found.path}/**/*'` shows what is in it" if found.is_directory else "copy it as a table"
    return InputError(f"{found.path} is a {found.entry_type}, which has no rows", hint=hint)


class Relations:
    """The tables, series and computed nodes of a pond, as relations that SQL can name."""

    def __init__(self, tx: LakeTransaction, fs: FS, opened: ExitStack) -> None:
        self.tx = tx
        self.fs = fs
        self._opened = opened
        self._inner: dict[str, Relations] = {}
        self._made: dict[str, str] = {}
        self._mounted: dict[str, str] = {}
        self._open: list[str] = []

    def name(self, found: NodePath) -> str:
        """Return the SQL name of the rows of a node. Raise ``InputError`` for a node without rows."""
        if found.node.file_type.has_rows:
            return table_of(found.path)
        if found.node.file_type is not EntryType.DYNAMIC or not found.entry_type.has_rows:
            raise no_rows(found)
        if isinstance(registry.factory_of(found.node), MountTable | MountSeries):
            return self._mount(found)
        if found.path not in self._made:
            self._made[found.path] = self._define(found)
        return self._made[found.path]

    def _mount(self, found: NodePath) -> str:
        """Let SQL read the pond that a node is in, and return the name of the rows there."""
        assert self.fs.backend.mounts is not None
        mounted, node = self.fs.backend.mounts.locate(found.node)
        if mounted.alias not in self._inner:
            self._inner[mounted.alias] = inner = self._opened.enter_context(_of_mounted(mounted))
            self.tx.attach(inner.tx, mounted.alias)
        name = self._mounted[found.path] = f"{mounted.alias}.{self._inner[mounted.alias].name(node)}"
        return name

    def is_mounted(self, found: NodePath) -> bool:
        """Return whether a node is one of a mounted pond whose rows were asked for."""
        return found.path in self._mounted

    def _define(self, found: NodePath) -> str:
        """Make a view of what a factory computes, in a schema of its own for what it needs."""
        if found.path in self._open:
            raise ConfigError(f"{found.path} is computed from itself", hint=" → ".join([*self._open, found.path]))
        self._open.append(found.path)
        try:
            factory = registry.factory_of(found.node)
            assert isinstance(factory, registry.RowsFactory)
            schema = f"pond_{found.node.node_id.replace('-', '')}"
            self.tx.create_schema(schema)
            query = factory.define(self, schema, found.node.attribute(CONFIG) or {})
            self.view(f"{schema}.{quote('result')}", query, found.path)
            name = table_of(found.path)
            self.tx.create_view(name, f"SELECT * FROM {schema}.{quote('result')}")
            return name
        finally:
            self._open.pop()

    def view(self, name: str, query: str, path: str) -> None:
        """Make a view of a query that a user wrote."""
        try:
            self.tx.create_view(name, query)
        except InputError as error:
            error.hint = f"{error.hint + '; ' if error.hint else ''}it is the query of {path}"
            raise

    def union(self, pattern: str) -> str:
        """Return a query for all rows of the tables and series that a pattern names, matched by column name.

        Raise ``NotFoundError`` when there are none.
        """
        found = self.matching(pattern)
        if not found:
            raise NotFoundError(f"no table or series is called {pattern}", hint="`pond list` shows what there is")
        return " UNION ALL BY NAME ".join(f"SELECT * FROM {self.shown(each)}" for each in found)

    def matching(self, pattern: str) -> list[NodePath]:
        """Return the tables and series that a pattern names, but for those that are being computed."""
        return [each for each in self.fs.glob(pattern) if each.entry_type.has_rows and each.path not in self._open]

    def shown(self, found: NodePath, first: dt.datetime | None = None, last: dt.datetime | None = None) -> str:
        """Return the rows of a node between two times, as SQL; the bounds set by hand apply, too.

        Raise ``InputError`` for times when there is no time column.
        """
        name = self.name(found)
        low, high = bounds_of(found.node)
        first = max(filter(None, (first, low)), default=None)
        last = min(filter(None, (last, high)), default=None)
        if first is None and last is None:
            return name
        column = str(found.node.attribute(TIMESTAMP_COLUMN) or "") or find_column(self.columns(name))
        if column is None:
            raise InputError(f"{found.path} has no time column", hint="write the condition with --sql")
        return f"(SELECT * FROM {name} WHERE {time_filter(column, first, last)})"

    def columns(self, name: str) -> list[str]:
        """Return the columns of a relation."""
        return list(self.tx.sql(f"SELECT * FROM {name} LIMIT 0").to_arrow().column_names)

    def define_all(self, sql: str | None = None) -> None:
        """Make a name for every computed table and series; with ``sql``, for those whose paths are in that text."""
        text = None if sql is None else fold(sql)
        for found in self.fs.glob("**/*"):
            is_named = text is None or fold(found.path).replace('"', '""') in text
            if is_named and found.node.file_type is EntryType.DYNAMIC and found.entry_type.has_rows:
                self.name(found)

    def query(self, sql: str, names: Mapping[str, str] | None = None) -> pa.RecordBatchReader:
        """Run one query. Raise ``InputError`` for any other statement: a pond is changed by its commands.

        ``names`` are relations of mounted ponds, of which a view cannot be made, by the names that the query has.
        """
        try:
            tables = find_tables(sql)
        except InputError as error:
            error.hint = error.hint or "write one SELECT; `pond copy` and its kin change the pond"
            raise
        named = ", ".join(f"{quote(name)} AS (SELECT * FROM {rows})" for name, rows in (names or self._mounted).items())
        text = f"WITH {named} SELECT * FROM (\n{sql.strip().rstrip(';')}\n)" if named else sql
        try:
            return self.tx.sql(text).to_reader()
        except InputError:
            self._check_paths([name for _, name in tables if name.startswith(ROOT)])
            raise

    def _check_paths(self, paths: Sequence[str]) -> None:
        """Raise ``NotFoundError`` for a path that does not exist, whatever the case of its letters."""
        known = {fold(each.path) for each in self.fs.glob("**/*")} if paths else set()
        for path in paths:
            if fold(path) not in known:
                self.fs.get(path)


@contextmanager
def relations(pond: Pond, at: int | str | None = None) -> Iterator[Relations]:
    """Open the relations of a pond as it is now, or was."""
    with _relations(pond.lake, None if at is None else pond.at(at), pond.large_files, pond.mounts) as found:
        yield found


def _of_mounted(mounted: Mounted) -> AbstractContextManager[Relations]:
    """Open the relations of a mounted pond, at the state that is shown."""
    state = mounted.fs.backend
    return _relations(mounted.lake, state.lake, state.large_files, state.mounts)


@contextmanager
def _relations(
    lake: Lake, at: LakeReader | None, large_files: LargeFiles, mounts: Mounts | None
) -> Iterator[Relations]:
    with LakeTransaction.scratch(lake, at) as scratch, ExitStack() as opened:
        yield Relations(scratch, FS(Backend(scratch, large_files, mounts)), opened)


@contextmanager
def rows(
    pond: Pond,
    path: str,
    sql: str | None = None,
    *,
    first: dt.datetime | None = None,
    last: dt.datetime | None = None,
    at: int | str | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Read the rows of a table or series, all versions as one: ``sql`` calls them ``series`` or ``source``.

    A reduction that is kept is brought up to date first, unless the pond is open for reading only.
    """
    if at is None and not pond.read_only:
        fs = pond.fs()
        reduces.refresh(pond, fs, fs.get(path))
    with relations(pond, at) as found:
        node = found.fs.get(path)
        shown = found.shown(node, first, last)
        text = sql or f"SELECT * FROM {SERIES}{_order(node)}"
        if found.is_mounted(node):
            yield found.query(text, dict.fromkeys((SERIES, SOURCE), shown))
            return
        for name in (SERIES, SOURCE):
            found.tx.create_view(name, f"SELECT * FROM {shown}")
        yield found.query(text)


def instances(
    pond: Pond,
    path: str,
    row: type[Row],
    sql: str | None = None,
    *,
    first: dt.datetime | None = None,
    last: dt.datetime | None = None,
    at: int | str | None = None,
) -> Iterator[Row]:
    """Yield the rows of ``rows`` as instances of a dataclass, a batch at a time; see ``quacklake.RowType``."""
    mapping = RowType(row)
    with rows(pond, path, sql, first=first, last=last, at=at) as found:
        yield from mapping.from_batches(found)


def _order(found: NodePath) -> str:
    """Return the order of a stored series, whose versions may interleave."""
    column = found.node.attribute(TIMESTAMP_COLUMN)
    return "" if column is None else f" ORDER BY {quote(column)}"


@contextmanager
def everything(pond: Pond, at: int | str | None = None, sql: str | None = None) -> Iterator[Relations]:
    """Open all of a pond to SQL: ``nodes``, ``txns``, and every table and series by its path.

    ``sql`` is the query that will be run, if it is known: then only the computed nodes that it names are looked at.
    """
    with relations(pond, at) as found:
        found.define_all(sql)
        found.tx.register("nodes", nodes_table(found.fs))
        found.tx.register("txns", pond.control.records())
        found.tx.sql(f"USE {DATA_SCHEMA}")
        yield found


def nodes_table(fs: FS) -> pa.Table:
    """Return the rows of the tree with the path of each node."""
    nodes = [row for node in fs.tree for row in fs.tree.versions(node.node_id)]
    paths = pa.array([fs.tree.path(node.node_id) for node in nodes], pa.string())
    return to_arrow(nodes).drop_columns(["content"]).add_column(0, "path", paths)
