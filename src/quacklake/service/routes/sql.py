"""SQL: run statements in a safe session, look at those under way, and cancel them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from quacklake import Result
from quacklake.client.parameters import from_json
from quacklake.errors import CancelledError, InputError
from quacklake.service.answers import Departure, RowAnswer
from quacklake.service.encoding import FORMATS, JSON, Rows, chosen
from quacklake.service.identity import Identity, Role
from quacklake.service.problems import request_id_of
from quacklake.service.state import Service, Statement, service_of
from quacklake.service.values import MAX_VALUE, LakeName, resolved_version

router = APIRouter(tags=["sql"])

TYPES = "X-Quacklake-Types"
CHANGED = "X-Quacklake-Changed-Rows"
_MAX_HEADER = 4_096


class SqlRequest(BaseModel):
    """A statement with its parameters."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"sql": "SELECT name, quantity FROM orders WHERE id = ?", "parameters": [7]},
        },
    )

    sql: Annotated[str, Field(min_length=1, description="Statements in DuckDB's SQL; the last one answers.")]
    parameters: Annotated[
        list[Any] | dict[str, Any] | None,
        Field(description="Values for ? and $1 (a list) or for $name (an object)."),
    ] = None
    typed_parameters: Annotated[
        list[Any] | dict[str, Any] | None,
        Field(
            description="The same, in place of `parameters`, with values that JSON has no word for. Each of them is an "
            "object with `type` and `value`: BLOB in base64, DECIMAL, DOUBLE, TIMESTAMP, DATE, TIME, UUID, STRUCT, or "
            "INTERVAL as days, seconds and microseconds."
        ),
    ] = None
    version: Annotated[int | None, Field(ge=0, le=MAX_VALUE, description="Read the lake at this snapshot.")] = None
    timestamp: Annotated[str | None, Field(description="Read the lake at this time (UTC).")] = None


_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The rows, in the format of the Accept header",
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["columns", "rows", "row_count"],
                    "properties": {
                        "columns": {"type": "array", "items": {"type": "object"}},
                        "rows": {"type": "array", "items": {"type": "object"}},
                        "row_count": {"type": "integer"},
                        "changed_rows": {"type": ["integer", "null"]},
                        "snapshot": {"type": "integer"},
                    },
                },
                "example": {
                    "columns": [{"name": "name", "type": "VARCHAR"}, {"name": "quantity", "type": "INTEGER"}],
                    "rows": [{"name": "tea", "quantity": 3}],
                    "row_count": 1,
                },
            },
            **{format: {"schema": {"type": "string", "format": "binary"}} for format in FORMATS[1:]},
        },
    }
}


@router.post("/sql", summary="Run SQL", operation_id="run_sql", response_class=Response, responses=_ANSWER)
async def run_sql(request: Request, body: SqlRequest, lake: LakeName = None) -> Response:
    """Run statements and return the rows of the last one, as JSON, NDJSON, CSV, an Arrow stream or Parquet.

    Readers read; writers also INSERT, UPDATE, DELETE and MERGE. `EXPLAIN` shows the plan. The id of the request
    (`X-Request-Id`) is that of the statement: `DELETE /api/v1/sql/{id}` cancels it, and so does closing the connection.
    """
    service = service_of(request)
    identity = await service.enter(request)
    format = wanted_format(request)
    version = None
    if body.version is not None or body.timestamp is not None:
        version = await service.run(resolved_version, identity.lake, body.version, body.timestamp)
    return await answer_sql(service, request, identity, body.sql, _values(body), format, version)


def _values(body: SqlRequest) -> Any:
    """Return the values of the parameters. Raise ``InputError``."""
    if body.typed_parameters is None:
        return body.parameters
    if body.parameters is not None:
        raise InputError("pass one of parameters and typed_parameters")
    if isinstance(body.typed_parameters, list):
        return from_json(body.typed_parameters)
    return {name: from_json(value) for name, value in body.typed_parameters.items()}


def wanted_format(request: Request) -> str:
    """Return the format that a client accepts. Raise ``InputError`` when there is none."""
    format = chosen(request.headers.get("accept"))
    if format is None:
        raise InputError("the Accept header names no format of rows", hint=", ".join(FORMATS))
    return format


