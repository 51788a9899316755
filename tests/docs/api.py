"""The page of the HTTP API, made from its description and from examples that run against a service.

``python -m tests.docs.api`` writes the page; a test runs the examples again and compares.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import quacklake
from quacklake.lake import Lake
from quacklake.pipelines.definitions import Definitions
from quacklake.pond import Pond
from quacklake.pond.series import append_series
from quacklake.service.app import create_app
from quacklake.service.identity import Role, TokenGate
from quacklake.service.operators import Operator
from quacklake.service.serving import BackgroundService
from quacklake.service.settings import ServiceSettings
from quacklake_demo.shop import demo_lake
from tests.docs.blocks import REPOSITORY

__all__ = ["EXAMPLES", "PAGE", "Example", "Ran", "describe_operation", "made_page", "page", "run_all", "running"]

PAGE = REPOSITORY / "docs/reference/api.md"
_HEAD = """\
# HTTP API

Every request carries `Authorization: Bearer <token>`. An answer about a snapshot has its number in
`X-Quacklake-Snapshot`, and an `ETag` that `If-None-Match` sends back. An error is `application/problem+json` with a
[code](errors.md). [Serve a lake](../guides/serving.md) explains the whole; `/api/v1/openapi.json` describes it for
programs.

This page is made from that description (`python -m tests.docs.api`). Its examples run in the tests, one after the other
on one lake; `…` stands for what differs from run to run, and for what was left out.
"""
_LEFT_OUT = "…"
_SHOWN = 2
"""Entries of a list that are shown."""
_VOLATILE = frozenset(
    [
        "id",
        "lease",
        "token",
        "uuid",
        "path",
        "bytes",
        "bytes_copied",
        "file_size_bytes",
        "seconds",
        "began",
        "changed",
        "created",
        "refreshed",
        "last_refresh",
        "last_seconds",
        "added",
        "snapshot_time",
        "node_id",
        "part_id",
        "timestamp",
        "size",
        "size_bytes",
        "ingested_at",
        "oldest_snapshot_seconds",
        "removable_files",
        "principal",
        "checkpoint",
        "checkpoint_time",
        "checkpoints",
        "lag_seconds",
        "position",
        "finished",
        "run",
        "running",
        "here",
        "state",
        "lag",
        "rows_per_second",
        "stage",
        "done",
        "total",
    ]
)
_PROGRESS = frozenset({"stage", "done", "total", "result", "error"})
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d+.*")
_OPERATOR = "operator-secret"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Example:
    """A request. ``{name}`` in it is a value of an earlier answer, which ``keeps`` names by what it is called here."""

    operation: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    keeps: Mapping[str, str] = field(default_factory=dict)


def _api(operation: str, path: str, body: Any = None, **more: Any) -> Example:
    return Example(operation, f"/api/v1{path}", body, **more)


def _operator(operation: str, path: str, body: Any = None) -> Example:
    return _api(operation, path, body, headers={"Authorization": f"Bearer {_OPERATOR}"})


#: In the order in which they run: what changes the lake in the background comes last.
EXAMPLES = (
    Example("live", "/health/live"),
    Example("ready", "/health/ready"),
    Example("metrics", "/metrics"),
    _api("list_lakes", "/lakes"),
    _api("care", "/care"),
    _api("list_options", "/options"),
    _api("describe_lake", "/lake"),
    _api("list_schemas", "/schemas"),
    _api("list_tables", "/tables?schema=main"),
    _api("describe_table", "/tables/products?version=2"),
    _api("read_rows", "/tables/orders/rows?limit=2&columns=id&columns=quantity"),
    _api("find_origin", "/tables/products/rows/1/origin?version=2"),
    _api("read_changes", "/tables/products/changes?since=6&until=6"),
    _api("column_statistics", "/tables/orders/statistics"),
    _api("list_partitions", "/tables/orders/partitions"),
    _api("list_files", "/tables/orders/files"),
    _api("draw_table", "/tables/readings/series?from=2026-01-01&to=2026-01-01T00:03:00&width=2"),
    _api("history", "/tables/products/history?limit=1"),
    _api("list_snapshots", "/snapshots?limit=1&before=3"),
    _api("describe_snapshot", "/snapshots/2"),
    _api("snapshot_changes", "/snapshots/4/changes"),
    _api("compare_snapshots", "/diff?from=1&to=4"),
    _api("compare_rows", "/tables/products/diff?from=1"),
    _api("tag_snapshot", "/tags", {"name": "opening", "version": 2}),
    _api("list_tags", "/tags"),
    _api("untag_snapshot", "/tags/opening"),
    _api("run_sql", "/sql", {"sql": "SELECT name, stock FROM products WHERE id = ?", "parameters": [1]}),
    _api("list_statements", "/sql"),
    _api("cancel_statement", "/sql/018f3a5c"),
    _api(
        "append_rows",
        "/tables/orders/rows",
        [{"id": 5000, "day": "2026-07-01", "product": 2, "quantity": 4}],
        headers={"Idempotency-Key": "till-7-4711"},
    ),
    _api("merge_rows", "/tables/products/merge", [{"id": 2, "name": "tea", "price": 4.5, "stock": 280}]),
    _api("claim_consumer", "/consumers/mail/claim", {"table": "products", "since": 1}, keeps={"lease": "lease"}),
    _api("consume", "/consumers/mail/changes?lease={lease}"),
    _api("acknowledge", "/consumers/mail/ack", {"lease": "{lease}", "snapshot": 4}),
    _api("forget_consumer", "/consumers/mail"),
    _api("list_materialized_views", "/materialized-views"),
    _api("describe_materialized_view", "/materialized-views/sold"),
    _api("list_nodes", "/pond/nodes?pattern=/*"),
    _api("describe_node", "/pond/node?path=/dock.series"),
    _api("draw_series", "/pond/series?path=/dock.series&width=2&from=2026-01-01&to=2026-01-01T00:03:00"),
    _api("list_pipelines", "/pipelines"),
    _api("describe_pipeline", "/pipelines/copy"),
    _api("list_dead_letters", "/pipelines/copy/dead-letters"),
    _api("replay_dead_letters", "/pipelines/copy/dead-letters/replay", {"rows": []}),
    _api("create_role", "/access/roles", {"name": "analyst"}),
    _api("create_user", "/access/users", {"name": "ann"}),
    _api("add_member", "/access/roles/analyst/members", {"member": "ann"}),
    _api("grant", "/access/grants", {"privileges": ["SELECT"], "to": "analyst", "table": "main.orders"}),
    _api(
        "create_rule",
        "/access/rules",
        {"kind": "filter", "name": "small", "table": "main.orders", "using": "quantity < 10", "to": "analyst"},
        keeps={"rule": "id"},
    ),
    _api("create_token", "/access/tokens", {"user": "ann", "expires_in": "90 days"}, keeps={"token": "id"}),
    _api("list_access", "/access/grants", keeps={"grant": "grants.0.id"}),
    _api("revoke_token", "/access/tokens/{token}"),
    _api("revoke_grant", "/access/grants/{grant}"),
    _api("drop_rule", "/access/rules/{rule}"),
    _api("set_user_state", "/access/users/ann", {"enabled": False}),
    _api("remove_member", "/access/roles/analyst/members/ann"),
    _api("drop_user", "/access/users/ann"),
    _api("drop_role", "/access/roles/analyst"),
    _api("read_audit", "/audit?limit=10"),
    _operator("create_tenant", "/tenants", {"name": "acme"}),
    _operator("create_administrator", "/tenants/acme/administrators", {"name": "ann", "expires_in": "90 days"}),
    _operator("limit_tenant", "/tenants/acme/limits", {"tables": 100}),
    _operator("tenant", "/tenants/acme"),
    _operator("rename_tenant", "/tenants/acme/rename", {"name": "ajax"}),
    _operator("list_tenants", "/tenants?prefix=a"),
    _operator("drop_tenant", "/tenants/ajax"),
    _api("events", "/events"),
    _api("start_job", "/jobs", {"kind": "expire", "arguments": {"keep_last": 3}, "dry_run": True}, keeps={"job": "id"}),
    _api("describe_job", "/jobs/{job}"),
    _api("refresh_materialized_view", "/materialized-views/sold/refresh", keeps={"job": "id"}),
    _api("verify_materialized_view", "/materialized-views/sold/verify", keeps={"job": "id"}),
    _api("make_backup", "/backups", keeps={"job": "id"}),
    _api("list_backups", "/backups", keeps={"backup": "backups.0.id"}),
    _api("verify_backup", "/backups/{backup}/verify", keeps={"job": "id"}),
    _api("list_jobs", "/jobs"),
    _api("cancel_job", "/jobs/{job}"),
    _api("start_pipeline", "/pipelines/copy/start"),
    _api("stop_pipeline", "/pipelines/copy/stop"),
)


def fill(lake: Lake) -> None:
    """Add to the lake of the demo what the examples are about."""
    minutes = [{"ts": START + dt.timedelta(minutes=number), "level": 1.5 * number} for number in range(4)]
    lake.create_table("readings", minutes)
    lake.create_materialized_view("sold", "SELECT product, sum(quantity) AS quantity FROM orders GROUP BY product")
    pond = Pond.create_in(lake)
    rows = [{"timestamp": row["ts"], "level": row["level"]} for row in minutes]
    pond.run(["pond", "copy"], lambda fs: append_series(fs, "/dock.series", rows))
    Definitions(lake).apply(
        {
            "pipeline": "copy",
            "source": {"type": "lake", "table": "orders"},
            "query": "SELECT id, quantity FROM source",
            "sinks": [{"name": "copied", "type": "lake", "table": "copied"}],
        }
    )


@contextmanager
def running() -> Iterator[httpx.Client]:
    """A service on a lake with all that the examples ask for, and an administrator's client of it."""
    with tempfile.TemporaryDirectory() as folder:
        lake = demo_lake(Path(folder), dt.date(2026, 6, 30))
        fill(lake)
        settings = ServiceSettings(port=0, backups=f"{folder}/backups")
        shared = quacklake.tenants(f"sqlite:///{folder}/shared.db", f"{folder}/shared", create=True)
        operator = Operator(shared, [_OPERATOR])
        app = create_app(TokenGate(lake, {"a-secret": Role.ADMIN}), settings, operator=operator, plugins=())
        with BackgroundService(app, settings) as url:
            headers = {"Authorization": "Bearer a-secret", "Accept-Encoding": "identity"}
            with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
                yield client


