"""The audit log of a lake, for its administrators."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from quacklake.core.format.access import AUDIT_SCHEMA, AUDIT_TABLE
from quacklake.errors import InputError
from quacklake.extend.names import quote
from quacklake.lake import Lake
from quacklake.service.facts import CURSOR, LIMIT, cursor_of, not_a_cursor, page_size, position_of, whole_lake
from quacklake.service.identity import Role
from quacklake.service.state import Service, service_of
from quacklake.service.values import MAX_NAME, MAX_VALUE, LakeName

router = APIRouter(tags=["access"])

_Time = Annotated[str | None, Query(max_length=64, examples=["2026-01-31T12:00:00"])]
_COLUMNS = ("time", "principal", "kind", "statement_hash", "tables_read", "tables_changed", "snapshot_id", "outcome")


@router.get("/audit", summary="Read the audit log", operation_id="read_audit")
async def read_audit(
    request: Request,
    principal: Annotated[str | None, Query(max_length=300, description="Only records of this user.")] = None,
    kind: Annotated[str | None, Query(max_length=60, description="Only this kind of statement or call.")] = None,
    table: Annotated[
        str | None, Query(max_length=MAX_NAME, description="Only what read or changed this `schema.table`.")
    ] = None,
    outcome: Annotated[str | None, Query(max_length=60, description="`ok`, `failed`, or the code of an error.")] = None,
    since: _Time = None,
    until: _Time = None,
    limit: LIMIT = None,
    cursor: CURSOR = None,
    lake: LakeName = None,
) -> dict[str, Any]:
    """Return what users have read and changed, the newest first. This needs the role admin.

    `on` tells whether the lake records it (setting `access_audit`). The first page has every record up to now: it lets
    those that wait in this process be written. Times without a zone are UTC; `until` is not part of the range.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    most = page_size(service, limit)
    given = {
        "principal": principal,
        "kind": kind,
        "table": table,
        "outcome": outcome,
        "since": _time(since),
        "until": _time(until),
    }
    after = None if cursor is None else _position(cursor)
    async with service.turn():
        return await service.run(_page, service, whole_lake(identity), given, after, most)


_CONDITIONS = {
    "principal": "principal = $principal",
    "kind": "kind = $kind",
    "table": (
        "(list_contains(tables_changed, $table)"
        " OR list_bool_or([starts_with(each, $table || '(') FOR each IN tables_read]))"
    ),
    "outcome": "CASE $outcome WHEN 'failed' THEN outcome <> 'ok' ELSE outcome = $outcome END",
    "since": "time >= $since",
    "until": "time < $until",
}


def _page(
    service: Service, lake: Lake, given: dict[str, Any], after: tuple[dt.datetime, int] | None, most: int
) -> dict[str, Any]:
    on = bool(lake.handle.context.config.access_audit)
    if after is None and on:
        lake.access.flush_audit()
    if f"{AUDIT_SCHEMA}.{AUDIT_TABLE}" not in lake.tables(AUDIT_SCHEMA if AUDIT_SCHEMA in lake.schemas() else None):
        return {"records": [], "next": None, "on": on}
    values = {name: value for name, value in given.items() if value is not None}
    conditions = [_CONDITIONS[name] for name in values]
    if after is not None:
        conditions.append("(time, rowid) < ($time, $row)")
        values |= {"time": after[0], "row": after[1]}
    text = (
        f"SELECT {', '.join(_COLUMNS)}, rowid AS ql_row FROM {quote(AUDIT_SCHEMA)}.{quote(AUDIT_TABLE)} "
        f"WHERE {' AND '.join(conditions) or 'true'} ORDER BY time DESC, rowid DESC LIMIT $most"
    )
    lent = service.sessions.lend(lake, writes=False)
    try:
        found = lent.session.sql(text, {**values, "most": most + 1}).to_arrow().to_pylist()
    finally:
        lent.give_back()
    page = found[:most]
    following = cursor_of([page[-1]["time"].isoformat(), page[-1]["ql_row"]]) if len(found) > most else None
    for record in page:
        record["time"] = record["time"].astimezone(dt.UTC).isoformat(timespec="microseconds")
        del record["ql_row"]
    return {"records": page, "next": following, "on": on}


def _time(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{text!r} is not a time", hint="such as 2026-01-31T12:00:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def _position(cursor: str) -> tuple[dt.datetime, int]:
    position = position_of(cursor)
    if not isinstance(position, list) or len(position) != 2:
        raise not_a_cursor()
    time, row = position
    try:
        found = dt.datetime.fromisoformat(time) if isinstance(time, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or type(row) is not int or not 0 <= row <= MAX_VALUE:
        raise not_a_cursor()
    return found, row