async def answer_sql(
    service: Service,
    request: Request,
    identity: Identity,
    text: str,
    parameters: Any,
    format: str,
    version: int | None,
    *,
    headers: dict[str, str] | None = None,
) -> Response:
    """Run a statement, and answer with its rows."""
    departure = Departure(request)
    try:
        await departure.unless(service.take_turn())
    except BaseException:
        await departure.end()
        raise
    asked = _RunningStatement(service, request, identity, departure, version)
    try:
        # one thread does it all: to pass work on takes longer than most of its steps
        return await service.run(asked.answer, text, parameters, format, headers or {})
    except BaseException:
        await departure.end()
        await service.run(asked.done)
        raise


class _RunningStatement:
    """A statement that has its turn."""

    def __init__(
        self, service: Service, request: Request, identity: Identity, departure: Departure, version: int | None
    ) -> None:
        self._service = service
        self._request = request
        self._identity = identity
        self._departure = departure
        self._version = version
        self._loop = asyncio.get_running_loop()
        self._statement: Statement | None = None
        self._ended = False

    def answer(self, text: str, parameters: Any, format: str, headers: dict[str, str]) -> RowAnswer:
        """Run the statement in a session, and return the answer with its first rows."""
        service, identity = self._service, self._identity
        lent = service.sessions.lend(identity.lake, writes=identity.role >= Role.WRITER, version=self._version)
        self._statement = Statement(request_id_of(self._request), identity.key, lent, time.monotonic())
        service.statements.add(self._statement)
        self._departure.gone = lent.interrupt
        if self._departure.happened:
            raise CancelledError("the client has gone")
        result = lent.session.sql(text, parameters)
        if lent.session.work.explicit:  # the session is closed, and nothing of it stays
            raise InputError(
                "the transaction is still open at the end of the request, and was undone",
                hint="end it with COMMIT in the same request",
            )
        answer = RowAnswer(
            service.executor,
            _rows(result, self._version),
            format,
            done=self.done,
            departure=self._departure,
            accept_encoding=self._request.headers.get("accept-encoding"),
            headers={**headers, **_facts(result)},
            seconds=service.settings.stalled_seconds,
        )
        answer.start()
        return answer

    def done(self) -> None:
        """Give back the session and the turn; a second time does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._statement is not None:
            self._service.statements.remove(self._statement)
            self._statement.lent.give_back()
        self._loop.call_soon_threadsafe(self._service.end_turn)


def _facts(result: Result) -> dict[str, str]:
    """Return headers with what Arrow does not carry: how many rows were changed, and DuckDB's types of the columns.

    The types are left out where they would be long.
    """
    text = json.dumps(result.types)
    changed = {CHANGED: str(result.rowcount)} if result.rowcount >= 0 else {}
    return changed | ({TYPES: text} if len(text) <= _MAX_HEADER else {})


def _rows(result: Result, version: int | None) -> Rows:
    facts: tuple[tuple[str, Any], ...] = () if version is None else (("snapshot", version),)
    if result.rowcount >= 0:
        facts = (*facts, ("changed_rows", result.rowcount))
    return Rows(result.schema, result.to_batches(), tuple(result.types), facts)


@router.get("/sql", summary="List your statements under way", operation_id="list_statements")
async def list_statements(request: Request, lake: LakeName = None) -> dict[str, list[dict[str, Any]]]:
    """Return the ids of the statements of your token that are under way, and how long each has taken."""
    service = service_of(request)
    identity = await service.enter(request)
    now = time.monotonic()
    return {
        "statements": [
            {"id": each.id, "seconds": round(now - each.began, 3)} for each in service.statements.of(identity.key)
        ]
    }


@router.delete("/sql/{id}", summary="Cancel a statement", operation_id="cancel_statement")
async def cancel_statement(
    request: Request,
    id: Annotated[str, Path(max_length=64, description="The request id of the statement.")],
    lake: LakeName = None,
) -> dict[str, bool]:
    """Cancel a statement of your token. Its own request is answered with the code `cancelled`."""
    service = service_of(request)
    identity = await service.enter(request)
    return {"cancelled": await service.run(service.statements.cancel, id, identity.key)}
