"""The lakes of the conformance tests, and how long the tests may take."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from _pytest.mark.structures import ParameterSet
from hypothesis import HealthCheck, Phase

import quacklake
import quacklake.errors

from .clients import LONG, LakeSite

__all__ = ["HISTORIES", "LONG", "MakeSite", "kinds", "make_site", "sites", "verify_site"]

SERVERS = ("postgres", "mysql")
#: Histories take seconds each: a failing one is told as it is, for making it small would outlast every timeout.
HISTORIES: dict[str, Any] = {
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

MakeSite = Callable[..., LakeSite]


def kinds(*names: str) -> list[ParameterSet]:
    """Kinds of catalogs as parameters, with the mark of the server they need."""
    return [pytest.param(name, marks=[getattr(pytest.mark, name)] if name in SERVERS else []) for name in names]


#: Warnings about what is only left over: after expiry, and of columns that their own transaction dropped again.
LEFTOVERS = frozenset({"V028", "V045", "V075"})
_SAMPLE = 3


def _is_checked(nodeid: str) -> bool:
    """Return whether the lakes of a test are verified when it ends: all of them when there is time, else a sample."""
    return LONG or zlib.crc32(nodeid.encode()) % _SAMPLE == 0


def verify_site(site: LakeSite) -> None:
    """Assert that a lake is whole, no matter what clients did to it."""
    site.close()
    try:
        lake = quacklake.connect(site.url, create=False, duckdb_threads=1, foreign_paths=[str(site.folder.parent)])
    except quacklake.errors.NotFoundError:
        return  # the test never made it
    with lake:
        wrong = [found for found in lake.verify().findings if found.code not in LEFTOVERS]
    assert not wrong, wrong


@pytest.fixture
def make_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeSite]:
    """Makes the place of a lake: ``make_site(kind, inlining=10)``. Closed when the test ends."""
    yield from sites(request, tmp_path)


def sites(request: pytest.FixtureRequest, parent: Path) -> Iterator[MakeSite]:
    """The one maker of lakes below a folder; they are closed when it is asked for more."""
    made: list[LakeSite] = []
    servers: dict[str, Any] = {}

    def make(kind: str, inlining: int = 10, *, encrypted: bool = False) -> LakeSite:
        url = None
        if kind in SERVERS:
            servers[kind] = request.getfixturevalue(f"{kind}_server")
            url = servers[kind].create_database(f"t_{uuid.uuid4().hex}")
        folder = parent / f"lake{len(made)}"
        folder.mkdir()
        site = LakeSite(kind, folder, inlining, url, encrypted)
        made.append(site)
        return site

    yield make
    for site in made:
        if _is_checked(request.node.nodeid):
            verify_site(site)
        site.close()
        if site.kind in SERVERS:
            servers[site.kind].drop_database(str(sa.make_url(site.url).database))
