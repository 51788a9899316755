"""The principals behind requests. HTTP, Flight and the Iceberg catalog all enter through a ``Gate``."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from quacklake.errors import NotFoundError, NotPermittedError, UnauthenticatedError

if TYPE_CHECKING:
    from quacklake.lake import Lake

__all__ = ["Gate", "Identity", "Role", "TokenGate"]


class Role(IntEnum):
    """The most that a principal may do; grants on single tables narrow it."""

    READER = 1
    WRITER = 2
    ADMIN = 3


@dataclass(frozen=True)
class Identity:
    """A principal, and the lake as this principal may use it: every read through it obeys filters and masks."""

    principal: str
    """The name of the principal for people: in logs, answers and commits."""
    role: Role
    lake: Lake
    name: str = "lake"
    """The name of the lake, as it is registered: a request may spell it in another way."""
    rights: object = None
    """The rules of the principal on entering, to be compared: another value where they have changed."""
    catalog_id: int | None = None
    """The id of the lake among the catalogs of a shared one, which keeps it under any name."""

    @property
    def user(self) -> str:
        """The name of the principal in its lake, for what the lake keeps."""
        return self.principal if self.catalog_id is None else self.principal.partition("/")[2]

    @property
    def key(self) -> str:
        """The principal among those of all lakes, for what the service keeps; a name may pass to another lake."""
        return self.principal if self.catalog_id is None else f"{self.catalog_id}/{self.user}"

    @property
    def lake_key(self) -> str:
        """The lake among all lakes, for what the service keeps."""
        return self.name if self.catalog_id is None else str(self.catalog_id)

    def require(self, role: Role) -> None:
        """Raise ``NotPermittedError`` if the principal's role is below ``role``."""
        if self.role < role:
            raise NotPermittedError(
                f"this needs the role {role.name.lower()}", hint="ask an administrator for a token with that role"
            )


class Gate(Protocol):
    """Let requests in."""

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        """Return the identity behind a bearer token, on the lake of that name or on the principal's only one.

        Raise ``UnauthenticatedError``, also for a lake that the principal may not know of if it has no token at all;
        ``NotFoundError`` for a lake that does not exist or is hidden from the principal: the two look alike.
        """
        ...

    def probe(self) -> None:
        """Ask the catalogs and the stores whether they answer. Raise the error of the first that does not."""
        ...

    def close(self) -> None:
        """Close the lakes that were opened for requests."""
        ...


class TokenGate:
    """One lake, and the tokens that were given when the service started. Tokens are kept as hashes only."""

    def __init__(
        self, lake: Lake, tokens: Mapping[str, Role], *, name: str = "lake", anonymous: Role | None = None
    ) -> None:
        self._lake = lake
        self._name = name
        self._roles = {hashed(token): role for token, role in tokens.items()}
        self._anonymous = anonymous

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        """Return the identity of a token; see ``Gate.enter``."""
        principal, role = self._principal(token)
        if lake not in (None, self._name):
            raise NotFoundError("there is no such lake")
        return Identity(principal, role, self._lake, self._name)

    def _principal(self, token: str | None) -> tuple[str, Role]:
        if token is None:
            if self._anonymous is None:
                raise UnauthenticatedError
            return "anonymous", self._anonymous
        digest = hashed(token)
        for known, role in self._roles.items():
            if hmac.compare_digest(known, digest):
                return f"token-{known[:8]}", role
        raise UnauthenticatedError

    def probe(self) -> None:
        """Ask the catalog and the store."""
        self._lake.current_snapshot()
        self._lake.handle.context.store.exists_root()

    def close(self) -> None:
        """Close the lake."""
        self._lake.close()


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
