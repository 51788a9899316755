"""A gate for the users of a lake, or of the tenants of a shared lake: tokens, and each user's own view of the lake."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from quacklake.core.access import PrincipalRules, TenantUser
from quacklake.core.access.tokens import OWN
from quacklake.core.format.access import Privilege
from quacklake.core.format.names import may_be_in_name, tenant_key
from quacklake.errors import InternalError, NotFoundError, QuacklakeError, Terminal, UnauthenticatedError
from quacklake.lake import Lake
from quacklake.service.identity import Identity, Role
from quacklake.service.problems import LakesFullError
from quacklake.telemetry import error_facts

if TYPE_CHECKING:
    from quacklake.service.web_tokens import WebTokens

__all__ = ["AccessGate", "TenantLakes"]

_log = logging.getLogger("quacklake.service")
_MAX_PRINCIPALS = 256
_MAX_LAKES = 64
_IDLE_SECONDS = 600.0
_KNOWN_SECONDS = 5.0
"""For how long a catalog may have been renamed or dropped by another process before that is noticed."""
_MAX_RETRY_SECONDS = 30.0


class TenantUsers(Protocol):
    """The users of the catalogs of a shared lake; see ``quacklake.core.access.TenantTokens``."""

    def verify(self, token: str, catalog: str | None = None) -> TenantUser:
        """Return the user of a token, in the catalog of a name or in any."""
        ...

    def find_user(self, name: str, catalog: str | None = None) -> TenantUser:
        """Return an enabled user, of the catalog of a name or of any."""
        ...


class TenantLakes(Protocol):
    """The catalogs of a shared lake, such as ``quacklake.tenants(url)``."""

    @property
    def tokens(self) -> TenantUsers:
        """The users of all catalogs, and their tokens."""
        ...

    def open(self, name: str) -> Lake:
        """Open the catalog of a name."""
        ...


@dataclass
class _Open:
    """An open lake, its principals' views of it, and when it was last entered."""

    lake: Lake
    name: str
    """The name of the lake, as it is registered."""
    catalog_id: int | None = None
    used: float = field(default_factory=time.monotonic)
    checked: float = field(default_factory=time.monotonic)
    """The time at which the catalog was last seen to have this name."""
    principals: OrderedDict[str, Lake] = field(default_factory=OrderedDict)


