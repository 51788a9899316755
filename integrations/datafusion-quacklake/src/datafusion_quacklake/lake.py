"""A lake in a session of DataFusion: its tables, and the ways to change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, SessionContext, col
from datafusion.catalog import Schema, Table

import quacklake
from datafusion_quacklake.dataset import LakeDataset
from datafusion_quacklake.writing import write_rows
from quacklake.errors import ConstraintError, InputError
from quacklake.extend import files, reads, writes

_MAIN = "main"


def open(ctx: SessionContext, url: str, **options: Any) -> DataFusionLake:
    """Open a lake as ``quacklake.connect`` does, and register its tables in a session."""
    return DataFusionLake(ctx, quacklake.connect(url, **options))


class DataFusionLake:
    """A lake whose tables a session reads, all at the snapshot of the last ``refresh`` or change by this object.

    Tables of the schema ``main`` are registered under their own names, those of others as ``schema.table``.
    """

    def __init__(self, ctx: SessionContext, lake: quacklake.Lake) -> None:
        self.ctx = ctx
        self.lake = lake
        self.snapshot = -1
        self._registered: set[tuple[str, str]] = set()
        self.refresh()

    def __enter__(self) -> DataFusionLake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the tables out of the session and close the lake."""
        self._register({})
        self.lake.close()

    def refresh(self) -> int:
        """Let the session read the newest snapshot, with the tables that are there now; return its number."""
        snapshot = self.lake.current_snapshot()
        if snapshot != self.snapshot:
            view = self.lake.at(version=snapshot)
            found = {}
            for schema in view.schemas():
                for name in (full.removeprefix(f"{schema}.") for full in view.tables(schema)):
                    found[schema, name] = self._dataset(view, f"{_quote(schema)}.{_quote(name)}")
            self._register(found)
            self.snapshot = snapshot
        return self.snapshot

    def table(
        self, name: str, *, version: int | None = None, timestamp: Any = None, tag: str | None = None
    ) -> DataFrame:
        """Return a table as a frame: at the snapshot of the session, or at a past version, time or tag."""
        if (version, timestamp, tag) == (None, None, None):
            version = self.snapshot
        return self.ctx.read_table(self._dataset(self.lake.at(version, timestamp, tag), name))

    def append(
        self, table: str, rows: DataFrame, *, key: str | None = None, message: str | None = None
    ) -> writes.Outcome[int]:
        """Append the rows of a frame in one commit, written batch by batch; ``value`` is their number."""
        with files.stage(self.lake, table) as staging:
            write_rows(staging, _batches(rows), rows.schema())
            outcome = writes.run(self.lake, lambda change: change.append(staging), key=key, message=message)
        self.refresh()
        return outcome

    def delete(self, table: str, where: str, *, message: str | None = None) -> writes.Outcome[int]:
        """Delete the rows of a condition in DataFusion's SQL, in one commit; ``value`` is their number."""

        def work(change: writes.Change) -> int:
            return self._delete(change, table, lambda frame: frame.filter(where))

        outcome = writes.run(self.lake, work, message=message)
        self.refresh()
        return outcome

    def merge(
        self, table: str, rows: DataFrame, on: Sequence[str], *, message: str | None = None
    ) -> writes.Outcome[int]:
        """Replace the rows whose keys are in a frame, and add its others, in one commit; ``value`` counts the replaced.

        Raise ``ConstraintError`` for a key that is NULL or there twice. The keys are kept in memory, no other column.
        """
        keys = list(on)
        missing = [name for name in keys if name not in rows.schema().names]
        if missing or not keys:
            raise InputError(f"the rows to merge have no key columns {missing}", hint='pass on=["id"]')
        kept = [pa.schema([rows.schema().field(name) for name in keys]).empty_table()]

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in _batches(rows):
                kept.append(pa.Table.from_batches([batch]).select(keys).cast(kept[0].schema))
                yield batch

        with files.stage(self.lake, table) as staging:
            write_rows(staging, batches(), rows.schema())
            wanted = [f"_ql_key_{number}" for number in range(len(keys))]
            source = pa.concat_tables(kept).rename_columns(wanted)
            _check_keys(source, keys)
            frame_of_keys = self.ctx.from_arrow(source)

            same = [_column(name) == _column(other) for name, other in zip(keys, wanted, strict=True)]

            def work(change: writes.Change) -> int:
                replaced = self._delete(change, table, lambda frame: frame.join_on(frame_of_keys, *same, how="semi"))
                change.append(staging)
                return replaced

            outcome = writes.run(self.lake, work, message=message)
        self.refresh()
        return outcome

    def _delete(self, change: writes.Change, table: str, choose: Callable[[DataFrame], DataFrame]) -> int:
        """Delete the rows of a table that ``choose`` leaves of it; return how many.

        A commit by others is a conflict only if it touches what DataFusion has asked for.
        """
        plans: list[reads.ReadPlan] = []

        def plan(where: pc.Expression | None) -> reads.ReadPlan:
            plans.append(change.plan(table, where))
            return plans[-1]

        schema = change.transaction.table(table).info.schema
        frame = choose(self.ctx.read_table(LakeDataset(plan, schema, places=True)))
        places = frame.select(*map(_column, reads.PLACES.names)).to_arrow_table()
        return change.delete(plans[-1], places) if plans else 0

    @staticmethod
    def _dataset(source: reads.Source, table: str) -> LakeDataset:
        def plan(where: pc.Expression | None) -> reads.ReadPlan:
            return reads.plan_read(source, table, where)

        return LakeDataset(plan, source.table(table).info.schema)

    def _register(self, found: dict[tuple[str, str], LakeDataset]) -> None:
        """Let the session have just these tables of the lake."""
        catalog = self.ctx.catalog()
        for schema, name in self._registered:
            if schema == _MAIN:
                self.ctx.deregister_table(_quote(name))
            else:
                catalog.schema(schema).deregister_table(name)
        for schema, name in found:
            if schema == _MAIN:
                self.ctx.register_table(_quote(name), found[schema, name])
                continue
            if schema not in catalog.schema_names():
                catalog.register_schema(schema, Schema.memory_schema())
            catalog.schema(schema).register_table(name, Table(found[schema, name]))
        self._registered = set(found)


def _batches(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    return (batch.to_pyarrow() for batch in rows.execute_stream())


def _check_keys(source: pa.Table, keys: Sequence[str]) -> None:
    nulls = any(column.null_count for column in source.columns)
    if nulls or source.group_by(source.column_names).aggregate([]).num_rows < source.num_rows:
        raise ConstraintError(
            f"a key ({', '.join(keys)}) of the rows to merge is NULL or there twice", hint="merge each key once"
        )


def _column(name: str) -> Any:
    return col(_quote(name))


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
