"""API tokens: made once, kept as hashes, checked with a short memory.

A token is ``qk_<id>_<secret>``. The id finds its row, so that one hash is compared and not all; the secret is never
stored. Argon2 is slow on purpose, so a token that was right stays right for ``token_cache_ms``: a revoked one is
refused at the latest after that time.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quacklake.config import parse_duration
from quacklake.core.catalog import Catalog, Writer, access_tables
from quacklake.core.format.access import ENABLED, Principal, TokenRow, check_access_name
from quacklake.core.operations.context import boundary
from quacklake.errors import InputError, MissingExtraError, NotFoundError, UnauthenticatedError

if TYPE_CHECKING:
    from datetime import timedelta

    from argon2 import PasswordHasher

    from quacklake.core.tenancy.tenancy import Tenancy

OWN = "qk_"
"""The first letters of the tokens of a lake."""
_TOKEN = re.compile(rf"{OWN}([0-9a-f]{{16}})_([A-Za-z0-9_-]{{43}})")
_MAX_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that is not yet in the lake, which gets its hash alone."""

    principal: str
    id: str
    text: str
    hash: str
    seconds: float | None

    @classmethod
    def of(cls, principal: str, expires_in: float | str | timedelta | None = None) -> NewToken:
        """Return a new token of a user. Raise ``InputError``."""
        principal = check_access_name(principal, "user")
        try:
            seconds = None if expires_in is None else parse_duration(expires_in).total_seconds()
        except ValueError as error:
            raise InputError(f"a token cannot expire in {expires_in!r}: {error}") from None
        id_, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        return cls(principal, id_, f"{OWN}{id_}_{secret}", _hasher().hash(secret), seconds)

    def add_to(self, writer: Writer) -> None:
        """Add the token to the lake. Its time begins now, by the clock of the database."""
        created, now = access_tables.now(writer)
        expires = None if self.seconds is None else now + int(self.seconds * 1000)
        access_tables.add(writer, TokenRow(self.id, self.principal, self.hash, expires, created))


@dataclass(frozen=True, slots=True)
class _KnownToken:
    principal: str
    until: float


_MAX_COST = (65_536, 8, 8, 64, 64)
"""The most memory in KiB, passes, threads and bytes of a hash that is looked at."""


def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise MissingExtraError("tokens need argon2", hint="pip install 'quacklake[service]'") from None
    # a secret has 256 random bits, which nobody guesses: the cost only keeps a stolen hash from being of use soon
    return PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


@boundary
class Tokens:
    """The tokens of the users of a lake. Safe to share between threads."""

    def __init__(self, catalog: Catalog, cache_seconds: float = 5.0) -> None:
        self._catalog = catalog
        self._seconds = cache_seconds
        self._known: OrderedDict[str, _KnownToken] = OrderedDict()
        self._lock = threading.Lock()

    def create(self, principal: str, expires_in: float | str | timedelta | None = None) -> str:
        """Return a new token of a user. It is shown this once: the lake keeps a hash of it."""
        token = NewToken.of(principal, expires_in)
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            if not access_tables.entries(writer, Principal, name=token.principal):
                raise NotFoundError(f'there is no user "{token.principal}"')
            token.add_to(writer)
        return token.text

    def list(self, principal: str | None = None) -> list[TokenRow]:
        """Return the tokens, or those of one user, by id: their secrets are not known."""
        name = None if principal is None else check_access_name(principal, "user")
        with self._catalog.read() as reader:
            reader.snapshots.check_there()
            return access_tables.entries(reader, TokenRow, principal=name)

    def revoke(self, token: str) -> None:
        """Revoke a token, given whole or by its id. Other processes may let it in for ``token_cache_ms`` more."""
        whole = _TOKEN.fullmatch(token)
        id_ = whole[1] if whole is not None else token.removeprefix("qk_")
        with self._catalog.commit() as writer:
            writer.snapshots.check_there()
            if not access_tables.entries(writer, TokenRow, token_id=id_):
                raise NotFoundError("there is no such token")
            access_tables.remove(writer, TokenRow, token_id=id_)
        with self._lock:
            self._known.clear()

    def verify(self, token: str) -> str:
        """Return the name of the user that a token belongs to. Raise ``UnauthenticatedError``, and not why."""
        id_, secret = _parts(token)
        known = self.recall(token)
        if known is not None:
            return known
        principal, left = self._check_token(id_, secret)
        self.remember(token, principal, left)
        return principal

    def recall(self, token: str) -> str | None:
        """Return the name of the user of a token that was right a moment ago; None for any other."""
        with self._lock:
            known = self._known.get(_digest(token))
        return known.principal if known is not None and known.until > time.monotonic() else None

    def remember(self, token: str, principal: str, seconds: float) -> None:
        """Remember a token that is right, for ``token_cache_ms`` and no longer than it is good."""
        with self._lock:
            digest = _digest(token)
            self._known[digest] = _KnownToken(principal, time.monotonic() + min(seconds, self._seconds))
            self._known.move_to_end(digest)
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)

    def _check_token(self, id_: str, secret: str) -> tuple[str, float]:
        """Return the user of a token, and for how many seconds it is good."""
        with self._catalog.read() as reader:
            rows = access_tables.entries(reader, TokenRow, token_id=id_)
            if not rows:
                raise UnauthenticatedError
            users = access_tables.entries(reader, Principal, name=rows[0].principal)
            _, now = access_tables.now(reader)
        row = rows[0]
        expired = row.expires_ms is not None and row.expires_ms <= now
        if expired or not users or users[0].state != ENABLED or not _matches(row.hash, secret):
            raise UnauthenticatedError
        return row.principal, _seconds_left(row.expires_ms, now)


