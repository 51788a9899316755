"""Opening sessions."""

from __future__ import annotations

from typing import Any

import duckdb

from quacklake.lake.lake import Lake, LakeAt, LakeTransaction
from quacklake.sql.attached import Attachments
from quacklake.sql.session import Session

__all__ = ["session", "session_of"]


def session_of(lake: Lake | LakeAt | LakeTransaction) -> Session:
    """A session in which a lake is the default catalog, under the name ``lake``."""
    config = lake._shared.config
    limit = config.duckdb_memory_limit
    made = session(memory_limit=None if limit is None else f"{limit}B", threads=config.duckdb_threads)
    made.attach(lake, "lake")
    made.use("lake")
    return made


def session(*, python_frames: bool = True, memory_limit: str | None = None, threads: int | None = None) -> Session:
    """A SQL session without lakes yet: ``ATTACH 'ducklake:…' AS lake``, or ``session.attach(lake)``.

    With ``python_frames=False`` statements cannot name Python's variables, as is right for statements of others.
    """
    config: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    if memory_limit is not None:
        config["memory_limit"] = memory_limit
    if threads is not None:
        config["threads"] = threads
    root = duckdb.connect(":memory:", config=config)
    planner = duckdb.connect(":memory:", config={**config, "threads": 1})
    return Session(Attachments(root, planner), python_frames=python_frames)
