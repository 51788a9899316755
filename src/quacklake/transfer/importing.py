"""Copy the tables of a source into a lake.

A table is copied in units, such as files. A commit has the rows of some units, and with them how many units are done:
the mark of a stream, which is committed exactly once. So an import that was killed goes on where it was, and copies
nothing twice. Of two imports of the same table the newer goes on, and the other raises ``StreamFencedError``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import CsvOptions, Lake, LakeTransaction, Table, expr
from quacklake.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    QuacklakeError,
    StreamBatchDoneError,
    StreamMismatchError,
)
from quacklake.extend import reporting
from quacklake.extend.names import DEFAULT_SCHEMA, TableRef, check_name, fold, quote
from quacklake.extend.reporting import Progress, silent
from quacklake.lake.transfers import ImportReport, LeftOut, TransferredTable
from quacklake.transfer.places import check_source
from quacklake.transfer.sources import FORMATS, SERVERS, kind_of, open_source
from quacklake.transfer.tables import Selection, SourceTable
from quacklake.transfer.views import import_views

COMMIT_ROWS = 2_000_000
"""The rows after which a commit ends, at the end of a unit."""
_NAMED = 5
"""The most tables that an error names."""


def import_from(
    lake: Lake,
    source: str,
    table: str | None = None,
    *,
    schema: str | None = None,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    in_place: bool = False,
    map_types: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    csv: CsvOptions | None = None,
    commit_rows: int = COMMIT_ROWS,
    dry_run: bool = False,
    progress: Progress = silent,
) -> ImportReport:
    """Copy the tables of a source into a lake; see ``Lake.import_from``."""
    if commit_rows < 1:
        raise InputError(f"commit_rows must be at least 1, not {commit_rows}")
    named = None if table is None else TableRef.parse(table)
    if named is not None and schema is not None:
        raise InputError("an import takes the name of a table or of a schema, not both", hint='write "schema.table"')
    kind, place = kind_of(source, "source")
    if kind not in SERVERS.values():
        check_source(lake, place)
    if in_place and kind in FORMATS:
        from quacklake.transfer.formats import adopt_in_place

        return adopt_in_place(lake, kind, place, named, table, dry_run=dry_run)
    wanted = Selection(tuple(include), tuple(exclude))
    opened = open_source(
        lake, source, named, in_place=in_place, map_types=map_types or {}, options=options or {}, csv=csv
    )
    with closing(opened):
        tables = _place_tables(opened.tables(wanted), named, schema)
        plans = _plan(lake, opened.origin, tables)
        done: list[TransferredTable] = []
        left: list[LeftOut] = []
        for plan in plans:
            done.append(_rehearse(plan) if dry_run else _Import(lake, opened.origin, plan, commit_rows).run(progress))
            left += _left_out(lake, plan, dry_run=dry_run)
        views, refused = import_views(
            lake, opened.views(wanted), moved=schema is not None or named is not None, dry_run=dry_run
        )
        return ImportReport(opened.origin, tuple(done), tuple(views), (*left, *refused, *opened.left_out()), dry_run)


@dataclass(frozen=True)
class _State:
    """The progress of the import of a table: the table in the lake, the version of its source, and the units done."""

    table: str
    digest: str
    units: int
    total: int
    rows: int

    @classmethod
    def parse(cls, position: str | None) -> _State | None:
        """Return what the position of a stream says; None for one without a commit."""
        return None if position is None else cls(**json.loads(position))


@dataclass(frozen=True)
class _TableImport:
    """A table to import, and how far an earlier import of it came."""

    table: SourceTable
    stream: str
    begun: _State | None

    @property
    def finished(self) -> bool:
        """True when there is nothing left to copy."""
        return self.begun is not None and self.begun.units == self.begun.total


def _place_tables(tables: list[SourceTable], named: TableRef | None, schema: str | None) -> list[SourceTable]:
    """Return the tables with their names in the lake. Raise ``InputError`` for names that it cannot hold."""
    if named is not None and len(tables) > 1:
        raise InputError(
            f"the source has {len(tables)} tables, which cannot all be called {named.name!r}",
            hint="leave the name out, or choose one table with include",
        )
    if named is not None:
        tables = [replace(table, schema=named.schema, name=named.name) for table in tables]
    elif schema is not None:
        tables = [replace(table, schema=check_name(schema, "schema")) for table in tables]
    seen: dict[tuple[str, str], SourceTable] = {}
    for table in tables:
        check_name(table.schema, "schema")
        check_name(table.name, "table")
        key = fold(table.schema), fold(table.name)
        if key in seen:
            raise InputError(
                f"two tables of the source would be {table.qualified_name}, as case does not count",
                hint="import them one by one, with include and a name",
            )
        seen[key] = table
    return tables


def _plan(lake: Lake, origin: str, tables: Sequence[SourceTable]) -> list[_TableImport]:
    """Compare the tables with the lake, before anything is written. Raise ``AlreadyExistsError``."""
    names = {table.sql_name: _stream(origin, table) for table in tables}
    positions = {name: mark.position for name, mark in lake.streams.done(list(names.values())).items()}
    plans, taken, changed = [], [], []
    for table in tables:
        found = _existing(lake, table)
        begun = None if found is None else _State.parse(positions.get(names[table.sql_name]))
        if found is not None and (begun is None or begun.table != found.info.uuid):
            taken.append(table.qualified_name)
        elif begun is not None and begun.digest != table.digest:
            changed.append(table.qualified_name)
        plans.append(_TableImport(table, names[table.sql_name], begun))
    if taken:
        raise AlreadyExistsError(
            f"the lake has {_few(taken)} already",
            hint="drop what is there, leave it out with exclude, or import into another schema",
        )
    if changed:
        raise StreamMismatchError(
            f"the source of {_few(changed)} has changed since it was imported",
            hint="drop the table to import it again, or leave it out with exclude",
        )
    return plans


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _stream(origin: str, table: SourceTable) -> str:
    """Return the name of the stream that counts the commits of a table."""
    text = "\0".join((origin, fold(table.schema), fold(table.name)))
    return f"import {hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _existing(lake: Lake, table: SourceTable) -> Table | None:
    with suppress(NotFoundError):
        return lake[table.sql_name]
    return None


def _rehearse(plan: _TableImport) -> TransferredTable:
    before = plan.begun.rows if plan.begun is not None else 0
    rows = 0 if plan.finished or plan.table.rows is None else max(0, plan.table.rows - before)
    state = "already imported" if plan.finished else "would be imported"
    return TransferredTable(plan.table.qualified_name, rows, before, None, state)


class _Import:
    """The import of one table."""

    def __init__(self, lake: Lake, origin: str, plan: _TableImport, commit_rows: int) -> None:
        self._lake, self._plan, self._table = lake, plan, plan.table
        self._origin, self._commit_rows = origin, commit_rows
        self._done = plan.begun.units if plan.begun is not None else 0
        self._before = plan.begun.rows if plan.begun is not None else 0
        self._rows = 0

    def run(self, progress: Progress) -> TransferredTable:
        """Copy what is not copied yet, in as many commits as it takes."""
        label = f"importing {self._table.qualified_name}"
        if not self._plan.finished:
            mark = self._lake.streams.claim(self._plan.stream, self._origin)
            # a table that was dropped since is imported again, and its batches count on
            self._epoch, self._run = mark.epoch, mark.run
            while True:
                self._commit(label, progress)
                if self._done == len(self._table.units):
                    break
        state = "already imported" if self._plan.finished else "imported"
        size = pc.sum(self._lake.table(self._table.sql_name).files().column("file_size_bytes")).as_py() or 0
        return TransferredTable(self._table.qualified_name, self._rows, self._before, size, state)

    def _commit(self, label: str, progress: Progress) -> None:
        """Copy some units and commit them with the position behind them."""
        reached = rows = 0

        def tell(copied: int) -> None:
            progress(label, self._total + copied, self._table.rows)

        def work(transaction: LakeTransaction) -> None:
            nonlocal reached, rows
            if self._done == 0:
                self._create(transaction)
            target = transaction.table(self._table.sql_name)
            if self._table.add is not None:
                reached = len(self._table.units)
                rows = self._table.add(transaction, self._table.sql_name, self._table.units[self._done :])
            else:
                copied = _CopyRows(self._table, self._done, self._commit_rows, tell)
                rows = target.append(copied.reader()) if self._table.units else 0
                reached = copied.reached
            state = _State(target.info.uuid, self._table.digest, reached, len(self._table.units), self._total + rows)
            transaction.mark(self._plan.stream, self._epoch + 1, self._run, json.dumps(asdict(state)))

        tell(0)
        reporting.reach("import.commit.before")
        with suppress(StreamBatchDoneError):  # the answer to an earlier try was lost
            self._lake.run(work, f"import {self._table.qualified_name}")
        reporting.reach("import.commit.after")
        self._epoch += 1
        self._done, self._rows = reached, self._rows + rows

    @property
    def _total(self) -> int:
        return self._before + self._rows

    def _create(self, transaction: LakeTransaction) -> None:
        table = self._table
        if table.schema != DEFAULT_SCHEMA:
            transaction.create_schema(table.schema, if_not_exists=True)
        created = transaction.create_table(table.sql_name, table.columns, primary_key=table.primary_key or None)
        if table.comment is not None:
            created.set_comment(table.comment)
        for column, text in table.column_comments.items():
            created.set_column_comment(column, text)
        for column, default in table.defaults.items():
            with suppress(QuacklakeError):  # the report names those that the lake does not have afterwards
                created.set_default(quote(column), expr(default))


class _CopyRows:
    """The rows of units from one on, until there are enough for a commit."""

    def __init__(self, table: SourceTable, first: int, most: int, tell: Callable[[int], None]) -> None:
        self._table, self._first, self._most, self._tell = table, first, most, tell
        self.reached = first

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream; ``reached`` is the next unit when it has been read."""
        return pa.RecordBatchReader.from_batches(self._table.arrow, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows = 0
        for place in range(self._first, len(self._table.units)):
            for batch in self._table.units[place].read():
                yield _fit_batch(batch, self._table.arrow)
                rows += batch.num_rows
                self._tell(rows)
            self.reached = place + 1
            if rows >= self._most:
                return


def _fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns of the table, NULL where a file lacks one."""
    names = {fold(name): name for name in batch.schema.names}
    columns = []
    for field in schema:
        found = names.get(fold(field.name))
        array = pa.nulls(batch.num_rows, field.type) if found is None else batch.column(found)
        columns.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _left_out(lake: Lake, plan: _TableImport, *, dry_run: bool) -> list[LeftOut]:
    """Return what the lake does not have of a table, now that it is there."""
    found = list(plan.table.left_out)
    if dry_run:
        return found
    schema = lake.table(plan.table.sql_name).info.schema
    for column, default in plan.table.defaults.items():
        stored = schema.get(column)
        if stored is not None and stored.default is None:
            what = f"{plan.table.qualified_name}.{column}"
            found.append(LeftOut(what, f"the default or generating expression {default} is none that a lake can hold"))
    return found
