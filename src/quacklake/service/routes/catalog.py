"""The contents of a lake: schemas, tables, snapshots, rows and changes. Every answer is of one snapshot."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from quacklake.errors import InputError, NotFoundError, ResultTooLargeError
from quacklake.extend.names import TableRef, quote
from quacklake.lake import Lake, LakeAt, Table
from quacklake.service.answers import RowAnswer
from quacklake.service.encoding import FORMATS, JSON, Rows
from quacklake.service.facts import FACTS, LIMIT, NOT_CHANGED, SNAPSHOT, answer_facts, etag, known, page_size
from quacklake.service.identity import Identity
from quacklake.service.routes.sql import wanted_format
from quacklake.service.state import Service, service_of
from quacklake.service.values import MAX_VALUE, LakeName, TableName, Timestamp, Version, resolved_version

router = APIRouter(tags=["catalog"])

NEXT = "X-Quacklake-Next"
_CURSOR = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]
_ROWS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Rows, in the format of the Accept header",
        "content": {format: {"schema": {} if format == JSON else {"type": "string"}} for format in FORMATS},
    },
    304: NOT_CHANGED,
}


@router.get("/lake", summary="Describe the lake and yourself", operation_id="describe_lake", responses=FACTS)
async def describe_lake(request: Request, lake: LakeName = None) -> Response:
    """Return the newest snapshot, the format version, your name and role, and the pages that plugins bring."""

    def facts(identity: Identity, _: Lake | LakeAt, __: int) -> dict[str, Any]:
        return {
            "principal": identity.principal,
            "role": identity.role.name.lower(),
            "format_version": identity.lake.version,
            "catalog": identity.lake.catalog,
            **more,
        }

    more: Mapping[str, Any] = request.app.state.facts
    return await answer_facts(request, facts, more=json.dumps(more))


@router.get("/schemas", summary="List the schemas", operation_id="list_schemas", responses=FACTS)
async def list_schemas(
    request: Request, version: Version = None, timestamp: Timestamp = None, lake: LakeName = None
) -> Response:
    """Return the names of the schemas."""
    return await answer_facts(request, lambda _, at, __: {"schemas": at.schemas()}, version, timestamp)


@router.get("/tables", summary="List the tables and views", operation_id="list_tables", responses=FACTS)
async def list_tables(
    request: Request,
    schema: Annotated[str | None, Query(max_length=300)] = None,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return the names of the tables and views, of one schema or all."""
    return await answer_facts(
        request, lambda _, at, __: {"tables": at.tables(schema), "views": at.views(schema)}, version, timestamp
    )


@router.get("/tables/{table:part}", summary="Describe a table", operation_id="describe_table", responses=FACTS)
async def describe_table(
    request: Request, table: TableName, version: Version = None, timestamp: Timestamp = None, lake: LakeName = None
) -> Response:
    """Return the columns, the layout and the size of a table."""
    return await answer_facts(
        request, lambda _, at, __: _describe_table(at.table(table), TableRef.parse(table)), version, timestamp
    )


def _describe_table(table: Table, ref: TableRef) -> dict[str, Any]:
    if table.handle.restricted:
        return _visible(table, ref)
    info, plan = table.info, table.plan()
    comments, key = table.column_comments, table.primary_key
    return {
        "schema": info.schema_name,
        "name": info.name,
        "uuid": info.uuid,
        "comment": table.comment,
        "columns": [
            {
                "name": column.name,
                "type": column.duckdb_type(),
                "nullable": column.nullable,
                "default": column.default,
                "primary_key": column.name in key,
                "comment": comments.get(column.name),
            }
            for column in info.schema.columns
        ],
        "partitioned_by": table.partitioned_by,
        "sorted_by": table.sorted_by,
        "rows": table.count(),
        "inlined_rows": 0 if plan.inlined is None else plan.inlined.num_rows,
        "files": plan.files.num_rows,
        "bytes": pc.sum(plan.files.column("file_size_bytes")).as_py() or 0,
    }


def _visible(table: Table, ref: TableRef) -> dict[str, Any]:
    """Describe what a principal sees of a table: defaults, comments and sizes may tell of what it does not see."""
    info = table.handle.view().find_table(ref.schema, ref.name)
    return {
        "schema": info.schema_name,
        "name": info.name,
        "columns": [
            {"name": column.name, "type": column.duckdb_type(), "nullable": column.nullable}
            for column in info.schema.columns
        ],
        "rows": table.count(),
    }