@dataclass(frozen=True, slots=True)
class TenantUser:
    """A user of a catalog of a shared lake: the catalog's id and name, and the user's name there."""

    catalog_id: int
    catalog: str
    """The name of the catalog as it is registered."""
    name: str
    seconds: float = float("inf")
    """Seconds for which the token of the user is good."""


class TenantTokens:
    """The tokens and users of all catalogs of a shared lake, checked without opening any."""

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy

    def verify(self, token: str, catalog: str | None = None) -> TenantUser:
        """Return the user of a token, in the catalog of a name or in the first that has it.

        Raise ``UnauthenticatedError``, and not why: an unknown catalog is like one that the token is not for.
        """
        id_, secret = _parts(token)
        for row in self._tenancy.tokens(id_, catalog):
            expired = row.expires_ms is not None and row.expires_ms <= row.now_ms
            if not expired and row.state == ENABLED and _matches(row.hash, secret):
                return TenantUser(row.catalog_id, row.catalog_name, row.user, _seconds_left(row.expires_ms, row.now_ms))
        raise UnauthenticatedError

    def find_user(self, name: str, catalog: str | None = None) -> TenantUser:
        """Return an enabled user, of the catalog of a name or of the first that has it; raise as ``verify`` does."""
        for row in self._tenancy.users(name, catalog):
            if row.state == ENABLED:
                return TenantUser(row.catalog_id, row.catalog_name, row.user)
        raise UnauthenticatedError


def _parts(token: str) -> tuple[str, str]:
    """Return the id and the secret of a token. Raise ``UnauthenticatedError`` for a text that is none."""
    found = _TOKEN.fullmatch(token) if len(token) < 200 else None
    if found is None:
        raise UnauthenticatedError
    return found[1], found[2]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _seconds_left(expires_ms: int | None, now_ms: int) -> float:
    return float("inf") if expires_ms is None else (expires_ms - now_ms) / 1000


def _matches(hashed: str, secret: str) -> bool:
    """Return whether a hash is of a secret; none that costs far more than ours, for whoever writes it says its cost."""
    hasher = _hasher()
    from argon2 import extract_parameters
    from argon2.exceptions import VerificationError

    try:
        cost = extract_parameters(hashed)
        given = (cost.memory_cost, cost.time_cost, cost.parallelism, cost.hash_len, cost.salt_len)
        if any(mine > most for mine, most in zip(given, _MAX_COST, strict=True)):
            return False
        return hasher.verify(hashed, secret)
    except (VerificationError, ValueError):
        return False
