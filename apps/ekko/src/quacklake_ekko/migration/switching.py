"""Choose the side that readers use; a reader that falls back to the Arrow files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from quacklake import Lake, LakeTransaction
from quacklake.errors import CatalogError, ConfigError, InputError, NotFoundError, StorageError, nearest
from quacklake.telemetry import error_facts
from quacklake_ekko.migration import state
from quacklake_ekko.migration.folder import ArrowFolder
from quacklake_ekko.migration.state import MigrationState, Side
from quacklake_ekko.table import KEY, TABLE, find_key
from quacklake_ekko.transactions import ROWS, newest, with_key

_log = logging.getLogger("quacklake.migration")
_UNREACHABLE = (CatalogError, ConfigError, NotFoundError, StorageError)


def switch(lake: Lake, folder: ArrowFolder, to: Side) -> MigrationState:
    """Let readers use the lake or the Arrow files, and return the new state.

    Raise ``InputError`` for the lake unless the last comparison found no difference, and for the Arrow files once some
    have been retired.
    """
    state.prepare(lake)
    if to == "arrow" and folder.retired():
        raise InputError(f"Arrow files of {folder.url} have been retired", hint="only the lake has all transactions")
    switched = MigrationState(folder.url)

    def work(transaction: LakeTransaction) -> None:
        nonlocal switched
        known = state.load(transaction, folder.url)
        if to == "lake" and not known.equal:
            found = "has found differences" if known.equal is False else "is missing"
            raise InputError(
                f"readers cannot use the lake yet: the comparison with {folder.url} {found}",
                hint="`quacklake migrate-arrow compare` compares them",
            )
        switched = replace(known, readers=to)
        state.save(transaction, switched)

    lake.run(work, f"migrate-arrow: readers use the {to}")
    return switched


@dataclass(frozen=True)
class TransactionRows:
    """Transactions, the side they come from, and why it is not the other one."""

    side: Side
    rows: pa.Table
    reason: str


class TransactionReader:
    """Reads transactions from the side that the lake names, and from the Arrow files when the lake cannot answer.

    ``open_lake`` returns an open lake, which the reader does not close.
    """

    def __init__(self, open_lake: Callable[[], Lake], folder: ArrowFolder) -> None:
        self._open_lake = open_lake
        self._folder = folder

    def read(
        self,
        *,
        network: str | None = None,
        subnet: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
    ) -> TransactionRows:
        """Return the transactions of a network, a subnet and blocks from ``since`` to before ``until``.

        Raise the lake's own error where the Arrow files cannot stand in for it, as they have been retired.
        """
        wanted = list(ROWS.names if columns is None else columns)
        unknown = next((name for name in wanted if name not in ROWS.names), None)
        if unknown is not None:
            raise InputError(f"transactions have no column {unknown!r}", hint=nearest(unknown, ROWS.names))
        filters = _Filters(network, subnet, since, until)
        try:
            lake = self._open_lake()
            reason = _against_lake(state.load(lake, self._folder.url))
            if reason is None:
                table = lake.table(TABLE)
                key = find_key(table.columns)
                rows = table.to_arrow([key if name == KEY else name for name in wanted], filters.expression)
                rows = with_key(rows, KEY) if KEY in wanted else rows
                shape = pa.schema([ROWS.field(name) for name in wanted])
                return TransactionRows("lake", rows.select(wanted).cast(shape), "the lake has been chosen")
        except _UNREACHABLE as error:
            if self._folder.retired():
                raise
            _log.warning("transactions are read from Arrow files: the lake cannot be read", exc_info=True)
            reason = f"the lake cannot be read: {error.message}"
        return TransactionRows("arrow", self._from_files(filters, wanted), reason)

    def _from_files(self, filters: _Filters, wanted: list[str]) -> pa.Table:
        if self._folder.retired():
            raise InputError(f"Arrow files of {self._folder.url} have been retired", hint="switch readers to the lake")
        rows = newest(pa.concat_tables([ROWS.empty_table(), *self._tables(filters)]))
        if filters.expression is not None:
            rows = rows.filter(filters.expression)
        return rows.select(wanted)

    def _tables(self, filters: _Filters) -> Iterator[pa.Table]:
        for file in self._folder.files()[0]:
            if filters.network not in (None, file.place.network) or filters.subnet not in (None, file.place.subnet):
                continue
            try:
                checked = self._folder.check(file)
                yield from self._folder.rows(file, checked)
            except (InputError, StorageError) as error:
                _log.warning(
                    "the Arrow file %s is left out: %s",
                    file.path,
                    error.message,
                    extra=error_facts(error, path=file.path),
                )


def _against_lake(known: MigrationState) -> str | None:
    """Return why readers do not use the lake; None if they do."""
    if known.readers != "lake":
        return "the Arrow files have been chosen"
    return "the last comparison has found differences" if known.equal is False and not known.retired else None


@dataclass(frozen=True)
class _Filters:
    network: str | None
    subnet: str | None
    since: datetime | None
    until: datetime | None

    @property
    def expression(self) -> pc.Expression | None:
        found: pc.Expression | None = None
        time = ROWS.field("block_time").type
        for part in (
            None if self.network is None else pc.field("network") == self.network,
            None if self.subnet is None else pc.field("subnet") == self.subnet,
            None if self.since is None else pc.field("block_time") >= pa.scalar(self.since, time),
            None if self.until is None else pc.field("block_time") < pa.scalar(self.until, time),
        ):
            if part is not None:
                found = part if found is None else found & part
        return found
