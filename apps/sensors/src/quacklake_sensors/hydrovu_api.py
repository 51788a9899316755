"""The API of HydroVu: tokens, names, locations, and pages of readings as Arrow."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from quacklake.config.values import Secret
from quacklake.errors import ConnectorError, LimitError
from quacklake.pond.collectors.http import HttpClient, Reply

URL = "https://www.hydrovu.com/public-api"
_SCOPES = "read:locations read:data"
_EARLY = 30.0
"""Seconds before its end at which a token is not used any more."""
_READING = pa.struct([("timestamp", pa.int64()), ("value", pa.float64())])
_PARAMETER = pa.struct([("parameterId", pa.string()), ("unitId", pa.string()), ("readings", pa.list_(_READING))])
_PAGE = pa.schema([("parameters", pa.list_(_PARAMETER))])
LONG = pa.schema(
    [
        pa.field("parameter", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("value", pa.float64()),
    ]
)
"""The columns of a page: ids of the parameter and unit, seconds since 1970, and the value."""


@dataclass(frozen=True, slots=True)
class Names:
    """The friendly names of parameters and units by their ids."""

    parameters: Mapping[str, str]
    units: Mapping[str, str]

    def column(self, parameter: str, unit: str) -> str:
        """Return the column of a parameter. One without a name keeps its id.

        >>> Names({"1": "Temperature"}, {"1": "C"}).column("1", "1")
        'Temperature.C'
        """
        return f"{self.parameters.get(parameter, parameter)}.{self.units.get(unit, unit)}"


class HydroVu:
    """A client with a token that is renewed when it ends, or when the server no longer knows it."""

    def __init__(self, client: HttpClient, client_id: str, client_secret: Secret, *, token: str | None = None) -> None:
        self.client = client
        self._id, self._secret = client_id, client_secret
        self._token = token
        self._until = 0.0 if token is None else float("inf")

    def token(self) -> str:
        """Return a valid token."""
        if self._token is None or time.monotonic() > self._until:
            reply = self.client.post_form(
                "/oauth/token",
                {
                    "grant_type": "client_credentials",
                    "client_id": self._id,
                    "client_secret": self._secret.reveal(),
                    "scope": _SCOPES,
                },
            )
            if reply.status != 200:
                raise _refused(reply)
            facts = _json(reply, "the token", dict)
            token, seconds = facts.get("access_token"), facts.get("expires_in", 3600)
            if not isinstance(token, str) or not isinstance(seconds, int | float):
                raise _unexpected("the token")
            self._token, self._until = token, time.monotonic() + max(seconds - _EARLY, min(seconds, 1))
        return self._token

    def _get(
        self, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        for last in (False, True):
            reply = self.client.get(path, query, {"Authorization": f"Bearer {self.token()}", **(headers or {})})
            if reply.status != 401 or last:
                break
            self._token = None  # it has ended early, as when the server was restarted
        if reply.status == 401:
            raise _refused(reply)
        return reply

    def names(self) -> Names:
        """Return the friendly names."""
        reply = self._get("/v1/sispec/friendlynames")
        facts = _json(_ok(reply, "the friendly names"), "the friendly names", dict)
        found = [facts.get(key) for key in ("parameters", "units")]
        if not all(isinstance(each, dict) and all(isinstance(v, str) for v in each.values()) for each in found):
            raise _unexpected("the friendly names")
        return Names(*found)

    def locations(self) -> list[dict[str, Any]]:
        """Return the locations that the client may read."""
        found = _json(_ok(self._get("/v1/locations/list"), "the locations"), "the locations", list)
        if not all(isinstance(each, dict) and isinstance(each.get("id"), int) for each in found):
            raise _unexpected("the locations")
        return list(found)

    def pages(self, location: int, start: int, *, max_pages: int) -> Iterator[tuple[pa.Table, bool]]:
        """Yield the readings from a time on, page by page, each with whether another one follows.

        The next page is asked for while one is parsed. Raise ``LimitError`` for a server whose pages do not end,
        ``ConnectorError`` for any other answer.
        """
        what, seen = f"location {location}", set[str]()

        def ask(page: str) -> Reply:
            headers = {"X-ISI-Start-Page": page} if page else None
            return self._get(f"/v1/locations/{location}/data", {"startTime": str(start)}, headers)

        with ThreadPoolExecutor(1, "hydrovu") as ahead:
            reply = ask("")
            for _ in range(max_pages):
                if reply.status == 404:  # there is nothing at this time or after it
                    return
                body, following = _ok(reply, what).body, reply.headers.get("x-isi-next-page", "")
                if following in seen:
                    raise LimitError(f"the pages of {what} go in a circle", hint="nothing was taken; tell the operator")
                seen.add(following)
                coming = ahead.submit(ask, following) if following else None
                yield long_table(body, what), coming is not None
                if coming is None:
                    return
                reply = coming.result()
        raise LimitError(f"{what} has more than {max_pages} pages", hint="raise max_pages, or set begin")


def long_table(body: bytes, what: str) -> pa.Table:
    """Return the readings of a page. Raise ``ConnectorError`` for anything else."""
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(body) + 1)
    parse = pyarrow.json.ParseOptions(
        explicit_schema=_PAGE, newlines_in_values=True, unexpected_field_behavior="ignore"
    )
    try:
        page = pyarrow.json.read_json(io.BytesIO(body), read, parse)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _unexpected(what) from None
    parameters = page.column("parameters").combine_chunks()
    if page.num_rows != 1 or parameters.null_count:
        raise _unexpected(what)
    flat = parameters.flatten()
    readings = flat.field("readings")
    parents = pc.list_parent_indices(readings)
    values = readings.flatten()
    found = pa.table(
        [
            flat.field("parameterId").take(parents),
            flat.field("unitId").take(parents),
            values.field("timestamp"),
            values.field("value"),
        ],
        names=LONG.names,
    )
    if any(found.column(name).null_count for name in ("parameter", "unit", "timestamp")):
        raise _unexpected(what)
    return found.cast(LONG)


def _ok(reply: Reply, what: str) -> Reply:
    if reply.status != 200:
        raise ConnectorError(f"HydroVu answers status {reply.status} for {what}", number=reply.status)
    return reply


def _json(reply: Reply, what: str, kind: type) -> Any:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        raise _unexpected(what) from None
    if not isinstance(found, kind):
        raise _unexpected(what)
    return found


def _unexpected(what: str) -> ConnectorError:
    return ConnectorError(
        f"HydroVu answers with something else for {what}", hint="check that url is the address of its API"
    )


def _refused(reply: Reply) -> ConnectorError:
    return ConnectorError("HydroVu refuses the client", hint="check client_id and client_secret", number=reply.status)
