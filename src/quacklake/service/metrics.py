"""Figures for Prometheus: the requests of the service, what the process has counted, and the state of the lake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import Scope

from quacklake import telemetry
from quacklake.errors import QuacklakeError
from quacklake.service.runners import stands

if TYPE_CHECKING:
    from quacklake.lake import Lake
    from quacklake.service.runners import Runners

__all__ = ["Requests", "lake_figures", "route_of"]

_NAME = re.compile(r"[^a-zA-Z0-9_]")
_SMALL_FILE = 16 << 20
_ALWAYS = (
    "catalog.commits",
    "commit.failures",
    "commit.recoveries",
    "commit.replans",
    "commit.retries",
    "service.append.failures",
    "service.sessions.made",
    "service.sessions.reused",
    "storage.retries",
)
"""Counters that are told from the start: whoever watches a rate needs its zero."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Requests:
    """Counts requests by route, never by path: paths are what clients send, and without end."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        labels = ("method", "route", "status")
        self._count = Counter("quacklake_http_requests", "Requests", labels, registry=self.registry)
        self._seconds = Histogram(
            "quacklake_http_seconds", "Seconds of requests", ("route",), buckets=_SECONDS, registry=self.registry
        )
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._open = Gauge("quacklake_http_open_requests", "Requests under way", registry=self.registry)
        self.scans = Gauge("quacklake_open_scans", "Statements whose rows are being read", registry=self.registry)
        self.registry.register(_Telemetry())

    @contextmanager
    def open(self) -> Iterator[None]:
        """Count a request as open for the length of a block."""
        self._open.inc()
        try:
            yield
        finally:
            self._open.dec()

    def done(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answer; status 0 is a client that went away."""
        route = route_of(scope)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        key = method, route, status
        found = self._known.get(key)
        if found is None:  # to look figures up by their labels takes longer than to count
            found = self._known[key] = self._count.labels(method, route, str(status)), self._seconds.labels(route)
        found[0].inc()
        found[1].observe(seconds)

    def text(self, lakes: Iterable[Metric] = ()) -> bytes:
        """Return all figures in the text format of Prometheus."""
        once = CollectorRegistry(auto_describe=False)
        once.register(_Given(list(lakes)))
        return generate_latest(self.registry) + generate_latest(once)


def route_of(scope: Scope) -> str:
    """Return the route of a request, as the description of the API has it: never what the client has sent."""
    own = getattr(scope.get("route"), "path", "other")
    # newer versions of FastAPI keep what was put before a route apart from it
    known = scope.get("fastapi")
    whole = known.get("effective_route_context") if isinstance(known, dict) else None
    return str(getattr(whole, "path", own)).replace(":part}", "}")


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Given:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


class _Telemetry:
    """The counts and times of the process: commits, conflicts, retries, scans, requests to stores."""

    def collect(self) -> Iterator[Metric]:
        found = telemetry.snapshot()
        for name, value in sorted({**dict.fromkeys(_ALWAYS, 0), **found.counters}.items()):
            yield CounterMetricFamily(f"quacklake_{_plain(name)}", f"Counter {name}", value=value)
        for name, value in sorted(found.gauges.items()):
            yield GaugeMetricFamily(f"quacklake_{_plain(name)}", f"Last value of {name}", value=value)
        for name, timing in sorted(found.timings.items()):
            plain = _plain(name)
            yield CounterMetricFamily(f"quacklake_{plain}_runs", f"Runs of {name}", value=timing.count)
            yield CounterMetricFamily(f"quacklake_{plain}_run_seconds", f"Seconds of {name}", value=timing.seconds)
            yield GaugeMetricFamily(f"quacklake_{plain}_longest_seconds", f"Longest {name}", value=timing.longest)


def _plain(name: str) -> str:
    return _NAME.sub("_", name)


def lake_figures(lake: Lake, runners: Runners | None = None) -> Iterator[Metric]:
    """Yield the state of a lake: snapshots, tables, files, small files, inlined rows, bytes, and what lags."""
    figures: dict[str, float] = {}
    lags: list[Metric] = []
    up = 1.0
    try:
        figures, lags = _figures(lake), [*_views(lake), *_pipelines(lake, runners)]
    except QuacklakeError:
        up = 0.0
    yield GaugeMetricFamily("quacklake_lake_up", "1 when the catalog answers", value=up)
    for name, value in figures.items():
        yield GaugeMetricFamily(f"quacklake_lake_{name}", _HELP[name], value=value)
    yield from lags


_MAX_LABELS = 100
"""Views and pipelines that are told one by one."""


def _views(lake: Lake) -> Iterator[Metric]:
    lag = GaugeMetricFamily("quacklake_materialized_view_lag", "Snapshots that a view lags behind", labels=("view",))
    for view in lake.materialized_views.list().slice(0, _MAX_LABELS).to_pylist():
        if view["lag"] is not None:
            lag.add_metric((view["name"],), view["lag"])
    yield lag


def _pipelines(lake: Lake, runners: Runners | None) -> Iterator[Metric]:
    """Yield what the catalog knows of pipelines. Only those of this process ask their sources how much is left."""
    label = ("pipeline",)
    running = GaugeMetricFamily("quacklake_pipeline_running", "1 while some process runs a pipeline", labels=label)
    age = GaugeMetricFamily(
        "quacklake_pipeline_checkpoint_age_seconds", "Seconds since the last checkpoint of a pipeline", labels=label
    )
    lag = GaugeMetricFamily(
        "quacklake_pipeline_lag", "Messages or versions that a pipeline of this process lags behind", labels=label
    )
    for facts in stands(lake, runners, _MAX_LABELS):
        for metric, value in ((running, facts.running), (age, facts.checkpoint_age), (lag, facts.lag)):
            if value is not None:
                metric.add_metric((facts.name,), value)
    yield from (running, age, lag)


_HELP = {
    "snapshot": "The newest snapshot",
    "snapshots": "Snapshots that can be read",
    "catalog_bytes": "Bytes of the catalog",
    "tables": "Tables",
    "files": "Data files of the newest snapshot",
    "small_files": "Data files below 16 MiB",
    "bytes": "Bytes of the data files",
    "inlined_rows": "Rows that are in the catalog, not in a file",
}
_MAX_TABLES = 500
"""Tables whose files are counted; those of a larger lake would take too long."""


def _figures(lake: Lake) -> dict[str, float]:
    context, view = lake.handle.context, lake.handle.view()
    with context.catalog.read() as reader:
        snapshots = reader.snapshots.count()
    tables = view.tables()
    found: dict[str, float] = {"snapshot": view.base.id, "snapshots": snapshots, "tables": len(tables)}
    size = lake.catalog_bytes()
    if size is not None:
        found["catalog_bytes"] = size
    if len(tables) > _MAX_TABLES:
        return found
    found |= dict.fromkeys(("files", "small_files", "bytes", "inlined_rows"), 0.0)
    for table in tables:
        plan = view.plan(table)
        sizes = plan.files.column("file_size_bytes")
        found["files"] += len(sizes)
        found["small_files"] += pc.sum(pc.less(sizes, _SMALL_FILE)).as_py() or 0
        found["bytes"] += pc.sum(sizes).as_py() or 0
        found["inlined_rows"] += 0 if plan.inlined is None else plan.inlined.num_rows
    return found
