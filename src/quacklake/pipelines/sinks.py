"""Open the source and the sinks of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from quacklake.connectors.options import ConnectorOptions
from quacklake.connectors.protocols import NO_CHECKPOINT, CountingSink, Sink, Source
from quacklake.connectors.registry import connector
from quacklake.errors import NotFoundError, StreamMismatchError
from quacklake.extend.checkpoints import Claim
from quacklake.lake import Lake
from quacklake.pipelines.checkpoints import last_manifest
from quacklake.pipelines.definition import LAKE, PipelineDefinition, SourceDefinition
from quacklake.pipelines.lake_tables import LakeSink, LakeSource


@dataclass(frozen=True)
class Sinks:
    """The sinks of a pipeline by name: tables of the lake, and others. ``wheres`` are the conditions of branches."""

    tables: Mapping[str, LakeSink] = field(default_factory=dict)
    others: Mapping[str, Sink] = field(default_factory=dict)
    wheres: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def open(cls, lake: Lake, definition: PipelineDefinition, incarnation: str) -> Sinks:
        """Open every sink. Raise ``ConfigError`` for options that are wrong."""
        tables: dict[str, LakeSink] = {}
        others: dict[str, Sink] = {}
        for sink in definition.sinks:
            if sink.type == LAKE:
                tables[sink.name] = LakeSink(lake, sink.options)
                continue
            options = dict(sink.options)
            given = options.pop("writer_id", options.pop("writer.id", definition.name))
            options["writer_id"] = f"{given}:{sink.name}:{incarnation}"
            if sink.type == "nats":
                options.setdefault("staging", f"{lake.data_path.rstrip('/')}/{folder(definition.name)}{sink.name}")
            others[sink.name] = connector(sink.type, "sink")(options)
        return cls(tables, others, {sink.name: sink.where for sink in definition.sinks})

    @property
    def names(self) -> list[str]:
        """The names of all sinks, those of tables first."""
        return [*self.tables, *self.others]

    def check(self, claim: Claim) -> None:
        """Raise ``StreamMismatchError`` when a sink does not have what the checkpoints of a pipeline say.

        A table that was dropped would come back with the new rows alone; and to a lake that was restored from a backup,
        the commits of the checkpoints that it has forgotten look like the next ones.
        """
        known = last_manifest(claim)
        for name, table in self.tables.items():
            if known is None or claim.accepted:
                break
            found, expected = table.table_id(), known.tables.get(name)
            if found is None and (expected is not None or not known.tables):
                raise _lost_sink_error(claim, name, f"the table {table.table} was dropped or renamed")
            if expected not in (None, found):
                raise _lost_sink_error(
                    claim, name, f"the table {table.table} was dropped, and another one is in its place"
                )
        for name, sink in self.others.items():
            had = known is not None and name in known.prepared and not claim.accepted
            try:
                last = sink.last_checkpoint() if isinstance(sink, CountingSink) else None
            except NotFoundError:
                if had:
                    raise _lost_sink_error(claim, name, "the table was dropped") from None
                continue
            if last is None:
                continue
            if last > claim.last:
                raise StreamMismatchError(
                    f'the sink "{name}" of the pipeline "{claim.name}" has checkpoint {last}, and the lake only'
                    f" {claim.last}: it was restored from a backup",
                    hint="restart begins again, and writes all rows once more: empty the sink first",
                )
            if had and last == NO_CHECKPOINT and claim.last > len(claim.confirmed) - 1:
                raise _lost_sink_error(claim, name, "the table was dropped, or another one is in its place")

    def table_ids(self) -> dict[str, str]:
        """Return the UUIDs of the tables of the lake, by the names of their sinks."""
        found = {name: table.table_id() for name, table in self.tables.items()}
        return {name: id_ for name, id_ in found.items() if id_ is not None}

    def initialize(self, schemas: Mapping[str, pa.Schema]) -> None:
        """Create the tables of all sinks, or check that the rows fit."""
        for name, table in self.tables.items():
            table.initialize(schemas[name])
        for name, sink in self.others.items():
            sink.initialize(schemas[name])

    def close(self) -> None:
        """Let go of everything."""
        for sink in self.others.values():
            sink.close()


def _lost_sink_error(claim: Claim, name: str, what: str) -> StreamMismatchError:
    return StreamMismatchError(
        f'{what}, which is the sink "{name}" of the pipeline "{claim.name}": the rows up to checkpoint'
        f" {claim.last} would be missing",
        hint="restart begins again and writes all rows; accept goes on with the new rows alone",
    )


def open_source(lake: Lake, definition: SourceDefinition) -> Source:
    """Open the source. It never waits for more rows: the run of the pipeline does, so that it can be stopped."""
    options: dict[str, Any] = dict(definition.options)
    if "mode" not in options and "read.mode" not in options:
        options["mode"] = "continuous"
    options.pop("poll.interval.ms", None)
    options["poll_interval"] = "1 ms"
    if definition.type == LAKE:
        return LakeSource(lake, options)
    source: Source = connector(definition.type, "source")(options)
    return source


def poll_interval(definition: SourceDefinition, default: timedelta) -> float:
    """Return the seconds between two looks at a source that had nothing new."""
    given = {key: value for key, value in definition.options.items() if key in ("poll_interval", "poll.interval.ms")}
    return ConnectorOptions(definition.type, given).duration("poll_interval", default).total_seconds()


def folder(name: str) -> str:
    """Return the folder of a pipeline below the data path, for what it keeps beside the catalog."""
    return f"_quacklake/pipelines/{quote(name, safe='')}/"
