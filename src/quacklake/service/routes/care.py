"""The care that a lake needs, and the lakes that a token opens."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

from fastapi import APIRouter, Request

from quacklake.service.facts import LIMIT, page_size, whole_lake
from quacklake.service.identity import Identity, Role
from quacklake.service.state import service_of
from quacklake.service.values import LakeName

router = APIRouter(tags=["lake"])


@router.get("/lakes", summary="List your lakes", operation_id="list_lakes")
async def list_lakes(request: Request, lake: LakeName = None) -> dict[str, list[dict[str, Any]]]:
    """Return the lakes that your token opens. A token of a tenant opens that tenant's, and says nothing of others."""
    service = service_of(request)
    identity = await service.enter(request)
    return {"lakes": [await service.run(_lake, identity)]}


def _lake(identity: Identity) -> dict[str, Any]:
    return {
        "name": identity.name,
        "tenant": identity.lake.catalog,
        "principal": identity.principal,
        "role": identity.role.name.lower(),
        "format_version": identity.lake.version,
        "snapshot": identity.lake.current_snapshot(),
    }


@router.get("/care", summary="Look at what needs care", operation_id="care")
async def care(request: Request, limit: LIMIT = None, lake: LakeName = None) -> dict[str, Any]:
    """Return the maintenance that is due and why, and for each table its small files, deletes and inlined rows.

    Tables come by name, those without rows are left out, and at most `limit` are told. `inlined_rows` are those of the
    newest snapshot; what is due also depends on deleted ones, which the catalog keeps until they are flushed. The job
    `maintain` does what is due; `flush`, `merge` and `rewrite` do it for one table. `growth` is by how many bytes the
    files have grown, and in how many seconds: those of a day, or since the oldest snapshot that is kept.
    """
    service = service_of(request)
    identity = await service.enter(request)
    most = page_size(service, limit)
    async with service.turn():
        return await service.run(_care, identity, most)


def _care(identity: Identity, most: int) -> dict[str, Any]:
    maintainer = whole_lake(identity).maintenance.maintainer()
    health = maintainer.examine()
    grown, span = maintainer.measure_growth(dt.timedelta(days=1))
    named = sorted((health.names[id_], id_) for id_ in health.tables if id_ in health.names)
    return {
        "due": [{"job": job.kind.value, "table": job.table, "reason": job.reason} for job in maintainer.due()],
        "tables": [
            {
                "table": name,
                "files": table.files,
                "bytes": table.bytes,
                "small_files": sum(table.small) + sum(table.chipped),
                "small_files_with_deletes": sum(table.chipped),
                "files_with_many_deletes": table.worn_files,
                "inlined_rows": table.live_inlined_rows,
            }
            for name, table in ((name, health.tables[id_]) for name, id_ in named[:most])
        ],
        "more_tables": max(0, len(named) - most),
        "oldest_snapshot_seconds": round(health.oldest_snapshot_age.total_seconds()),
        "removable_files": health.removable_files,
        "growth": {"bytes": grown, "seconds": max(0, round(span.total_seconds()))},
    }


@router.get("/options", summary="List the options of the lake", operation_id="list_options")
async def list_options(request: Request, lake: LakeName = None) -> dict[str, Any]:
    """Return the options of the format with what holds in the lake, and how many schemas and tables have their own.

    This needs the role admin. `CALL set_option('expire_older_than', '30 days')` in SQL sets one.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    async with service.turn():
        return {"options": await service.run(_options, identity)}


def _options(identity: Identity) -> list[dict[str, Any]]:
    from quacklake.core.format.options import OPTIONS, Scope

    options = whole_lake(identity).options
    rows = options.list().to_pylist()
    whole = {row["key"] for row in rows if row["scope"] is None}
    own = Counter(row["key"] for row in rows if row["scope"] is not None)
    return [
        {
            "option": entry.name,
            "value": _text(options.get(entry.name)),
            "set": entry.name in whole,
            "own": own[entry.name],
            "help": entry.help,
        }
        for entry in OPTIONS.values()
        if Scope.GLOBAL in entry.scopes
    ]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return str(value)
