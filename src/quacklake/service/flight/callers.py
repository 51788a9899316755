"""The callers of a Flight server: every call enters here, before any handler sees it."""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import flight

from quacklake.errors import InputError, UnauthenticatedError
from quacklake.service.flight.failures import answering
from quacklake.service.identity import Gate, Identity

LAKE_HEADERS = ("database", "x-quacklake-lake")
SCHEMA_HEADERS = ("schema", "x-quacklake-schema")
KEY_HEADER = "x-quacklake-idempotency-key"
COOKIE = "arrow_flight_session_id"
MIDDLEWARE = "quacklake"

_MOST_HEADER = 4_096


@dataclass(frozen=True)
class Caller:
    """The principal behind a call and what its headers say."""

    identity: Identity
    lake: str | None
    schema: str | None
    key: str | None
    cookie: str | None

    @property
    def principal(self) -> str:
        """The name of the principal."""
        return self.identity.principal


class SessionOptions:
    """The options that clients have set for their sessions, by principal and cookie; the oldest make room."""

    NAMES = ("catalog", "schema")

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, dict[str, str]] = OrderedDict()

    def get(self, cookie: str | None) -> dict[str, str]:
        """Return the options of a session; none if it is not known."""
        with self._lock:
            return dict(self._kept.get(cookie or "", {}))

    def put(self, cookie: str | None, options: Mapping[str, str]) -> str:
        """Keep the options of a session; return its cookie, a new one where there is none."""
        with self._lock:
            chosen = cookie if cookie in self._kept and cookie is not None else secrets.token_urlsafe(24)
            self._kept[chosen] = dict(options)
            self._kept.move_to_end(chosen)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return chosen

    def close(self, cookie: str | None) -> bool:
        """Forget the options of a session; return False if it is not known."""
        with self._lock:
            return self._kept.pop(cookie or "", None) is not None


class Entered(flight.ServerMiddleware):  # type: ignore[misc]
    """A call that was let in. After a Basic header, the answer carries the token to use from then on."""

    def __init__(self, caller: Caller, token: str | None) -> None:
        super().__init__()
        self.caller = caller
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {} if self._token is None else {"authorization": f"Bearer {self._token}"}


class Entrance(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets calls in through the gate."""

    def __init__(self, gate: Gate, options: SessionOptions) -> None:
        super().__init__()
        self._gate = gate
        self._options = options

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> Entered:
        """Return the caller of a call. Raises the status of ``Gate.enter``."""
        with answering():
            given = {name.lower(): values for name, values in headers.items()}
            token, is_basic = _token(_first(given, "authorization"))
            cookie = _cookie(given)
            options = self._options.get(cookie)
            lake = next((found for name in LAKE_HEADERS if (found := _first(given, name))), None)
            schema = next((found for name in SCHEMA_HEADERS if (found := _first(given, name))), options.get("schema"))
            identity = self._gate.enter(token, lake)
            caller = Caller(identity, lake, schema, _first(given, KEY_HEADER), cookie)
            return Entered(caller, token if is_basic else None)


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets the handshake of older clients pass: the entrance has checked their Basic header."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None: ...

    def is_valid(self, token: bytes) -> bytes:
        return b""


def caller_of(context: Any) -> Caller:
    """Return the caller of a call. Raises ``UnauthenticatedError`` for one that did not come through the entrance."""
    entered = context.get_middleware(MIDDLEWARE)
    if not isinstance(entered, Entered):
        raise UnauthenticatedError
    return entered.caller


def _first(headers: Mapping[str, list[Any]], name: str) -> str | None:
    values = headers.get(name)
    if not values:
        return None
    value = values[0].decode("utf-8", "replace") if isinstance(values[0], bytes) else str(values[0])
    if len(value) > _MOST_HEADER:
        raise InputError(f"the header {name} has more than {_MOST_HEADER} characters")
    return value


def _token(header: str | None) -> tuple[str | None, bool]:
    """Return the token of a header, and whether it came as the password of a user."""
    if header is None:
        return None, False
    kind, _, rest = header.partition(" ")
    if kind.lower() == "bearer" and rest.strip():
        return rest.strip(), False
    if kind.lower() == "basic":
        try:
            text = rest.strip().rstrip("=")
            decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()  # Go leaves "=" out
        except (binascii.Error, UnicodeDecodeError):
            raise UnauthenticatedError from None
        return decoded.partition(":")[2], True
    raise UnauthenticatedError


def _cookie(headers: Mapping[str, list[Any]]) -> str | None:
    for part in (_first(headers, "cookie") or "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return None
