"""Tables as parallel endpoints: each reads a group of files, all at one snapshot."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from quacklake import TableScan
from quacklake.core.engines.duckdb import RunningScan
from quacklake.core.scan import ScanPlan
from quacklake.core.sql.running import Running, TimeBudget
from quacklake.errors import CommitConflict, LimitError, ResultTooLargeError
from quacklake.extend.names import TableRef, quote
from quacklake.lake.lake import LakeAt
from quacklake.service.flight.callers import Caller
from quacklake.service.flight.queries import Queries
from quacklake.service.flight.settings import FlightSettings
from quacklake.service.flight.streams import Stream


@dataclass(frozen=True)
class Part:
    """The part of a table that one endpoint reads: ``number`` of ``count``, of the plan with this ``digest``."""

    table: str
    snapshot: int
    number: int = 0
    count: int = 1
    digest: str = ""


def table_name(ref: TableRef) -> str:
    """Return the name of a table in a form that ``TableRef.parse`` takes."""
    return f"{quote(ref.schema)}.{quote(ref.name)}"


def groups(plan: ScanPlan, most: int, least_bytes: int) -> list[list[int]]:
    """Return the ids of the files of a plan in at most ``most`` groups of about equal size; at least one group."""
    ids = plan.files.column("data_file_id").to_pylist()
    sizes = plan.files.column("file_size_bytes").to_pylist()
    count = max(1, min(most, len(ids), sum(sizes) // max(1, least_bytes)))
    share = sum(sizes) / count
    found: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for id_, size in zip(ids, sizes, strict=True):
        found[min(count - 1, int((before + size / 2) / share)) if share else 0].append(id_)
        before += size
    return found


def digest(plan: ScanPlan) -> str:
    """Return a text that differs between plans of one snapshot whose rows lie in other files.

    Which rows of a file are deleted at a snapshot never changes, but where that is kept does: a later delete writes its
    own delete file, with the earlier ones inside, in place of the file that was there.
    """
    seen = hashlib.sha256()
    for name in ("data_file_id", "file_size_bytes"):
        seen.update(repr(plan.files.column(name).to_pylist()).encode())
    inlined = None if plan.inlined is None else sorted(plan.inlined.column("row_id").to_pylist())
    seen.update(repr(inlined).encode())
    return seen.hexdigest()


def parts(
    caller: Caller, settings: FlightSettings, ref: TableRef, snapshot: int | None
) -> tuple[pa.Schema, list[Part]]:
    """Return the columns of a table and the parts that are the whole of it. Raise ``NotFoundError``."""
    lake = caller.identity.lake
    at = lake.at(version=lake.current_snapshot() if snapshot is None else snapshot)
    name = table_name(ref)
    scan = at.table(name).scan()
    schema = scan.schema
    if not _is_plain(scan):
        return schema, [Part(name, at.snapshot_id)]
    plan = scan.plan()
    count = len(groups(plan, settings.max_endpoints, settings.size("endpoint_bytes")))
    if count == 1:
        return schema, [Part(name, at.snapshot_id)]
    which = digest(plan)
    return schema, [Part(name, at.snapshot_id, number, count, which) for number in range(count)]


def _is_plain(scan: TableScan) -> bool:
    """Return whether a scan reads all rows and columns of a table; others are not divided.

    A principal that may not see everything gets one endpoint, which is read as any other scan of its is.
    """
    is_whole = type(scan) is TableScan and scan._where is None and scan._columns is None
    return is_whole and not getattr(scan._handle, "restricted", False)


def start(caller: Caller, queries: Queries, settings: FlightSettings, part: Part) -> Stream:
    """Begin to read a part. Raise ``CommitConflict`` when the files were compacted since the parts were made."""
    lake = caller.identity.lake
    at: LakeAt = lake.at(version=part.snapshot)
    release = queries.slot(caller)
    try:
        scan = at.table(part.table).scan()
        running = scan.scan() if part.count == 1 else _part(at, scan, settings, part)
    except BaseException:
        release()
        raise
    work = Running(lambda _thread: running.cancel())
    batches = _limit_batches(running, work, TimeBudget(settings.seconds), settings)

    def close() -> None:
        batches.close()
        running.reader.close()
        release()

    return Stream(running.reader.schema, batches, work.interrupt, close)


def _part(at: LakeAt, scan: TableScan, settings: FlightSettings, part: Part) -> RunningScan:
    plan = scan.plan()
    found = groups(plan, settings.max_endpoints, settings.size("endpoint_bytes"))
    if not _is_plain(scan) or digest(plan) != part.digest or len(found) != part.count:
        raise CommitConflict(
            f"the files of {part.table} were reorganised while they were read", hint="call get_flight_info again"
        )
    mine = plan.of_files(found[part.number])
    if part.number == 0:
        mine = replace(mine, inlined=plan.inlined)
    context = at.handle.context
    return context.engine.scan(mine, batch_rows=context.config.fetch_batch_rows)


def _limit_batches(
    running: RunningScan, work: Running, budget: TimeBudget, settings: FlightSettings
) -> Generator[pa.RecordBatch, None, None]:
    rows = size = 0
    while True:
        with work.working(budget):
            batch = next(running.reader, None)
        if batch is None:
            return
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if settings.max_rows is not None and rows > settings.max_rows:
            raise ResultTooLargeError(f"the result has more than {settings.max_rows} rows", hint="use a query")
        if settings.most_bytes is not None and size > settings.most_bytes:
            raise ResultTooLargeError(f"the result has more than {settings.max_bytes} bytes", hint="use a query")
        yield batch


def names(caller: Caller, most: int, schema: str | None = None) -> list[tuple[TableRef, pa.Schema]]:
    """Return the tables of a lake, or of a schema, with their columns. Raise ``LimitError`` for too many."""
    view = caller.identity.lake.handle.view()
    found = [table for table in view.tables() if schema in (None, table.schema_name)]
    check_listed(len(found), most)
    return [(TableRef(table.schema_name, table.name), table.schema.to_arrow()) for table in found]


def check_listed(count: int, most: int) -> None:
    """Raise ``LimitError`` for a listing that is too long."""
    if count > most:
        raise LimitError(f"the listing has more than {most} tables", hint="name the schema")


def part_of(facts: dict[str, Any]) -> Part:
    """Return the part of a ticket."""
    return Part(**{name: facts[name] for name in ("table", "snapshot", "number", "count", "digest")})
