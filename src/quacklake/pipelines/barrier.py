"""The barrier of a pipeline: every sink prepares a batch, one transaction confirms it, every sink shows it.

Nothing is visible before the confirmation, and after it nothing can be lost: whoever runs the pipeline next shows what
was confirmed. So a batch reaches all sinks or none, and each once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TypeAlias

from quacklake.connectors.maintenance import Maintained
from quacklake.connectors.protocols import CommitInfo, PreparedCommit, Sink
from quacklake.errors import CommitUnknown, QuacklakeError, StreamBatchDoneError
from quacklake.extend.checkpoints import Checkpoints, Claim
from quacklake.extend.reporting import reach
from quacklake.extend.writes import Change, run
from quacklake.lake import Lake
from quacklake.pipelines.checkpoints import Manifest, confirm, unfinished
from quacklake.pipelines.lake_tables import Counts, Work
from quacklake.pipelines.origins import Origins
from quacklake.telemetry import error_facts

_log = logging.getLogger("quacklake.pipeline")

Stage: TypeAlias = AbstractContextManager[Work]
"""A block in which the rows of a lake table are staged, with the change that commits them."""
Prepare: TypeAlias = Callable[[int], PreparedCommit]
"""Makes the rows of another sink durable for a checkpoint."""


class Barrier:
    """Commits the batches of one run. ``sinks`` are those outside of the lake, by name.

    ``origins`` say in each commit where its rows come from.
    """

    def __init__(
        self,
        lake: Lake,
        checkpoints: Checkpoints,
        claim: Claim,
        sinks: Mapping[str, Sink],
        origins: Origins | None = None,
    ) -> None:
        self._lake = lake
        self._origins = origins
        self._checkpoints = checkpoints
        self._claim = claim
        self._sinks = sinks
        self._unfinished = unfinished(claim)
        self.last = claim.last
        self.commits: dict[str, CommitInfo] = {}
        self.tables: Mapping[str, str] = {}
        """The UUIDs of the tables of the lake that are sinks, which checkpoints keep."""

    def recover(self) -> int:
        """Show what an earlier run has confirmed and not shown. Return how many checkpoints that were."""
        count = len(self._unfinished)
        while self._unfinished:
            self._finalize(self._unfinished[0])
            self._unfinished.pop(0)
        return count

    def commit(
        self,
        checkpoint_id: int,
        position: str,
        stages: Mapping[str, Stage],
        prepares: Mapping[str, Prepare],
        batch: str | None = None,
    ) -> dict[str, Counts]:
        """Commit a batch and return the numbers of each sink. One that is confirmed already is only shown.

        Raise ``StreamFencedError`` when another run has taken over; nothing of the batch is visible then.
        """
        self.recover()
        if checkpoint_id <= self.last:
            return {}
        reach("pipeline.prepare.before")
        prepared: dict[str, PreparedCommit] = {}
        try:
            for name, prepare in prepares.items():
                prepared[name] = prepare(checkpoint_id)
            manifest = Manifest(checkpoint_id, position, prepared, batch, self.tables)
            reach("pipeline.confirm.before")
            counts = self._confirm(manifest, stages)
        except CommitUnknown:
            raise  # the next run finds out
        except StreamBatchDoneError:
            self._abort(prepared)
            raise
        except Exception:
            self._abort(prepared)
            raise
        reach("pipeline.confirm.after")
        self.last = checkpoint_id
        if self._origins is not None:
            self._origins.passed(position)
        if prepared:
            self._unfinished.append(manifest)
            self.recover()
        return counts | {name: {"rows": each.records_written} for name, each in prepared.items()}

    def maintain(self) -> None:
        """Let the sinks look after their tables, each when that is due. What fails is tried again the next time."""
        for name, sink in self._sinks.items():
            if isinstance(sink, Maintained):
                try:
                    report = sink.maintain()
                except QuacklakeError as error:
                    facts = error_facts(error, sink=name)
                    _log.warning("the upkeep of the sink %s failed: %s", name, error.message, extra=facts)
                    continue
                if report.files_compacted or report.files_removed:
                    numbers = (report.files_compacted, report.files_written, report.files_removed)
                    _log.info("sink %s: %d files became %d, %d were removed", name, *numbers)

    def _confirm(self, manifest: Manifest, stages: Mapping[str, Stage]) -> dict[str, Counts]:
        """Commit the rows of all lake tables and the checkpoint in one transaction."""
        lake = self._lake
        if self._origins is not None:
            lake = self._origins.signed(lake, manifest.checkpoint_id, manifest.position)
        with ExitStack() as staged:
            works = [staged.enter_context(stage) for stage in stages.values()]

            def commit(change: Change) -> list[Counts]:
                counts = [work(change) for work in works]
                confirm(self._checkpoints, change, self._claim, manifest)
                return counts

            outcome = run(lake, commit)
        assert outcome.value is not None
        return dict(zip(stages, outcome.value, strict=True))

    def _finalize(self, manifest: Manifest) -> None:
        """Let every sink show its rows. One that fails does not keep the others from it."""
        self._checkpoints.check(self._claim)
        failed: QuacklakeError | None = None
        for name, prepared in manifest.prepared.items():
            sink = self._sinks.get(name)
            if sink is None:
                _log.warning("checkpoint %d has rows of the sink %s, which is gone", manifest.checkpoint_id, name)
                continue
            reach("pipeline.finalize.before")
            try:
                self.commits[name] = sink.finalize_commit(prepared)
            except QuacklakeError as error:
                number = manifest.checkpoint_id
                facts = error_facts(error, sink=name, checkpoint=number)
                _log.error("the sink %s did not show checkpoint %d: %s", name, number, error.message, extra=facts)
                failed = failed or error
            reach("pipeline.finalize.after")
        if failed is not None:
            raise failed
        self._checkpoints.finish(self._claim, manifest.checkpoint_id)
        reach("pipeline.finish.after")

    def _abort(self, prepared: Mapping[str, PreparedCommit]) -> None:
        for name, sink in self._sinks.items():
            with suppress(QuacklakeError):
                sink.abort(prepared.get(name))
