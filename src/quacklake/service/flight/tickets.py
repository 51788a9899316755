"""Sealed texts that clients carry for the server: tickets, prepared statements and transactions.

The server keeps none of them, so that any process with the same secret can answer. A seal is an HMAC over the text; the
text is only read after the seal was found to be right.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quacklake.errors import InputError, NotPermittedError

_MARK = b"ql1"
_SEAL = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Sealer:
    """Seals and opens texts with the secret of the server."""

    secret: bytes = field(repr=False)
    seconds: float
    most_bytes: int
    now: Callable[[], float] = time.time

    def seal(self, kind: str, principal: str, **facts: Any) -> bytes:
        """Return sealed facts of a kind, for one principal, good for the time of the settings."""
        about = {"kind": kind, "for": principal, "until": self.now() + self.seconds}
        text = json.dumps(about | facts, default=_from_bytes, separators=(",", ":")).encode()
        sealed = _MARK + self._seal_of(text) + text
        if len(sealed) > self.most_bytes:
            raise InputError(f"the statement and its parameters have more than {self.most_bytes} bytes")
        return sealed

    def open(self, sealed: bytes, principal: str, *kinds: str) -> dict[str, Any]:
        """Return the facts of a sealed text, of one of some kinds.

        Raise ``InputError`` for a text that this server did not seal, is of another kind or too old, and
        ``NotPermittedError`` for that of another principal.
        """
        text = sealed[len(_MARK) + _SEAL :]
        given = sealed[len(_MARK) : len(_MARK) + _SEAL]
        known = len(sealed) <= self.most_bytes and sealed.startswith(_MARK)
        if not known or not hmac.compare_digest(given, self._seal_of(text)):
            raise InputError("this ticket was not made by this server", hint="call get_flight_info for a new one")
        facts: dict[str, Any] = json.loads(text, object_hook=_to_bytes)
        if not hmac.compare_digest(str(facts["for"]).encode(), principal.encode()):
            raise NotPermittedError("this ticket was made for another principal", hint="call get_flight_info yourself")
        if facts["kind"] not in kinds:
            raise InputError(f"a {facts['kind']} is not expected here")
        if self.now() > facts["until"]:
            raise InputError(f"the {facts['kind']} has expired", hint="call get_flight_info for a new one")
        return facts

    def _seal_of(self, text: bytes) -> bytes:
        return hmac.new(self.secret, _MARK + text, hashlib.sha256).digest()


def _from_bytes(value: object) -> object:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} in a ticket")
    return {"b64": base64.b64encode(value).decode()}


def _to_bytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["b64"]) if value.keys() == {"b64"} else value