@dataclass(frozen=True)
class Ran:
    """An example that has run: its request as it was, and the answer."""

    example: Example
    method: str
    status: int
    shown: str


def run_all(
    client: httpx.Client, description: Mapping[str, Any], examples: Iterable[Example] = EXAMPLES
) -> dict[str, Ran]:
    """Run the examples, and return them by operation."""
    methods = {
        operation["operationId"]: method.upper()
        for methods in description["paths"].values()
        for method, operation in methods.items()
    }
    kept: dict[str, str] = {}
    found = {}
    for example in examples:
        method = methods[example.operation]
        path, body = (_filled(part, kept) for part in (example.path, example.body))
        if example.operation == "events":
            with client.stream(method, path) as answer:
                found[example.operation] = Ran(example, method, answer.status_code, next(answer.iter_lines()))
            continue
        answer = client.request(method, path, json=body, headers=dict(example.headers))
        for name, key in example.keeps.items():
            kept[name] = _found(answer.json(), key)
        if answer.status_code == 202 and "id" in answer.json():
            _wait(client, answer.json()["id"])
        found[example.operation] = Ran(example, method, answer.status_code, _shown(answer))
    return found


def _found(value: Any, path: str) -> str:
    """Return a value of an answer by its path: ``grants.0.id``."""
    for part in path.split("."):
        value = value[int(part) if part.isdecimal() else part]
    return str(value)


