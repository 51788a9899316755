"""Recover a sink in a separate process: finalize what was prepared, if anything was."""

from __future__ import annotations

import sys
from pathlib import Path

from quacklake.connectors import PreparedCommit
from tests.connectors.sinks import FORMATS


def recover(name: str, path: Path, mode: str) -> None:
    """Finalize the prepared commit that ``path`` keeps."""
    kept = path / "prepared"
    if kept.exists():
        key = {"key": "id"} if mode == "upsert" else {}
        sink = FORMATS[name].new(path, mode=mode, **key)
        sink.finalize_commit(PreparedCommit.from_json(kept.read_text()))


if __name__ == "__main__":
    recover(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