class AccessGate:
    """Lets the users of a lake in by their tokens, each to what its grants, row filters and masks allow.

    ``AccessGate(lake)`` is for one lake. ``AccessGate.of_tenants(tenants)`` is for the catalogs of a shared lake: a
    token is one of a catalog, and says nothing about others. A catalog is opened for a right token only. ``web`` also
    lets users in by tokens of an identity provider. Safe to share between threads.
    """

    def __init__(self, lake: Lake, *, name: str = "lake", web: WebTokens | None = None) -> None:
        self._doors: _OneLake | _Catalogs = _OneLake(_Open(lake, name), web)
        self._lock = threading.Lock()

    @classmethod
    def of_tenants(
        cls,
        tenants: TenantLakes,
        *,
        web: WebTokens | None = None,
        most: int = _MAX_LAKES,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> AccessGate:
        """Return a gate for the catalogs of a shared lake: ``quacklake.tenants(url)``, which stays open.

        At most ``most`` are open. For another one, that which was entered longest ago is closed, if that is at least
        ``idle_seconds`` ago: statements and jobs may still use one that was entered later. Without such a one, its
        users get ``LakesFullError``.
        """
        gate = cls.__new__(cls)
        gate._doors, gate._lock = _Catalogs(tenants, web, most, idle_seconds), threading.Lock()
        return gate

    @property
    def serves_tenants(self) -> bool:
        """True for the catalogs of a shared lake, none of which may do anything as the service itself."""
        return isinstance(self._doors, _Catalogs)

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        """Return the identity of a token; see ``Gate.enter``."""
        if token is None:
            raise UnauthenticatedError
        found, user = self._doors.admit(token, lake)
        rules = found.lake.access.rules(user)
        # users of two tenants may have one name, and neither must find what the service keeps for the other
        shown = user if found.catalog_id is None else f"{found.name}/{user}"
        return Identity(shown, _role(rules), self._view(found, rules), found.name, rules, found.catalog_id)

    def check(self, token: str) -> None:
        """Raise ``UnauthenticatedError`` for a token that is right for no lake."""
        self._doors.check(token)

    def forget(self, name: str) -> None:
        """Look again whether a catalog still has its name, when it is entered next."""
        self._doors.forget(name)

    def _view(self, found: _Open, rules: PrincipalRules) -> Lake:
        if rules.is_admin:
            return found.lake
        with self._lock:
            view = found.principals.get(rules.principal)
            if view is None:
                view = found.principals[rules.principal] = found.lake.as_principal(rules.principal)
                while len(found.principals) > _MAX_PRINCIPALS:
                    found.principals.popitem(last=False)
            found.principals.move_to_end(rules.principal)
            return view

    def probe(self) -> None:
        """Ask the catalogs and stores of the lakes that are open."""
        for lake in self._doors.lakes():
            lake.current_snapshot()
            lake.handle.context.store.exists_root()

    def close(self) -> None:
        """Close the lakes."""
        self._doors.close()


class _OneLake:
    """The only lake of a gate."""

    def __init__(self, only: _Open, web: WebTokens | None) -> None:
        self._only = only
        self._web = web

    def admit(self, token: str, name: str | None) -> tuple[_Open, str]:
        """Return the lake and the user of a token: first the token, then the name."""
        user = self._verify(token)
        if name not in (None, self._only.name):
            raise NotFoundError("there is no such lake")
        return self._only, user

    def _verify(self, token: str) -> str:
        access = self._only.lake.access
        if self._web is None or token.startswith(OWN):
            return access.tokens.verify(token)
        name = self._web.verify(token)
        if not access.is_enabled(name):
            raise UnauthenticatedError
        return name

    def check(self, token: str) -> None:
        self._verify(token)

    def forget(self, name: str) -> None: ...

    def lakes(self) -> list[Lake]:
        return [self._only.lake]

    def close(self) -> None:
        self._only.lake.close()


class _Catalogs:
    """The open catalogs of a shared lake, by their ids.

    Whoever has no right token leaves nothing behind here, and gets the same answer after the same question to the
    database for every name: whether a catalog exists, is open, or finds no room.
    """

    def __init__(self, tenants: TenantLakes, web: WebTokens | None, most: int, idle_seconds: float) -> None:
        self._tenants = tenants
        self._web = web
        self._most = most
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._lakes: dict[int, _Open] = {}
        self._ids: dict[str, int] = {}
        """The ids of the open catalogs by their names, in the form under which names are compared."""

    def admit(self, token: str, name: str | None) -> tuple[_Open, str]:
        """Return the lake and the user of a token: first the token, then the catalog is opened."""
        own = self._web is None or token.startswith(OWN)
        if own and name is not None:
            known = self._recall(token, name)
            if known is not None:
                return known
        user = self._user(token, name or "")
        if name is None:
            raise UnauthenticatedError
        found = self._enter(user)
        if own:
            found.lake.access.tokens.remember(token, user.name, user.seconds)
        return found, user.name

    def check(self, token: str) -> None:
        self._user(token, None)

    def _user(self, token: str, name: str | None) -> TenantUser:
        """Return the user of a token, in the catalog of a name or in any."""
        if self._web is None or token.startswith(OWN):
            return self._tenants.tokens.verify(token, name)
        return self._tenants.tokens.find_user(self._web.verify(token), name)

    def _recall(self, token: str, name: str) -> tuple[_Open, str] | None:
        """Return the lake and the user of a token that was right for this lake a moment ago."""
        if not may_be_in_name(name):
            return None
        with self._lock:
            found = self._lakes.get(self._ids.get(tenant_key(name), -1))
        now = time.monotonic()
        if found is None or now - found.checked >= _KNOWN_SECONDS:
            return None
        user = found.lake.access.tokens.recall(token)
        if user is None:
            return None
        found.used = now
        return found, user

    def _enter(self, user: TenantUser) -> _Open:
        """Return the open lake of a user, who has shown a right token."""
        known = self._find_open(user)
        if known is not None:
            return known
        with self._opening:  # one after the other, while those who enter open ones go on
            known = self._find_open(user)
            if known is not None:
                return known
            self._make_room()
            lake = self._open(user)
            found = _Open(lake, user.catalog, user.catalog_id)
            with self._lock:
                self._lakes[user.catalog_id] = found
                self._ids[tenant_key(user.catalog)] = user.catalog_id
            return found

    def _find_open(self, user: TenantUser) -> _Open | None:
        """Return the lake of a user if it is open under its name; close one that has got another name since."""
        key, gone = tenant_key(user.catalog), []
        with self._lock:
            found = self._lakes.get(user.catalog_id)
            if found is not None and found.name != user.catalog:
                gone.append(self._remove(user.catalog_id))
                found = None
            other = self._ids.get(key)
            if other is not None and other != user.catalog_id:  # it was dropped or renamed, and left its name
                gone.append(self._remove(other))
            if found is not None:
                found.used = found.checked = time.monotonic()
        for each in gone:
            each.lake.close()
        return found

    def _open(self, user: TenantUser) -> Lake:
        """Open the catalog of a user. Raise ``UnauthenticatedError`` when another has got its name meanwhile."""
        try:
            lake = self._tenants.open(user.catalog)
        except NotFoundError:
            raise UnauthenticatedError from None
        except QuacklakeError as error:
            if not isinstance(error, Terminal):
                raise
            # it may tell of places, and is nothing that a user could mend
            _log.error(
                "the catalog %s cannot be opened: %s",
                user.catalog,
                error,
                extra=error_facts(error, catalog=user.catalog),
            )
            raise InternalError("the lake cannot be opened") from None
        row = lake.handle.context.catalog.tenant_row
        if row is not None and row.id != user.catalog_id:
            lake.close()
            raise UnauthenticatedError
        return lake

    def _make_room(self) -> None:
        with self._lock:
            if len(self._lakes) < self._most:
                return
            id_, oldest = min(self._lakes.items(), key=lambda entry: entry[1].used)
            left = self._idle_seconds - (time.monotonic() - oldest.used)
            if left > 0:
                raise LakesFullError(self._most, after=min(left, _MAX_RETRY_SECONDS))
            self._remove(id_)
        oldest.lake.close()

    def _remove(self, id_: int) -> _Open:
        found = self._lakes.pop(id_)
        key = tenant_key(found.name)
        if self._ids.get(key) == id_:
            del self._ids[key]
        return found

    def forget(self, name: str) -> None:
        """Look again whether a catalog still has its name, when it is entered next."""
        with self._lock:
            found = self._lakes.get(self._ids.get(tenant_key(name), -1))
            if found is not None:
                found.checked = float("-inf")

    def lakes(self) -> list[Lake]:
        with self._lock:
            return [found.lake for found in self._lakes.values()]

    def close(self) -> None:
        with self._lock:
            opened = list(self._lakes.values())
            self._lakes.clear()
            self._ids.clear()
        for each in opened:
            each.lake.close()


def _role(rules: PrincipalRules) -> Role:
    if rules.is_admin:
        return Role.ADMIN
    changes = {Privilege.INSERT, Privilege.UPDATE, Privilege.DELETE, Privilege.CREATE}
    writes = any(rules.on_lake(privilege) for privilege in changes)
    return Role.WRITER if writes or any(grant.privilege in changes for grant in rules.grants) else Role.READER
