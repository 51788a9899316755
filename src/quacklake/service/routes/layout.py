"""The layout of a table: statistics of its columns, partitions and files. All of it comes from the catalog."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from quacklake.extend.names import TableRef
from quacklake.service import layout
from quacklake.service.facts import (
    CURSOR,
    FACTS,
    LIMIT,
    answer_facts,
    cursor_of,
    not_a_cursor,
    page_size,
    position_of,
    read_whole,
)
from quacklake.service.identity import Identity, Role
from quacklake.service.state import service_of
from quacklake.service.values import MAX_VALUE, LakeName, TableName, Timestamp, Version

router = APIRouter(tags=["catalog"])


@router.get(
    "/tables/{table:part}/statistics",
    summary="Read the statistics of columns",
    operation_id="column_statistics",
    responses=FACTS,
)
async def column_statistics(
    request: Request, table: TableName, version: Version = None, timestamp: Timestamp = None, lake: LakeName = None
) -> Response:
    """Return the least and greatest value of each column and its number of nulls, from the catalog: no file is read.

    `min` and `max` are null where they are not known. Unless `exact`, they are only bounds, because of deleted rows or
    because of the type. A principal from whom some of the table is hidden may not read them.
    """

    def facts(_: Identity, at: Any, __: int) -> dict[str, Any]:
        view, ref = at.handle.view(), TableRef.parse(table)
        info = view.find_table(ref.schema, ref.name)
        read_whole(view, info, "statistics")
        return {"table": info.qualified_name, **layout.statistics(view, info)}

    return await answer_facts(request, facts, version, timestamp)


@router.get(
    "/tables/{table:part}/partitions",
    summary="List the partitions of a table",
    operation_id="list_partitions",
    responses=FACTS,
)
async def list_partitions(
    request: Request,
    table: TableName,
    limit: LIMIT = None,
    cursor: CURSOR = None,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return the partitions of a table with their files, rows and bytes. Rows in the catalog are in none yet.

    `values` belong to `keys`. Files that were written before the keys were set or changed have `values` of their own
    kind, and `current` is false. A principal from whom some of the table is hidden may not read them.
    """

    def facts(_: Identity, at: Any, __: int) -> dict[str, Any]:
        view, ref = at.handle.view(), TableRef.parse(table)
        info = view.find_table(ref.schema, ref.name)
        read_whole(view, info, "partitions")
        found = layout.partitions(view, info)
        if cursor is not None:
            found = [each for each in found if each.order > _after(cursor)]
        most = page_size(service_of(request), limit)
        page = found[:most]
        return {
            "table": info.qualified_name,
            "keys": at.table(table).partitioned_by,
            "partitions": [each.shown() for each in page],
            "next": cursor_of(page[-1].order) if len(found) > most else None,
        }

    return await answer_facts(request, facts, version, timestamp)


def _after(cursor: str) -> tuple[Any, ...]:
    position = position_of(cursor)
    if not isinstance(position, list) or not all(isinstance(part, str) for part in position):
        raise not_a_cursor()
    return tuple(position)


@router.get(
    "/tables/{table:part}/files", summary="List the files of a table", operation_id="list_files", responses=FACTS
)
async def list_files(
    request: Request,
    table: TableName,
    limit: LIMIT = None,
    after: Annotated[int, Query(ge=-1, le=MAX_VALUE, description="`next` of the page before.")] = -1,
    version: Version = None,
    timestamp: Timestamp = None,
    lake: LakeName = None,
) -> Response:
    """Return the data files by id: rows, deleted rows, bytes, partition, and the time at which each was added.

    Paths begin at the data path of the lake. This needs the role writer.
    """

    def facts(_: Identity, at: Any, __: int) -> dict[str, Any]:
        at.handle.check_whole("files")
        view, ref = at.handle.view(), TableRef.parse(table)
        info = view.find_table(ref.schema, ref.name)
        most = page_size(service_of(request), limit)
        page, more = layout.files(view, info, after, most)
        return {
            "keys": at.table(table).partitioned_by,
            "files": page,
            "next": page[-1]["data_file_id"] if more else None,
        }

    return await answer_facts(request, facts, version, timestamp, role=Role.WRITER)
