"""Requests to a service: its problems are Quacklake's errors, and what may be sent again is."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import pyarrow as pa
import urllib3

from quacklake import Result, errors
from quacklake.errors import (
    ConfigError,
    ConnectorUnavailableError,
    InternalError,
    QuacklakeError,
    UnsupportedFeatureError,
)
from quacklake.extend.names import uuid7

__all__ = ["ARROW", "Transport", "segment", "without_token"]

ARROW = "application/vnd.apache.arrow.stream"
_API = "/api/v1"
_AGAIN = frozenset({429, 502, 503, 504})
_MAX_LENGTH = 5.0
Params = Mapping[str, Any]


class Transport:
    """A pool of connections to one service."""

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout: float,
        retries: int,
        lake: str | None,
        ca_file: str | None = None,
    ) -> None:
        if ca_file is not None and not Path(ca_file).is_file():
            raise ConfigError(
                f"there is no file {ca_file} with certificates", hint="set ca_file to a file in PEM format"
            )
        self.url = url.rstrip("/")
        self._lake = lake
        self._retries = retries
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=min(timeout, 10.0), read=timeout),
            retries=False,
            maxsize=16,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file,
        )

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def facts(self, path: str, params: Params | None = None) -> dict[str, Any]:
        """Return the JSON of a GET."""
        found: dict[str, Any] = json.loads(self._send("GET", path, params, accept="application/json").data)
        return found

    def delete(self, path: str) -> dict[str, Any]:
        """Return the JSON of a DELETE."""
        found: dict[str, Any] = json.loads(self._send("DELETE", path, None, accept="application/json").data)
        return found

    def rows(
        self, method: str, path: str, params: Params | None = None, body: Any = None, *, request_id: str | None = None
    ) -> Result:
        """Return the rows of a request, to be read as they arrive."""
        encoded = None if body is None else json.dumps(body).encode()
        more = {} if request_id is None else {"X-Request-Id": request_id}
        answer = self._send(method, path, params, body=encoded, accept=ARROW, more=more, stream=True)
        try:
            reader = pa.ipc.open_stream(answer)
        except pa.ArrowInvalid:
            answer.release_conn()
            raise ConnectorUnavailableError("the answer of the service broke off", hint="ask again") from None
        types = tuple(json.loads(answer.headers.get("X-Quacklake-Types", "[]")))
        changed = int(answer.headers.get("X-Quacklake-Changed-Rows", -1))
        batches = pa.RecordBatchReader.from_batches(reader.schema, _read(reader, answer))
        return Result(batches, types=types, rowcount=changed)

    def write(self, path: str, rows: pa.Table, params: Params | None = None) -> dict[str, Any]:
        """Send rows, again until there is an answer: a key keeps them from being added twice."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        body = sink.getvalue().to_pybytes()
        more = {"Content-Type": ARROW, "Idempotency-Key": str(uuid7())}
        answer = self._send("POST", path, params, body=body, accept="application/json", more=more, again=True)
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def _send(
        self,
        method: str,
        path: str,
        params: Params | None,
        *,
        accept: str,
        body: bytes | None = None,
        more: Mapping[str, str] | None = None,
        stream: bool = False,
        again: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        given = {**(params or {}), **({} if self._lake is None else {"lake": self._lake})}
        query = urlencode({name: value for name, value in given.items() if value is not None}, doseq=True)
        url = f"{self.url}{_API}{path}{'?' + query if query else ''}"
        headers = {**self._headers, "Accept": accept, "Content-Type": "application/json", **(more or {})}
        again = again or method == "GET"
        for left in range(self._retries if again else 0, -1, -1):
            try:
                answer = self._pool.request(method, url, body=body, headers=headers, preload_content=not stream)
            except urllib3.exceptions.HTTPError as error:
                if not left:
                    raise ConnectorUnavailableError(
                        f"the service at {self.url} does not answer: {type(error).__name__}",
                        hint="is it running, and is this its address?",
                    ) from None
                self._pause(left)
                continue
            if answer.status < 400:
                return answer
            problem = _problem(answer)
            if answer.status not in _AGAIN or not left:
                raise problem
            self._pause(left)
        raise AssertionError("unreachable")

    def _pause(self, left: int) -> None:
        limit = min(0.1 * 2 ** (self._retries - left), _MAX_LENGTH)
        time.sleep(random.uniform(limit / 2, limit))


def without_token(url: str) -> tuple[str, str | None]:
    """Return a URL without the token in it, and the token: the password, or the name if there is none.

    >>> without_token("https://t0k%2Fen@host:8080/lake")
    ('https://host:8080/lake', 't0k/en')
    """
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    secret, at, host = place.rpartition("@")
    if not at:
        return url, None
    name, _, password = secret.partition(":")
    return f"{scheme}{separator}{host}{slash}{path}", unquote(password or name) or None


def segment(name: str) -> str:
    """Return a name as a part of a path. Raise ``UnsupportedFeatureError`` for one that paths cannot have."""
    if "/" in name:
        raise UnsupportedFeatureError(f"a service cannot be asked for {name}", hint="read the table with SQL")
    return quote(name, safe="")


def _read(reader: pa.RecordBatchReader, answer: urllib3.BaseHTTPResponse) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (pa.ArrowException, OSError, urllib3.exceptions.HTTPError):
        raise ConnectorUnavailableError("the answer of the service broke off", hint="ask again") from None
    finally:
        answer.close()
        answer.release_conn()


def _problem(answer: urllib3.BaseHTTPResponse) -> QuacklakeError:
    """Return the error of an answer that is a problem."""
    try:
        found = json.loads(answer.read() if not answer.data else answer.data)
        code, message, hint = str(found["code"]), str(found.get("detail", "")), found.get("hint")
    except (ValueError, KeyError, TypeError):
        return InternalError(f"the service answered with status {answer.status}")
    kind = _KINDS.get(code) or _KINDS.get(code.partition(".")[0], QuacklakeError)
    error = kind.__new__(kind)
    QuacklakeError.__init__(error, message, hint=hint)
    error.code = code
    return error


def _all(kinds: Sequence[type[QuacklakeError]]) -> Iterator[type[QuacklakeError]]:
    for kind in kinds:
        yield kind
        yield from _all(kind.__subclasses__())


_KINDS = {kind.code: kind for kind in _all([errors.QuacklakeError]) if kind.__module__ == errors.__name__}
