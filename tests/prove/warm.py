"""Let forked workers skip compiling the statements of the catalog, which is most of the work of a short life.

The fork server rehearses on a lake of each kind of database and keeps the compiled statements. Every catalog that one of
its forks opens uses them, with its own connections and nothing read before.
"""

from __future__ import annotations

import os
import random
import tempfile
from typing import Any

import sqlalchemy as sa

import quacklake
from quacklake.core.catalog import Catalog
from tests.crash.operations import MAINTENANCE
from tests.prove import steps

__all__ = ["URLS", "rehearse"]

URLS = "QUACKLAKE_REHEARSE"
"""The environment variable with the URLs of empty databases to rehearse on, one on each line."""

_warm: dict[str, sa.Engine] = {}
_open = Catalog.__init__


def _opened(self: Catalog, *arguments: Any, **options: Any) -> None:
    _open(self, *arguments, **options)
    known = _warm.get(self.database)
    if known is not None and not self.shared:  # the statements of shared lakes are others
        self._engine.dialect = known.dialect
        self._engine._compiled_cache = known._compiled_cache
        if self.database == "mysql":
            known.dialect.default_schema_name = self._engine.url.database


def rehearse() -> None:
    """Do every kind of step on each database."""
    with tempfile.TemporaryDirectory(prefix="quacklake-rehearsal-") as folder:
        for url in (f"sqlite:///{folder}/lake.db", f"duckdb:///{folder}/lake.duckdb", *_given()):
            with quacklake.connect(url, data_path=f"{folder}/{len(_warm)}", duckdb_threads=1) as lake:
                _rehearse(lake)
                catalog = lake._context.catalog
            _warm[catalog.database] = catalog._engine
    Catalog.__init__ = _opened  # type: ignore[method-assign]


def _given() -> list[str]:
    return os.environ.get(URLS, "").split()


def _rehearse(lake: quacklake.Lake) -> None:
    chance = random.Random(0)
    steps.setup(lake)
    model = steps.Model({}, {})
    for name in ("append", "append", "make", "update", "merge", "delete", "evolve", "move", "overwrite", "drop"):
        step = {**steps.choose(chance, 0, model), "name": name, "table": "t"}
        with lake.transaction("rehearsal") as tx:
            steps.STEPS[name].run(tx, step)
        model = steps.after(model, step)
    for operation in MAINTENANCE:
        operation.run(lake)
    steps.read(lake, 0)
    lake.snapshots()
