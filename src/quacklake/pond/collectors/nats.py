"""``nats``: the messages of a JetStream stream. The position in the stream is committed with the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from quacklake.config.mappings import Options
from quacklake.connectors.protocols import SourceCheckpoint
from quacklake.connectors.registry import connector
from quacklake.pond.collectors.base import Item, Report, Run, Runnable, commit, keep_state
from quacklake.pond.factories.registry import register
from quacklake.pond.fs import FS
from quacklake.pond.inputs import ImportOptions
from quacklake.pond.local_times import local_rule_of
from quacklake.pond.paths import parts
from quacklake.pond.series import Imported, Origin, append_series
from quacklake.pond.times import check_zone

_POSITION = "position"


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """The options of a collector of NATS; ``source`` are those of the connector."""

    source: Mapping[str, Any]
    path: str
    given: ImportOptions

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> NatsOptions:
        """Return the options of a mapping. Raise ``ConfigError``."""
        options = Options("nats", config)
        column, zone = options.text("timestamp_column", "") or None, options.text("timezone", "") or None
        made = cls(
            source={**options.mapping("source"), "mode": "batch"},
            path="/" + "/".join(parts(options.text("path"))),
            given=ImportOptions(
                column,
                None if zone is None else check_zone(zone),
                options.boolean("allow_future"),
                options.boolean("keep_conflicts"),
                local=local_rule_of(options),
            ),
        )
        options.finish()
        return made


@register
class NatsCollector(Runnable):
    """Takes the messages that came since the last run, in transactions of up to ``max_messages``."""

    name = "nats"
    description = "Collects the messages of a NATS stream"
    every = "every 10s"

    def check(self, config: Mapping[str, Any]) -> None:
        NatsOptions.of(config)

    def run(self, run: Run, config: Mapping[str, Any]) -> Report:
        options = NatsOptions.of(config)
        source = connector("nats", "source")(options.source)
        kept = run.state().get(_POSITION)
        imported: list[Imported] = []
        rejected = 0
        try:
            source.start(None if kept is None else SourceCheckpoint.from_json(kept))
            while (batch := source.poll_next()) is not None:
                rejected += source.take_rejected().num_rows
                position = source.current_checkpoint().to_json()
                done = commit(run, [_item(options, batch)], also=keep_state(run, {_POSITION: position}))
                imported += done.imported
                if done.failures:
                    return Report(tuple(imported), done.failures)
                run.wait(0)
        finally:
            source.close()
        notes = (f"left out {rejected} messages that are not rows",) if rejected else ()
        return Report(tuple(imported), notes=notes)


def _item(options: NatsOptions, batch: pa.RecordBatch) -> Item:
    wanted = options.given.timestamp_column
    names = [name for name in batch.schema.names if not name.startswith("_") or name == wanted]
    rows = pa.Table.from_batches([batch]).select(names)

    def write(fs: FS) -> list[Imported]:
        above = parts(options.path)[:-1]
        if above:
            fs.make_directory("/" + "/".join(above), parents=True)
        return [append_series(fs, options.path, rows, options.given, Origin("NATS"))]

    return Item(options.path, write)
