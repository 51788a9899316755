"""A lake in a session of DataFusion: its tables, and the ways to change them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
                    found[schema, name] = self._dataset(view, f"{_quoted(schema)}.{_quoted(name)}")
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
            with self._places(change, table) as found:
                frame, plan = found
                chosen = frame.filter(where).select(*map(_column, reads.PLACES.names))
                return change.delete(plan, chosen.to_arrow_table())

        outcome = writes.run(self.lake, work, message=message)
        self.refresh()
        return outcome

    def merge(
        self, table: str, rows: DataFrame, on: Sequence[str], *, message: str | None = None
    ) -> writes.Outcome[int]:
        """Replace the rows whose keys are in a frame, and add its others, in one commit; ``value`` counts the replaced.

        Raise ``ConstraintError`` for a key that is NULL or there twice. The frame is computed again after a conflict.
        """
        keys = list(on)
        if not keys:
            raise InputError("a merge needs key columns", hint='pass on=["id"]')
        self._check_keys(rows, keys)
        with files.stage(self.lake, table) as staging:
            write_rows(staging, _batches(rows), rows.schema())
            source = rows.select(*(_column(name).alias(f"key_{number}") for number, name in enumerate(keys))).cache()

            def work(change: writes.Change) -> int:
                with self._places(change, table) as (frame, plan):
                    wanted = [f"key_{number}" for number in range(len(keys))]
                    same = frame.join(source, left_on=keys, right_on=wanted, how="semi")
                    replaced = change.delete(plan, same.select(*map(_column, reads.PLACES.names)).to_arrow_table())
                change.append(staging)
                return replaced

            outcome = writes.run(self.lake, work, message=message)
        self.refresh()
        return outcome

    @staticmethod
    def _check_keys(rows: DataFrame, keys: Sequence[str]) -> None:
        from datafusion import functions as f
        from datafusion import lit

        counted = rows.aggregate([_column(name) for name in keys], [f.count(lit(1)).alias("times")])
        wrong = _column("times") > lit(1)
        for name in keys:
            wrong = wrong | _column(name).is_null()
        if counted.filter(wrong).limit(1).count():
            names = ", ".join(keys)
            raise ConstraintError(
                f"a key ({names}) of the rows to merge is NULL or there twice", hint="merge each key once"
            )

    @staticmethod
    def _dataset(source: reads.Source, table: str) -> LakeDataset:
        def plan(where: pc.Expression | None) -> reads.ReadPlan:
            return reads.plan_read(source, table, where)

        return LakeDataset(plan, source.table(table).info.schema)

    @contextmanager
    def _places(self, change: writes.Change, table: str) -> Iterator[tuple[DataFrame, reads.ReadPlan]]:
        """Yield a table in the state of a change, with the places of its rows, and the plan that they are of."""
        whole = change.plan(table)

        def plan(where: pc.Expression | None) -> reads.ReadPlan:
            return whole if where is None else reads.plan_read(change.transaction, table, where)

        yield self.ctx.read_table(LakeDataset(plan, whole.schema, places=True)), whole

    def _register(self, found: dict[tuple[str, str], LakeDataset]) -> None:
        """Let the session have just these tables of the lake."""
        catalog = self.ctx.catalog()
        for schema, name in self._registered:
            if schema == _MAIN:
                self.ctx.deregister_table(_quoted(name))
            else:
                catalog.schema(schema).deregister_table(name)
        for schema, name in found:
            if schema == _MAIN:
                self.ctx.register_table(_quoted(name), found[schema, name])
                continue
            if schema not in catalog.schema_names():
                catalog.register_schema(schema, Schema.memory_schema())
            catalog.schema(schema).register_table(name, Table(found[schema, name]))
        self._registered = set(found)


def _batches(rows: DataFrame) -> Iterator[pa.RecordBatch]:
    return (batch.to_pyarrow() for batch in rows.execute_stream())


def _column(name: str) -> Any:
    return col(_quoted(name))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
