"""A pipeline with a sink of each kind, and what foreign readers see of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import quacklake
from quacklake.extend.checkpoints import StreamLease
from tests.connectors.sinks import FORMATS

KINDS = ("lake", *FORMATS)


def connect(path: Path) -> quacklake.Lake:
    """Open the lake of a test, whose tables are ``orders`` and those that sinks create."""
    return quacklake.connect(f"sqlite:///{path}/lake.db", data_path=str(path / "data"))


def sink(kind: str, path: Path, **options: Any) -> dict[str, Any]:
    """Return the definition of a sink, with its table below ``path``."""
    place = {"table": "copied"} if kind == "lake" else FORMATS[kind].place(path / kind)
    (path / kind).mkdir(exist_ok=True)
    return {"name": kind, "type": kind, **place, **options}


def definition(path: Path, kinds: tuple[str, ...] = KINDS, mode: str = "append", **options: Any) -> dict[str, Any]:
    """Return a pipeline from ``orders`` into a sink of each kind."""
    key = {"mode": mode, "key": "id"} if mode != "append" else {}
    return {
        "pipeline": "p",
        "source": {"type": "lake", "table": "orders"},
        "query": "SELECT id, v * 2 AS v FROM source",
        "sinks": [sink(kind, path, **key) for kind in kinds],
        "every": "20 ms",
        "lease": "5 minutes",  # so long that nothing renews it while a fault is armed
        **options,
    }


def rows(kind: str, path: Path, lake: quacklake.Lake) -> Counter[tuple[Any, ...]]:
    """Return the rows of a sink, as its own library reads them."""
    if kind == "lake":
        return Counter(lake.sql("SELECT id, v FROM copied").fetchall())
    table = FORMATS[kind].read(path / kind)
    return Counter(zip(table.column("id").to_pylist(), table.column("v").to_pylist(), strict=True))


def end_lease(lake: quacklake.Lake, name: str = "p") -> None:
    """Take the lease from a run that has failed where it would have given it back, instead of waiting for its end."""
    with lake.handle.context.catalog.commit() as writer:
        leases = writer.meta.own["leases"]
        mine = leases.c.lease_id == int(StreamLease(name))
        writer.run("end_lease", sa.update(leases).where(mine).values(expires_ms=0))
