"""A resource of Dagster that opens a lake. Needs the package ``dagster``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster

from quacklake.lake.connect import connect
from quacklake.lake.lake import Lake


class QuacklakeResource(dagster.ConfigurableResource):  # type: ignore[misc]  # may not be installed
    """A lake for assets and ops: its URL, and for a new lake the folder of its files.

    ``settings`` are those of ``quacklake.connect``; keys belong into the environment.
    """

    url: str
    data_path: str | None = None
    catalog: str | None = None
    settings: dict[str, str] = {}  # noqa: RUF012  # Dagster makes a field of it

    @contextmanager
    def open(self) -> Iterator[Lake]:
        """Yield the lake for a block."""
        with connect(self.url, self.data_path, catalog=self.catalog, **self.settings) as lake:
            yield lake
