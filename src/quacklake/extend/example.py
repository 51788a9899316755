"""A small lake in a temporary folder, to try the extension API on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quacklake.lake.connect import connect

if TYPE_CHECKING:
    from quacklake.lake.lake import Lake

__all__ = ["example_lake"]


@contextmanager
def example_lake() -> Iterator[Lake]:
    """Open a lake whose table ``events`` has five rows in a file, one of them deleted, and two in the catalog.

    >>> with example_lake() as lake:
    ...     lake.table("events").to_arrow().to_pydict()
    {'id': [0, 2, 3, 4, 10, 11], 'name': ['a', 'c', 'd', 'e', 'few', 'more']}
    """
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'lake.db')}"
        with connect(url, data_path=Path(folder, "data"), data_inlining_row_limit=3, duckdb_threads=1) as lake:
            lake.sql("CREATE TABLE events (id BIGINT, name VARCHAR)")
            lake.sql("INSERT INTO events VALUES (0, 'a'), (1, 'b'), (2, 'c'), (3, 'd'), (4, 'e')")
            lake.table("events").append({"id": [10, 11], "name": ["few", "more"]})
            lake.table("events").delete("id = 1")
            yield lake