@router.get(
    "/tables/{table:part}/history", summary="List the snapshots of a table", operation_id="history", responses=FACTS
)
async def history(request: Request, table: TableName, limit: LIMIT = None, lake: LakeName = None) -> Response:
    """Return the snapshots that changed a table, newest first."""

    def facts(identity: Identity, _: Lake | LakeAt, __: int) -> dict[str, Any]:
        return {"history": identity.lake.table(table).history(page_size(service_of(request), limit)).to_pylist()}

    return await answer_facts(request, facts, expiring=True)


@router.get("/snapshots", summary="List the snapshots", operation_id="list_snapshots", responses=FACTS)
async def list_snapshots(
    request: Request,
    limit: LIMIT = None,
    before: Annotated[int | None, Query(ge=0, le=MAX_VALUE, description="`next` of the page before.")] = None,
    lake: LakeName = None,
) -> Response:
    """Return the snapshots, newest first, and what each changed."""

    def facts(identity: Identity, _: Lake | LakeAt, newest: int) -> dict[str, Any]:
        most = page_size(service_of(request), limit)
        end = newest + 1 if before is None else min(before, newest + 1)
        found = identity.lake.snapshots(most + 1, before=end).to_pylist()[::-1]
        page = found[:most]
        return {"snapshots": page, "next": page[-1]["snapshot_id"] if len(found) > most else None}

    return await answer_facts(request, facts, expiring=True)


@router.get("/snapshots/{id}", summary="Describe a snapshot", operation_id="describe_snapshot", responses=FACTS)
async def describe_snapshot(
    request: Request, id: Annotated[int, Path(ge=0, le=MAX_VALUE)], lake: LakeName = None
) -> Response:
    """Return when a snapshot was made, by whom, and what it changed."""

    def facts(identity: Identity, _: Lake | LakeAt, __: int) -> dict[str, Any]:
        rows = identity.lake.snapshots(1, before=id + 1).to_pylist()
        if not rows or rows[0]["snapshot_id"] != id:
            raise NotFoundError(f"No snapshot found at version {id}")
        return {**rows[0], "tables": identity.lake.at(version=id).tables()}

    return await answer_facts(request, facts, expiring=True)


# -- rows --------------------------------------------------------------------------------------------------------------


