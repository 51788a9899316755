"""Recover a Delta sink in a process of its own: finalize what was prepared, if anything was."""

from __future__ import annotations

import sys
from pathlib import Path

from quacklake.connectors import PreparedCommit
from quacklake.connectors.delta import DeltaSink


def recover(path: Path, mode: str) -> None:
    """Finalize the prepared commit that ``path`` keeps."""
    kept = path / "prepared"
    if kept.exists():
        key = {"key": "id"} if mode == "upsert" else {}
        DeltaSink({"location": str(path / "t"), "mode": mode, **key}).finalize_commit(
            PreparedCommit.from_json(kept.read_text())
        )


if __name__ == "__main__":
    recover(Path(sys.argv[1]), sys.argv[2])
