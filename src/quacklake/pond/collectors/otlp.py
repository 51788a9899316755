"""Metrics of OpenTelemetry as JSON (OTLP/HTTP): gauges and sums become rows, by service.

A row has the time, a text column for each attribute of its data points, and a column for each metric. Histograms and
summaries are not taken; their number is told to the sender, as the protocol says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quacklake.errors import ConstraintError, InputError, LimitError, SchemaMismatchError
from quacklake.extend.names import check_name, fold

TIME = "timestamp"
_OTHERS = ("histogram", "exponentialHistogram", "summary")
_KEY = "service.name"
_UNKNOWN = "unknown_service"


@dataclass
class Metrics:
    """The rows of a request by service, and the number of data points that were not taken."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    rejected: int = 0


class _MetricRows:
    def __init__(self) -> None:
        self.attributes: dict[str, None] = {}
        self.metrics: dict[str, None] = {}
        self.rows: dict[tuple[Any, ...], dict[str, float | None]] = {}


def parse(document: Any, *, max_rows: int, max_columns: int) -> Metrics:
    """Return the rows of a request. Raise ``InputError`` for a document that is none, ``LimitError`` for too much."""
    found: dict[str, _MetricRows] = {}
    metrics = Metrics()
    count = 0
    for resource in _list(document, "resourceMetrics", "the request"):
        service = _attributes(_mapping(resource.get("resource") or {}, "a resource")).get(_KEY, _UNKNOWN)
        rows = found.setdefault(service, _MetricRows())
        for scope in _list(resource, "scopeMetrics", "a resource"):
            for metric in _list(scope, "metrics", "a scope"):
                name = metric.get("name")
                if not isinstance(name, str) or not name:
                    raise InputError("a metric has no name")
                metrics.rejected += sum(
                    len(_list(_mapping(metric[kind], name), "dataPoints", name)) for kind in _OTHERS if kind in metric
                )
                for point in _points(metric, name):
                    count += 1
                    if count > max_rows:
                        raise LimitError(f"a request has more than {max_rows} data points", hint="send smaller batches")
                    _take(rows, name, point, max_columns)
    metrics.tables = {service: _table(service, rows) for service, rows in found.items() if rows.rows}
    return metrics


def _points(metric: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    for kind in ("gauge", "sum"):
        if kind in metric:
            yield from _list(_mapping(metric[kind], name), "dataPoints", name)


def _take(rows: _MetricRows, name: str, point: Mapping[str, Any], most: int) -> None:
    try:
        moment = int(point["timeUnixNano"])
        value = float(point["asDouble"]) if "asDouble" in point else float(int(point["asInt"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(
            f"a data point of {name[:60]!r} has no time or no value", hint="timeUnixNano, asDouble or asInt"
        ) from None
    if not 0 < moment < 2**63:
        raise ConstraintError(f"a data point of {name[:60]!r} has a number that is not a time")
    attributes = _attributes(point)
    rows.attributes.update(dict.fromkeys(attributes))
    rows.metrics[name] = None
    if len(rows.attributes) + len(rows.metrics) > most:
        raise LimitError(f"a service has more than {most} columns")
    row = rows.rows.setdefault((moment // 1000, tuple(sorted(attributes.items()))), {})
    if row.setdefault(name, value) != value:
        raise ConstraintError(f"the metric {name[:60]!r} has two values at one time")


def _attributes(owner: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for each in _list(owner, "attributes", "attributes"):
        key, value = each.get("key"), each.get("value")
        if not isinstance(key, str) or not isinstance(value, Mapping) or not value:
            raise InputError("an attribute has no key or no value")
        found[key] = str(next(iter(value.values())))
    return found


def _table(service: str, rows: _MetricRows) -> pa.Table:
    names = [TIME, *rows.attributes, *rows.metrics]
    if len({fold(check_name(each, "column")) for each in names}) < len(names):
        raise SchemaMismatchError(f"{service[:60]!r} has a metric and an attribute of one name")
    labels = [dict(attributes) for _, attributes in rows.rows]
    columns = [pa.array([moment for moment, _ in rows.rows], pa.timestamp("us", "UTC"))]
    columns += [pa.array([label.get(key) for label in labels], pa.string()) for key in rows.attributes]
    columns += [pa.array([row.get(name) for row in rows.rows.values()], pa.float64()) for name in rows.metrics]
    return pa.table(columns, names=names)


def _list(owner: Any, key: str, what: str) -> list[Mapping[str, Any]]:
    found = _mapping(owner, what).get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
        raise InputError(f"{what[:60]}: {key} is not a list of objects")
    return found


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{what[:60]} is not an object")
    return value
