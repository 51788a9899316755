"""Backups in the place that the service has for them, for administrators. No request names a place."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Request

from quacklake.errors import ConfigError, InputError, NotFoundError
from quacklake.service.facts import LIMIT, page_size, whole_lake
from quacklake.service.identity import Role
from quacklake.service.state import Service, service_of
from quacklake.service.values import LakeName

if TYPE_CHECKING:
    from quacklake.extend.reporting import Progress
    from quacklake.lake import Lake

router = APIRouter(tags=["backups"])
_HINT = "the operator of the service looks at its place for backups, and at the setting backup_key"


@router.get("/backups", summary="List the backups", operation_id="list_backups")
async def list_backups(request: Request, limit: LIMIT = None, lake: LakeName = None) -> dict[str, Any]:
    """Return the backups of the lake, the newest first, and at most `limit`. This needs the role admin.

    `on` tells whether the service has a place for them (`quacklake serve --backups`).
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    most = page_size(service, limit)
    if not service.settings.backups:
        return {"on": False, "backups": [], "more": 0}

    def work() -> list[dict[str, Any]]:
        return _list(service, whole_lake(identity))[::-1]

    async with service.turn():
        found = await service.run(work)
    return {"on": True, "backups": found[:most], "more": max(0, len(found) - most)}


@router.post("/backups", summary="Make a backup", operation_id="make_backup", status_code=202)
async def make_backup(request: Request, lake: LakeName = None) -> dict[str, Any]:
    """Start a job that backs up the catalog, and the files that the place lacks. This needs the role admin."""
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    own = whole_lake(identity)
    place = _place(service, own)

    def work(progress: Progress) -> Any:
        try:
            return own.backup(place, progress)
        except (InputError, ConfigError):  # their texts name folders of the service
            raise InputError("the lake cannot be backed up to the place of the service", hint=_HINT) from None

    return (await service.run(service.jobs.begin, own, identity.key, "backup", work)).shown()


@router.post("/backups/{id}/verify", summary="Verify a backup", operation_id="verify_backup", status_code=202)
async def verify_backup(
    request: Request, id: Annotated[str, Path(max_length=100)], lake: LakeName = None
) -> dict[str, Any]:
    """Start a job that reads all of a backup and compares it with its hashes: what a restore would bring.

    This needs the role admin. `quacklake restore-backup` restores a backup as a new lake.
    """
    service = service_of(request)
    identity = await service.enter(request, Role.ADMIN)
    own = whole_lake(identity)

    def find() -> None:
        if all(each["id"] != id for each in _list(service, own)):
            raise NotFoundError("there is no such backup")

    async with service.turn():
        await service.run(find)

    def work(progress: Progress) -> dict[str, Any]:
        report = own.maintenance.check_backup(_place(service, own), id, progress)
        verdict = "all of it is there, and as it was" if report.ok else "damaged: make a new backup, and keep others"
        return {"verdict": verdict, **asdict(report)}

    return (await service.run(service.jobs.begin, own, identity.key, "verify_backup", work)).shown()


def _place(service: Service, lake: Lake) -> str:
    """Return the place for the backups of a lake. Raise ``InputError`` when the service has none."""
    place = service.settings.backups.rstrip("/")
    if not place:
        raise InputError("this service has no place for backups", hint="start it with quacklake serve --backups PLACE")
    row = lake.handle.context.catalog.tenant_row
    if row is None:
        return place
    # a catalog keeps its folder under another name; one that was a lake by itself has a path for one
    return f"{place}/{row.name if '/' in row.folder else row.folder}"


def _list(service: Service, lake: Lake) -> list[dict[str, Any]]:
    """Return the backups of a lake, oldest first; several lakes may use one place."""
    try:
        found = lake.maintenance.backups(_place(service, lake))
    except ConfigError:  # its text names the folder
        raise InputError("the backups of this service cannot be read", hint=_HINT) from None
    return [
        {
            "id": info.id,
            "time": info.time,
            "snapshot": info.snapshot,
            "files": info.files,
            "bytes": info.bytes,
            "format_version": info.version,
            "encrypted": info.encrypted,
            "missing": len(info.missing),
        }
        for info in found
    ]
