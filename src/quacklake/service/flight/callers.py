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

_MAX_HEADER = 4_096


@dataclass(frozen=True)
class Caller:
    """The principal behind a call and what its headers say."""

    identity: Identity
    schema: str | None
    key: str | None
    cookie: str | None

    @property
    def principal(self) -> str:
        """The name of the principal, for people."""
        return self.identity.principal

    @property
    def owner(self) -> str:
        """The principal among those of all lakes: under this the server keeps what is the principal's."""
        return self.identity.key

    @property
    def lake(self) -> str:
        """The lake among all lakes, however its name was written."""
        return self.identity.lake_key


class SessionOptions:
    """The options that clients have set for their sessions, by principal and cookie.

    The oldest make room: those of the principal that has the most, so that no principal takes them from others.
    """

    NAMES = ("catalog", "schema")

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[str, OrderedDict[str, dict[str, str]]] = {}
        self._count = 0

    def get(self, principal: str, cookie: str | None) -> dict[str, str]:
        """Return the options of a session of a principal; none if it is not known."""
        with self._lock:
            mine = self._kept.get(principal)
            return dict(mine.get(cookie or "", {})) if mine is not None else {}

    def put(self, principal: str, cookie: str | None, options: Mapping[str, str]) -> str:
        """Keep the options of a session; return its cookie, a new one where there is none."""
        with self._lock:
            mine = self._kept.setdefault(principal, OrderedDict())
            if cookie is None or cookie not in mine:
                cookie = secrets.token_urlsafe(24)
                self._count += 1
            mine[cookie] = dict(options)
            mine.move_to_end(cookie)
            while self._count > self._most:
                self._forget_oldest()
        return cookie

    def _forget_oldest(self) -> None:
        most = max(self._kept, key=lambda principal: len(self._kept[principal]))
        self._kept[most].popitem(last=False)
        self._count -= 1
        if not self._kept[most]:
            del self._kept[most]

    def close(self, principal: str, cookie: str | None) -> bool:
        """Forget the options of a session; return False if it is not known."""
        with self._lock:
            mine = self._kept.get(principal, OrderedDict())
            is_known = mine.pop(cookie or "", None) is not None
            self._count -= is_known
            if not mine:
                self._kept.pop(principal, None)
            return is_known


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
        """Return the caller of a call. Raise the status of ``Gate.enter``."""
        with answering():
            given = {name.lower(): values for name, values in headers.items()}
            token, is_basic = _token(_first(given, "authorization"))
            cookie = _cookie(given)
            lake = next((found for name in LAKE_HEADERS if (found := _first(given, name))), None)
            identity = self._gate.enter(token, lake)
            schema = next((found for name in SCHEMA_HEADERS if (found := _first(given, name))), None)
            schema = schema or self._options.get(identity.key, cookie).get("schema")
            caller = Caller(identity, schema, _first(given, KEY_HEADER), cookie)
            return Entered(caller, token if is_basic else None)


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets the handshake of older clients pass: the entrance has checked their Basic header."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None: ...

    def is_valid(self, token: bytes) -> bytes:
        return b""


def caller_of(context: Any) -> Caller:
    """Return the caller of a call. Raise ``UnauthenticatedError`` for one that did not come through the entrance."""
    entered = context.get_middleware(MIDDLEWARE)
    if not isinstance(entered, Entered):
        raise UnauthenticatedError
    return entered.caller


def _first(headers: Mapping[str, list[Any]], name: str) -> str | None:
    values = headers.get(name)
    if not values:
        return None
    value = values[0].decode("utf-8", "replace") if isinstance(values[0], bytes) else str(values[0])
    if len(value) > _MAX_HEADER:
        raise InputError(f"the header {name} has more than {_MAX_HEADER} characters")
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