def _filled(part: Any, kept: Mapping[str, str]) -> Any:
    if isinstance(part, str):
        return re.sub(r"\{(\w+)\}", lambda match: kept[match[1]], part)
    return {key: _filled(value, kept) for key, value in part.items()} if isinstance(part, dict) else part


def _wait(client: httpx.Client, job: str) -> None:
    until = time.monotonic() + 60
    while client.get(f"/api/v1/jobs/{job}").json()["state"] not in ("done", "failed"):
        assert time.monotonic() < until


def _shown(answer: httpx.Response) -> str:
    if answer.content and "json" in answer.headers.get("content-type", ""):
        found = _masked(answer.json())
        if answer.status_code == 202:  # what it has done by now differs from run to run
            found = {name: value for name, value in found.items() if name not in _PROGRESS}
        return json.dumps(found, indent=2, ensure_ascii=False)
    return "\n".join(line for line in answer.text.splitlines() if line.startswith("# TYPE quacklake_lake_up"))


def _masked(value: Any, key: str = "") -> Any:
    """Return an answer without what differs from run to run, and with the first entries of lists only."""
    if key in _VOLATILE and value is not None and not (key in ("id", "created") and not isinstance(value, str)):
        return _LEFT_OUT
    if isinstance(value, dict):
        return {name: _masked(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each) for each in value[:_SHOWN]] + ([_LEFT_OUT] if len(value) > _SHOWN else [])
    if isinstance(value, str) and _TIME.fullmatch(value):
        return _LEFT_OUT
    return _LEFT_OUT if key == "request_id" else value


