"""Collectors as sources of Spark: ``spark.read.format("hydrovu")`` and ``format("laketech")``, read in parallel.

The fetching is that of the collectors. Rows are long, so that their columns are known beforehand: one reading a row.
Secrets are looked up where Spark plans a read; tasks get a token that ends.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from quacklake.config.values import Secret
from quacklake.connectors.options import resolved
from quacklake.errors import ConfigError
from quacklake.pond.collectors.http import HttpClient, check_url
from quacklake.pond.collectors.wide import open_connection
from quacklake_sensors.hydrovu_api import HydroVu, Names
from quacklake_sensors.hydrovu_options import Device, HydroVuOptions
from quacklake_sensors.laketech_inbox import InboxFile, LakeTechOptions, list_files, long_readings, open_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_TIME = pa.timestamp("us", "UTC")
_MICROS = 1_000_000


def register_collectors(session: SparkSession) -> None:
    """Make the formats ``hydrovu`` and ``laketech`` known in a session."""
    from quacklake.spark.datasource.format import register_source  # workers load this module, and need no lake

    for source in (HydroVuDataSource, LakeTechDataSource):
        register_source(session, source)


def _config(options: Mapping[str, str]) -> dict[str, Any]:
    """Return options as YAML would have them. Lists, mappings and truths are JSON."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        text = value.strip()
        try:
            found[name] = json.loads(text) if text[:1] in ("[", "{") or text in ("true", "false") else value
        except ValueError:
            hint = '[{"name": "Dock", "id": 4990594334457856}]'
            raise ConfigError(f"the option {name} is not valid JSON", hint=hint) from None
    return found


class _TaskPart(InputPartition):
    """The part that one task reads. It may hold a token, so its text form shows nothing."""

    def __repr__(self) -> str:
        return "<a part of a source>"


class HydroVuDataSource(DataSource):
    """``format("hydrovu")``: the readings of devices, a part for each. The options are those of the collector."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "hydrovu"

    def schema(self) -> str:
        """Return the columns of a reading."""
        return "device STRING, location BIGINT, timestamp TIMESTAMP, parameter STRING, unit STRING, value DOUBLE"

    def reader(self, schema: StructType) -> HydroVuReader:
        """Return the reader of a batch."""
        return HydroVuReader(_config(dict(self.options)))


class HydroVuReader(DataSourceReader):
    """Plans a part for each device, and reads its pages in a task."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._options = HydroVuOptions.of(config)

    def partitions(self) -> list[InputPartition]:
        """Return the parts, each with a token and the names that all share."""
        client = self._options.client()
        names, token = client.names(), client.token()
        url = client.client.url
        client.client.close()
        return [_TaskPart((device, url, token, names)) for device in self._options.devices if device.active]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the readings of a device, page by page."""
        device, url, token, names = partition.value
        client = HydroVu(HttpClient(url, self._options.http), "", Secret(""), token=token)
        pages = client.pages(device.id, self._options.begin, max_pages=self._options.max_pages)
        for page, _ in pages:
            yield from _readings(page, device, names)
        client.client.close()


def _readings(page: pa.Table, device: Device, names: Names) -> Iterator[pa.RecordBatch]:
    count = page.num_rows
    found = pa.table(
        {
            "device": pa.repeat(device.name, count),
            "location": pa.repeat(pa.scalar(device.id, pa.int64()), count),
            "timestamp": pc.multiply_checked(page.column("timestamp"), _MICROS).cast(_TIME),
            "parameter": _named(page.column("parameter"), names.parameters),
            "unit": _named(page.column("unit"), names.units),
            "value": page.column("value"),
        }
    )
    yield from found.combine_chunks().to_batches()


def _named(ids: pa.ChunkedArray, names: Mapping[str, str]) -> pa.Array:
    encoded = ids.combine_chunks().dictionary_encode()
    words = pa.array([names.get(each, each) for each in encoded.dictionary.to_pylist()], pa.string())
    return words.take(encoded.indices)


class LakeTechDataSource(DataSource):
    """``format("laketech")``: the readings of an inbox, a part a file. The options are those of the collector."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "laketech"

    def schema(self) -> str:
        """Return the columns of a reading."""
        return "file STRING, timestamp TIMESTAMP, name STRING, value DOUBLE"

    def reader(self, schema: StructType) -> LakeTechReader:
        """Return the reader of a batch."""
        return LakeTechReader(_config(dict(self.options)))


class LakeTechReader(DataSourceReader):
    """Plans a part for each file of the inbox, and reads it in a task."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._options = LakeTechOptions.of(config)

    def _client(self) -> HttpClient | None:
        if self._options.url is None:
            return None
        return HttpClient(check_url(resolved(self._options.url, "laketech.url"), "laketech"), self._options.http)

    def partitions(self) -> list[InputPartition]:
        """Return the parts: the files that belong to a group."""
        files = list_files(self._options, self._client())
        return [_TaskPart(tuple(each)) for each in files if self._options.series_of(each.name) is not None]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the readings of a file."""
        file = InboxFile(*partition.value)
        with tempfile.TemporaryDirectory(prefix="pond-") as folder, open_connection() as connection:
            path = open_file(file, self._client(), Path(folder))
            long = long_readings(connection, path, file.name, self._options, self._options.timezone)
        found = pa.table(
            {
                "file": pa.repeat(file.name, long.num_rows),
                "timestamp": long.column("micros").cast(pa.int64()).cast(_TIME),
                "name": long.column("name"),
                "value": long.column("value"),
            }
        )
        yield from found.combine_chunks().to_batches()
