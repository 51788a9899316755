"""HTTP for collectors: every request has a limit on its time, its body and its repetitions, and stays with its host."""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from quacklake import telemetry
from quacklake.config.mappings import Options
from quacklake.errors import ConfigError, ConnectorError, ConnectorUnavailableError, ResultTooLargeError

if TYPE_CHECKING:
    import urllib3

_BLOCK = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)
_AGAIN = (429, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FIRST_WAIT = 0.25


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of requests: seconds for each, repetitions, seconds of one wait, and bytes of an answer."""

    timeout: float = 60.0
    retries: int = 5
    max_wait: float = 120.0
    max_body: int = 64 << 20

    @classmethod
    def of(cls, what: str, given: Mapping[str, Any]) -> HttpLimits:
        """Return the limits that options set. Raise ``ConfigError``."""
        options = Options(what, given)
        timeout, max_wait = options.seconds("timeout", "60s"), options.seconds("max_wait", "2min")
        retries, max_body = options.number("retries", 5, least=0), options.size("max_body", "64MiB")
        options.finish()
        if not timeout or not max_body:
            raise ConfigError(f"{what}: a limit is zero", hint="leave it out for its default")
        return cls(timeout, retries, max_wait, max_body)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, its headers and its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def check_url(url: str, what: str) -> str:
    """Return an address without its last slash. Raise ``ConfigError`` for one that would show a secret to others."""
    split = urlsplit(url)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise ConfigError(f"{what}: url is not an address", hint="url: https://www.example.org/api")
    if split.username or split.password:
        raise ConfigError(f"{what}: the url has a login", hint="write it as client_id and client_secret")
    if split.scheme == "http" and split.hostname not in _LOOPBACK:
        raise ConfigError(f"{what}: {split.hostname} would get secrets over plain http", hint="write https://")
    return url.rstrip("/")


class HttpClient:
    """Requests to one server. Headers and bodies never appear in errors, nor does what the server says."""

    def __init__(self, url: str, limits: HttpLimits | None = None, wait: Callable[[float], None] = time.sleep) -> None:
        import urllib3  # it takes a while to load, and most commands of a pond need none

        self.url, self.limits, self._wait = url, limits or HttpLimits(), wait
        self._host = urlsplit(url).netloc
        self._pool = urllib3.PoolManager(maxsize=2, retries=False)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def get(self, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Return the answer to a GET, whatever its status, after repetitions where they can help."""
        return self._send_repeatedly("GET", f"{path}?{urlencode(query)}" if query else path, headers, None)

    def post_form(self, path: str, form: Mapping[str, str]) -> Reply:
        """Return the answer to a form."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._send_repeatedly("POST", path, kind, urlencode(form).encode())

    def _send_repeatedly(self, method: str, path: str, headers: Mapping[str, str] | None, body: bytes | None) -> Reply:
        for attempt in range(self.limits.retries + 1):
            failure: ConnectorUnavailableError
            wait = _FIRST_WAIT * 2**attempt * random.uniform(0.5, 1.0)
            try:
                reply = self._once(method, path, headers, body)
                if reply.status not in _AGAIN:
                    return reply
                name = "too many requests" if reply.status == 429 else f"status {reply.status}"
                failure = ConnectorUnavailableError(f"{self._host} answers {name}", number=reply.status)
                wait = _retry_after(reply.headers, wait)
            except _Lost as lost:
                failure = ConnectorUnavailableError(f"{self._host} cannot be reached: {lost}")
            if attempt == self.limits.retries:
                break
            if wait > self.limits.max_wait:
                failure.hint = f"it asks to wait {wait:.0f} seconds, and max_wait is {self.limits.max_wait:.0f}"
                raise failure
            telemetry.count("pond.http.retries")
            self._wait(wait)
        failure.hint = f"it was asked {self.limits.retries + 1} times; try again later"
        raise failure

    def _once(self, method: str, path: str, headers: Mapping[str, str] | None, body: bytes | None) -> Reply:
        from urllib3.exceptions import HTTPError

        telemetry.count("pond.http.requests")
        try:
            response = self._pool.request(
                method,
                f"{self.url}{path}",
                body=body,
                headers={"Accept-Encoding": "gzip", "User-Agent": "quacklake-pond", **(headers or {})},
                timeout=self.limits.timeout,
                redirect=False,
                retries=False,
                preload_content=False,
            )
            return self._read(response)
        except HTTPError as error:
            raise _Lost(_reason(error)) from None

    def _read(self, response: urllib3.BaseHTTPResponse) -> Reply:
        whole = False
        try:
            if response.status in _REDIRECTS:
                raise ConnectorError(
                    f"{self._host} redirects to another address, which would get the token",
                    hint="set url to the new address if you trust it",
                    number=response.status,
                )
            content = self._body(response)
            whole = True
            return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, content)
        finally:
            if whole:
                response.release_conn()
            else:
                response.close()

    def _body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        found, deadline = bytearray(), time.monotonic() + self.limits.timeout
        while block := response.read(_BLOCK, decode_content=True):
            found += block
            if len(found) > self.limits.max_body:
                raise ResultTooLargeError(
                    f"an answer of {self._host} has more than {self.limits.max_body} bytes",
                    hint="raise http.max_body if that is expected",
                )
            if time.monotonic() > deadline:
                raise _Lost("the answer takes too long")
        return bytes(found)


def _retry_after(headers: Mapping[str, str], otherwise: float) -> float:
    text = headers.get("retry-after", "").strip()
    if text.isdigit():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment - dt.datetime.now(moment.tzinfo)).total_seconds())
    except (TypeError, ValueError):
        return otherwise


class _Lost(Exception):
    """A request without an answer; the text is the kind of failure."""


def _reason(error: BaseException) -> str:
    """Return the kind of a failure. Its text may have the address with its query, so it is not shown."""
    from urllib3 import exceptions

    words = {
        exceptions.ConnectTimeoutError: "the connection takes too long",
        exceptions.NewConnectionError: "no connection",
        exceptions.TimeoutError: "the answer takes too long",
        exceptions.SSLError: "the certificate is not accepted",
        exceptions.ProtocolError: "the connection was lost",
    }
    return next((text for kind, text in words.items() if isinstance(error, kind)), type(error).__name__)
