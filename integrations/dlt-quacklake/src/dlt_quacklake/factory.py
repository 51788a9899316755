"""The destination that a pipeline names."""

from __future__ import annotations

from typing import Any

from dlt.common.destination import Destination, DestinationCapabilitiesContext
from dlt.destinations.impl.duckdb.factory import _set_duckdb_raw_capabilities

from dlt_quacklake.configuration import QuacklakeClientConfiguration, QuacklakeCredentials


class quacklake(Destination[QuacklakeClientConfiguration, Any]):
    """A lake: ``dlt.pipeline("orders", destination=quacklake("sqlite:///lake.db", data_path="data"))``."""

    spec = QuacklakeClientConfiguration

    def __init__(
        self,
        lake: str | None = None,
        data_path: str | None = None,
        *,
        catalog: str | None = None,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Name a lake as ``quacklake.connect`` does; without ``lake``, dlt's own configuration names it."""
        if lake is not None:
            credentials = QuacklakeCredentials(lake=lake, data_path=data_path, catalog=catalog, settings=settings)
            options["credentials"] = credentials
        super().__init__(**options)

    @property
    def client_class(self) -> type[Any]:
        """Return the class that talks to the lake."""
        from dlt_quacklake.client import QuacklakeClient

        return QuacklakeClient

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        """Return what a lake can do: what DuckDB can, with rows that arrive as Parquet and replace others at once."""
        able = _set_duckdb_raw_capabilities(DestinationCapabilitiesContext())
        able.preferred_loader_file_format = "parquet"
        able.supported_loader_file_formats = ["parquet"]
        able.supported_replace_strategies = ["insert-from-staging"]
        able.loader_parallelism_strategy = "sequential"
        return able


quacklake.register()
