"""Import a Delta or Iceberg table: the rows of one version, a unit for each file; or its files where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from quacklake import Lake
from quacklake.connectors.registry import connector
from quacklake.connectors.table_source import NOTHING, TableSource
from quacklake.errors import InputError, UnsupportedFeatureError
from quacklake.extend.names import DEFAULT_SCHEMA, TableRef
from quacklake.extend.schemas import to_schema
from quacklake.lake.transfers import ImportReport, LeftOut, TransferredTable
from quacklake.transfer.tables import Selection, SourceTable, SourceView, Unit

_METADATA = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json")


class FormatSource:
    """One table of another format, at one version."""

    def __init__(self, kind: str, place: str, named: TableRef | None, options: Mapping[str, Any]) -> None:
        self._kind, self._named = kind, named
        self._place = located(place)
        given = {key: str(value) for key, value in options.items()}
        if {"version", "timestamp"} & set(given):
            given["mode"] = "snapshot"
        if kind == "iceberg" and place:
            self._source = _iceberg_file(self._place, given)
        else:
            self._source = connector(kind, "source")(given | ({"location": self._place} if place else {}))
        catalogued = ".".join(filter(None, (given.get("namespace"), given.get("table_name"))))
        self._name = named.name if named is not None else given.get("table_name") or _last(self._place)
        self.origin = f"{kind}:{self._place or catalogued}"

    def tables(self, wanted: Selection) -> list[SourceTable]:
        """Return the table."""
        source, mode = self._source, self._source.options.mode
        version = source.newest()
        if mode.kind == "snapshot":
            version = (
                mode.version if mode.version is not None else source.version_at(mode.timestamp or datetime.now(UTC))
            )
        units = [] if version == NOTHING else source.state(version)
        schema = source.schema() if version == NOTHING else source.schema_at(version)
        return [
            SourceTable(
                self._named.schema if self._named is not None else DEFAULT_SCHEMA,
                self._name,
                to_schema(schema),
                [Unit(unit.name, unit.read) for unit in units],
                f"{source.identity()} {version}",
                given=schema,
            )
        ]

    def views(self, wanted: Selection) -> list[SourceView]:
        """Return none."""
        return []

    def left_out(self) -> list[LeftOut]:
        """Return the history: a lake gets the rows of one version."""
        return []

    def close(self) -> None:
        """Let go of the table."""
        self._source.close()


def adopt_in_place(
    lake: Lake, kind: str, place: str, named: TableRef | None, name: str | None, *, dry_run: bool
) -> ImportReport:
    """Register the files of a table where they are; see ``Lake.adopt``."""
    table = name or _last(located(place))
    report = lake.adopt(f"{kind}:{place}", table, dry_run=dry_run)
    ref = named or TableRef.parse(table)
    done = TransferredTable(
        f"{ref.schema}.{ref.name}", report.added_rows, 0, None, "would be imported" if dry_run else "imported"
    )
    return ImportReport(f"{kind}:{located(place)}", (done,), (), (), dry_run)


def located(place: str) -> str:
    """Return a place with an absolute path, or a URL as it is."""
    return place if not place or "://" in place else str(Path(place).expanduser().absolute())


def _last(place: str) -> str:
    name = PurePosixPath(place.rstrip("/").removesuffix("/metadata")).name
    return PurePosixPath(place).parent.parent.name if _METADATA.fullmatch(name) else name


def _iceberg_file(place: str, options: Mapping[str, str]) -> TableSource:
    """Return the source of an Iceberg table by its folder or metadata file."""
    from quacklake.connectors.iceberg.catalogs import IcebergFile
    from quacklake.connectors.iceberg.source import IcebergSource
    from quacklake.connectors.object_store import iceberg_options
    from quacklake.connectors.options import ConnectorOptions

    storage = ConnectorOptions("iceberg", options).storage()
    rest = {key: value for key, value in options.items() if key.removeprefix("storage.") not in storage}
    return IcebergSource(rest, IcebergFile(_metadata_file(place), iceberg_options(storage)))


def _metadata_file(place: str) -> str:
    """Return the metadata file that a place is, or the newest in the folder that it is."""
    if _METADATA.fullmatch(PurePosixPath(place).name):
        return place
    if "://" in place:
        raise InputError(f"{place} is not a metadata file", hint="name the newest file metadata/….metadata.json")
    found = {
        path: int(match[1])
        for path in Path(place, "metadata").glob("*.metadata.json")
        if (match := _METADATA.fullmatch(path.name)) is not None
    }
    newest = [path for path, number in found.items() if number == max(found.values())]
    if not newest:
        raise InputError(f"{place} is not the folder of an Iceberg table", hint="it has no metadata/….metadata.json")
    if len(newest) > 1:
        raise UnsupportedFeatureError(
            f"several metadata files of {place} are the newest", hint="name the right one instead of the folder"
        )
    return str(newest[0])
