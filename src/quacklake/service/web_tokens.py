"""JSON web tokens of an identity provider (OpenID Connect): they say who it is, and the lake what that user may do.

Keys come from the provider's JWKS, at an address or in a file, and may be changed there at any time. Only signatures by
public keys count: a token that names no algorithm, or one with a shared secret, is refused.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import jwt

from quacklake.core.format.access import check_access_name
from quacklake.errors import ConfigError, ConnectorUnavailableError, InvalidNameError, LimitError, UnauthenticatedError
from quacklake.service.settings import is_loopback

__all__ = ["ALGORITHMS", "WebTokens"]

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The algorithms that sign with a private key."""
_MAX_LENGTH = 16_384
_MAX_SEEN = 100_000
_SECONDS = 5.0


class _Keys(Protocol):
    def find(self, token: str) -> jwt.PyJWK: ...


@dataclass
class WebTokens:
    """The rules for tokens of one provider. Safe to share between threads.

    ``keys`` is the address or file of the provider's JWKS. ``claim`` names the user, letter by letter: names of users
    have small letters, so that only those of an ``email`` may be capitals. With ``once``, a token must have
    an id (``jti``) and lets in one request only, in this process.
    """

    issuer: str
    audience: str
    keys: str | Path
    claim: str = "sub"
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    leeway: float = 30.0
    once: bool = False
    _found: _Keys = field(init=False, repr=False)
    _seen: OrderedDict[str, float] = field(init=False, repr=False, default_factory=OrderedDict)
    _lock: threading.Lock = field(init=False, repr=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "claim"):
            if not getattr(self, name):
                raise ConfigError(f"the {name} of web tokens is empty")
        unsafe = [name for name in self.algorithms if name not in ALGORITHMS]
        if unsafe or not self.algorithms:
            raise ConfigError(
                f"web tokens cannot be signed by {', '.join(unsafe) or 'nothing'}",
                hint=f"one of {', '.join(ALGORITHMS)}",
            )
        if not 0 <= self.leeway <= 300:
            raise ConfigError("the leeway of web tokens is at most 300 seconds")
        self._found = _keys(str(self.keys))

    def verify(self, token: str) -> str:
        """Return the name of the user that a token names. Raise ``UnauthenticatedError``, and not why."""
        if len(token) > _MAX_LENGTH or token.count(".") != 2:
            raise UnauthenticatedError
        try:
            key = self._found.find(token)
            claims = jwt.decode(
                token,
                key.key,
                algorithms=self.algorithms,
                audience=self.audience,
                issuer=self.issuer,
                leeway=self.leeway,
                options={"require": ["exp", "iss", "aud", self.claim, *(["jti"] if self.once else [])]},
            )
            if self.claim == "email" and claims.get("email_verified", True) is not True:
                raise UnauthenticatedError  # anybody can give an address that is not verified
            claimed = str(claims[self.claim])
            name = check_access_name(claimed, "user")
            # the provider may have another person whose claim differs in capitals; addresses of mail do not
            if name != claimed and self.claim != "email":
                raise UnauthenticatedError
        except jwt.PyJWKClientConnectionError:
            raise ConnectorUnavailableError("the keys of the identity provider cannot be had") from None
        except (jwt.PyJWTError, InvalidNameError, ValueError, TypeError, KeyError, RecursionError):
            raise UnauthenticatedError from None
        if self.once:
            self._use(str(claims["jti"]), float(claims["exp"]))
        return name

    def _use(self, id_: str, until: float) -> None:
        """Remember a token until it expires. Raise ``UnauthenticatedError`` for one that was used."""
        now = time.time()
        with self._lock:
            if id_ in self._seen:
                raise UnauthenticatedError
            if len(self._seen) >= _MAX_SEEN:
                self._seen = OrderedDict((known, end) for known, end in self._seen.items() if end + self.leeway >= now)
            if len(self._seen) >= _MAX_SEEN:
                raise LimitError("too many web tokens are in use at once", hint="try again later")
            self._seen[id_] = until


def _keys(place: str) -> _Keys:
    address = urlsplit(place)
    if address.scheme in ("http", "https"):
        if address.scheme == "http" and not is_loopback(address.hostname or ""):
            raise ConfigError("the keys of an identity provider come over https")
        return _Fetched(jwt.PyJWKClient(place, timeout=_SECONDS))
    return _Filed(Path(place))


@dataclass(frozen=True)
class _Fetched:
    """Keys at an address. The client keeps them for minutes, and looks again, at most twice a minute, for a new one."""

    client: jwt.PyJWKClient

    def find(self, token: str) -> jwt.PyJWK:
        return self.client.get_signing_key_from_jwt(token)


class _Filed:
    """Keys in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[tuple[int, int], jwt.PyJWKSet] | None = None
        self._read()

    def find(self, token: str) -> jwt.PyJWK:
        wanted = jwt.get_unverified_header(token).get("kid")
        for key in self._read().keys:
            if key.key_id == wanted and key.public_key_use in (None, "sig"):
                return key
        raise jwt.InvalidTokenError("no key of that id")

    def _read(self) -> jwt.PyJWKSet:
        try:
            state = self._path.stat()
            stamp = (state.st_mtime_ns, state.st_size)
            known = self._known
            if known is None or known[0] != stamp:
                content: Any = json.loads(self._path.read_bytes())
                known = self._known = (stamp, jwt.PyJWKSet.from_dict(content))
            return known[1]
        except (OSError, ValueError, TypeError, AttributeError, jwt.PyJWTError) as error:
            raise ConfigError(
                f"cannot read the keys of the identity provider from {self._path}: {type(error).__name__}",
                hint='the file is a JWKS: {"keys": […]}',
            ) from None