@router.get(
    "/tables/{table:part}/rows", summary="Read rows, page by page", operation_id="read_rows", response_class=Response,
    responses=_ROWS,
)  # fmt: skip
async def read_rows(
    request: Request,
    table: TableName,
    columns: Annotated[list[str] | None, Query(max_length=1_000, description="The columns; all by default.")] = None,
    row_ids: Annotated[bool, Query(description="Add the row ids, as the column `rowid`.")] = False,
    limit: LIMIT = None,
    cursor: _CURSOR = None,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return a page of rows. All pages of a reading are of the snapshot of the first, whatever is committed meanwhile.

    `next`, also in the header `X-Quacklake-Next`, is the cursor of the next page. Filters are for SQL.
    """
    service = service_of(request)
    identity = await service.enter(request)
    format = wanted_format(request)

    def work() -> tuple[int, int]:
        if cursor is not None:
            return _position(cursor)
        at = resolved_version(identity.lake, version, timestamp)
        return identity.lake.current_snapshot() if at is None else at, -1

    async with service.turn():
        snapshot, after = await service.run(work)
        tag = etag(request, identity, snapshot, format)
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", SNAPSHOT: str(snapshot)}
        if known(request, identity, tag):
            return Response(status_code=304, headers=headers)
        page, following = await service.run(
            _page, service, identity, table, columns, snapshot, after, page_size(service, limit), row_ids
        )
        if following is not None:
            headers[NEXT] = following
        facts = (("snapshot", snapshot), ("next", following))
        return await streamed(service, request, Rows(page.schema, page.to_batches(), (), facts), format, headers)


async def streamed(service: Service, request: Request, rows: Rows, format: str, headers: dict[str, str]) -> Response:
    """Answer with rows that no session holds."""
    answer = RowAnswer(
        service.executor,
        rows,
        format,
        done=lambda: None,
        accept_encoding=request.headers.get("accept-encoding"),
        headers=headers,
        seconds=service.settings.stalled_seconds,
    )
    return await answer.begin()


def _position(cursor: str) -> tuple[int, int]:
    """Return the snapshot and the last row of a cursor."""
    try:
        snapshot, row = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        if not (
            isinstance(snapshot, int) and isinstance(row, int) and 0 <= snapshot <= MAX_VALUE and -1 <= row <= MAX_VALUE
        ):
            raise ValueError
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise InputError("the cursor is not one of this service", hint="use `next` of the page before") from None
    return snapshot, row


def _page(
    service: Service,
    identity: Identity,
    table: str,
    columns: list[str] | None,
    snapshot: int,
    after: int,
    most: int,
    row_ids: bool,
) -> tuple[pa.Table, str | None]:
    """Return the rows after a row, at most so many, and the cursor of the next page if there are more."""
    ref = TableRef.parse(table)
    schema = identity.lake.at(version=snapshot).handle.view().find_table(ref.schema, ref.name).schema
    chosen = schema.names if columns is None else [schema.find(name).name for name in columns]
    if len(set(chosen)) != len(chosen):
        raise InputError("a column is named twice")
    if row_ids and any(name.lower() == "rowid" for name in schema.names):
        raise InputError("the table has a column rowid, which hides the numbers of its rows")
    listed = ", ".join(quote(name) for name in chosen)
    text = (
        f"SELECT {listed}, rowid AS ql_row FROM {quote(ref.schema)}.{quote(ref.name)} AT (VERSION => {snapshot:d}) "
        "WHERE rowid > $1 ORDER BY rowid LIMIT $2"
    )
    lent = service.sessions.lend(identity.lake, writes=False)
    try:
        found = lent.session.sql(text, [after, most + 1]).to_arrow()
    finally:
        lent.give_back()
    page = found.slice(0, most)
    following = None
    if found.num_rows > most:
        last = page.column("ql_row")[-1].as_py()
        following = base64.urlsafe_b64encode(json.dumps([snapshot, last]).encode()).decode()
    if row_ids:
        return page.rename_columns([*page.column_names[:-1], "rowid"]), following
    return page.drop_columns(["ql_row"]) if page.num_columns > 1 else page, following


@router.get(
    "/tables/{table:part}/changes", summary="Read the changes of a table", operation_id="read_changes",
    response_class=Response, responses=_ROWS,
)  # fmt: skip
async def read_changes(
    request: Request,
    table: TableName,
    since: Annotated[int, Query(ge=0, le=MAX_VALUE, description="The first snapshot.")],
    until: Annotated[int | None, Query(ge=0, le=MAX_VALUE, description="The last snapshot (the newest).")] = None,
    lake: LakeName = None,
) -> Response:
    """Return the rows that a range of snapshots inserted, updated and deleted.

    The header `X-Quacklake-Snapshot` has the last snapshot: go on with the one after it.
    """
    service = service_of(request)
    identity = await service.enter(request)
    format = wanted_format(request)

    def work() -> tuple[int, Rows | None]:
        newest = identity.lake.current_snapshot()
        last = newest if until is None else until
        if since > last:
            if until is not None and since <= newest:
                raise InputError("the range ends before it begins")
            identity.lake.table(table).columns  # noqa: B018 - a missing table is an error
            return last, None
        scan = identity.lake.table(table).changes(since, last)
        return last, Rows(scan.schema, limited(scan.to_batches(), service))

    async with service.turn():
        last, rows = await service.run(work)
        tag = etag(request, identity, last, format)
        headers = {"ETag": tag, "Cache-Control": "private, no-cache", SNAPSHOT: str(last)}
        if known(request, identity, tag):
            return Response(status_code=304, headers=headers)
        if rows is None:
            rows = Rows(pa.schema([]), ())
        return await streamed(service, request, rows, format, headers)


def limited(batches: Iterable[pa.RecordBatch], service: Service) -> Iterator[pa.RecordBatch]:
    """Yield batches within the limits of an answer. Raise ``ResultTooLargeError``."""
    rows = size = 0
    for batch in batches:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows > service.settings.max_rows or size > service.settings.max_bytes:
            raise ResultTooLargeError("the answer is too large", hint="ask for fewer snapshots at once")
        yield batch
