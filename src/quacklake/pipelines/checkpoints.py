"""The content of the checkpoints of a pipeline: a position of the source, and the commits that sinks have prepared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quacklake.connectors.protocols import PreparedCommit
from quacklake.errors import InputError
from quacklake.extend.checkpoints import Checkpoint, Checkpoints, Claim
from quacklake.extend.writes import Change


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
        """Return the manifest that :meth:`to_json` wrote. Raise ``InputError`` for anything else."""
        try:
            found = json.loads(text)
            if found["version"] != 1:
                raise InputError("a checkpoint of a later version cannot be read", hint="upgrade quacklake")
            sinks = {name: PreparedCommit.from_json(json.dumps(each)) for name, each in found["sinks"].items()}
            tables = {str(name): str(uuid) for name, uuid in found.get("tables", {}).items()}
            return cls(int(found["checkpoint_id"]), str(found["position"]), sinks, found.get("batch"), tables)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a checkpoint: {text[:80]!r}") from error


def confirm(checkpoints: Checkpoints, change: Change, claim: Claim, manifest: Manifest) -> None:
    """Let a change confirm a checkpoint. Its commit raises ``StreamFencedError`` in a replaced run."""
    checkpoints.confirm(
        change,
        claim,
        manifest.checkpoint_id,
        position=manifest.position,
        manifest=manifest.to_json(),
        finished=not manifest.prepared,
    )


def unfinished(claim: Claim) -> list[Manifest]:
    """Return the checkpoints that some sinks have not shown."""
    return [Manifest.from_json(each.manifest) for each in claim.confirmed]


def last_manifest(claim: Claim) -> Manifest | None:
    """Return the last checkpoint; None before the first."""
    return None if claim.newest is None else Manifest.from_json(claim.newest.manifest)


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
