"""Tell a collector of OpenLineage that a pipeline runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from quacklake.config import redact
from quacklake.extend.names import DEFAULT_SCHEMA, TableRef
from quacklake.lake.lake import Lake
from quacklake.pipelines.definition import PipelineDefinition, SinkDefinition, SourceDefinition

_PLACES = ("table_name", "location", "stream", "subject", "topic", "path")
"""The options that may say what a connector reads or writes; others may hold keys."""


def told(lake: Lake, definition: PipelineDefinition) -> AbstractContextManager[None]:
    """Return a block whose begin and end are told, with the source and the sinks of a pipeline."""
    lineage = lake.handle.context.lineage
    if lineage is None:
        return nullcontext()
    own = lineage.datasets
    sinks = [_dataset(own, sink) for sink in definition.sinks]
    return lineage.run(f"pipeline {definition.name}", [_dataset(own, definition.source)], sinks)


def _dataset(own: str, part: SourceDefinition | SinkDefinition) -> tuple[str, str]:
    """Return the namespace and the name of what a source reads or a sink writes."""
    if part.type == "lake":
        ref = TableRef.parse(str(part.options.get("table", DEFAULT_SCHEMA)))
        return own, f"{ref.schema}.{ref.name}"
    found = next((str(part.options[name]) for name in _PLACES if name in part.options), part.type)
    return part.type, redact(found)
