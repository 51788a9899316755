"""The table formats that the tests of sinks go through: how each is opened, and how a foreign reader sees it."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa

from quacklake.connectors import Sink, Source, connector


class Format(ABC):
    """One format, with its table in ``path``."""

    name: str
    library: str

    @abstractmethod
    def place(self, path: Path) -> dict[str, Any]:
        """Return the options that say where the table is."""

    @abstractmethod
    def read(self, path: Path) -> pa.Table:
        """Return the rows as the format's own library reads them."""

    @abstractmethod
    def versions(self, path: Path) -> int:
        """Return how many commits with rows the table has had."""

    @abstractmethod
    def append(self, path: Path, first: int, end: int) -> int:
        """Append rows with the library, and return the version that has them."""

    @abstractmethod
    def delete(self, path: Path, number: int) -> None:
        """Delete a row with the library."""

    def source(self, path: Path, **options: Any) -> Source:
        """Return a new source."""
        defaults = {"type": self.name, "poll_interval": "1 millisecond", **self.place(path)}
        made: Source = connector(self.name, "source")({**defaults, **options})
        return made

    def new(self, path: Path, **options: Any) -> Sink:
        """Return a new sink."""
        made: Sink = connector(self.name, "sink")({"type": self.name, **self.place(path), **options})
        return made

    def ids(self, path: Path) -> list[int]:
        """Return the ids of all rows."""
        found: list[int] = sorted(self.read(path).column("id").to_pylist())
        return found

    def files(self, path: Path) -> set[str]:
        """Return the files with rows, whether the table has them or not."""
        return {str(file.relative_to(path)) for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}

    def there(self) -> bool:
        """Return True when the library is installed."""
        return importlib.util.find_spec(self.library) is not None


class Delta(Format):
    name, library = "delta", "deltalake"

    def place(self, path: Path) -> dict[str, Any]:
        return {"location": str(path / "t")}

    def table(self, path: Path) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(str(path / "t"))

    def read(self, path: Path) -> pa.Table:
        return self.table(path).to_pyarrow_table()

    def versions(self, path: Path) -> int:
        version: int = self.table(path).version()
        return version

    def append(self, path: Path, first: int, end: int) -> int:
        from deltalake import write_deltalake

        write_deltalake(str(path / "t"), numbers(first, end), mode="append", partition_by=["part"])
        return self.versions(path)

    def delete(self, path: Path, number: int) -> None:
        self.table(path).delete(f"id = {number}")


class Iceberg(Format):
    name, library = "iceberg", "pyiceberg"

    def place(self, path: Path) -> dict[str, Any]:
        uri, warehouse = f"sqlite:///{path}/catalog.db", f"file://{path}/warehouse"
        return {"catalog_type": "sql", "catalog_uri": uri, "warehouse": warehouse, "namespace": "n", "table_name": "t"}

    def catalog(self, path: Path) -> Any:
        from pyiceberg.catalog import load_catalog

        place = {"uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}/warehouse"}
        return load_catalog("quacklake", type="sql", **place)

    def table(self, path: Path) -> Any:
        return self.catalog(path).load_table(("n", "t"))

    def append(self, path: Path, first: int, end: int) -> int:
        catalog = self.catalog(path)
        catalog.create_namespace_if_not_exists("n")
        rows = numbers(first, end)
        table = catalog.create_table_if_not_exists(("n", "t"), rows.schema)
        table.append(rows)
        version: int = table.current_snapshot().snapshot_id
        return version

    def delete(self, path: Path, number: int) -> None:
        self.table(path).delete(f"id = {number}")

    def read(self, path: Path) -> pa.Table:
        return self.table(path).scan().to_arrow()

    def versions(self, path: Path) -> int:
        return len(self.table(path).snapshots())


def numbers(first: int, end: int) -> pa.Table:
    """Return rows for the tests of sources."""
    return pa.table({"id": list(range(first, end)), "part": [n % 2 for n in range(first, end)]})


FORMATS: dict[str, Format] = {each.name: each for each in (Delta(), Iceberg())}
