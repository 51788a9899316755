"""A gate for the users of a lake, or of the tenants of a shared lake: tokens, and each user's own view of the lake."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quacklake.access import PrincipalRules
from quacklake.access.tokens import OWN
from quacklake.errors import LimitError, NotFoundError, QuacklakeError, UnauthenticatedError
from quacklake.format.access import Privilege
from quacklake.lake import Lake
from quacklake.service.identity import Identity, Role

if TYPE_CHECKING:
    from quacklake.service.web_tokens import WebTokens

__all__ = ["AccessGate"]

_MOST_PRINCIPALS = 256
_MOST_LAKES = 64
_IDLE_SECONDS = 600.0
_KNOWN_SECONDS = 5.0
"""For how long a catalog may have been renamed or dropped by another process before that is noticed."""


@dataclass
class _Open:
    """An open lake, its principals' views of it, and when it was last entered."""

    lake: Lake
    used: float
    id: int | None = None
    checked: float = 0.0
    """The time at which the catalog of that name was last seen to be this one."""
    principals: OrderedDict[str, Lake] = field(default_factory=OrderedDict)


class AccessGate:
    """Lets the users of a lake in by their tokens, each to what its grants, row filters and masks allow.

    ``AccessGate(lake)`` is for one lake. ``AccessGate.of_tenants(opened)`` is for the catalogs of a shared lake, which
    ``opened`` opens by name: a token is one of a catalog, and says nothing about others. ``web`` also lets users in by
    tokens of an identity provider. Safe to share between threads.
    """

    def __init__(self, lake: Lake, *, name: str = "lake", web: WebTokens | None = None) -> None:
        self._web = web
        self._opened: Callable[[str], Lake] | None = None
        self._name: str | None = name
        self._lakes = {name: _Open(lake, time.monotonic())}
        self._known: Callable[[str], int] | None = None
        self._most, self._idle_seconds = _MOST_LAKES, _IDLE_SECONDS
        self._lock = threading.Lock()

    @classmethod
    def of_tenants(
        cls,
        opened: Callable[[str], Lake],
        *,
        web: WebTokens | None = None,
        known: Callable[[str], int] | None = None,
        most: int = _MOST_LAKES,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> AccessGate:
        """Return a gate for the catalogs of a shared lake: ``lambda name: quacklake.connect(url, catalog=name)``.

        ``known`` returns the id of the catalog that has a name now, so that one which was dropped or renamed is closed.
        At most ``most`` are open. For another one, that which was entered longest ago is closed, if that is at least
        ``idle_seconds`` ago: statements and jobs may still use one that was entered later.
        """
        gate = cls.__new__(cls)
        gate._known, gate._most, gate._idle_seconds = known, most, idle_seconds
        gate._opened, gate._name, gate._lakes, gate._lock = opened, None, {}, threading.Lock()
        gate._web = web
        return gate

    @property
    def serves_tenants(self) -> bool:
        """True for the catalogs of a shared lake, none of which may do anything as the service itself."""
        return self._name is None

    def enter(self, token: str | None, lake: str | None = None) -> Identity:
        """Return the identity of a token; see ``Gate.enter``."""
        if token is None:
            raise UnauthenticatedError
        if self._name is not None:
            found = self._find(self._name)
            principal = self._principal(found.lake, token)
            if lake not in (None, self._name):
                raise NotFoundError("there is no such lake")
        else:
            found = self._find(lake)
            principal = self._principal(found.lake, token)
        rules = found.lake.access.rules(principal)
        # users of two tenants may have one name, and neither must find what the service keeps for the other
        shown = principal if self._name is not None else f"{lake}/{principal}"
        return Identity(shown, _role(rules), self._view(found, rules), str(self._name or lake), rules)

    def _principal(self, lake: Lake, token: str) -> str:
        """Return the user behind a token of the lake's own, or of the identity provider."""
        if self._web is None or token.startswith(OWN):
            return lake.access.tokens.verify(token)
        name = self._web.verify(token)
        if not lake.access.is_enabled(name):
            raise UnauthenticatedError
        return name

    def _find(self, name: str | None) -> _Open:
        """Return an open lake. A catalog that does not exist looks like one that the token is not for."""
        if name is None:
            raise UnauthenticatedError
        with self._lock:
            known = self._same(name)
            if known is None and self._opened is not None:
                self._make_room()
                try:
                    now = time.monotonic()
                    id_ = None if self._known is None else self._known(name)
                    known = self._lakes[name] = _Open(self._opened(name), now, id_, now)
                except QuacklakeError as error:
                    if error.code.startswith(("not_found", "input", "config")):
                        raise UnauthenticatedError from None
                    raise
            if known is None:
                raise UnauthenticatedError
            known.used = time.monotonic()
            return known

    def _same(self, name: str) -> _Open | None:
        """Return an open lake, if its catalog still has the name."""
        known = self._lakes.get(name)
        now = time.monotonic()
        if known is None or self._known is None or now - known.checked < _KNOWN_SECONDS:
            return known
        try:
            same = self._known(name) == known.id
        except NotFoundError:
            same = False
        if same:
            known.checked = now
            return known
        self._lakes.pop(name).lake.close()
        return None

    def forget(self, name: str) -> None:
        """Look again whether a catalog still has its name, when it is entered next."""
        with self._lock:
            if name in self._lakes:
                self._lakes[name].checked = -_KNOWN_SECONDS

    def _make_room(self) -> None:
        if len(self._lakes) < self._most:
            return
        name, oldest = min(self._lakes.items(), key=lambda entry: entry[1].used)
        if time.monotonic() - oldest.used < self._idle_seconds:
            raise LimitError(f"{self._most} lakes are in use", hint="try again later")
        del self._lakes[name]
        oldest.lake.close()

    def _view(self, found: _Open, rules: PrincipalRules) -> Lake:
        if rules.is_admin:
            return found.lake
        with self._lock:
            view = found.principals.get(rules.principal)
            if view is None:
                view = found.principals[rules.principal] = found.lake.as_principal(rules.principal)
                while len(found.principals) > _MOST_PRINCIPALS:
                    found.principals.popitem(last=False)
            found.principals.move_to_end(rules.principal)
            return view

    def probe(self) -> None:
        """Ask the catalogs and stores of the lakes that are open."""
        with self._lock:
            lakes = [found.lake for found in self._lakes.values()]
        for lake in lakes:
            lake.current_snapshot()
            lake.handle.context.store.exists_root()

    def close(self) -> None:
        """Close the lakes."""
        with self._lock:
            for found in self._lakes.values():
                found.lake.close()
            self._lakes.clear()


def _role(rules: PrincipalRules) -> Role:
    if rules.is_admin:
        return Role.ADMIN
    changes = {Privilege.INSERT, Privilege.UPDATE, Privilege.DELETE, Privilege.CREATE}
    writes = any(rules.on_lake(privilege) for privilege in changes)
    return Role.WRITER if writes or any(grant.privilege in changes for grant in rules.grants) else Role.READER
