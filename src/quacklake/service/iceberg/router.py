"""The Iceberg REST catalog: a thin, read-only edge over ``LakeTables``.

A warehouse is a lake, a namespace a schema. Paths are taken apart before they are decoded, because a name may contain
any character.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, quote, unquote
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from quacklake.core.format.names import full_name, parts_of
from quacklake.core.format.objects import TableInfo
from quacklake.errors import InputError, NotFoundError, QuacklakeError, UnauthenticatedError
from quacklake.extend.names import fold
from quacklake.service.access_gate import AccessGate
from quacklake.service.iceberg.failures import Failure, Refusal, failure_of
from quacklake.service.iceberg.settings import IcebergSettings
from quacklake.service.iceberg.tables import LakeTables
from quacklake.service.identity import Gate, Identity

__all__ = ["iceberg_router", "may_serve"]

_log = logging.getLogger("quacklake.service.iceberg")

_SEPARATOR = "\x1f"
"""Stands between the parts of a namespace in a path."""
_RESERVED = ("config", "namespaces", "oauth")
_WRITES = {("tables", "rename"), ("views", "rename"), ("transactions", "commit")}
"""The writes that are not below a namespace; before them is the name of the lake, or nothing."""
_MAX_LENGTH = 4096
_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)


def may_serve(identity: Identity, table: TableInfo) -> bool:
    """Return whether a principal may read a whole table. A reader of Iceberg opens the files: nothing can be hidden."""
    view = identity.lake.handle.view()
    if view.rules is None:
        return True
    found = view.get_table(table.schema_name, table.name)
    return found is not None and view.rules.shows_files(view.whole(found), derived=view.is_derived(found))


def iceberg_router(gate: Gate, settings: IcebergSettings | None = None) -> APIRouter:
    """Return the routes of a read-only Iceberg REST catalog, from ``/v1/config`` on."""
    catalog = _Catalog(gate, settings or IcebergSettings())
    router = APIRouter(tags=["iceberg"])
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    router.add_api_route("/v1/{rest:path}", catalog.answer, methods=methods, include_in_schema=False)
    return router


class _Catalog:
    def __init__(self, gate: Gate, settings: IcebergSettings) -> None:
        self._gate = gate
        self._settings = settings
        self._lakes: WeakKeyDictionary[object, LakeTables] = WeakKeyDictionary()
        self._lock = threading.Lock()

    async def answer(self, request: Request, rest: str) -> Response:
        """Answer one request; every failure is an error of the REST catalog."""
        body = b""
        try:
            steps = _steps(request, rest)
            if request.method == "POST" and steps == ["oauth", "tokens"]:
                body = await _body(request, self._settings.max_body)
            return await run_in_threadpool(self._answer, request, steps, body)
        except Refusal as refusal:
            return _to_response(refusal.failure, request)
        except QuacklakeError as error:
            return _to_response(failure_of(error), request)
        except Exception:
            _log.exception("the Iceberg catalog failed")
            return _to_response(Failure(500, "InternalServerError", "the Iceberg catalog failed"), request)

    def _answer(self, request: Request, steps: list[str], body: bytes) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        token = _token(request)
        match method, steps:
            case "GET", ["config"]:
                return self._config(token, request.query_params.get("warehouse"))
            case "POST", ["oauth", "tokens"]:
                return self._tokens(request, body)
            case _, ["namespaces", *path]:
                identity = self._gate.enter(token)
            case _, [prefix, "namespaces", *path] if prefix not in _RESERVED:
                identity = self._gate.enter(token, prefix)
            case "POST", [*before, kind, action] if len(before) < 2 and (kind, action) in _WRITES:
                self._gate.enter(token, *before)
                raise _read_only()
            case _:
                self._gate.enter(token)
                raise NotFoundError("the Iceberg catalog has nothing of that name")
        if method != "GET":
            raise _read_only()
        return self._read(request, identity, path)

    def _read(self, request: Request, identity: Identity, path: Sequence[str]) -> Response:
        match path:
            case []:
                return self._namespaces(request, identity)
            case [namespace]:
                name = _schema(identity, namespace)
                return _json({"namespace": parts_of(name), "properties": {}}, request)
            case [namespace, "tables"]:
                name = _schema(identity, namespace)
                tables = [
                    table for table in identity.lake.handle.view().tables() if fold(table.schema_name) == fold(name)
                ]
                found = [table.name for table in tables if may_serve(identity, table)]
                parts = parts_of(name)
                return self._page(request, "identifiers", {each: {"namespace": parts, "name": each} for each in found})
            case [namespace, "views"]:
                _schema(identity, namespace)
                return _json({"identifiers": []}, request)
            case [namespace, "tables", table]:
                return self._table(request, identity, full_name(namespace.split(_SEPARATOR)), table)
        raise NotFoundError("the Iceberg catalog has nothing of that name")

    # -- answers -----------------------------------------------------------------------------------------------------

    def _config(self, token: str | None, warehouse: str | None) -> Response:
        try:
            self._gate.enter(token, warehouse or None)
        except NotFoundError:
            if warehouse not in _RESERVED:
                raise
        if warehouse in _RESERVED:
            raise InputError(f"a lake called {warehouse!r} cannot be reached by its name in an Iceberg catalog")
        overrides = {"prefix": quote(warehouse, safe="")} if warehouse else {}
        endpoints = list(_ENDPOINTS)
        if not warehouse:
            endpoints += [endpoint.replace("{prefix}/", "") for endpoint in _ENDPOINTS]
        return _json({"defaults": {}, "overrides": overrides, "endpoints": endpoints})

    def _tokens(self, request: Request, body: bytes) -> Response:
        """Answer a request for a token by client credentials: the secret is the token."""
        form = {key: values[-1] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}
        if form.get("grant_type") != "client_credentials":
            return _json({"error": "unsupported_grant_type"}, status=400)
        secret = form.get("client_secret") or _basic(request)
        try:
            if secret is None:
                raise UnauthenticatedError
            self._check(secret)
        except UnauthenticatedError:
            return _json(
                {"error": "invalid_client", "error_description": "the secret is not a valid token"}, status=401
            )
        except NotFoundError:
            pass  # a principal of several lakes
        answer = {
            "access_token": secret,
            "token_type": "bearer",
            "expires_in": 3600,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
        return _json(answer, headers={"Cache-Control": "no-store"})

    def _check(self, token: str) -> None:
        """Raise ``UnauthenticatedError`` for a token that lets nobody in, on whatever lake."""
        if isinstance(self._gate, AccessGate):
            self._gate.check(token)
        else:
            self._gate.enter(token)

    def _namespaces(self, request: Request, identity: Identity) -> Response:
        parent = request.query_params.get("parent")
        above = [] if not parent else parent.split(_SEPARATOR)
        if above:
            _schema(identity, parent or "")
        names = [parts_of(info.name) for info in identity.lake.handle.view().schemas()]
        chosen = [parts for parts in names if len(parts) == len(above) + 1 and parts[: len(above)] == above]
        return self._page(request, "namespaces", {_SEPARATOR.join(parts): parts for parts in chosen})

    def _page(self, request: Request, key: str, items: Mapping[str, Any]) -> Response:
        """Answer with some items by name; in pages if the client asks for them."""
        names = sorted(items)
        token = request.query_params.get("pageToken")
        if token is None:
            return _json({key: [items[name] for name in names]}, request)
        after = _decode_token(token)
        left = [name for name in names if after is None or name > after]
        size = min(_number(request.query_params.get("pageSize"), self._settings.max_page), self._settings.max_page)
        page = left[:size]
        more = _encode_token(page[-1]) if len(left) > size else None
        return _json({key: [items[name] for name in page], "next-page-token": more}, request)

    def _table(self, request: Request, identity: Identity, schema: str, name: str) -> Response:
        view = identity.lake.handle.view()
        table = view.get_table(schema, name)
        if table is None:
            raise Refusal(404, "NoSuchTableException", f"there is no table {schema}.{name}")
        if not may_serve(identity, table):
            raise Refusal(403, "ForbiddenException", "rows or columns of this table are hidden: read it by SQL")
        if request.method == "HEAD":
            return Response(status_code=204)
        loaded = self._tables(identity).load(table.schema_name, table.name, lake=identity.lake)
        etag = f'"{loaded.etag}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        metadata = loaded.metadata
        if request.query_params.get("snapshots") == "refs":
            metadata = {**metadata, "snapshots": metadata["snapshots"][-1:]}
        answer = {"metadata": metadata, "config": {}, "quacklake.readers": dict(loaded.readers)}
        return _json(answer, request, headers={"ETag": etag})

    def _tables(self, identity: Identity) -> LakeTables:
        catalog = identity.lake.handle.context.catalog
        with self._lock:
            found = self._lakes.get(catalog)
            if found is None:
                found = self._lakes[catalog] = LakeTables(identity.lake, self._settings)
        return found


def _steps(request: Request, rest: str) -> list[str]:
    """Return the decoded parts of the path after ``/v1/``."""
    path, raw = str(request.scope["path"]), request.scope.get("raw_path")
    before = path[: len(path) - len(rest)]
    text = raw.decode("latin-1") if isinstance(raw, bytes) else ""
    encoded = text[len(before) :] if text.startswith(before) else quote(rest)
    if len(encoded) > _MAX_LENGTH:
        raise InputError("the path is too long")
    return [unquote(part) for part in encoded.rstrip("/").split("/")]


def _schema(identity: Identity, namespace: str) -> str:
    """Return the full name of a schema that a path names. Raise the error of Iceberg if there is none."""
    wanted = full_name(namespace.split(_SEPARATOR))
    found = next((info.name for info in identity.lake.handle.view().schemas() if fold(info.name) == fold(wanted)), None)
    if found is None:
        raise Refusal(404, "NoSuchNamespaceException", f"there is no schema {wanted}")
    return found


def _read_only() -> Refusal:
    return Refusal(406, "UnsupportedOperationException", "this Iceberg catalog is read-only: write to the lake itself")


def _token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    # a client without a token may send the word None
    return token.strip() if scheme.lower() == "bearer" and token.strip() not in ("", "None") else None


def _basic(request: Request) -> str | None:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(text, validate=True).decode().partition(":")[2] or None
    except (binascii.Error, UnicodeDecodeError):
        return None


async def _body(request: Request, limit: int) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise InputError(f"the request has more than {limit} bytes")
    return body


def _number(text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9 and int(text) > 0):
        raise InputError("pageSize must be a number above 0")
    return int(text)


def _encode_token(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _decode_token(token: str) -> str | None:
    if not token:
        return None
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InputError("the pageToken is not one of this catalog") from None


def _json(
    content: object,
    request: Request | None = None,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    if request is not None and request.method == "HEAD":
        return Response(status_code=204 if status == 200 else status, headers=dict(headers or {}))
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(body.encode("utf-8", "replace"), status, dict(headers or {}), "application/json")


def _to_response(failure: Failure, request: Request) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if failure.status == 401 else {}
    if failure.status == 503:
        headers["Retry-After"] = str(max(1, round(failure.after or 1)))
    return _json(failure.json(), request, status=failure.status, headers=headers)
