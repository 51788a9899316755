"""Every route of the service as a client calls it, and the status that each kind of principal gets.

A route that is not here fails the test of the matrix: say who may use it, with a request that works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

READER, WRITER, ADMIN, RESTRICTED = "rea", "wil", "root", "ann"
"""The users of the lake of secrets who are let in."""
STRANGERS = ("anonymous", "expired", "revoked", "disabled", "other tenant")


@dataclass(frozen=True)
class Entry:
    """A request, and the statuses of the reader, the writer, the administrator and the restricted reader."""

    statuses: tuple[int, int, int, int]
    body: Any = None
    query: Mapping[str, Any] | None = None
    strangers: int = 401
    paths: bool = False
    """The answer has paths of files in it, for those who get one."""

    def status(self, user: str) -> int:
        """Return the status that a user gets, or a stranger."""
        if user in STRANGERS:
            return self.strangers
        return self.statuses[(READER, WRITER, ADMIN, RESTRICTED).index(user)]


def _all(status: int, body: Any = None, **query: Any) -> Entry:
    return Entry((status,) * 4, body, query)


def _admin(status: int, body: Any = None, **query: Any) -> Entry:
    return Entry((403, 403, status, 403), body, query)


def _writer(status: int, body: Any = None, **query: Any) -> Entry:
    return Entry((403, status, status, 403), body, query)


_OPEN = Entry((200,) * 4, strangers=200)
_ELSEWHERE = Entry((307,) * 4, strangers=307)
#: What stands for the parts of paths; a route may name a place of its own after "#".
PARTS = {
    "table": "people",
    "id": "3",
    "name": "nobody",
    "hash": "0xshown",
    "view": "totals",
    "path": "",
    "row": "1",
    "kind": "users",
    "role": "nobody",
    "member": "nobody",
}
_ROW = [{"id": 7, "region": "EU"}]

HTTP: Mapping[str, Entry] = {
    "GET /health/live": _OPEN,
    "GET /health/ready": _OPEN,
    "GET /api/v1/openapi.json": _OPEN,
    "HEAD /api/v1/openapi.json": _OPEN,
    "GET /metrics": _admin(200),
    # -- the dashboard is a page without facts, which asks the routes below
    **{f"{method} {path}": _ELSEWHERE for method in ("GET", "HEAD") for path in ("/", "/ui")},
    "GET /ui/{path:path}": _OPEN,
    "HEAD /ui/{path:path}": _OPEN,
    # -- the contents
    "GET /api/v1/lake": _all(200),
    "GET /api/v1/lakes": _all(200),
    "GET /api/v1/schemas": _all(200),
    "GET /api/v1/tables": _all(200),
    "GET /api/v1/tables/{table}": _all(200),
    "GET /api/v1/tables/{table}/files": _admin(200),
    "GET /api/v1/tables/{table}/history": _admin(200),
    "GET /api/v1/tables/{table}/rows": _all(200, version=3),
    "GET /api/v1/tables/{table}/rows/{row}/origin": _all(200),
    "GET /api/v1/tables/{table}/changes": _all(200, since=1),
    "GET /api/v1/tables/{table}/statistics": _admin(200),
    "GET /api/v1/tables/{table}/partitions": _admin(200),
    "GET /api/v1/tables/{table}/series": Entry(
        (200, 200, 200, 404), query={"time": "seen", "from": "2026-01-01", "to": "2026-02-01", "width": 10}
    ),
    "GET /api/v1/snapshots": _all(200),
    "GET /api/v1/snapshots/{id}": _all(200),
    "GET /api/v1/snapshots/{id}/changes": _all(200),
    "GET /api/v1/tables/{table}/diff": _all(200, **{"from": 2}),
    "GET /api/v1/diff": _all(200, **{"from": 1, "to": 3}),
    "GET /api/v1/care": _admin(200),
    "GET /api/v1/tags": _admin(200),
    "POST /api/v1/tags": _admin(201, {"name": "t1", "version": 3, "replace": True}),
    "DELETE /api/v1/tags/{name}": _admin(404),
    # -- statements and changes
    "POST /api/v1/sql": _all(200, {"sql": "FROM people ORDER BY ALL"}),
    "GET /api/v1/sql": _all(200),
    "DELETE /api/v1/sql/{id}": _all(404),
    "POST /api/v1/tables/{table}/rows": _writer(201, _ROW),
    "POST /api/v1/tables/{table}/merge": _writer(200, _ROW, on="id"),
    # -- work
    "POST /api/v1/jobs": _admin(202, {"kind": "expire", "arguments": {"keep_last": 10_000}, "dry_run": True}),
    "GET /api/v1/jobs": _admin(200),
    "GET /api/v1/jobs/{id}": _admin(404),
    "DELETE /api/v1/jobs/{id}": _admin(404),
    "GET /api/v1/events": _all(200, since=0),
    "POST /api/v1/consumers/{name}/claim": _all(200, {"table": "people", "since": 1, "seconds": 0.001}),
    "POST /api/v1/consumers/{name}/ack": _all(409, {"lease": "of nobody", "snapshot": 2}),
    "GET /api/v1/consumers/{name}/changes": _all(409, lease="of nobody"),
    "DELETE /api/v1/consumers/{name}": _all(204),
    "GET /api/v1/materialized-views": _admin(200),
    "GET /api/v1/materialized-views/{view}": _admin(200),
    "POST /api/v1/materialized-views/{view}/refresh": _admin(202),
    "POST /api/v1/materialized-views/{view}/verify": _admin(202),
    "GET /api/v1/pipelines": _admin(200),
    "GET /api/v1/pipelines/{name}": _admin(404),
    "POST /api/v1/pipelines/{name}/start": _admin(404),
    "POST /api/v1/pipelines/{name}/stop": _admin(404),
    "GET /api/v1/pipelines/{name}/dead-letters": _admin(404),
    "POST /api/v1/pipelines/{name}/dead-letters/replay": _admin(404, {"rows": [0]}),
    # -- access and the audit log
    "GET /api/v1/access/{kind}": _admin(200),
    "POST /api/v1/access/users": _admin(409, {"name": "ann"}),
    "POST /api/v1/access/users/{name}": _admin(404, {"enabled": False}),
    "DELETE /api/v1/access/users/{name}": _admin(404),
    "POST /api/v1/access/roles": _admin(409, {"name": "reader"}),
    "DELETE /api/v1/access/roles/{role}": _admin(404),
    "POST /api/v1/access/roles/{role}/members": _admin(404, {"member": "ann"}),
    "DELETE /api/v1/access/roles/{role}/members/{member}": _admin(404),
    "POST /api/v1/access/grants": _admin(404, {"privileges": ["SELECT"], "to": "ann", "table": "nothing"}),
    "DELETE /api/v1/access/grants/{id}": _admin(404),
    "POST /api/v1/access/rules": _admin(
        404, {"kind": "filter", "name": "all", "table": "people", "using": "true", "to": "nobody"}
    ),
    "DELETE /api/v1/access/rules/{id}": _admin(404),
    "POST /api/v1/access/tokens": _admin(404, {"user": "nobody"}),
    "DELETE /api/v1/access/tokens/{id}": _admin(404),
    "GET /api/v1/audit": _admin(200),
    "GET /api/v1/options": _admin(200),
    # -- backups, of a service without a place for them
    "GET /api/v1/backups": _admin(200),
    "POST /api/v1/backups": _admin(400),
    "POST /api/v1/backups/{id}/verify": _admin(400),
    "GET /api/v1/pond/nodes": _admin(404),
    "GET /api/v1/pond/node": _admin(404, path="/x"),
    "GET /api/v1/pond/series": _admin(404, path="/x", **{"from": "2026-01-01", "to": "2026-02-01"}, width=10),
    # -- Ekko
    "GET /api/transactions": Entry((200, 200, 200, 403)),
    "GET /api/transactions/": Entry((200, 200, 200, 403), query={"search": "0x"}),
    "GET /api/transactions/export": Entry((200, 200, 200, 403)),
    "GET /api/transactions/networks": Entry((200, 200, 200, 403)),
    "GET /api/transactions/stats": Entry((200, 200, 200, 403)),
    "GET /api/transactions/test": _all(200),
    "GET /api/transactions/{hash}": Entry((200, 200, 200, 403)),
}
#: Routes whose table is another one than ``people``.
TABLES = {
    "POST /api/v1/tables/{table}/rows": "inbox",
    "POST /api/v1/tables/{table}/merge": "inbox",
    "GET /api/v1/tables/{table}/series": "visits",
}

_TABLE = "namespaces/main/tables"
#: The Iceberg catalog is one route, which takes paths apart by itself.
ICEBERG: Mapping[str, Entry] = {
    "GET config": _all(200, warehouse="a"),
    "POST oauth/tokens": _all(401, {"grant_type": "client_credentials", "client_secret": "wrong"}),
    "GET a/namespaces": _all(200),
    "GET a/namespaces/main": _all(200),
    "HEAD a/namespaces/main": _all(204),
    "GET a/namespaces/deep": Entry((200, 200, 200, 404)),
    f"GET a/{_TABLE}": _all(200),
    "GET a/namespaces/main/views": _all(200),
    f"GET a/{_TABLE}/inbox": Entry((200, 200, 200, 404), paths=True),
    f"HEAD a/{_TABLE}/inbox": Entry((204, 204, 204, 404)),
    f"GET a/{_TABLE}/people": Entry((403, 403, 200, 403), paths=True),
    f"HEAD a/{_TABLE}/people": Entry((403, 403, 204, 403)),
    f"GET a/{_TABLE}/vault": Entry((403, 403, 200, 404), paths=True),
    f"GET a/{_TABLE}/totals": Entry((404, 404, 200, 404), paths=True),
    f"GET a/{_TABLE}/nothing": _all(404),
    "GET c/namespaces": _all(401),
    f"POST a/{_TABLE}": _all(406, {}),
    f"DELETE a/{_TABLE}/inbox": _all(406),
    f"POST a/{_TABLE}/people": _all(406, {}),
    "POST a/namespaces": _all(406, {}),
    "GET a/something": _all(401),
}
