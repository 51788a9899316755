"""The golden lakes for tests: what they are, what they must read as, and a copy to work on."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.layout import plain_only

__all__ = ["LAKES", "CopiedLake", "ExpectedTable", "GoldenLake"]

HERE = Path(__file__).resolve().parent

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class ExpectedTable:
    """A table at one snapshot: (name, DuckDB type) of each column, and every row cast to text, sorted."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...] = field(repr=False)


@dataclass(frozen=True)
class CopiedLake:
    """A private copy of a lake: ``url`` opens its catalog, ``data_path`` must override its data path."""

    url: str
    catalog_file: Path
    data_path: str


@dataclass(frozen=True)
class GoldenLake:
    """One stored lake; ``version`` is its format, ``catalog`` is ``sqlite`` or ``duckdb``."""

    name: str
    version: str
    catalog: str

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def url(self) -> str:
        """The catalog's URL as seen from the lake's folder; ``copy`` gives an absolute one."""
        return f"{self.catalog}:///catalog.{self.catalog}"

    @cached_property
    def document(self) -> dict[str, Any]:
        """The content of ``expected.json``."""
        loaded: dict[str, Any] = json.loads((self.folder / "expected.json").read_text(encoding="utf-8"))
        return loaded

    @cached_property
    def expected(self) -> Mapping[int, Mapping[str, ExpectedTable]]:
        """For every snapshot, each visible table by its ``schema.table``."""
        pool = [tuple(row) for row in self.document["rows"]]
        return {
            int(snapshot): {name: _table(table, pool) for name, table in tables.items()}
            for snapshot, tables in self.document["snapshots"].items()
        }

    def copy(self, folder: Path) -> CopiedLake:
        """Unpack the lake into ``folder``, which may exist."""
        plain_only("a golden lake is a plain one")
        target = folder / self.name
        shutil.copytree(self.folder / "data", target / "data")
        catalog = target / f"catalog.{self.catalog}"
        catalog.write_bytes(gzip.decompress((self.folder / f"{catalog.name}.gz").read_bytes()))
        return CopiedLake(f"{self.catalog}:///{catalog}", catalog, f"{target / 'data'}/")


def _table(packed: Mapping[str, Any], pool: list[Row]) -> ExpectedTable:
    rows = tuple(row for first, count in packed["rows"] for row in pool[first : first + count])
    return ExpectedTable(tuple((name, type) for name, type in packed["columns"]), rows)


LAKES: list[GoldenLake] = [
    GoldenLake(f"v{version}-{catalog}", version, catalog)
    for version in ("0.2", "0.3", "0.4", "1.0")
    for catalog in ("sqlite", "duckdb")
]
"""Every golden lake, oldest format first."""
