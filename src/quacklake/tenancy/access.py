"""Access of PostgreSQL roles to a shared lake: create it, and upgrade that of older versions."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.engine import Connection

from quacklake.catalog import shared_lake
from quacklake.catalog.shared_lake import SharedPlace
from quacklake.catalog.shared_tables import SharedTables
from quacklake.catalog.tables import WIDE_SPEC
from quacklake.tenancy import exposing, roles

Mend = Callable[[Connection, SharedPlace, str | None], list[str]]
"""Takes a lake and its metadata schema, and returns the statements that it lacks; none if it is up to date."""


def secure(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Return statements that limit roles to the rows of their catalogs; only those not yet run."""
    return [
        *rights(connection, place, metadata_schema),
        *roles.secure_rows(place, SharedTables.of(metadata_schema)),
        *shared_lake.readable_views(connection, place),
    ]


def rights(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Return statements that give roles of a secured lake the same rights as on a new one."""
    return roles.missing_rights(connection, place, SharedTables.of(metadata_schema))


def needed(connection: Connection, metadata_schema: str | None) -> list[Mend]:
    """Return the upgrades for a lake of an older version; none for a user who does not own its tables."""
    place = shared_lake.find_place(connection, metadata_schema)
    if not shared_lake.is_owner(connection, place):
        return []
    mends: list[Mend] = [_functions, _secured, _statistics, _views]
    return [mend for mend in mends if mend(connection, place, metadata_schema)]


def _functions(connection: Connection, place: SharedPlace, _: str | None) -> list[str]:
    """Revoke execution of functions that every role could execute."""
    return exposing.mend(connection, place) if exposing.has_open_functions(connection, place) else []


def _secured(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Revoke the rights that let readers lock tables, and secure tables that were added later."""
    return secure(connection, place, metadata_schema) if place.secured else []


def _statistics(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Stop collecting statistics about values that roles must not learn."""
    names = [name for name in SharedTables.of(metadata_schema).definitions if name in place.secured]
    if not names and exposing.is_used(connection, place):
        names = [f"ducklake_{name}" for name in WIDE_SPEC]
    return roles.open_statistics(connection, place, names) if names else []


def _views(connection: Connection, place: SharedPlace, metadata_schema: str | None) -> list[str]:
    """Create the views over the metadata."""
    readers = place.group if place.secured else None
    return shared_lake.missing_views(connection, metadata_schema, shared=True, readers=readers)
