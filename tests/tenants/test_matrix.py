"""No operation on one catalog of a shared lake shows or changes anything of another, with any arguments."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quacklake
from quacklake.core.catalog import parse_url
from quacklake.errors import QuacklakeError
from services import PostgresServer
from tests.seeds import LONG
from tests.tenants import matrix
from tests.tenants.matrix import CASES, Case, Theirs


@dataclass(frozen=True)
class Pair:
    """A catalog that looks, and one that must not be seen. The name of one begins with that of the other."""

    mine: quacklake.Lake
    theirs: Theirs
    engine: sa.Engine
    ids: tuple[int, int]
    before: dict[str, Any] = field(default_factory=dict)
    """The last known state of both catalogs."""

    def state(self, catalog: int, folder: Path) -> dict[str, Any]:
        """Every row of a catalog, and every file."""
        found: dict[str, Any] = {}
        with self.engine.connect() as connection:
            for table in sa.inspect(connection).get_table_names():
                if table != "quacklake_shared":
                    key = "owner_id" if table == "quacklake_shares" else "catalog_id"
                    rows = connection.exec_driver_sql(f"SELECT * FROM {table} WHERE {key} = {catalog}").all()
                    found[table] = sorted(map(repr, rows))
        for path in folder.rglob("*"):
            if path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def of_theirs(self) -> dict[str, Any]:
        """Return the state of the other catalog."""
        return self.state(self.ids[1], self.theirs.folder)

    def of_mine(self) -> dict[str, Any]:
        """Return the state of the catalog that looks."""
        return self.state(self.ids[0], Path(self.mine.data_path))


@contextmanager
def _pair(url: str, home: Path) -> Iterator[Pair]:
    with quacklake.tenants(url, home / "data") as tenants:
        mine, theirs = tenants.create_many(["acme", "acme2"])
        with tenants.open("acme2") as lake:
            matrix.fill(lake)
            file = next((home / "data/acme2").rglob("*.parquet"))
            ids = lake.access.grants()[0].grant_id, lake.access.policies()[0].policy_id
            found = Theirs("acme2", theirs.uuid, home / "data/acme2", file, lake.current_snapshot(), *ids)
        # the folder of all lakes is one from which files may come, but those of other catalogs are theirs
        with tenants.open("acme", foreign_paths=str(home)) as lake:
            lake.create_table("mine", matrix.ROWS)
            lake.table("mine").append(matrix.ROWS)
            engine = sa.create_engine(parse_url(url).url)
            made = Pair(lake, found, engine, (mine.id, theirs.id))
            made.before.update(mine=made.of_mine(), theirs=made.of_theirs())
            yield made
            engine.dispose()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("matrix")
    with _pair(f"sqlite:///{home}/l.db", home) as made:
        yield made


@pytest.fixture(scope="module")
def postgres_pair(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with postgres_server.new_database() as url, _pair(url, tmp_path_factory.mktemp("matrix")) as made:
        yield made


def test_the_matrix_has_every_public_operation() -> None:
    assert {case.method for case in CASES} == matrix.PUBLIC


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_nothing_of_another_catalog_is_shown_or_changed(pair: Pair, case: Case) -> None:
    _check(pair, case)


@pytest.mark.daily(0.05)
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_nothing_of_another_catalog_is_shown_or_changed_on_a_server(postgres_pair: Pair, case: Case) -> None:
    _check(postgres_pair, case)


def _outcome(call: Callable[[], Any]) -> tuple[bool, str]:
    """Return whether a call was refused, and everything that it shows."""
    try:
        return False, repr(call())
    except QuacklakeError as error:
        return True, f"{error!r} {error} {error.hint}"


def _tails(text: str) -> list[str]:
    """A text, and a path without its first folders: those that are one's own are not shown."""
    parts = text.split("/")
    return ["/".join(parts[at:]) for at in range(len(parts) - 1)] or [text]


def _check(pair: Pair, case: Case) -> None:
    refused, shown = _outcome(lambda: case.call(pair.mine, pair.theirs))
    assert refused == case.refused, shown
    mine = pair.of_mine()
    assert not refused or mine == pair.before["mine"]
    pair.before["mine"] = mine
    for text in itertools.chain.from_iterable(map(_tails, case.given(pair.theirs))):
        shown = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "", shown)
    assert not [mark for mark in pair.theirs.marks if mark in shown], shown
    assert pair.of_theirs() == pair.before["theirs"]


# -- names -------------------------------------------------------------------------------------------------------------

_PIECES = ("acme2", "acme", "umbral", "hidden", "umbral_tag", "umbral_stream", "main", "mine")
_GLUE = (".", "/", "../", "'", '"', "; ", "~1", "%", "_", "\0", " ", "\\", "--", "\u200b", "*", "lake")
_names = st.lists(st.sampled_from(_PIECES + _GLUE) | st.text(max_size=3), min_size=1, max_size=5).map("".join)


@settings(
    max_examples=400 if LONG else 10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(name=_names)
def test_no_name_whatever_leads_to_another_catalog(pair: Pair, name: str) -> None:
    lake = pair.mine
    for call in (
        lambda: lake.table(name).to_pylist(),
        lambda: lake.drop_table(name),
        lambda: lake.at(tag=name),
        lambda: lake.history.untag(name),
        lambda: lake.view(name).to_arrow(),
        lambda: lake.undrop(name),
        lambda: lake.streams.forget(name),
        lambda: lake.table("mine").add_files(f"{pair.theirs.folder.parent}/{name}"),
        lambda: lake.sql('SELECT * FROM "' + name.replace('"', '""') + '"').fetchall(),
    ):
        if name.strip('"') in ("mine", "main.mine"):
            continue  # one's own
        shown = _outcome(call)[1]
        assert matrix.SECRET not in shown
        assert pair.theirs.uuid not in shown
    assert pair.of_theirs() == pair.before["theirs"]


@settings(max_examples=300 if LONG else 15, deadline=None)
@given(name=_names)
def test_a_name_opens_the_catalog_of_that_name_and_no_other(pair: Pair, name: str) -> None:
    def opened() -> str:
        with quacklake.connect(pair.mine.url, catalog=name, create=False) as lake:
            return lake.data_path.rstrip("/").rpartition("/")[2]

    refused, shown = _outcome(opened)
    if refused:
        assert name.casefold() not in ("acme", "acme2")
        assert pair.theirs.uuid not in shown
    else:
        assert shown == repr(name.casefold())
