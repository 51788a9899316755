"""Tell a collector of OpenLineage which tables are read and written, and by which pipelines.

Events have names and types of columns, numbers of rows and snapshots: no values, no statements, no messages, no keys.
A thread sends them, from a queue with a limit. A collector that is slow or dead costs events, which are counted, and
never holds up or fails the work.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from quacklake import telemetry
from quacklake.config import Config
from quacklake.core import forks
from quacklake.core.format.names import uuid7
from quacklake.core.format.objects import TableInfo
from quacklake.core.transaction import TableChange, Transaction
from quacklake.errors import ConfigError

_log = logging.getLogger("quacklake.lineage")

PRODUCER = "urn:quacklake"
_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = "https://openlineage.io/spec/facets"
_PARENT = "OPENLINEAGE_PARENT_ID"
"""The variable in which schedulers name their own run, as ``namespace/job/run``."""
_PARTS = 3

Event = dict[str, Any]


class Lineage:
    """The events of one lake. Safe to use from several threads."""

    def __init__(self, config: Config, lake: str, tenant: str | None) -> None:
        url = config.openlineage_url
        assert url is not None
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"openlineage_url is not an address: {url!r}", hint="http://collector.example.com:5000")
        self._address = f"{url.rstrip('/')}/{config.openlineage_endpoint.lstrip('/')}"
        self._namespace = config.openlineage_namespace
        self.datasets = lake if tenant is None else f"{lake}/{tenant}"
        self._key, self._timeout = config.openlineage_api_key, config.openlineage_timeout.total_seconds()
        self._reads, self._size = config.openlineage_reads, config.openlineage_queue
        self._inputs: weakref.WeakKeyDictionary[Transaction, dict[int, TableInfo]] = weakref.WeakKeyDictionary()
        self._begin()
        forks.watch(self, Lineage._begin)

    def _begin(self) -> None:
        """Begin with an empty queue, also in a forked process, where the thread of the parent does not exist."""
        self._lock = threading.Lock()
        self._queue: queue.Queue[bytes | None] = queue.Queue(self._size)
        self._thread: threading.Thread | None = None
        self._closed = False

    # -- what happens --------------------------------------------------------------------------------------------------

    def read(self, tx: Transaction, table: TableInfo) -> None:
        """Tell that a table is read, and remember it for what the transaction writes."""
        with suppress(TypeError):
            self._inputs.setdefault(tx, {})[table.id] = table
        if self._reads:
            self._tell(f"read {table.qualified_name}", [self._dataset(table, tx.base.id)], [])

    def committed(self, tx: Transaction) -> None:
        """Tell which tables a transaction has changed, and which it has read."""
        if tx.committed is None:
            return
        outputs = [change for change in tx.changes.tables if not change.compaction]
        if not outputs:
            return
        changed = {change.table.id for change in outputs}
        read = [table for table in self._inputs.get(tx, {}).values() if table.id not in changed]
        name = f"write {outputs[0].table.qualified_name}"
        more = "" if len(outputs) == 1 else f" and {len(outputs) - 1} more"
        self._tell(
            name + more,
            [self._dataset(table, tx.base.id) for table in read],
            [self._output(change, tx.committed.id) for change in outputs],
        )

    @contextmanager
    def run(self, job: str, inputs: Sequence[tuple[str, str]], outputs: Sequence[tuple[str, str]]) -> Iterator[None]:
        """Tell that a job begins and how it ends; datasets are namespaces and names."""
        run = str(uuid7())
        given, made = _name_datasets(inputs), _name_datasets(outputs)
        self._tell(job, given, made, kind="START", run=run)
        try:
            yield
        except BaseException as error:
            self._tell(job, given, made, kind="FAIL", run=run, error=type(error).__name__)
            raise
        self._tell(job, given, made, run=run)

    def close(self) -> None:
        """Send what is left, for as long as one request may take."""
        with self._lock:
            thread, self._closed = self._thread, True
        if thread is not None and thread.is_alive():
            deadline = time.monotonic() + self._timeout
            with suppress(queue.Full):
                self._queue.put(None, timeout=self._timeout)
            thread.join(max(0.0, deadline - time.monotonic()))

    # -- events --------------------------------------------------------------------------------------------------------

    def _dataset(self, table: TableInfo, snapshot: int) -> Event:
        fields = [{"name": column.name, "type": column.duckdb_type()} for column in table.schema.columns]
        return {
            "namespace": self.datasets,
            "name": table.qualified_name,
            "facets": {
                "schema": _facet("1-1-1/SchemaDatasetFacet.json", fields=fields),
                "version": _facet("1-0-1/DatasetVersionDatasetFacet.json", datasetVersion=str(snapshot)),
            },
        }

    def _output(self, change: TableChange, snapshot: int) -> Event:
        rows = sum(file.record_count for file in change.data_files) + sum(part.rows.num_rows for part in change.inlined)
        size = sum(file.file_size_bytes for file in change.data_files)
        facet = _facet("1-0-2/OutputStatisticsOutputDatasetFacet.json", rowCount=rows, size=size)
        return self._dataset(change.table, snapshot) | {"outputFacets": {"outputStatistics": facet}}

    def _tell(
        self,
        job: str,
        inputs: Sequence[Event],
        outputs: Sequence[Event],
        *,
        kind: str = "COMPLETE",
        run: str | None = None,
        error: str | None = None,
    ) -> None:
        facets = _parent()
        if error is not None:
            facets["errorMessage"] = _facet(
                "1-0-1/ErrorMessageRunFacet.json", message=error, programmingLanguage="python"
            )
        event = {
            "eventType": kind,
            "eventTime": datetime.now(UTC).isoformat(),
            "producer": PRODUCER,
            "schemaURL": _EVENT,
            "run": {"runId": run or str(uuid7()), "facets": facets},
            "job": {"namespace": self._namespace, "name": job, "facets": {}},
            "inputs": list(inputs),
            "outputs": list(outputs),
        }
        try:
            self._put(json.dumps(event, ensure_ascii=False).encode())
        except Exception as failure:  # whatever it is, the work goes on
            telemetry.count("lineage.dropped")
            _log.debug("an event of lineage is lost: %s", failure)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _put(self, event: bytes) -> None:
        with self._lock:
            if self._closed:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="quacklake lineage", daemon=True)
                self._thread.start()
        self._queue.put_nowait(event)

    def _send_all(self) -> None:
        import urllib3  # it takes a while to load, and few lakes have a collector

        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.reveal()}"
        with urllib3.PoolManager(retries=False, timeout=self._timeout) as pool:
            while (event := self._queue.get()) is not None:
                try:
                    answer = pool.request("POST", self._address, body=event, headers=headers)
                    sent = answer.status < 300
                except Exception:  # the library has many
                    sent = False
                telemetry.count("lineage.sent" if sent else "lineage.dropped")


def _facet(schema: str, **values: object) -> Event:
    return {"_producer": PRODUCER, "_schemaURL": f"{_FACETS}/{schema}", **values}


def _name_datasets(datasets: Iterable[tuple[str, str]]) -> list[Event]:
    return [{"namespace": namespace, "name": name, "facets": {}} for namespace, name in datasets]


def _parent() -> Event:
    """Return the facet of the run of a scheduler that started this process, if it says so."""
    namespace, *rest = os.environ.get(_PARENT, "").rsplit("/", _PARTS - 1)
    if len(rest) != _PARTS - 1:
        return {}
    job, run = rest
    with suppress(ValueError):
        run_facet: Mapping[str, str] = {"runId": str(uuid.UUID(run))}
        return {"parent": _facet("1-1-0/ParentRunFacet.json", run=run_facet, job={"namespace": namespace, "name": job})}
    return {}