# -- the page ----------------------------------------------------------------------------------------------------------


def page(description: Mapping[str, Any], ran: Mapping[str, Ran]) -> str:
    """Return the page: a section for each tag, in it one for each operation, with its example."""
    sections: dict[str, list[str]] = {}
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            text = describe_operation(method.upper(), path, operation, ran[operation["operationId"]])
            sections.setdefault(operation["tags"][0], []).append(text)
    parts = [
        f"## {tag.capitalize() if tag != 'sql' else 'SQL'}\n\n" + "\n".join(texts) for tag, texts in sections.items()
    ]
    return _HEAD + "\n" + "\n".join(parts)


def describe_operation(method: str, path: str, operation: Mapping[str, Any], ran: Ran) -> str:
    """Return the text about an operation, with its example."""
    lines = [f"### {operation['summary']}", "", f"`{method} {path}`", "", operation.get("description", "").strip(), ""]
    parameters = [each for each in operation.get("parameters", ()) if each["name"] != "lake"]
    if parameters:
        lines += ["| parameter | in | meaning |", "|---|---|---|"]
        lines += [f"| `{each['name']}`{_star(each)} | {each['in']} | {_meaning(each)} |" for each in parameters]
        lines.append("")
    lines += ["```http", f"{method} {ran.example.path}"]
    lines += [f"{name}: {value}" for name, value in ran.example.headers.items()]
    if ran.example.body is not None:
        lines += ["", json.dumps(ran.example.body, ensure_ascii=False)]
    lines += ["```", "", f"{ran.status}", ""]
    if ran.shown:
        lines += ["```json" if ran.shown[0] in "{[" else "```text", ran.shown, "```", ""]
    return "\n".join(lines)


def _star(parameter: Mapping[str, Any]) -> str:
    return " (required)" if parameter.get("required") else ""


def _meaning(parameter: Mapping[str, Any]) -> str:
    return str(parameter.get("description", "")).replace("|", "\\|").replace("\n", " ")


def made_page() -> str:
    """Run the examples against a service, and return the page."""
    with running() as client:
        description = client.get("/api/v1/openapi.json").json()
        return page(description, run_all(client, description))


if __name__ == "__main__":
    PAGE.write_text(made_page(), encoding="utf-8")
