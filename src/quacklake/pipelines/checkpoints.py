"""The checkpoints of a pipeline in the lake's catalog: positions, prepared commits, and the fence.

A run claims the pipeline first; from then on no other run can confirm or finish a checkpoint of it. A checkpoint is
confirmed in one transaction, together with the rows of the sinks that are tables of the lake. Then the other sinks show
their rows, and the checkpoint is finished. Whoever claims the pipeline next finds the one that is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quacklake.connectors.protocols import PreparedCommit
from quacklake.core.catalog import own_tables
from quacklake.core.format.objects import NOTHING_YET, Checkpoint, StreamMark
from quacklake.core.operations.handles import LakeHandle
from quacklake.core.transaction import Transaction
from quacklake.errors import InputError, StreamFencedError, StreamMismatchError
from quacklake.extend.names import uuid7

_QUERY = "pipeline"


@dataclass(frozen=True)
class Manifest:
    """A checkpoint: how far the source has come, and the commits that the sinks have prepared.

    ``batch`` is the digest of what Spark's progress says of the batch; None on other engines. ``tables`` are the sinks
    that are tables of the lake, each with the UUID of its table.
    """

    checkpoint_id: int
    position: str
    prepared: Mapping[str, PreparedCommit] = field(default_factory=dict)
    batch: str | None = None
    tables: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the manifest as JSON."""
        sinks = {name: json.loads(commit.to_json()) for name, commit in self.prepared.items()}
        known: dict[str, Any] = {} if self.batch is None else {"batch": self.batch}
        if self.tables:
            known["tables"] = dict(self.tables)
        return json.dumps(
            {"version": 1, "checkpoint_id": self.checkpoint_id, "position": self.position, "sinks": sinks, **known}
        )

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return the manifest that :meth:`to_json` wrote. Raises ``InputError`` for anything else."""
        try:
            found = json.loads(text)
            if found["version"] != 1:
                raise InputError("a checkpoint of a later version cannot be read", hint="Upgrade quacklake.")
            sinks = {name: PreparedCommit.from_json(json.dumps(each)) for name, each in found["sinks"].items()}
            tables = {str(name): str(uuid) for name, uuid in found.get("tables", {}).items()}
            return cls(int(found["checkpoint_id"]), str(found["position"]), sinks, found.get("batch"), tables)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a checkpoint: {text[:80]!r}") from error


@dataclass(frozen=True)
class Claim:
    """A pipeline in the hands of one run. ``incarnation`` changes only when the pipeline starts over."""

    name: str
    run: str
    incarnation: str
    last: int
    position: str | None
    unfinished: tuple[Manifest, ...]
    manifest: Manifest | None = None
    """The last checkpoint; None before the first."""
    accepted: bool = False
    """True when the pipeline goes on whatever has changed."""


class Checkpoints:
    """The checkpoints of one pipeline. ``keep`` finished ones stay in the catalog."""

    def __init__(self, handle: LakeHandle, name: str, keep: int = 3) -> None:
        self._catalog = handle.context.catalog
        self.name = name
        self.keep = keep

    def claim(self, hash_: str, *, restart: bool = False, accept: bool = False) -> Claim:
        """Make the pipeline this run's own; every other run of it can no longer commit.

        Raises ``StreamMismatchError`` when the pipeline has changed since its last checkpoint. ``restart`` begins anew
        then, ``accept`` goes on from the position.
        """
        run = str(uuid7())
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            known = own_tables.find_stream(writer, self.name)
            begun = known is not None and known.epoch != NOTHING_YET
            old_hash, incarnation = _parts(known)
            if known is None or restart or not begun or not incarnation:
                if known is not None and begun and not incarnation and not restart:
                    raise StreamMismatchError(
                        f'"{self.name}" is the name of a stream that is not a pipeline', hint="Choose another name."
                    )
                incarnation = str(uuid7())
                own_tables.remove_checkpoints(writer, self.name)
                mark = StreamMark(self.name, f"{_QUERY}:{hash_}:{incarnation}", run)
            else:
                if old_hash != hash_ and not accept:
                    raise StreamMismatchError(
                        f'the pipeline "{self.name}" has changed since its checkpoint {known.epoch}: rows could be'
                        " missing, or be written twice",
                        hint="Use restart to start over, or accept to continue with the new one from the position.",
                    )
                query = f"{_QUERY}:{hash_}:{incarnation}"
                mark = StreamMark(self.name, query, run, known.epoch, known.position, known.snapshot_id)
            own_tables.put_stream(writer, mark, new=known is None)
            kept = own_tables.checkpoints(writer, self.name)
        unfinished = tuple(Manifest.from_json(each.manifest) for each in kept if each.state == Checkpoint.CONFIRMED)
        last = next((Manifest.from_json(each.manifest) for each in kept if each.checkpoint_id == mark.epoch), None)
        return Claim(self.name, run, incarnation, mark.epoch, mark.position, unfinished, last, accept)

    def confirm(self, tx: Transaction, claim: Claim, manifest: Manifest) -> None:
        """Let a transaction confirm a checkpoint. Its commit raises ``StreamFencedError`` in a replaced run."""
        tx.mark(
            self.name,
            manifest.checkpoint_id,
            claim.run,
            manifest.position,
            manifest=manifest.to_json(),
            keep=self.keep,
            finished=not manifest.prepared,
        )

    def finish(self, claim: Claim, checkpoint_id: int) -> None:
        """Note that every sink has shown the rows of a checkpoint. Raises ``StreamFencedError``."""
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            self._check(own_tables.find_stream(writer, self.name), claim)
            own_tables.finish_checkpoint(writer, self.name, checkpoint_id)

    def check(self, claim: Claim) -> None:
        """Raise ``StreamFencedError`` when another run has claimed the pipeline."""
        with self._catalog.read() as reader:
            self._check(own_tables.find_stream(reader, self.name), claim)

    def list(self) -> list[Checkpoint]:
        """Return the checkpoints that are kept, oldest first."""
        with self._catalog.read() as reader:
            reader.snapshots.check_there()
            return own_tables.checkpoints(reader, self.name)

    def forget(self) -> None:
        """Remove the position and the checkpoints. A run in progress can no longer commit."""
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            own_tables.remove_stream(writer, self.name)
            own_tables.remove_checkpoints(writer, self.name)

    def _check(self, known: StreamMark | None, claim: Claim) -> None:
        if known is None or known.run != claim.run:
            raise StreamFencedError(
                f'another run has taken over the pipeline "{self.name}"', hint="Run it in one place at a time."
            )


def _parts(known: StreamMark | None) -> tuple[str, str]:
    """Return the hash and the incarnation of a pipeline, empty for what is none."""
    parts = [""] if known is None else known.query.split(":")
    return (parts[1], parts[2]) if parts[0] == _QUERY and len(parts) == 3 else ("", "")


def manifest_view(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint as people read it."""
    manifest = Manifest.from_json(checkpoint.manifest)
    sinks = {
        name: {"rows": each.records_written, "files": len(each.data_files), "bytes": each.bytes_written}
        for name, each in manifest.prepared.items()
    }
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "state": checkpoint.state,
        "created": checkpoint.created,
        "position": manifest.position,
        "sinks": sinks,
    }
